"""What can be asked of the daemon: one function for each call, which makes its request and reads its answer.

Pure: the clients (sync, async, and that of the command line) send these, so that there is one place where a request
is made.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.client.failures import make_error
from vgpud.errors import ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

T = TypeVar("T")
N = TypeVar("N", bound=int)

#: added to the daemon's own deadline, for its answer
SPARE_S = 15.0
PAGE_SIZE = 500
#: the daemon takes messages of 256 KiB
SPEC_BYTES_MAX = 250_000
_SLICE_LS = "`vgpu slice ls` shows whether it was carried out"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request with one answer."""

    service: str  # Node, Slice, ...
    method: str
    request: Any
    read: Callable[[Any], T]  # the result in the answer
    least_s: float = 0.0  # it may take so long, whatever the client's timeout
    #: not empty: repeated with the same request_id while it is not answered; how to find out whether it was carried out
    ask_again: str = ""


@dataclass(frozen=True)
class Listed(Generic[T]):
    """A list, page by page."""

    service: str
    method: str
    request: Any
    field: str
    item: type[T]


@dataclass(frozen=True)
class Watched(Generic[T]):
    """A stream of answers, to one request or to a stream of them."""

    service: str
    method: str
    request: Any
    read: Callable[[Any], T]


def _utf8(name: str) -> str:
    """A name as the API takes it. Raises ClientError for bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        text = f"name {os.fsencode(name)!r} is not UTF-8: use letters, digits and -"
        raise make_error(text, ExitCode.USAGE) from error
    return name


def _number(enum: words.Words[N], word: str, what: str) -> N:
    """Raises ClientError for a word that the enum does not have."""
    try:
        return enum.to_number(word)
    except ValueError as error:
        raise make_error(f"{what} {error}", ExitCode.USAGE) from error


def _new_id() -> str:
    return str(uuid.uuid4())


# ---- the node, its devices, events ----


def node() -> Call[pb.Node]:
    return Call("Node", "GetNode", pb.GetNodeRequest(), lambda answer: answer.node)


def devices() -> Listed[pb.Device]:
    return Listed("Node", "ListDevices", pb.ListDevicesRequest(), "devices", pb.Device)


def drain_device(device: str, reason: str) -> Call[pb.Device]:
    request = pb.DrainDeviceRequest(device_uuid=_utf8(device), reason=reason)
    return Call("Node", "DrainDevice", request, lambda answer: answer.device)


def undrain_device(device: str) -> Call[pb.Device]:
    request = pb.UndrainDeviceRequest(device_uuid=_utf8(device))
    return Call("Node", "UndrainDevice", request, lambda answer: answer.device)


def publication() -> Call[pb.Publication]:
    """What Kubernetes' scheduler sees of the node's devices."""
    return Call("Claim", "GetPublication", pb.GetPublicationRequest(), lambda answer: answer.publication)


def events() -> Listed[pb.Event]:
    return Listed("Event", "ListEvents", pb.ListEventsRequest(), "events", pb.Event)


def watch_events(after_sequence: int) -> Watched[pb.Event]:
    request = pb.WatchEventsRequest(after_sequence=after_sequence)
    return Watched("Event", "WatchEvents", request, lambda answer: answer.event)


# ---- slices ----


def slices() -> Listed[pb.Slice]:
    return Listed("Slice", "ListSlices", pb.ListSlicesRequest(), "slices", pb.Slice)


def processes(slice_name: str = "") -> Listed[pb.Process]:
    return Listed("Slice", "ListProcesses", pb.ListProcessesRequest(slice=_utf8(slice_name)), "processes", pb.Process)


def get_slice(name: str) -> Call[pb.Slice]:
    return Call("Slice", "GetSlice", pb.GetSliceRequest(name=_utf8(name)), lambda answer: answer.slice)


def create_slice(
    name: str,
    spec: pb.SliceSpec,
    *,
    ephemeral: bool = False,
    owner_uid: int | None = None,
    every_user: bool = False,
    cdi_device: bool = False,
    queue: str = "",
    pending: bool = False,
) -> Call[pb.Slice]:
    request = pb.CreateSliceRequest(
        request_id=_new_id(),
        name=_utf8(name),
        spec=spec,
        ephemeral=ephemeral,
        owner_uid=owner_uid,
        every_user=every_user,
        cdi_device=cdi_device,
        queue=_utf8(queue),
        pending=pending,
    )
    return Call("Slice", "CreateSlice", request, lambda answer: answer.slice, ask_again=_SLICE_LS)


def update_slice(name: str, spec: pb.SliceSpec, fields: Sequence[str] = ()) -> Call[pb.Slice]:
    request = pb.UpdateSliceRequest(request_id=_new_id(), name=_utf8(name), spec=spec)
    request.update_mask.paths.extend(fields)
    return Call("Slice", "UpdateSlice", request, lambda answer: answer.slice, ask_again=_SLICE_LS)


def delete_slice(name: str, force: bool = False) -> Call[None]:
    request = pb.DeleteSliceRequest(request_id=_new_id(), name=_utf8(name), force=force)
    return Call("Slice", "DeleteSlice", request, lambda answer: None, ask_again=_SLICE_LS)


def suspend_slice(name: str, evict: bool, deadline_s: float) -> Call[pb.Slice]:
    request = pb.SuspendSliceRequest(name=_utf8(name), evict=evict)
    request.deadline.FromNanoseconds(int(deadline_s * 1e9))
    return Call("Slice", "SuspendSlice", request, lambda answer: answer.slice, deadline_s + SPARE_S)


def resume_slice(name: str, deadline_s: float) -> Call[pb.Slice]:
    request = pb.ResumeSliceRequest(name=_utf8(name))
    request.deadline.FromNanoseconds(int(deadline_s * 1e9))
    return Call("Slice", "ResumeSlice", request, lambda answer: answer.slice, deadline_s + SPARE_S)


def watch_slices(interval_ms: int) -> Watched[pb.WatchSlicesResponse]:
    return Watched("Slice", "WatchSlices", pb.WatchSlicesRequest(interval_ms=interval_ms), lambda answer: answer)


def watch_trace(name: str) -> Watched[pb.WatchTraceResponse]:
    return Watched("Slice", "WatchTrace", pb.WatchTraceRequest(name=_utf8(name)), lambda answer: answer)


# ---- jobs and queues ----


def submit(spec: pb.JobSpec, request_id: str = "") -> Call[list[int]]:
    if spec.ByteSize() > SPEC_BYTES_MAX:
        text = f"command and environment have {spec.ByteSize()} bytes, at most {SPEC_BYTES_MAX} are possible"
        raise make_error(f"{text}: use --no-env, and --env for what the job needs", ExitCode.USAGE)
    request = pb.SubmitJobRequest(request_id=request_id or _new_id(), spec=spec)
    ask_again = f"`vgpu submit --request-id {request.request_id} ...` asks again"
    return Call("Job", "SubmitJob", request, lambda answer: list(answer.job_ids), ask_again=ask_again)


def environments() -> Call[pb.ListEnvironmentsResponse]:
    return Call("Job", "ListEnvironments", pb.ListEnvironmentsRequest(), lambda answer: answer)


def job(job_id: int) -> Call[pb.Job]:
    return Call("Job", "GetJob", pb.GetJobRequest(job_id=job_id), lambda answer: answer.job)


def explain_job(job_id: int) -> Call[pb.ExplainJobResponse]:
    return Call("Job", "ExplainJob", pb.ExplainJobRequest(job_id=job_id), lambda answer: answer)


def jobs(
    include_ended: bool = False,
    queue: str = "",
    uid: int | None = None,
    states: Sequence[str] = (),
    since_ns: int | None = None,
) -> Listed[pb.Job]:
    """`uid` None: of all users that the caller may see; `states` (): in any; `since_ns`: active at any time since
    then."""
    request = pb.ListJobsRequest(include_ended=include_ended, queue=queue, uid=uid, since_time=_stamp(since_ns))
    request.states.extend(_number(words.JOB_STATE, state, "state") for state in states)
    return Listed("Job", "ListJobs", request, "jobs", pb.Job)


def cancel(job_id: int, whole_array: bool = False) -> Call[None]:
    return Call("Job", "CancelJob", pb.CancelJobRequest(job_id=job_id, whole_array=whole_array), lambda answer: None)


def hold(job_id: int) -> Call[None]:
    return Call("Job", "HoldJob", pb.HoldJobRequest(job_id=job_id), lambda answer: None)


def release(job_id: int) -> Call[None]:
    return Call("Job", "ReleaseJob", pb.ReleaseJobRequest(job_id=job_id), lambda answer: None)


def requeue(job_id: int) -> Call[None]:
    return Call("Job", "RequeueJob", pb.RequeueJobRequest(job_id=job_id), lambda answer: None)


def suspend_job(job_id: int) -> Call[None]:
    return Call("Job", "SuspendJob", pb.SuspendJobRequest(job_id=job_id), lambda answer: None)


def resume_job(job_id: int) -> Call[None]:
    return Call("Job", "ResumeJob", pb.ResumeJobRequest(job_id=job_id), lambda answer: None)


def update_job(job_id: int, spec: pb.JobSpec, fields: Sequence[str]) -> Call[pb.Job]:
    request = pb.UpdateJobRequest(job_id=job_id, spec=spec)
    request.update_mask.paths.extend(fields)
    return Call("Job", "UpdateJob", request, lambda answer: answer.job)


#: states of a job that has ended
ENDED = (pb.JOB_STATE_COMPLETED, pb.JOB_STATE_FAILED, pb.JOB_STATE_CANCELLED, pb.JOB_STATE_TIMED_OUT)


class Unended:
    """Which of the named jobs have not ended, by what a watch shows of them."""

    def __init__(self, job_ids: Sequence[int]) -> None:
        self._left, self._named = set(job_ids), bool(job_ids)

    def see(self, job: pb.Job) -> None:
        if job.state in ENDED:
            self._left.discard(job.job_id)
        elif self._named:
            self._left.add(job.job_id)  # one that had ended may be queued again

    @property
    def is_over(self) -> bool:
        """All of them have ended. Never, where none is named."""
        return self._named and not self._left


def watch_jobs(job_ids: Sequence[int]) -> Watched[list[pb.Job]]:
    return Watched("Job", "WatchJobs", pb.WatchJobsRequest(job_ids=job_ids), lambda answer: list(answer.jobs))


def report_session_use(job_id: int) -> Call[None]:
    request = pb.ReportSessionUseRequest(job_id=job_id)
    return Call("Job", "ReportSessionUse", request, lambda answer: None)


def forward_session(requests: Any) -> Watched[pb.ForwardSessionResponse]:
    """`requests`: an iterator, or an asynchronous one for the client for asyncio, of ForwardSessionRequest."""
    return Watched("Job", "ForwardSession", requests, lambda answer: answer)


def attach_job(requests: Any) -> Watched[pb.AttachJobResponse]:
    """`requests`: an iterator, or an asynchronous one for the client for asyncio, of AttachJobRequest."""
    return Watched("Job", "AttachJob", requests, lambda answer: answer)


def queues() -> Listed[pb.Queue]:
    return Listed("Queue", "ListQueues", pb.ListQueuesRequest(), "queues", pb.Queue)


def set_queue(queue: pb.Queue, fields: Sequence[str]) -> Call[pb.Queue]:
    request = pb.SetQueueRequest(queue=queue)
    request.update_mask.paths.extend(fields)
    return Call("Queue", "SetQueue", request, lambda answer: answer.queue)


def delete_queue(name: str) -> Call[None]:
    return Call("Queue", "DeleteQueue", pb.DeleteQueueRequest(name=name), lambda answer: None)


def reservations() -> Call[list[pb.Reservation]]:
    return Call("Queue", "ListReservations", pb.ListReservationsRequest(), lambda answer: list(answer.reservations))


def create_reservation(reservation: pb.Reservation) -> Call[pb.Reservation]:
    request = pb.CreateReservationRequest(reservation=reservation)
    return Call("Queue", "CreateReservation", request, lambda answer: answer.reservation)


def delete_reservation(name: str) -> Call[None]:
    return Call("Queue", "DeleteReservation", pb.DeleteReservationRequest(name=name), lambda answer: None)


def usage(since_ns: int | None, until_ns: int | None, by: str, uid: int | None = None) -> Listed[pb.Usage]:
    summed_by = _number(words.USAGE_BY, by, "by")
    request = pb.GetUsageRequest(by=summed_by, since_time=_stamp(since_ns), until_time=_stamp(until_ns), uid=uid)
    return Listed("Queue", "GetUsage", request, "usage", pb.Usage)


def history(
    kind: str, name: str, since_ns: int | None = None, until_ns: int | None = None, step_ns: int | None = None
) -> Call[pb.History]:
    """`kind`: device, slice, job, queue or user. Without times the last hour; `step_ns` None: as fine as possible."""
    request = pb.GetHistoryRequest(
        kind=_number(words.HISTORY_KIND, kind, "kind"),
        name=_utf8(name),
        since_time=_stamp(since_ns),
        until_time=_stamp(until_ns),
    )
    if step_ns is not None:
        request.step.FromNanoseconds(step_ns)
    return Call("History", "GetHistory", request, lambda answer: answer.history)


def _stamp(wall_ns: int | None) -> Timestamp | None:
    return None if wall_ns is None else Timestamp(seconds=wall_ns // 10**9, nanos=wall_ns % 10**9)


# ---- tokens ----


def create_token(user: str, ttl_s: float, note: str) -> Call[pb.CreateTokenResponse]:
    request = pb.CreateTokenRequest(user=_utf8(user), note=_utf8(note))
    request.ttl.FromNanoseconds(int(ttl_s * 1e9))
    return Call("Token", "CreateToken", request, lambda answer: answer)


def tokens() -> Call[list[pb.Token]]:
    return Call("Token", "ListTokens", pb.ListTokensRequest(), lambda answer: list(answer.tokens))


def revoke_token(token_id: str) -> Call[None]:
    return Call("Token", "RevokeToken", pb.RevokeTokenRequest(token_id=_utf8(token_id)), lambda answer: None)
