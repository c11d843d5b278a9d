"""Changes of a job that waits or runs: the requested fields as the core's specification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vgpud.api.job_messages import check_session, classify_spec, submission_from, terminal_from
from vgpud.api.rpc import refuse
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Job, JobSpec
from vgpud.core.model import Reason
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: fields of SliceSpec that change a job's size
_SIZES = ("gpus_milli", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes")
#: paths of the mask -> fields of the core's JobSpec
_FIELDS = {
    "priority": "priority",
    "time_limit": "time_limit_ns",
    "begin_time": "begin_ns",
    "queue": "queue",
    "members": "members",
}
_ASK = {"cpu_milli": "cpu_milli", "ram_bytes": "ram_bytes"}
PATHS = (*_FIELDS, *_ASK, *(f"slice.{name}" for name in _SIZES))


def paths_of(request: pb.UpdateJobRequest) -> tuple[str, ...]:
    """The fields that change. Raises RefusedError."""
    paths = tuple(dict.fromkeys(request.update_mask.paths))
    if not paths:
        raise refuse(Reason.INVALID, f"nothing to change: name fields of {', '.join(PATHS)}", "update_mask")
    for path in paths:
        if path not in PATHS:
            text = f"{path[:60]!r} of a job cannot be changed: these can, {', '.join(PATHS)}"
            raise refuse(Reason.INVALID, text, "update_mask")
    return paths


def changed_spec(job: Job, request: pb.UpdateJobRequest, queue: str, *, colocates: bool) -> JobSpec:
    """The job's specification with these changes. `queue`: the one that it will be in. Raises RefusedError."""
    launch = job.spec.run
    assert isinstance(launch, Launch)
    paths = paths_of(request)
    given = pb.SubmitJobRequest(spec=request.spec)
    for name in ("array_indices", "array_limit"):
        given.spec.ClearField(name)
    if not given.spec.HasField("slice") or not given.spec.slice.gpus_milli:
        given.spec.slice.gpus_milli = job.spec.ask.spec.gpus_milli
    wanted = submission_from(given, launch, queue).spec  # checks each field by itself
    changes: dict[str, Any] = {_FIELDS[path]: getattr(wanted, _FIELDS[path]) for path in paths if path in _FIELDS}
    ask = replace(job.spec.ask, **{_ASK[path]: getattr(wanted.ask, _ASK[path]) for path in paths if path in _ASK})
    sizes = [path.partition(".")[2] for path in paths if path.startswith("slice.")]
    spec = replace(ask.spec, **{name: getattr(wanted.ask.spec, name) for name in sizes})
    made = replace(job.spec, ask=replace(ask, spec=spec), **changes)
    kept = pb.JobSpec(terminal=launch.terminal, session=launch.session, members=made.members)
    terminal_from(kept)
    check_session(kept)
    return (
        made
        if set(paths) <= {"priority", "time_limit", "begin_time"}
        else classify_spec(made, launch, colocates=colocates)
    )
