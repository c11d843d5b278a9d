"""The part of the composition root that takes jobs into the queue (api.job_backend.JobSubmissions).

Made by Daemon. A submission is answered when it is on the disk; one that is repeated gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpud.core.jobs.events import Cancelled, Submitted
from vgpud.core.jobs.facts import Launch, Submission
from vgpud.core.jobs.model import JobSpec
from vgpud.core.model import Denied, Reason
from vgpud.core.slices.drains import with_uuids
from vgpud.core.units import format_bytes
from vgpud.daemon.jobs.arrays import PART_JOBS, Arrays
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.host import Host
from vgpud.errors import StoreError
from vgpud.store.jobs import Request

#: how long the id of a request is known
REQUEST_MEMORY_NS = 600_000_000_000
#: of one user, at a time
FREE_OF_GPUS_MAX = 32
#: commands and environments of a user's jobs that have not ended: 10,000 jobs of 6 KiB
WORDS_BYTES_MAX = 64 << 20


def _unavailable(error: StoreError) -> Denied:
    return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")


class JobSubmissions:
    """What may enter the queue. `arrays` has those that are being submitted."""

    def __init__(self, host: Host, jobs: JobController, arrays: Arrays) -> None:
        self._host = host
        self._jobs = jobs
        self._arrays = arrays

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
        denied = denied or self._too_patient(spec) or self._too_many_free_of_gpus(spec, submission.count)
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

    def _too_many_free_of_gpus(self, spec: JobSpec, count: int) -> Denied | None:
        """Jobs that no quota of GPUs bounds, and that always start."""
        if spec.ask.spec.gpus_milli:
            return None
        jobs = (job for job in self._jobs.machine.jobs.values() if not job.state.is_final)
        mine = sum(job.spec.uid == spec.uid and not job.spec.ask.spec.gpus_milli for job in jobs)
        if mine + count <= FREE_OF_GPUS_MAX:
            return None
        text = f"uid {spec.uid} has {mine} jobs without GPUs, which are the balancers of services, and may have"
        return Denied(Reason.NO_CAPACITY, f"{text} {FREE_OF_GPUS_MAX}: stop a service", subject=f"uid {spec.uid}")

    def _too_patient(self, spec: JobSpec) -> Denied | None:
        """What stops holds its capacity for so long, however it is wanted elsewhere."""
        most_s = self._host.config.current.job_grace_max_s
        if not isinstance(spec.run, Launch) or spec.run.grace_ms <= most_s * 1000:
            return None
        text = f"a grace of {spec.run.grace_ms / 1000:g} s is above {most_s} s (job_grace_max_s): write that or less"
        return Denied(Reason.INVALID, text, field="grace")

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
