"""Traces of Philly's own log, cluster_job_log: a list of jobs in JSON, each with its attempts and their GPUs.

A job counts as long as its attempts ran together, with the GPUs of the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import DEFAULT_QUEUE, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.parts import get_list, get_objects
from vgpud.simulate.trace import LeftOut, Row, Trace, TraceError, TraceJob, divide_among_nodes, order_jobs

KEYS = frozenset({"jobid", "submitted_time", "attempts"})


def is_log(data: object) -> bool:
    return isinstance(data, list) and bool(data) and isinstance(data[0], dict) and data[0].keys() >= KEYS


def read(path: Path, data: Sequence[Any], sort: bool) -> Trace:
    """Raises TraceError that names the job."""
    left_out, jobs, uids = Counter[LeftOut](), [], dict[str, int]()
    for number, item in enumerate(data, 1):
        where = f"{path}: job {number}"
        if not isinstance(item, dict) or not item.keys() >= KEYS:
            raise TraceError(f"{where}: no jobid, submitted_time or attempts, which jobs of Philly's log have")
        job = _job(where, item, uids.setdefault(str(item.get("user")), len(uids) + 1))
        if isinstance(job, LeftOut):
            left_out[job] += 1
        else:
            jobs.append(job)
    return Trace(order_jobs(jobs, sort), left_out)


def _job(where: str, item: Mapping[str, Any], uid: int) -> TraceJob | LeftOut:
    attempts = [each for each in get_objects(item, "attempts") if each.get("start_time")]
    if not attempts:
        return LeftOut.NEVER_RAN
    if not all(each.get("end_time") for each in attempts):
        return LeftOut.WITHOUT_END
    rows = [Row(where, {key: str(each[key]) for key in ("start_time", "end_time")}) for each in attempts]
    duration_ns = sum(row.date_ns("end_time") - row.date_ns("start_time") for row in rows)
    if duration_ns <= 0:
        return LeftOut.NEVER_RAN
    parts = [len(get_list(part, "gpus")) for part in get_objects(attempts[-1], "detail")]
    nodes = [count for count in parts if count]
    if not nodes:
        return LeftOut.WITHOUT_GPUS
    gpus, equal = sum(nodes), len(set(nodes)) == 1
    milli, members, one_per_node = (
        divide_among_nodes(gpus * MILLI_PER_DEVICE, len(nodes)) if equal else (MILLI_PER_DEVICE, gpus, False)
    )
    spec = JobSpec(
        Ask(Spec(milli)),
        members,
        one_per_node=one_per_node,
        name=str(item["jobid"]),
        queue=str(item.get("vc") or DEFAULT_QUEUE),
        uid=uid,
        duration_ns=duration_ns,
    )
    submitted_ns = Row(where, {"submitted_time": str(item["submitted_time"])}).date_ns("submitted_time")
    jct_ns = max(rows[-1].date_ns("end_time") - submitted_ns, duration_ns)
    return TraceJob(submitted_ns, duration_ns, spec, where, jct_ns=jct_ns)
