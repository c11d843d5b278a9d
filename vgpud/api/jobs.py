"""The queue's two services: jobs (their owner's and admins') and queues. job_messages.py and queue_messages.py read
what requests ask for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.api import environments, job_changes, watches
from vgpud.api import job_messages as views
from vgpud.api import queue_messages as queue_views
from vgpud.api.caller import Caller, caller
from vgpud.api.forwards import Forwarding
from vgpud.api.job_backend import JobBackend
from vgpud.api.message_cache import MessageCache
from vgpud.api.reservation_messages import reservation_from, reservation_view
from vgpud.api.rpc import Observe, RefusedError, Watching, page, page_of, refuse, unary
from vgpud.api.slice_messages import page_token
from vgpud.api.terminals import Viewing
from vgpud.api.turns import breathe
from vgpud.api.workers import WorkCalls, WorkerBackend
from vgpud.core.jobs.environments import Environment
from vgpud.core.jobs.facts import JobFilter, Launch, QueueNow, UsageRow
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Job, JobSpec, JobState, QueueSpec, Reservation
from vgpud.core.model import Asker, Denied, Reason
from vgpud.core.placement import registry as placements
from vgpud.core.slices.queue_quota import name_queues
from vgpud.host import processes
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

log = logging.getLogger("vgpud.api")

T = TypeVar("T")

PAGE_SIZE_MAX = 1000
#: the same for users, who have 5 % of the loop while others use the API: the answer is complete before clients give up
USER_PAGE_SIZE_MAX = 100
#: of jobs in a message: clients take 4 MiB, but all of it is packed in one go
PAGE_BYTES_MAX = 512 << 10
#: messages kept of ended jobs, and of jobs that several watches send
ENDED_BYTES_MAX, LIST_VIEW_BYTES_MAX = 32 << 20, 4 << 20
WAIT_S = 60.0
#: answers of GetUsage that are kept for their further pages
SUMMED_MAX = 4


class QueueBackend(Protocol):
    """What the daemon does for queues. Called as job_backend.py says."""

    node: str

    def queue_for(self, name: str, asker: Asker) -> str | Denied:
        """The queue of that name, if the user may use it; the default queue for "" (core/slices/queue_quota.py)."""
        ...

    def queues(self) -> Sequence[QueueSpec]: ...
    def queue_now(self, name: str) -> QueueNow: ...
    async def set_queue(self, spec: QueueSpec, members: Sequence[str]) -> Denied | None:
        """Makes or changes it. Its numbers, policy and placement have been checked; the tree as a whole has not."""
        ...

    async def delete_queue(self, name: str) -> Denied | None:
        """Refused while jobs, slices or queues are in it, and for the default queue."""
        ...

    def reservations(self) -> Sequence[Reservation]: ...
    async def create_reservation(self, reservation: Reservation) -> Reservation | Denied:
        """Its devices are UUIDs or indices; begin 0 is now. Returns it as it was made."""
        ...

    async def delete_reservation(self, name: str) -> Denied | None: ...
    async def usage(self, since_ns: int, until_ns: int, by: str, uid: int | None) -> Sequence[UsageRow]:
        """`by` job, user or queue; since 0, until NEVER_NS: everything kept; uid None: all users."""
        ...


#: what a log-in has by default, where the daemon has more
REMOTE_LIMITS = {"nofile": (1024, 524_288), "memlock": (8 << 20, 8 << 20), "core": (0, -1)}


def own_limits(who: Caller) -> dict[str, tuple[int, int]]:
    """The caller's resource limits by name: upper bounds for their jobs. Raises RefusedError.

    A remote caller has no process here, and has the daemon's own limits, REMOTE_LIMITS at most.
    """
    if who.remote:
        mine = {name: both for name, both in processes.resource_limits(os.getpid()).items() if name in views.LIMITS}
        return views.cap_limits(mine, REMOTE_LIMITS)
    pidfd = processes.open_process(who.pid, who.start_ticks) if who.pid else -1
    if pidfd >= 0:
        try:
            limits = {name: both for name, both in processes.resource_limits(who.pid).items() if name in views.LIMITS}
            if not processes.has_ended(pidfd):  # else they may be another process's
                return limits
        except OSError as error:
            log.warning("limits of process %d: %s", who.pid, error)
        finally:
            os.close(pidfd)
    text = "the resource limits of the process that asks cannot be read: it has ended, or vgpud does not see it"
    raise refuse(Reason.PRECONDITION, text, "limits")


def _check(answer: object) -> None:
    if isinstance(answer, Denied):
        raise RefusedError(answer)


class JobService(Watching, WorkCalls, stubs.JobServiceServicer):
    """Jobs: each its owner's and the admins' to see and to change."""

    def __init__(self, backend: JobBackend, queues: QueueBackend, workers: WorkerBackend, observe: Observe) -> None:
        super().__init__()
        WorkCalls.__init__(self, workers, backend.reader.owner)
        self.backend = backend
        self._queues = queues
        self.observe = observe  # as unary() calls it
        self._viewing = Viewing(backend, self._own, self._make_list_view)
        self._forwarding = Forwarding(backend, self._own)
        self._ended: MessageCache[pb.Job] = MessageCache(ENDED_BYTES_MAX)
        self._list_views: MessageCache[pb.Job] = MessageCache(LIST_VIEW_BYTES_MAX)

    async def _own(self, job_id: int) -> Job:
        job = await self.backend.reader.job(job_id)
        if job is None:
            raise refuse(Reason.NOT_FOUND, f"no job {job_id}: `vgpu job ls --all` lists yours", "job_id")
        self._allow(job)
        return job

    def _allow(self, job: Job) -> None:
        if not caller().owns(job.spec.uid):
            raise refuse(
                Reason.DENIED, f"job {job.job_id} is another user's: only they and admins may see it", "job_id"
            )

    def _view(self, job: Job, *, has_details: bool = False) -> pb.Job:
        """The only way to a message about a job: what only its owner may see is left out for all others."""
        own = caller().uid == job.spec.uid
        return views.job_view(job, self.backend.reader.facts(job), self.backend.node, has_details=has_details, own=own)

    def _make_list_view(self, job: Job) -> pb.Job:
        """As lists and watches show it; made once of a job that ended a while ago."""
        if not self.backend.reader.is_settled(job):
            return self._view(job)
        key = job.job_id, job.ended_ns  # it may be queued again, and end again
        return self._ended.get(key) or self._ended.put(key, self._view(job))

    async def _find_job_at_change(self, job_id: int, change: int) -> pb.Job | None:
        """A job of the caller's as it was at this change, the same message for every watch."""
        key = job_id, change
        known = self._list_views.get(key)
        if known is None:
            job = await self.backend.reader.job(job_id)
            known = self._list_views.put(key, self._make_list_view(job)) if job else None
        return known if known is not None and caller().owns(known.uid) else None

    @unary
    async def SubmitJob(self, request: pb.SubmitJobRequest) -> pb.SubmitJobResponse:
        who, site = caller(), self.backend.environments
        environment = environments.find_environment(request.spec, site.catalog, who.asker)
        if environment is None:
            return await self._submit(request, who, None)
        spec = environments.fill_spec(request.spec, environment)
        try:
            return await self._submit(pb.SubmitJobRequest(request_id=request.request_id, spec=spec), who, environment)
        except RefusedError as error:
            raise RefusedError(environments.name_environment(error.refusal, environment)) from error

    async def _submit(
        self, request: pb.SubmitJobRequest, who: Caller, environment: Environment | None
    ) -> pb.SubmitJobResponse:
        """`request`: with the values of the environment. Raises RefusedError."""
        launch = views.launch_from(request.spec, who.uid, who.gid, who.gids, own_limits(who))
        launch = environments.add_parts(launch, request.spec, environment, self.backend.environments, who.asker)
        queue = self._queues.queue_for(request.spec.queue, who.asker)
        if isinstance(queue, Denied):
            raise RefusedError(queue)
        submission = views.submission_from(request, launch, queue, colocates=self._colocates(queue))
        await self._check_after(submission.spec)
        made = await self.backend.submissions.submit_job(submission)
        if isinstance(made, Denied):
            raise RefusedError(made)
        return pb.SubmitJobResponse(job_ids=made)

    @unary
    async def ListEnvironments(self, request: pb.ListEnvironmentsRequest) -> pb.ListEnvironmentsResponse:
        return environments.list_environments(self.backend.environments, self.backend.node, caller().asker)

    def _colocates(self, queue: str) -> bool:
        """Whether what jobs use of a device decides where they go."""
        found = next((spec for spec in self._queues.queues() if spec.name == queue), None)
        return found is not None and placements.make(found.placement).sharing is not None

    async def _check_after(self, spec: JobSpec) -> None:
        """Jobs that are there, the caller's, and may still complete. There is no circle: they all came before."""
        async for job_id in _in_pieces(spec.after):
            job = await self._own(job_id)
            if job.state.is_final and not spec.is_satisfied_by(job_id, job.state):
                verb = "fail" if spec.waits_for_failure(job_id) else "complete"
                text = f"after job {job_id}, which has {_ENDED[job.state]}: it will not {verb}; --after-any waits for"
                raise refuse(Reason.PRECONDITION, f"{text} its end only", "after")

    @unary
    async def GetJob(self, request: pb.GetJobRequest) -> pb.GetJobResponse:
        job = await self._own(request.job_id)
        return pb.GetJobResponse(job=self._view(job, has_details=True))

    @unary
    async def ListJobs(self, request: pb.ListJobsRequest) -> pb.ListJobsResponse:
        who = caller()
        after = _after_token(request.page_token)
        most = PAGE_SIZE_MAX if who.admin else USER_PAGE_SIZE_MAX
        count = min(request.page_size or most, most)
        jobs = await self.backend.reader.jobs(after, count + 1, _filter(request, who))
        answer = pb.ListJobsResponse()
        size = 0
        for job in jobs[:count]:
            view = self._make_list_view(job)
            size += view.ByteSize()
            if answer.jobs and size > PAGE_BYTES_MAX:
                break
            answer.jobs.append(view)
            await breathe()
        if len(jobs) > len(answer.jobs):
            answer.next_page_token = str(answer.jobs[-1].job_id)
        return answer

    @unary
    async def ExplainJob(self, request: pb.ExplainJobRequest) -> pb.ExplainJobResponse:
        who = caller()
        job = await self._own(request.job_id)
        facts = await self.backend.reader.explain(job, None if who.admin else who.uid)
        return pb.ExplainJobResponse(
            job=self._view(job, has_details=True), facts=[views.fact_view(fact) for fact in facts]
        )

    @unary
    async def CancelJob(self, request: pb.CancelJobRequest) -> pb.CancelJobResponse:
        job = await self._own(request.job_id)
        ids: Sequence[int] = (job.job_id,)
        if request.whole_array:
            ids = await self.backend.reader.array_of(job.job_id)
            if job.spec.array != job.job_id:
                text = f"job {job.job_id} does not begin an array: cancel it without --array, or name the first job"
                raise refuse(Reason.INVALID, text, "whole_array")
        _check(await self.backend.requests.cancel_jobs(ids, f"cancelled by {_name(caller(), job)}"))
        return pb.CancelJobResponse()

    @unary
    async def HoldJob(self, request: pb.HoldJobRequest) -> pb.HoldJobResponse:
        _check(await self.backend.requests.hold_job((await self._own(request.job_id)).job_id))
        return pb.HoldJobResponse()

    @unary
    async def ReleaseJob(self, request: pb.ReleaseJobRequest) -> pb.ReleaseJobResponse:
        _check(await self.backend.requests.release_job((await self._own(request.job_id)).job_id))
        return pb.ReleaseJobResponse()

    @unary
    async def RequeueJob(self, request: pb.RequeueJobRequest) -> pb.RequeueJobResponse:
        _check(await self.backend.requests.requeue_job((await self._own(request.job_id)).job_id))
        return pb.RequeueJobResponse()

    @unary
    async def ReportSessionUse(self, request: pb.ReportSessionUseRequest) -> pb.ReportSessionUseResponse:
        job = await self._own(request.job_id)
        if not (isinstance(job.spec.run, Launch) and job.spec.run.session):
            raise refuse(Reason.PRECONDITION, f"job {job.job_id} is not a session", "job_id")
        _check(await self.backend.requests.use_session(job.job_id))
        return pb.ReportSessionUseResponse()

    @unary
    async def SuspendJob(self, request: pb.SuspendJobRequest) -> pb.SuspendJobResponse:
        _check(await self.backend.requests.suspend_job((await self._own(request.job_id)).job_id))
        return pb.SuspendJobResponse()

    @unary
    async def ResumeJob(self, request: pb.ResumeJobRequest) -> pb.ResumeJobResponse:
        _check(await self.backend.requests.resume_job((await self._own(request.job_id)).job_id))
        return pb.ResumeJobResponse()

    @unary
    async def UpdateJob(self, request: pb.UpdateJobRequest) -> pb.UpdateJobResponse:
        who, job = caller(), await self._own(request.job_id)
        queue = job.spec.queue
        if "queue" in job_changes.paths_of(request):
            wanted = self._queues.queue_for(request.spec.queue, who.asker)
            if isinstance(wanted, Denied):
                raise RefusedError(wanted)
            queue = wanted
        spec = job_changes.changed_spec(job, request, queue, colocates=self._colocates(queue))
        _check(await self.backend.requests.change_job(job.job_id, spec, by_admin=who.admin))
        return pb.UpdateJobResponse(job=self._view(await self._own(job.job_id)))

    async def WatchJobs(self, request: pb.WatchJobsRequest, context: Any) -> AsyncIterator[pb.WatchJobsResponse]:
        """First the jobs named, or all of the caller that have not ended; then those that have changed."""
        named = set(request.job_ids)

        async def changes() -> AsyncGenerator[pb.WatchJobsResponse, None]:
            seen, _ = self.backend.changes.since(NEVER_NS)
            first = [
                self._make_list_view(job) async for job in _in_pieces(await self._find_watched_jobs(sorted(named)))
            ]
            for part in _parts(first):
                yield part
            while True:
                await asyncio.sleep(watches.INTERVAL_MIN_S)
                await self.backend.changes.wait(seen, WAIT_S)
                seen, changed = self.backend.changes.since(seen)
                ids = [job_id for job_id in changed if not named or job_id in named]
                views = [await self._find_job_at_change(job_id, seen) async for job_id in _in_pieces(ids)]
                for part in _parts([view for view in views if view is not None], first=False):
                    yield part

        async for message in self._watching(context, changes()):
            yield message

    async def AttachJob(
        self, requests: AsyncIterator[pb.AttachJobRequest], context: Any
    ) -> AsyncIterator[pb.AttachJobResponse]:
        """One viewer of a job's terminal."""
        async for message in self._watching(context, self._viewing.view(requests)):
            yield message

    async def ForwardSession(
        self, requests: AsyncIterator[pb.ForwardSessionRequest], context: Any
    ) -> AsyncIterator[pb.ForwardSessionResponse]:
        """One connection to a session's program."""
        async with contextlib.aclosing(self._forwarding.serve_call(requests)) as messages:
            async for message in messages:
                yield message

    async def _find_watched_jobs(self, job_ids: Sequence[int]) -> Sequence[Job]:
        who = caller()
        if job_ids:
            return [await self._own(job_id) async for job_id in _in_pieces(job_ids)]
        return await self.backend.reader.jobs(0, NEVER_NS, JobFilter(uid=None if who.admin else who.uid))


async def _in_pieces(items: Iterable[T]) -> AsyncIterator[T]:
    """The same; others go first in between."""
    for item in items:
        yield item
        await breathe()


def _parts(jobs: Sequence[pb.Job], *, first: bool = True) -> Iterator[pb.WatchJobsResponse]:
    """As many messages as the jobs need; at the beginning one even if there are none."""
    part, size = pb.WatchJobsResponse(), 0
    for job in jobs:
        size += job.ByteSize()
        if part.jobs and size > PAGE_BYTES_MAX:
            yield part
            part, size = pb.WatchJobsResponse(), job.ByteSize()
        part.jobs.append(job)
    if part.jobs or first:
        yield part


def _filter(request: pb.ListJobsRequest, who: Caller) -> JobFilter:
    """Raises RefusedError."""
    known = {words.JOB_STATE.to_number(state.value): state for state in JobState}
    for number in request.states:
        if number not in known:
            text = f"state {number} is none of a job: choose from {', '.join(words.JOB_STATE.words)}"
            raise refuse(Reason.INVALID, text, "states")
    states = tuple(dict.fromkeys(known[number] for number in request.states))
    since_ns = _time_ns(request.since_time) if request.HasField("since_time") else 0
    ended = request.include_ended or bool(since_ns) or any(state.is_final for state in states)
    return JobFilter(ended, _whose(request, who), request.queue, states, since_ns)


def _whose(request: pb.ListJobsRequest | pb.GetUsageRequest, who: Caller) -> int | None:
    """The user whose jobs are listed; None: all users. Raises RefusedError."""
    if not request.HasField("uid"):
        return None if who.admin else who.uid
    if not who.owns(request.uid):
        raise refuse(Reason.DENIED, f"only admins may list jobs or usage of uid {request.uid}: leave it out", "uid")
    return request.uid


_ENDED = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "been cancelled",
    JobState.TIMED_OUT: "timed out",
}


def _name(who: Caller, job: Job) -> str:
    """The user who did it, as the job's reason names them to its owner."""
    return "its owner" if who.uid == job.spec.uid else f"uid {who.uid}"


def _time_ns(at: Timestamp) -> int:
    """Whatever a message can hold, within what the store can."""
    return min(max(0, at.seconds * SECOND_NS + at.nanos), NEVER_NS)


def _after_token(token: str) -> int:
    if token and not (token.isascii() and token.isdigit() and len(token) < 20):
        raise refuse(Reason.INVALID, f"page_token {token!r} is not one of ours: begin again without it", "page_token")
    return min(int(token or 0), NEVER_NS)


class QueueService(stubs.QueueServiceServicer):
    """Queues, their quotas, and usage. Users who are no admins see the queues that they may use, and their own
    usage."""

    def __init__(self, backend: QueueBackend, observe: Observe) -> None:
        self.backend = backend
        self.observe = observe  # as unary() calls it
        # usage whose last page has not been read, by request: rows are added at the end only
        self._summed: OrderedDict[tuple[object, ...], Sequence[UsageRow]] = OrderedDict()

    def _view(self, spec: QueueSpec) -> pb.Queue:
        return queue_views.queue_view(spec, self.backend.queue_now(spec.name))

    @unary
    async def ListQueues(self, request: pb.ListQueuesRequest) -> pb.ListQueuesResponse:
        asker = caller().asker
        queues = self.backend.queues()
        own = {q.name: q for q in queues if isinstance(self.backend.queue_for(q.name, asker), str)}
        above = {q.parent for q in own.values()}
        keyed = [(q.name, q) for q in queues if q.name in own or q.name in above]
        shown, token = page(keyed, request)
        answer = pb.ListQueuesResponse(next_page_token=token)
        for queue in shown:
            if any(queue.name == there.name for there in self.backend.queues()):  # else it was removed meanwhile
                answer.queues.append(self._view(queue))
            await breathe()
        return answer

    @unary
    async def SetQueue(self, request: pb.SetQueueRequest) -> pb.SetQueueResponse:
        queues = {q.name: q for q in self.backend.queues()}
        name = request.queue.name
        members = self.backend.queue_now(name).members if name in queues else ()
        spec, members = queue_views.queue_from(request, queues, members)
        _check(await self.backend.set_queue(spec, members))
        return pb.SetQueueResponse(queue=self._view(spec))

    @unary
    async def DeleteQueue(self, request: pb.DeleteQueueRequest) -> pb.DeleteQueueResponse:
        names = sorted(q.name for q in self.backend.queues())
        if request.name not in names:
            text = f"no queue {request.name!r}: {name_queues(names)}"
            raise refuse(Reason.NOT_FOUND, text, "name")
        _check(await self.backend.delete_queue(request.name))
        return pb.DeleteQueueResponse()

    @unary
    async def ListReservations(self, request: pb.ListReservationsRequest) -> pb.ListReservationsResponse:
        found = sorted(self.backend.reservations(), key=lambda one: (one.begin_ns, one.name))
        return pb.ListReservationsResponse(reservations=[reservation_view(one) for one in found])

    @unary
    async def CreateReservation(self, request: pb.CreateReservationRequest) -> pb.CreateReservationResponse:
        made = await self.backend.create_reservation(reservation_from(request.reservation, self.backend.node))
        if isinstance(made, Denied):
            raise RefusedError(made)
        return pb.CreateReservationResponse(reservation=reservation_view(made))

    @unary
    async def DeleteReservation(self, request: pb.DeleteReservationRequest) -> pb.DeleteReservationResponse:
        _check(await self.backend.delete_reservation(request.name))
        return pb.DeleteReservationResponse()

    @unary
    async def GetUsage(self, request: pb.GetUsageRequest) -> pb.GetUsageResponse:
        who = caller()
        by = words.USAGE_BY.to_word(request.by) or "user"
        if by not in words.USAGE_BY.words:
            text = f"usage by {by!r} is not kept: choose one of {', '.join(words.USAGE_BY.words)}"
            raise refuse(Reason.INVALID, text, "by")
        since_ns = _time_ns(request.since_time) if request.HasField("since_time") else 0
        until_ns = _time_ns(request.until_time) if request.HasField("until_time") else NEVER_NS
        if until_ns <= since_ns:
            raise refuse(Reason.INVALID, "until_time is not after since_time: swap them", "until_time")
        count, token = page_of(request)
        begin = int(token) if token.isascii() and token.isdigit() and len(token) < 10 else 0
        asked = since_ns, until_ns, by, _whose(request, who)
        rows = (self._summed.pop(asked, None) if begin else None) or await self.backend.usage(*asked)
        answer = pb.GetUsageResponse()
        for row in rows[begin : begin + count]:
            answer.usage.append(views.usage_view(row, self.backend.node))
            await breathe()
        if begin + count < len(rows):
            answer.next_page_token = page_token(str(begin + count))
            self._summed[asked] = rows
            while len(self._summed) > SUMMED_MAX:
                self._summed.popitem(last=False)
        return answer
