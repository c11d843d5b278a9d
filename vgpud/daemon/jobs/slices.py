"""The slices of jobs: created, resized, suspended and removed as the queue decides.

Part of the composition root (controller.py).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from vgpud.core import events as ev
from vgpud.core import origins
from vgpud.core.jobs.model import Job
from vgpud.core.model import EVICTED, Denied, Share, Slice, Spec
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.daemon.slices.suspend import SuspendController

log = logging.getLogger("vgpud")


class JobSlices:
    """`workers`: the numbers of a job's workers, None for a job without workers."""

    def __init__(
        self,
        machine: SliceMachine,
        suspension: SuspendController,
        now_ns: Callable[[], int],
        workers: Callable[[Job], Sequence[int] | None] = lambda job: None,
    ) -> None:
        self._machine = machine
        self._suspension = suspension
        self._now_ns = now_ns
        self._workers = workers

    @staticmethod
    def of_worker(job_id: int, worker: int) -> str:
        """Its name."""
        return origins.Job(job_id, worker).slice_name()

    def list_origins(self, job: Job) -> list[origins.Job]:
        """Those of all slices that it is to have."""
        workers = self._workers(job)
        if workers is None and job.spec.members == 1:
            return [origins.Job(job.job_id)]
        return [origins.Job(job.job_id, member) for member in (range(job.spec.members) if workers is None else workers)]

    def names(self, job: Job) -> list[str]:
        return [origin.slice_name() for origin in self.list_origins(job)]

    def of(self, job: Job) -> list[Slice]:
        """Those that are there."""
        known = self._machine.state.slices
        return [known[name] for name in self.names(job) if name in known]

    async def make(self, job: Job, origin: origins.Job, shares: tuple[Share, ...]) -> Denied | None:
        name = origin.slice_name()
        there = self._machine.state.slices.get(name)
        if there:
            if there.shares == shares:
                return None  # of before a restart
            self.remove_one(job.job_id, name)
        event = ev.CreateSlice(
            request_id="",
            origin=origin,
            spec=job.spec.ask.spec,
            owner_uid=job.spec.uid,
            uid=str(uuid.uuid4()),
            wall_ns=self._now_ns(),
            queue=job.spec.queue,
            shares=shares,
        )
        answer = await self._machine.submit(event)
        return answer if isinstance(answer, Denied) else None

    async def resize(self, job: Job, name: str, shares: tuple[Share, ...]) -> Denied | None:
        """Changes its numbers in place, on its devices: the programs in it keep running."""
        there = self._machine.state.slices.get(name)
        if there is None or there.shares == shares:
            return None  # it has gone, and its job with it; or it was resized before a restart
        spec, changed = _with_shares(there.spec, shares), ("gpus_milli", "max_milli", "min_milli")
        answer = await self._machine.submit(ev.UpdateSlice("", name, spec, changed, job_id=job.job_id, shares=shares))
        return answer if isinstance(answer, Denied) else None

    def remove_one(self, job_id: int, name: str) -> None:
        if name in self._machine.state.slices:
            self._machine.run(ev.DeleteSlice("", name, True, job_id=job_id))

    def remove(self, job: Job) -> None:
        for made in self.of(job):
            self.remove_one(job.job_id, made.name)

    async def resume(self, job: Job) -> Denied | None:
        """Resumes all of its slices or none."""
        done: list[Slice] = []
        for made in self.of(job):
            if not made.suspended:
                continue
            answer = await self._suspension.resume(made.name, job.job_id)
            if isinstance(answer, Denied):
                for other in done:
                    await self._suspension.suspend(other.name, other.suspended == EVICTED, job.job_id)
                return answer
            done.append(made)
        return None

    async def suspend(self, job: Job, evict: bool) -> bool:
        """Suspends all of its slices or none. Whether it has been suspended."""
        done: list[Slice] = []
        for made in self.of(job):
            answer = await self._suspension.suspend(made.name, evict, job.job_id)
            if isinstance(answer, Denied):
                log.info("job %d is stopped and started again instead: %s", job.job_id, answer.message)
                for other in done:
                    await self._suspension.resume(other.name, job.job_id)
                return False
            done.append(made)
        return bool(done)


def _with_shares(spec: Spec, shares: tuple[Share, ...]) -> Spec:
    """The spec with the GPUs of these shares; bounds that the user gave move with them."""
    low, high = (sum(numbers) for numbers in zip(*((s.min_milli, s.max_milli) for s in shares), strict=True))
    if spec.min_milli is None:
        return replace(spec, gpus_milli=low, max_milli=None if spec.max_milli is None else high)
    return replace(spec, gpus_milli=high, min_milli=low, max_milli=None if spec.max_milli is None else high)
