"""Traces of what `kubectl get pods -o json` prints: a pod is a job on one node, its GPUs are its limits.

It has them from the time when its node accepted it. A pod that still runs counts as long as it had run at the last
moment that the file knows of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.parts import get_object, get_objects
from vgpud.simulate.trace import GPUS_MAX, LeftOut, Row, Trace, TraceError, TraceJob, order_jobs

COMMAND = "kubectl get pods -A -o json > pods.json"
#: a tenth of a GPU, of this project's device plugin
TENTH = "vgpu.dev/tenth"
#: what a list of pods calls itself
LISTS = ("List", "PodList")
_GPU = re.compile(r"[\w.-]+/gpu")


def is_list(data: object) -> bool:
    return isinstance(data, dict) and data.get("kind") in LISTS and isinstance(data.get("items"), list)


def read(path: Path, data: Mapping[str, Any]) -> Trace:
    """Raises TraceError that names the pod."""
    pods = [_Pod(path, number, item) for number, item in enumerate(data["items"], 1)]
    last_ns = max((pod.last_ns() for pod in pods), default=0)
    namespaces: dict[str, int] = {}
    left_out, jobs = Counter[LeftOut](), []
    for pod in pods:
        job = pod.job(last_ns, namespaces.setdefault(pod.namespace, len(namespaces) + 1))
        if isinstance(job, LeftOut):
            left_out[job] += 1
        else:
            jobs.append(job)
    return Trace(order_jobs(jobs, sort=True), left_out)


class _Pod:
    def __init__(self, path: Path, number: int, item: Any) -> None:
        """`number`: in the list, from 1 on."""
        where = f"{path}: pod {number}"
        if not isinstance(item, dict) or item.get("kind", "Pod") != "Pod":
            raise TraceError(f"{where} is no pod: write the file with `{COMMAND}`")
        metadata, self._spec, status = (get_object(item, key) for key in ("metadata", "spec", "status"))
        self.namespace = str(metadata.get("namespace") or "default")
        self._name = f"{self.namespace}/{metadata.get('name')}"
        self._has_ended = status.get("phase") in ("Succeeded", "Failed")
        states = [get_object(each, "state") for each in get_objects(status, "containerStatuses")]
        ends = [str(get_object(state, "terminated").get("finishedAt") or "") for state in states]
        times = {
            "metadata.creationTimestamp": str(metadata.get("creationTimestamp") or ""),
            "status.startTime": str(status.get("startTime") or ""),
            "finishedAt": max(ends) if ends and all(ends) else "",
        }
        self._row = Row(f"{where} ({self._name})", times)

    def last_ns(self) -> int:
        """The last moment that it knows of."""
        return max((self._row.date_ns(name) for name in self._row.values if self._row.text(name)), default=0)

    def job(self, last_ns: int, uid: int) -> TraceJob | LeftOut:
        """`last_ns`: when a pod that runs is looked at."""
        milli = self._milli()
        if not milli:
            return LeftOut.WITHOUT_GPUS
        submitted_ns = self._row.date_ns("metadata.creationTimestamp")
        if not self._row.text("status.startTime"):
            return LeftOut.NEVER_RAN
        if self._has_ended and not self._row.text("finishedAt"):
            return LeftOut.WITHOUT_END
        end_ns = self._row.date_ns("finishedAt") if self._row.text("finishedAt") else last_ns
        duration_ns = end_ns - self._row.date_ns("status.startTime")
        if duration_ns <= 0:
            return LeftOut.NEVER_RAN
        spec = JobSpec(Ask(Spec(milli)), name=self._name, queue=self.namespace, uid=uid, duration_ns=duration_ns)
        jct_ns = max(end_ns - submitted_ns, duration_ns)
        return TraceJob(submitted_ns, duration_ns, spec, self._row.where, jct_ns=jct_ns)

    def _milli(self) -> int:
        """Its containers run together, those that initialise it one after the other before."""
        together = sum(map(self._limit_milli, get_objects(self._spec, "containers")))
        return max([together, *map(self._limit_milli, get_objects(self._spec, "initContainers"))])

    def _limit_milli(self, container: Mapping[str, Any]) -> int:
        total = 0
        for name, amount in get_object(get_object(container, "resources"), "limits").items():
            unit_milli = MILLI_PER_DEVICE if _GPU.fullmatch(name) else MILLI_PER_DEVICE // 10 if name == TENTH else 0
            if unit_milli:
                total += unit_milli * Row(self._row.where, {name: str(amount)}).whole_number(name, GPUS_MAX)
        return total
