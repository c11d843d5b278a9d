"""A thin client around the generated stubs: the daemon's address, one method per call, and errors as messages.

The only module of the command line that imports grpc; it is imported by the commands that talk to the daemon.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

from vgpud.cli.common.exits import STATUS_CODES, CliError
from vgpud.cli.common.options import Settings
from vgpud.cli.common.target import find_target, probe
from vgpud.cli.common.users import named_users
from vgpud.client.channel import open_channel
from vgpud.client.grpc_import import grpc
from vgpud.errors import ExitCode
from vgpud.v1 import vgpud_pb2 as pb
from vgpud.v1 import vgpud_pb2_grpc as stubs

T = TypeVar("T")
C = TypeVar("C", bound="Client")

#: added to the daemon's own deadline, for its answer
SPARE_S = 15.0
PAGE_SIZE = 500
SLICE_LS = "`vgpu slice ls` shows whether it was carried out"
#: largest answer: the accounting of a month has tens of megabytes
ANSWER_BYTES_MAX = 256 << 20
#: UNAVAILABLE is retried a few times; every changing call carries a request_id, so nothing is done twice
_SERVICE_CONFIG = (
    '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.05s",'
    ' "maxBackoff": "0.5s", "backoffMultiplier": 3, "retryableStatusCodes": ["UNAVAILABLE"]}}]}'
)


#: statuses of the transport, after which the request may have been carried out
_UNANSWERED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "INTERNAL")
#: interval at which an unanswered changing call is repeated
REPEAT_S = 0.2


def _utf8(name: str) -> str:
    """A name as the API takes it. Raises CliError (usage) for bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CliError(f"name {os.fsencode(name)!r} is not UTF-8: use letters, digits and -", ExitCode.USAGE) from error
    return name


def _hint(error: grpc.RpcError) -> str:
    """The parts of the status details that the message lacks: violated fields and help, in their shortest form."""
    from google.rpc import error_details_pb2 as details  # type: ignore[import-untyped]
    from grpc_status import rpc_status

    status = rpc_status.from_call(error)  # type: ignore[arg-type]
    parts: list[str] = []
    for any_detail in status.details if status else ():
        for kind in (details.BadRequest, details.PreconditionFailure, details.QuotaFailure, details.Help):
            if any_detail.Is(kind.DESCRIPTOR):
                detail = kind()
                any_detail.Unpack(detail)
                parts += _detail_lines(detail)
    return "; ".join(dict.fromkeys(part for part in parts if part))


def _worded_by_daemon(error: grpc.RpcError) -> bool:
    """Whether the refusal has details: the daemon's own have them, those of the transport do not."""
    from grpc_status import rpc_status

    return rpc_status.from_call(error) is not None  # type: ignore[arg-type]


def _detail_lines(detail: Any) -> list[str]:
    if hasattr(detail, "field_violations"):
        return [v.description for v in detail.field_violations]
    if hasattr(detail, "violations"):
        return [v.description for v in detail.violations]
    return [link.description for link in detail.links]


def explain(error: grpc.RpcError, target: str, timeout_s: float) -> CliError:
    """The daemon's refusal as one line and an exit code."""
    name = error.code().name
    message = error.details() or name
    exit_code = STATUS_CODES.get(name, ExitCode.OTHER)
    if name == "DEADLINE_EXCEEDED":
        message = f"no answer from {target} within {timeout_s:g} s: try a longer --timeout, or see `vgpu doctor`"
    elif name == "UNAVAILABLE" and _worded_by_daemon(error):
        exit_code = ExitCode.OTHER  # the daemon answers: it cannot do this now, and says why
    elif name == "UNAVAILABLE":
        message = f"the daemon does not answer ({target}: {message}): see `vgpu doctor`"
    elif name == "UNIMPLEMENTED":
        message = f"the daemon at {target} does not know this call: it is older than this vgpu, see `vgpu version`"
    else:
        hint = _hint(error)
        if hint and hint not in message:
            message = f"{message}: {hint}"
    told = CliError(named_users(message), exit_code)
    told.unanswered = name in _UNANSWERED and not _worded_by_daemon(error)
    return told


class Client:
    """A connection to the daemon; use it in a `with`. Methods raise CliError."""

    def __init__(self, settings: Settings, check: bool = True) -> None:
        self.target, self._context = find_target(settings.host)
        self.timeout_s = settings.timeout_s
        if check:
            probe(self.target)
        options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0), ("grpc.service_config", _SERVICE_CONFIG)]
        options.append(("grpc.max_receive_message_length", ANSWER_BYTES_MAX))
        options += [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
        self._channel = open_channel(self.target, self._context, options)
        self._node = stubs.NodeServiceStub(self._channel)
        self._slices = stubs.SliceServiceStub(self._channel)
        self._events = stubs.EventServiceStub(self._channel)

    @property
    def remote(self) -> bool:
        """Whether the daemon is another machine's."""
        return self._context is not None

    @property
    def own_uid(self) -> int:
        """The uid that this user has on the daemon's machine."""
        return self._context.uid if self._context else os.getuid()

    def __enter__(self: C) -> C:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._channel.close()

    def _call(self, method: Callable[..., T], request: Any, timeout_s: float = 0.0) -> T:
        """timeout_s: for calls that may take longer than --timeout; 0 = --timeout."""
        timeout_s = timeout_s or self.timeout_s
        try:
            return method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise self._explained(error, timeout_s) from error

    def _explained(self, error: grpc.RpcError, timeout_s: float) -> CliError:
        told = explain(error, self.target, timeout_s)
        if self._context and told.exit_code == ExitCode.UNREACHABLE:
            from vgpud.client.tls import why_unreachable

            why = why_unreachable(self._context, self.target)
            if why:
                unanswered, told = told.unanswered, CliError(why, ExitCode.UNREACHABLE)
                told.unanswered = unanswered
        return told

    def _repeat(self, method: Callable[..., T], request: Any, ask_again: str) -> T:
        """A changing call, repeated with the same request_id while it is not answered, for --timeout in all.

        `ask_again`: how the user can find out whether it was carried out, if that is unknown at the end.
        """
        until = time.monotonic() + self.timeout_s
        first: CliError | None = None  # a better reason than that of a last, short attempt
        while True:
            try:
                return self._call(method, request, max(until - time.monotonic(), REPEAT_S))
            except CliError as error:
                first = first or (error if error.unanswered else None)
                if error.unanswered and time.monotonic() + REPEAT_S < until:
                    time.sleep(REPEAT_S)
                    continue
                if not first or error.exit_code == ExitCode.USAGE:
                    raise
                told = first if error.unanswered else error
                text = f"{told.message}; it may have been accepted: {ask_again}"
                raise CliError(text, ExitCode(told.exit_code)) from error

    def _stream(self, method: Callable[..., Any], request: Any) -> Iterator[Any]:
        try:
            yield from method(request)
        except grpc.RpcError as error:
            raise self._explained(error, self.timeout_s) from error

    def _pages(self, method: Callable[..., Any], request: Any, field: str) -> list[Any]:
        rows: list[Any] = []
        request.page_size = PAGE_SIZE
        while True:
            answer = self._call(method, request)
            rows.extend(getattr(answer, field))
            if not answer.next_page_token:
                return rows
            request.page_token = answer.next_page_token

    def node(self) -> pb.Node:
        return self._call(self._node.GetNode, pb.GetNodeRequest()).node

    def devices(self) -> list[pb.Device]:
        return self._pages(self._node.ListDevices, pb.ListDevicesRequest(), "devices")

    def drain_device(self, device: str, reason: str) -> pb.Device:
        """Drains the device with this UUID or index: nothing new is placed on it."""
        request = pb.DrainDeviceRequest(device_uuid=_utf8(device), reason=reason)
        return self._call(self._node.DrainDevice, request).device

    def undrain_device(self, device: str) -> pb.Device:
        return self._call(self._node.UndrainDevice, pb.UndrainDeviceRequest(device_uuid=_utf8(device))).device

    def slices(self) -> list[pb.Slice]:
        return self._pages(self._slices.ListSlices, pb.ListSlicesRequest(), "slices")

    def processes(self, slice_name: str = "") -> list[pb.Process]:
        return self._pages(self._slices.ListProcesses, pb.ListProcessesRequest(slice=_utf8(slice_name)), "processes")

    def events(self) -> list[pb.Event]:
        return self._pages(self._events.ListEvents, pb.ListEventsRequest(), "events")

    def get_slice(self, name: str) -> pb.Slice:
        return self._call(self._slices.GetSlice, pb.GetSliceRequest(name=_utf8(name))).slice

    def create_slice(
        self,
        name: str,
        spec: pb.SliceSpec,
        *,
        ephemeral: bool,
        owner_uid: int,
        cdi_device: bool = False,
        queue: str = "",
    ) -> pb.Slice:
        request = pb.CreateSliceRequest(
            request_id=str(uuid.uuid4()),
            name=_utf8(name),
            spec=spec,
            ephemeral=ephemeral,
            owner_uid=owner_uid,
            cdi_device=cdi_device,
            queue=_utf8(queue),
        )
        return self._repeat(self._slices.CreateSlice, request, SLICE_LS).slice

    def update_slice(self, name: str, spec: pb.SliceSpec, fields: Sequence[str] = ()) -> pb.Slice:
        """Sets these fields as in `spec`, unset ones to their defaults; no fields: those that `spec` sets."""
        request = pb.UpdateSliceRequest(request_id=str(uuid.uuid4()), name=_utf8(name), spec=spec)
        request.update_mask.paths.extend(fields)
        return self._repeat(self._slices.UpdateSlice, request, SLICE_LS).slice

    def delete_slice(self, name: str, force: bool = False) -> None:
        request = pb.DeleteSliceRequest(request_id=str(uuid.uuid4()), name=_utf8(name), force=force)
        self._repeat(self._slices.DeleteSlice, request, SLICE_LS)

    def suspend_slice(self, name: str, evict: bool, deadline_s: float) -> pb.Slice:
        """Pauses a slice, or moves its memory to the host. Waits as long as the daemon's own deadline."""
        request = pb.SuspendSliceRequest(name=_utf8(name), evict=evict)
        request.deadline.FromNanoseconds(int(deadline_s * 1e9))
        return self._call(self._slices.SuspendSlice, request, max(self.timeout_s, deadline_s + SPARE_S)).slice

    def resume_slice(self, name: str, deadline_s: float) -> pb.Slice:
        request = pb.ResumeSliceRequest(name=_utf8(name))
        request.deadline.FromNanoseconds(int(deadline_s * 1e9))
        return self._call(self._slices.ResumeSlice, request, max(self.timeout_s, deadline_s + SPARE_S)).slice

    def watch_slices(self, interval_ms: int) -> Iterator[pb.WatchSlicesResponse]:
        """All slices and devices, again every interval_ms and at every change."""
        return self._stream(self._slices.WatchSlices, pb.WatchSlicesRequest(interval_ms=interval_ms))

    def watch_trace(self, name: str) -> Iterator[pb.WatchTraceResponse]:
        """Trace events of the arbiters of a slice's devices, as they come; some answers are empty."""
        return self._stream(self._slices.WatchTrace, pb.WatchTraceRequest(name=_utf8(name)))

    def watch_events(self, after_sequence: int) -> Iterator[pb.Event]:
        """Events later than after_sequence, as they come."""
        answers = self._stream(self._events.WatchEvents, pb.WatchEventsRequest(after_sequence=after_sequence))
        return (answer.event for answer in answers)
