"""The part of the composition root that answers the API about jobs (api.jobs.JobBackend).

Made by Daemon; the controller holds the state, decides and carries out what is requested, and its saver saves.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgpud.api.turns import breathe
from vgpud.core.jobs.events import (
    Cancelled,
    Changed,
    Event,
    Held,
    Released,
    Requeued,
    Submitted,
)
from vgpud.core.jobs.facts import Fact, Facts, JobFilter, Launch, Submission
from vgpud.core.jobs.model import Job, JobSpec
from vgpud.core.model import Denied, Reason
from vgpud.core.slices.drains import with_uuids
from vgpud.core.units import format_bytes
from vgpud.daemon.jobs.arrays import PART_JOBS, Arrays
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.explain import Known, explain
from vgpud.daemon.jobs.host import Host
from vgpud.errors import StoreError
from vgpud.jobs.terminal import Terminal
from vgpud.store.jobs import Request

#: how long the id of a request is known
REQUEST_MEMORY_NS = 600_000_000_000
#: commands and environments of a user's jobs that have not ended: 10,000 jobs of 6 KiB
WORDS_BYTES_MAX = 64 << 20
#: what is known of an ended job grows for so long
SETTLED_NS = 60_000_000_000
#: ended jobs that are looked through, and read, before others go first
NUMBERS_AT_ONCE, JOBS_AT_ONCE = 1000, 8


def _unavailable(error: StoreError) -> Denied:
    return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")


class JobRequests:
    """api.jobs.JobBackend."""

    def __init__(self, host: Host, jobs: JobController) -> None:
        self.node = host.node.name
        self._host = host
        self._jobs = jobs
        self._arrays = Arrays(jobs)

    def owner(self, job_id: int) -> int | None:
        """The owner's uid; None: there is no such job."""
        job = self._jobs.machine.jobs.get(job_id)
        return job.spec.uid if job else self._jobs.store.owner(job_id)

    def name(self, job_id: int) -> str:
        """Of a job that has slices, so is in memory; "" of any other."""
        job = self._jobs.machine.jobs.get(job_id)
        return job.spec.name if job else ""

    # ---- jobs ----

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
        made = Facts(
            slices=tuple(made.name for made in slices),
            device_indices=tuple(sorted(indices)),
            granted=granted,
            used_ns=used // 1000,
            cpu_ns=int(kept.get("cpu_ns", 0)),
            ram_peak_bytes=int(kept.get("ram_peak_bytes", 0)),
            samples_per_second=self._jobs.progress.rate(job.job_id),
            measured_milli=self._jobs.progress.measured_milli(job.job_id),
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
        known = Known(self.facts(job), trail, anomalies, jobs.clock.now_ns(), uid)
        return explain(jobs.machine, self._host.slices.state, job, known)

    async def array_of(self, job_id: int) -> Sequence[int]:
        jobs = self._jobs.machine.jobs.values()
        return sorted(job.job_id for job in jobs if job.spec.array == job_id and not job.state.is_final)

    def jobs_changed(self, after_change: int) -> tuple[int, Sequence[int]]:
        return self._jobs.changes.since(after_change)

    async def wait_job_change(self, after_change: int, timeout_s: float) -> None:
        await self._jobs.changes.wait(after_change, timeout_s)

    # ---- requests about jobs ----

    async def submit_job(self, submission: Submission) -> Sequence[int] | Denied:
        """All of the array or nothing."""
        jobs, spec = self._jobs, submission.spec
        spec = replace(spec, ask=replace(spec.ask, spec=with_uuids(spec.ask.spec, self._host.slices.state)))
        await self._arrays.wait_for_same(spec.uid, submission.request_id)
        now_ns = jobs.clock.now_ns()
        try:
            known = jobs.saver.find_request(spec.uid, submission.request_id) if submission.request_id else None
            if known:
                answer = self._answer_repeat(known, submission)
                await jobs.saver.on_disk(known.job_ids)
                return answer
            spec = replace(spec, after=tuple(job_id for job_id in spec.after if not self._is_past(job_id)))
        except StoreError as error:
            return _unavailable(error)
        denied = jobs.saver.refusal() or self._too_many(spec.uid, submission.count) or self._too_large(spec)
        denied = denied or jobs.machine.check(spec, submission.count)
        if denied:
            return denied
        ids = tuple(range(jobs.saver.next_id, jobs.saver.next_id + submission.count))
        jobs.saver.next_id += submission.count
        request = Request(spec.uid, submission.request_id, submission.fingerprint, ids, now_ns + REQUEST_MEMORY_NS)
        if len(ids) > PART_JOBS:
            fault = await self._arrays.submit(replace(submission, spec=spec), request)
            return _unavailable(fault) if fault else ids
        jobs.process_events(
            Submitted(ids, spec, submission.held, submission.indices),
            request=request if submission.request_id else None,
        )
        try:
            await jobs.saver.on_disk(ids)
        except StoreError as error:
            gone = [Cancelled(i, "it could not be saved") for i in ids if not jobs.machine.jobs[i].state.is_final]
            # a repeated request must not be answered with these
            jobs.process_events(*gone, request=replace(request, until_ns=0) if submission.request_id else None)
            return _unavailable(error)
        return ids

    def _too_many(self, uid: int, count: int) -> Denied | None:
        """So that no user fills the daemon's memory."""
        config, to_come = self._host.config.current, self._arrays.to_come
        total = self._jobs.counts.total + to_come.total()
        mine = self._jobs.counts.of_user(uid) + to_come[uid]
        if mine + count > config.jobs_per_user_max:
            text = f"uid {uid} has {mine} jobs that have not ended, {count} more are above jobs_per_user_max"
            text += f" ({config.jobs_per_user_max}): let some end, or cancel them"
            return Denied(Reason.NO_CAPACITY, text, subject=f"uid {uid}")
        if total + count > config.jobs_max:
            text = f"{total} jobs have not ended, {count} more are above jobs_max ({config.jobs_max}): try again later"
            return Denied(Reason.NO_CAPACITY, text, subject="jobs_max")
        return None

    def _too_large(self, spec: JobSpec) -> Denied | None:
        """A few jobs with long commands and environments must fill neither the daemon's memory nor its database."""
        mine = self._jobs.counts.bytes_of_user(spec.uid)
        more = spec.run.words_bytes if isinstance(spec.run, Launch) else 0
        if mine + more <= WORDS_BYTES_MAX:
            return None
        text = f"the commands and environments of the jobs of uid {spec.uid} that have not ended take"
        text += f" {format_bytes(mine)}, {format_bytes(more)} more are above {format_bytes(WORDS_BYTES_MAX)}:"
        return Denied(Reason.NO_CAPACITY, f"{text} let some end, or submit an array", subject=f"uid {spec.uid}")

    @staticmethod
    def _answer_repeat(request: Request, submission: Submission) -> Sequence[int] | Denied:
        if request.fingerprint == submission.fingerprint:
            return request.job_ids
        made = f"job {request.job_ids[0]}" if len(request.job_ids) == 1 else f"jobs {request.job_ids[0]} and more"
        text = f"request_id {submission.request_id!r} made {made} with another specification: use a new id, or repeat"
        text += " the request as it was, with the same environment"
        return Denied(Reason.INVALID, text, field="request_id")

    def _is_past(self, job_id: int) -> bool:
        """Whether a job is only in the store, so has ended; how is known to the API."""
        return job_id not in self._jobs.machine.jobs and self._jobs.store.owner(job_id) is not None

    async def _request(self, *events: Event) -> Denied | None:
        for event in events:
            denied = self._jobs.machine.refusal(event)
            if denied:
                return self._explain_denial(event, denied)
        self._jobs.process_events(*events)
        return await self._wait_until_saved(event.job_id for event in events if hasattr(event, "job_id"))

    async def _wait_until_saved(self, job_ids: Iterable[int]) -> Denied | None:
        try:
            await self._jobs.saver.on_disk(job_ids)
        except StoreError as error:
            text = f"done, but a restart may lose it, since it could not be saved: {error}"
            return Denied(Reason.UNAVAILABLE, text)
        return None

    def _explain_denial(self, event: Event, denial: Denied) -> Denied:
        """Of a job that only the store remembers: it has ended."""
        job = self._jobs.store.find(getattr(event, "job_id", 0)) if denial.reason is Reason.NOT_FOUND else None
        if job is None:
            return denial
        text = f"job {job.job_id} is {job.state.value}: its environment was deleted when it ended, submit it again"
        return Denied(Reason.PRECONDITION, text)

    async def cancel_jobs(self, job_ids: Sequence[int], why: str) -> Denied | None:
        if len(job_ids) == 1:
            return await self._request(Cancelled(job_ids[0], why))
        await self._arrays.cancel(job_ids, why)
        return await self._wait_until_saved(job_ids)

    async def hold_job(self, job_id: int) -> Denied | None:
        return await self._request(Held(job_id))

    async def release_job(self, job_id: int) -> Denied | None:
        return await self._request(Released(job_id))

    async def requeue_job(self, job_id: int) -> Denied | None:
        return await self._request(Requeued(job_id))

    async def change_job(self, job_id: int, spec: JobSpec, *, by_admin: bool) -> Denied | None:
        return await self._request(Changed(job_id, spec, by_admin))

    # ---- terminals ----

    def join_terminal(self, job: Job) -> Terminal | None:
        return self._jobs.attempts.runner.terminal((job.job_id, job.attempt)) if job.attempt else None

    def note_joined(self, job: Job, text: str) -> None:
        self._jobs.note("job.joined", job, text)
