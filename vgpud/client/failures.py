"""What went wrong with a call, as one sentence and an exit code: the daemon's refusals, and failures on the way."""

from __future__ import annotations

from typing import Any

from vgpud.errors import ExitCode, VgpudError

#: gRPC status name -> exit code; anything else is OTHER
STATUS_CODES: dict[str, ExitCode] = {
    "INVALID_ARGUMENT": ExitCode.USAGE,
    "OUT_OF_RANGE": ExitCode.USAGE,
    "UNAVAILABLE": ExitCode.UNREACHABLE,
    "NOT_FOUND": ExitCode.NOT_FOUND,
    "PERMISSION_DENIED": ExitCode.DENIED,
    "UNAUTHENTICATED": ExitCode.DENIED,
    "RESOURCE_EXHAUSTED": ExitCode.NO_CAPACITY,
    "DEADLINE_EXCEEDED": ExitCode.TIMED_OUT,
    "ALREADY_EXISTS": ExitCode.CONFLICT,
    "FAILED_PRECONDITION": ExitCode.CONFLICT,
    "ABORTED": ExitCode.CONFLICT,
}
#: statuses of the transport, after which the request may have been carried out
_UNANSWERED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")


class ClientError(VgpudError):
    """A call failed. The message is one line that names the value and the remedy."""

    def __init__(self, message: str, exit_code: ExitCode, *, status: str = "", is_unanswered: bool = False) -> None:
        super().__init__(message, exit_code)
        self.status = status  # gRPC's name of it, such as NOT_FOUND; "" = refused before it was sent
        self.is_unanswered = is_unanswered  # the daemon may have carried it out although no answer arrived

    @property
    def message(self) -> str:
        return str(self)


class InvalidRequestError(ClientError):
    """The request is invalid: a value is out of range, or contradicts another one."""


class UnreachableError(ClientError):
    """The daemon does not answer."""


class TimedOutError(ClientError):
    """No answer in time."""


class NotFoundError(ClientError):
    """There is no such slice, device, job or queue."""


class NotAllowedError(ClientError):
    """The caller may not do this."""


class NoCapacityError(ClientError):
    """There is too little free capacity, or a quota is used up."""


class StateConflictError(ClientError):
    """The name is taken, or the slice, job or queue is in a state that does not allow this."""


_CLASSES: dict[ExitCode, type[ClientError]] = {
    ExitCode.USAGE: InvalidRequestError,
    ExitCode.UNREACHABLE: UnreachableError,
    ExitCode.TIMED_OUT: TimedOutError,
    ExitCode.NOT_FOUND: NotFoundError,
    ExitCode.DENIED: NotAllowedError,
    ExitCode.NO_CAPACITY: NoCapacityError,
    ExitCode.CONFLICT: StateConflictError,
}


def make_error(message: str, exit_code: ExitCode, *, status: str = "", is_unanswered: bool = False) -> ClientError:
    """A ClientError of the class for this exit code."""
    return _CLASSES.get(exit_code, ClientError)(message, exit_code, status=status, is_unanswered=is_unanswered)


def explain(error: Any, target: str, timeout_s: float) -> ClientError:
    """Of a grpc.RpcError."""
    from grpc_status import rpc_status

    name = error.code().name
    message = error.details() or name
    exit_code = STATUS_CODES.get(name, ExitCode.OTHER)
    status = rpc_status.from_call(error)  # the daemon's own refusals have details, those of the transport do not
    if name == "DEADLINE_EXCEEDED":
        message = f"no answer from {target} within {timeout_s:g} s: try a longer --timeout, or see `vgpu doctor`"
    elif name == "UNAVAILABLE" and status is not None:
        exit_code = ExitCode.OTHER  # the daemon answers: it cannot do this now, and says why
    elif name == "UNAVAILABLE":
        message = f"the daemon does not answer ({target}: {message}): see `vgpu doctor`"
    elif name == "UNIMPLEMENTED":
        message = f"the daemon at {target} does not know this call: it is older than this vgpu, see `vgpu version`"
    else:
        hint = _hint(status)
        if hint and hint not in message:
            message = f"{message}: {hint}"
    return make_error(message, exit_code, status=name, is_unanswered=name in _UNANSWERED and status is None)


def _hint(status: Any) -> str:
    """The parts of the status details that the message lacks: violated fields and help, in their shortest form."""
    from google.rpc import error_details_pb2 as details  # type: ignore[import-untyped]

    parts: list[str] = []
    for any_detail in status.details if status else ():
        for kind in (details.BadRequest, details.PreconditionFailure, details.QuotaFailure, details.Help):
            if any_detail.Is(kind.DESCRIPTOR):
                detail = kind()
                any_detail.Unpack(detail)
                parts += _detail_lines(detail)
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _detail_lines(detail: Any) -> list[str]:
    if hasattr(detail, "field_violations"):
        return [v.description for v in detail.field_violations]
    if hasattr(detail, "violations"):
        return [v.description for v in detail.violations]
    return [link.description for link in detail.links]
