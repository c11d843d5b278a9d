"""What all RPCs share: refusals as statuses with rich details (google.rpc), the latency metric, bounded streams."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status

from vgpud.api import slice_messages as views
from vgpud.api.caller import caller
from vgpud.core.model import Denied, Reason

log = logging.getLogger("vgpud.api")

#: counts a finished RPC: (method, code, seconds)
Observe = Callable[[str, str, float], None]

DOMAIN = "vgpud"
#: streams of a service: of all users who are no admins together, and of each admin; of one such user
WATCHERS_MAX, WATCHERS_PER_USER_MAX = 64, 16
#: bytes of a refusal: gRPC limits it to some 8 KiB, in which it appears three times
MESSAGE_BYTES_MAX = 1200
_CODES = {
    Reason.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.NO_CAPACITY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.PRECONDITION: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}


class RefusedError(Exception):
    """Ends an RPC with a refusal."""

    def __init__(self, refusal: Denied) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def _details(refusal: Denied) -> Iterable[Any]:
    info = {"field": refusal.field, "subject": refusal.subject}
    given = {k: v for k, v in info.items() if v}
    yield error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain=DOMAIN, metadata=given)
    if refusal.reason is Reason.INVALID:
        violation = error_details_pb2.BadRequest.FieldViolation(field=refusal.field, description=refusal.message)
        yield error_details_pb2.BadRequest(field_violations=[violation])
    elif refusal.reason is Reason.NO_CAPACITY:
        quota = error_details_pb2.QuotaFailure.Violation(subject=refusal.subject or "node", description=refusal.message)
        yield error_details_pb2.QuotaFailure(violations=[quota])
    elif refusal.reason is Reason.PRECONDITION:
        unmet = error_details_pb2.PreconditionFailure.Violation(type="SLICE_IN_USE", description=refusal.message)
        yield error_details_pb2.PreconditionFailure(violations=[unmet])


def _cut(text: str) -> str:
    """A message repeats what was given, and metadata that is too long ends the stream without any."""
    data = text.encode()
    return text if len(data) <= MESSAGE_BYTES_MAX else data[:MESSAGE_BYTES_MAX].decode(errors="ignore") + " ..."


async def abort(context: Any, refusal: Denied) -> None:
    """Ends the RPC with the refusal's status, message and details."""
    refusal = replace(refusal, message=_cut(refusal.message))
    code = _CODES[refusal.reason]
    status = status_pb2.Status(code=code.value[0], message=refusal.message)
    for detail in _details(refusal):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    await context.abort(code, refusal.message, rpc_status.to_status(status).trailing_metadata)


def unary(method: Callable[..., Any]) -> Callable[..., Any]:
    """An RPC from a method (self, request) -> response: refusals, faults and the latency metric in one place. `self`
    has the metric: observe."""

    @functools.wraps(method)
    async def call(self: Any, request: Any, context: Any) -> Any:
        begin_ns = time.monotonic_ns()
        code = "OK"
        try:
            response = method(self, request)
            return await response if inspect.isawaitable(response) else response
        except RefusedError as refused:
            code = _CODES[refused.refusal.reason].name
            return await abort(context, refused.refusal)
        except Exception:
            code = "INTERNAL"
            log.exception("%s failed", method.__name__)
            return await context.abort(grpc.StatusCode.INTERNAL, f"{method.__name__} failed: see the daemon's log")
        finally:
            self.observe(method.__name__, code, (time.monotonic_ns() - begin_ns) / 1e9)

    return call


def refuse(reason: Reason, message: str, field: str = "") -> RefusedError:
    """To be raised by a method of an RPC."""
    return RefusedError(Denied(reason, message, field=field))


def page(keyed_items: Sequence[tuple[str, Any]], request: Any) -> tuple[list[Any], str]:
    """The page that a request asks for, and the token of the next one."""
    try:
        return views.page(keyed_items, request.page_size, request.page_token)
    except ValueError as error:
        raise refuse(Reason.INVALID, str(error), "page_token") from error


def page_of(request: Any) -> tuple[int, str]:
    """How many items the page has that a request asks for, and the key after which it begins."""
    try:
        return views.page_of(request.page_size, request.page_token)
    except ValueError as error:
        raise refuse(Reason.INVALID, str(error), "page_token") from error


class Watching:
    """A service with streams."""

    def __init__(self) -> None:
        self._watchers: Counter[tuple[bool, int]] = Counter()  # by (admin, uid)

    def _why_no_more(self, admin: bool, uid: int) -> str:
        mine, most = self._watchers[admin, uid], WATCHERS_MAX if admin else WATCHERS_PER_USER_MAX
        if mine >= most:
            return f"{mine} watches of uid {uid} are open, which is the limit: close some"
        users = sum(count for (is_admin, _), count in self._watchers.items() if not is_admin)
        return "" if admin or users < WATCHERS_MAX else f"users have {users} watches open, which is the limit"

    async def _watching(self, context: Any, messages: AsyncGenerator[Any, None]) -> AsyncIterator[Any]:
        """Passes a stream on, with a bound on how many there are."""
        whose = caller().admin, caller().uid
        if why := self._why_no_more(*whose):
            await abort(context, Denied(Reason.NO_CAPACITY, why))
        self._watchers[whose] += 1
        try:
            async with contextlib.aclosing(messages):
                async for message in messages:
                    yield message
        except RefusedError as refused:
            await abort(context, refused.refusal)
        finally:
            self._watchers[whose] -= 1
            if not self._watchers[whose]:
                del self._watchers[whose]
