"""The part of the composition root that shows the API jobs as they are now (api.job_backend.JobReader).

Made by Daemon. Live jobs are the machine's, those that ended a while ago are in the store only.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import replace

from vgpud.api.turns import breathe
from vgpud.core.jobs.facts import Fact, Facts, JobFilter
from vgpud.core.jobs.model import Job
from vgpud.daemon.jobs.attempts import has_processes
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.explain import Known, explain
from vgpud.daemon.jobs.host import Host
from vgpud.errors import StoreError
from vgpud.jobs import session_ports

#: what is known of an ended job grows for so long
SETTLED_NS = 60_000_000_000
#: ended jobs that are looked through, and read, before others go first
NUMBERS_AT_ONCE, JOBS_AT_ONCE = 1000, 8


class JobReader:
    """Remembers nothing."""

    def __init__(self, host: Host, jobs: JobController) -> None:
        self._host = host
        self._jobs = jobs

    def owner(self, job_id: int) -> int | None:
        """The owner's uid; None: there is no such job."""
        job = self._jobs.machine.jobs.get(job_id)
        return job.spec.uid if job else self._jobs.store.owner(job_id)

    def name(self, job_id: int) -> str:
        """Of a job that has slices, so is in memory; "" of any other."""
        job = self._jobs.machine.jobs.get(job_id)
        return job.spec.name if job else ""

    def _find(self, job_id: int) -> Job | None:
        known = self._jobs.machine.jobs.get(job_id)
        return self._copy_with_reason(known) if known else self._jobs.store.find(job_id)

    def _copy_with_reason(self, job: Job) -> Job:
        """A copy of it as it is now, with the reason why it waits."""
        if job.state.is_final:
            return replace(job)
        return replace(job, reason=self._jobs.machine.reason(job.job_id, self._jobs.clock.now_ns()))

    async def job(self, job_id: int) -> Job | None:
        return self._find(job_id)

    async def jobs(self, after_job_id: int, count: int, job_filter: JobFilter) -> Sequence[Job]:
        found: dict[int, Job] = {}
        ids = sorted(self._jobs.machine.jobs)  # in order but for a few: each page looks at its own part only
        for job_id in itertools.islice(ids, bisect.bisect_right(ids, after_job_id), None):
            live = self._jobs.machine.jobs.get(job_id)
            if live and job_filter.wants(live):
                found[job_id] = live
                if len(found) >= count:
                    break
            await breathe()
        if job_filter.has_ended_jobs:  # one that has ended meanwhile takes the place of what it was
            found |= {job.job_id: job for job in await self._ended_after(after_job_id, count, job_filter)}
        shown = []
        for _, job in sorted(found.items())[:count]:
            shown.append(self._copy_with_reason(job))
            await breathe()
        return shown

    async def _ended_after(self, after_job_id: int, count: int, job_filter: JobFilter) -> list[Job]:
        """Some numbers at a time: a user may have a few jobs among a hundred thousand of others."""
        found: list[Job] = []
        while after_job_id < self._jobs.saver.next_id and len(found) < count:
            last = after_job_id + NUMBERS_AT_ONCE
            part = self._jobs.store.ended_after(after_job_id, JOBS_AT_ONCE, job_filter, last)
            found += part
            after_job_id = part[-1].job_id if len(part) == JOBS_AT_ONCE else last
            await breathe()
        return found

    def is_settled(self, job: Job) -> bool:
        return job.state.is_final and job.ended_ns + SETTLED_NS <= self._jobs.clock.now_ns()

    def facts(self, job: Job) -> Facts:
        slices = self._jobs.slices.of(job) if job.placement else []
        devices = self._host.slices.state.devices
        indices = {devices[s.device_uuid].index for made in slices for s in made.shares if s.device_uuid in devices}
        ran = job.first_started_ns >= 0  # else the store has nothing: a list has many that wait
        granted, used = self._jobs.queues.of_job(job.job_id) if ran else (0, 0)
        kept = self._jobs.store.facts(job.job_id) if ran else {}
        ports = session_ports.known_ports(kept, job.attempt) if has_processes(job) else None
        made = Facts(
            slices=tuple(made.name for made in slices),
            device_indices=tuple(sorted(indices)),
            granted=granted,
            used_ns=used // 1000,
            cpu_ns=int(kept.get("cpu_ns", 0)),
            ram_peak_bytes=int(kept.get("ram_peak_bytes", 0)),
            samples_per_second=self._jobs.progress.rate(job.job_id),
            measured_milli=self._jobs.progress.measured_milli(job.job_id),
            session_port=ports.own if ports else 0,
            named_ports=ports.by_name if ports else (),
            session_used_ns=self._jobs.idleness.last_use_ns(job.job_id),
        )
        if job.job_id not in self._jobs.machine.jobs or job.state.is_final:
            return replace(made, estimated_ns=job.median_ns)
        machine, now_ns = self._jobs.machine, self._jobs.clock.now_ns()
        position, start_ns = machine.position(job.job_id), machine.estimated_start(job.job_id, now_ns)
        found = None if job.spec.duration_ns else machine.estimate(job.job_id, now_ns)
        takes_ns = found.median_ns if found else 0
        return replace(made, position=position, estimated_start_ns=start_ns, estimated_ns=takes_ns)

    async def explain(self, job: Job, uid: int | None) -> Sequence[Fact]:
        """Why a job is in its state; `uid`: the asking user, None: an admin."""
        jobs = self._jobs
        try:
            trail = jobs.saver.trail(job.job_id)
        except StoreError as error:
            trail = [Fact(-1, "job.warning", f"what was decided before cannot be read: {error}")]
        anomalies = jobs.progress.anomalies_of(job.job_id)
        known = Known(self.facts(job), trail, anomalies, jobs.clock.now_ns(), uid, self._host.turns)
        return explain(jobs.machine, self._host.slices.state, job, known)

    async def array_of(self, job_id: int) -> Sequence[int]:
        jobs = self._jobs.machine.jobs.values()
        return sorted(job.job_id for job in jobs if job.spec.array == job_id and not job.state.is_final)
