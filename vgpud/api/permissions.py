"""Who may call what: one table, applied in one place, before any service is called.

The caller is known from the proxy at the socket (by peer credentials). No user may call a method without a row, nor any
method on a connection that has not come through the proxy. Answers that list things of several users are filtered by
the services, with caller().
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc

from vgpud.api.caller import Caller, set_caller
from vgpud.api.decoding import DecodeError, decode, decode_stream
from vgpud.api.peer_proxy import Peer
from vgpud.api.rpc import RefusedError, abort
from vgpud.api.tokens import Tokens, secret_in
from vgpud.api.turns import WAITING_MAX, Turn, Turns, begin, breathe
from vgpud.core.fairness.accounts import ADMINS
from vgpud.core.model import Denied, Reason
from vgpud.oci.request import Limits
from vgpud.v1alpha1 import vgpud_pb2 as pb


class Who(Enum):
    """The users who may call a method; the value is the text of docs/security/api.md."""

    EVERY_USER = "any user who may connect"
    SLICE_USER = "the slice's owner; any user if the slice is open to every user"
    SLICE_OWNER = "the slice's owner"
    JOB_OWNER = "the job's owner"
    WORKER = "the job's owner, for the job that the stream names first"
    SESSION_OWNER = "the session's owner, for the session that the stream names first; no admin"
    VIEWER = (
        "the job's owner, for the job that the stream names first; admins only if they say so, as an event of the job"
    )
    ADMIN = "admins"


@dataclass(frozen=True, slots=True)
class Row:
    """`field`: where the request names the slice or the job (or several). `spec`: where the requested slice is, which
    is bounded for users who are no admins; `job`: where the job is, whose priority is bounded. `shows`: what users who
    are no admins are shown of an answer about all."""

    who: Who
    field: str = ""
    spec: str = ""
    job: str = ""
    shows: str = ""


_MINE = "their own"
_NODE, _SLICE, _EVENT, _JOB, _QUEUE = (
    f"/vgpud.v1alpha1.{n}Service/" for n in ("Node", "Slice", "Event", "Job", "Queue")
)
_CLAIM, _TOKEN = "/vgpud.v1alpha1.ClaimService/", "/vgpud.v1alpha1.TokenService/"
_HISTORY = "/vgpud.v1alpha1.HistoryService/"
_HEALTH = "/grpc.health.v1.Health/"
#: jobs that one request may name: each is looked up before anything else is done
JOBS_NAMED_MAX = 10_000
#: streams of one user, of all services, health and reflection too: each costs memory while it is open
STREAMS_PER_USER_MAX = 128

METHODS: dict[str, Row] = {
    _NODE + "GetNode": Row(Who.EVERY_USER),
    _NODE + "ListDevices": Row(Who.EVERY_USER, shows="all; other users' shares as sums"),
    _NODE + "SetArbiterParams": Row(Who.ADMIN),
    _NODE + "DrainDevice": Row(Who.ADMIN),
    _NODE + "UndrainDevice": Row(Who.ADMIN),
    _SLICE + "CreateSlice": Row(Who.EVERY_USER, spec="spec", shows="their own slice"),
    _SLICE + "GetSlice": Row(Who.SLICE_USER, "name"),
    _SLICE + "ListSlices": Row(Who.EVERY_USER, shows="their own, and those open to every user"),
    _SLICE + "UpdateSlice": Row(Who.SLICE_OWNER, "name", spec="spec"),
    _SLICE + "DeleteSlice": Row(Who.SLICE_OWNER, "name"),
    _SLICE + "WatchSlices": Row(Who.EVERY_USER, shows="as ListSlices and ListDevices"),
    _SLICE + "ListProcesses": Row(
        Who.SLICE_USER, "slice", shows="processes in their own slices, and their own processes"
    ),
    _SLICE + "WatchTrace": Row(Who.SLICE_OWNER, "name", shows="nothing of the slice's neighbours"),
    _SLICE + "SuspendSlice": Row(Who.SLICE_OWNER, "name"),
    _SLICE + "ResumeSlice": Row(Who.SLICE_OWNER, "name"),
    _CLAIM + "PrepareClaim": Row(Who.ADMIN),
    _CLAIM + "UnprepareClaim": Row(Who.ADMIN),
    _CLAIM + "ReportPublication": Row(Who.ADMIN),
    _CLAIM + "GetPublication": Row(Who.EVERY_USER, shows="all; not why a driver cannot publish"),
    _EVENT + "ListEvents": Row(
        Who.EVERY_USER, shows="those of their own slices and jobs, and of devices drained, taken or offered"
    ),
    _EVENT + "WatchEvents": Row(Who.EVERY_USER, shows="as ListEvents"),
    _JOB + "SubmitJob": Row(Who.EVERY_USER, spec="spec.slice", job="spec", shows="their own job"),
    _JOB + "ListEnvironments": Row(Who.EVERY_USER, shows="those that they may use"),
    _JOB + "GetJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "ListJobs": Row(Who.EVERY_USER, shows=_MINE),
    _JOB + "CancelJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "HoldJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "ReleaseJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "RequeueJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "SuspendJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "ResumeJob": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "UpdateJob": Row(Who.JOB_OWNER, "job_id", spec="spec.slice", job="spec", shows="their own job"),
    _JOB + "WatchJobs": Row(Who.JOB_OWNER, "job_ids", shows=_MINE),
    _JOB + "ExplainJob": Row(
        Who.JOB_OWNER,
        "job_id",
        shows="neighbours' shares and use of its devices, with their jobs' numbers; not their users",
    ),
    _JOB + "ReportProgress": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "Work": Row(Who.WORKER),
    _JOB + "ReportSessionUse": Row(Who.JOB_OWNER, "job_id"),
    _JOB + "ForwardSession": Row(Who.SESSION_OWNER),
    _JOB + "AttachJob": Row(Who.VIEWER),
    _QUEUE + "ListQueues": Row(Who.EVERY_USER, shows="all; other users' shares as sums"),
    _QUEUE + "SetQueue": Row(Who.ADMIN),
    _QUEUE + "DeleteQueue": Row(Who.ADMIN),
    _QUEUE + "GetUsage": Row(Who.EVERY_USER, shows=_MINE),
    _QUEUE + "ListReservations": Row(Who.EVERY_USER, shows="all"),
    _QUEUE + "CreateReservation": Row(Who.ADMIN),
    _QUEUE + "DeleteReservation": Row(Who.ADMIN),
    _TOKEN + "CreateToken": Row(Who.EVERY_USER, shows="a token for themselves"),
    _TOKEN + "ListTokens": Row(Who.EVERY_USER, shows=_MINE),
    _TOKEN + "RevokeToken": Row(Who.EVERY_USER, shows=_MINE),
    _HISTORY + "GetHistory": Row(
        Who.EVERY_USER,
        shows="their own slices, jobs and sums; slices open to every user; devices; sums of queues that they may use",
    ),
    _HEALTH + "Check": Row(Who.EVERY_USER),
    _HEALTH + "List": Row(Who.EVERY_USER),
    _HEALTH + "Watch": Row(Who.EVERY_USER),
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": Row(Who.EVERY_USER),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Row(Who.EVERY_USER),
}


@dataclass(frozen=True, slots=True)
class Site:
    """What is asked of the daemon before a call is let through. An owner is None: there is no such slice or job."""

    slice_owner: Callable[[str], int | None]
    job_owner: Callable[[int], int | None]
    user_limits: Callable[[], Limits]
    job_priority_max: Callable[[], int]


async def why_not(row: Row | None, who: Caller, request: Any, site: Site) -> Denied | None:
    """Why this caller may not have this request's answer. A missing object is reported by the method."""
    if row is None:
        return _deny("no user may call this method: it is in no table of permissions")
    if who.admin:
        return None
    if row.who is Who.ADMIN:
        return _deny(f"only admins may do this, and uid {who.uid} is none: see admin_group in the configuration")
    if row.who is Who.JOB_OWNER:
        denied = await _why_not_jobs(_numbers(getattr(request, row.field)), who, site, row.field)
        if denied:
            return denied
    if row.who in (Who.SLICE_OWNER, Who.SLICE_USER):
        name = getattr(request, row.field)
        owner = site.slice_owner(name) if name else None
        may = owner is None or who.owns(owner) or (row.who is Who.SLICE_USER and who.sees(owner))
        if not may:
            return _deny(f"slice {name!r} does not belong to uid {who.uid}: ask its owner or an admin", row.field)
    if row.job:
        refusal = _why_not_priority(_field_at(request, row.job).priority, site.job_priority_max())
        if refusal:
            return refusal
    return _why_not_spec(_field_at(request, row.spec), site.user_limits()) if row.spec else None


def _why_not_priority(priority: int, priority_max: int) -> Denied | None:
    """A user who could set any priority would precede all others; a lower priority than the default is always
    allowed."""
    if priority <= priority_max:
        return None
    text = f"priority {priority} is more than users' jobs may have: at most"
    text += f" {priority_max} (job_priority_max), or ask an admin"
    return _deny(text, "priority")


async def _why_not_jobs(job_ids: tuple[int, ...], who: Caller, site: Site, field: str) -> Denied | None:
    if len(job_ids) > JOBS_NAMED_MAX:
        return Denied(Reason.INVALID, f"{len(job_ids)} jobs are named: at most {JOBS_NAMED_MAX} are allowed", field)
    for job_id in sorted(set(job_ids)):
        owner = site.job_owner(job_id)
        if owner is not None and not who.owns(owner):
            return _deny(f"job {job_id} does not belong to uid {who.uid}: ask its owner or an admin", field)
        await breathe()
    return None


def _why_not_spec(spec: Any, limits: Limits) -> Denied | None:
    """What would take other users' time is bounded as it is for containers."""
    if spec.priority > limits.priority:
        text = f"priority {spec.priority} is more than users may ask for: at most {limits.priority}"
        return _deny(f"{text} (container_priority_max), or ask an admin", "priority")
    if spec.service_class == pb.SERVICE_CLASS_LATENCY and not limits.latency:
        return _deny("class latency is not for users here (container_latency): ask an admin", "service_class")
    return None


def _deny(text: str, field: str = "") -> Denied:
    return Denied(Reason.DENIED, text, field)


def _numbers(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _field_at(request: Any, path: str) -> Any:
    for name in path.split("."):
        request = getattr(request, name)
    return request


class Authorizer(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic for type checkers only
    """Interceptor of every method of the server: checks permissions and bounds, and waits for the turn of the
    caller."""

    def __init__(
        self,
        site: Site,
        peer: Callable[[str], Peer | None],
        turns: Turns | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        self._site = site
        self._peer = peer
        self._turns = turns or Turns()
        self._tokens = tokens or Tokens()
        self._guarded: dict[str, Any] = {}  # by method
        self._streams: Counter[int] = Counter()  # by uid, for users who are no admins
        self.admin_gid = -1  # group whose members are admins, -1 = none

    async def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        guarded = self._guarded.get(details.method)
        if guarded is None:
            handler = await continuation(details)
            if handler is None:
                return None  # the server answers that there is no such method
            guarded = self._guarded[details.method] = self._guard(handler, METHODS.get(details.method))
        return guarded

    def is_admin(self, peer: Peer) -> bool:
        return peer.is_trusted or (self.admin_gid >= 0 and self.admin_gid in (peer.gid, *peer.gids))

    def _who(self, context: Any) -> Caller:
        """Whose call it is. Raises RefusedError."""
        peer = self._peer(context.peer())
        if peer is None:
            text = "the caller is not known: connect to the daemon's public socket, as a user that its namespace has"
            raise RefusedError(_deny(text))
        if peer.refusal:
            raise RefusedError(Denied(Reason.UNAUTHENTICATED, peer.refusal))
        remote, certificate, token_id = bool(peer.certificate), peer.certificate, ""
        try:
            secret = secret_in(context.invocation_metadata())
        except ValueError as error:
            raise RefusedError(Denied(Reason.UNAUTHENTICATED, str(error))) from error
        if secret is not None:
            token = self._tokens.find(secret)
            if token is None:
                text = "this token has expired, was revoked, or is of a daemon that was restarted: make a new one"
                raise RefusedError(Denied(Reason.UNAUTHENTICATED, text))
            peer, token_id = token.peer, token.token_id
        admin = self.is_admin(peer)
        return Caller(
            peer.uid,
            peer.gid,
            peer.gids,
            peer.pid,
            admin,
            peer.start_ticks,
            remote or bool(token_id),
            certificate,
            token_id,
        )

    async def _queue(self, context: Any) -> tuple[Caller, Turn]:
        """Waits for the caller's turn, or ends the call."""
        try:
            who = self._who(context)
        except RefusedError as error:
            await abort(context, error.refusal)
            raise  # abort() has raised
        key = ADMINS if who.admin else who.uid
        if self._turns.waiting(key) >= WAITING_MAX:
            text = f"uid {who.uid} has {WAITING_MAX} waiting calls, the most allowed: make fewer at a time"
            await abort(context, Denied(Reason.NO_CAPACITY, text, subject=f"uid {who.uid}"))
        await self._turns.wait(key)
        set_caller(who)
        turn = Turn(self._turns, key)
        begin(turn)
        return who, turn

    def _guard(self, handler: Any, row: Row | None) -> Any:
        """The same method behind the table. Requests that are streams name nothing, so their rows have no field."""
        behaviour = next(
            b for b in (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream) if b
        )
        parse = handler.request_deserializer

        def pack(message: Any) -> bytes:
            """What is packed already, in its user's turn, stays so."""
            return message if isinstance(message, bytes) else handler.response_serializer(message)

        async def check_request(raw_request: Any, who: Caller) -> Any:
            """The request. Raises DecodeError, RefusedError."""
            request = decode_stream(parse, raw_request) if handler.request_streaming else decode(parse, raw_request)
            denied = await why_not(row, who, request, self._site)
            if denied:
                raise RefusedError(denied)
            return request

        async def answer(raw_request: Any, context: Any, who: Caller) -> Any:
            return pack(await behaviour(await check_request(raw_request, who), context))

        async def single(raw_request: Any, context: Any) -> Any:
            who, turn = await self._queue(context)
            try:
                return await turn.run(answer(raw_request, context, who))
            except (DecodeError, RefusedError) as error:
                await abort(context, _refusal(error))

        async def stream(raw_request: Any, context: Any) -> None:
            who, turn = await self._queue(context)
            if not who.admin and self._streams[who.uid] >= STREAMS_PER_USER_MAX:
                text = f"{STREAMS_PER_USER_MAX} streams of uid {who.uid} are open, which is the limit: close some"
                await abort(context, Denied(Reason.NO_CAPACITY, text))
            self._streams[who.uid] += not who.admin
            try:
                messages = behaviour(await turn.run(check_request(raw_request, who)), context)
                if not hasattr(messages, "__aiter__"):  # it writes its answers by itself
                    await messages
                    return
                await _send(messages, turn, context)
            except (DecodeError, RefusedError) as error:
                await abort(context, _refusal(error))
            finally:
                self._streams[who.uid] -= not who.admin
                self._streams += Counter()  # removes zero counts

        handler_types = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        make = handler_types[handler.request_streaming, handler.response_streaming]
        # requests are decoded here: gRPC would answer UNKNOWN to invalid ones
        return make(stream if handler.response_streaming else single, None, pack)


async def _send(messages: Any, turn: Turn, context: Any) -> None:
    """A stream's messages, each in its turn; however that ends, the stream knows."""
    async with contextlib.aclosing(messages):
        while True:
            try:
                message = await turn.run(anext(messages))
            except StopAsyncIteration:
                return
            await turn.message()
            await context.write(message)


def _refusal(error: DecodeError | RefusedError) -> Denied:
    return error.refusal if isinstance(error, RefusedError) else Denied(Reason.INVALID, str(error))
