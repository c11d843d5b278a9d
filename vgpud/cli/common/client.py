"""The command line's client: vgpud.client's connection and calls, with answers as messages and errors as CliError.

Imported by the commands that talk to the daemon when they do: it loads grpc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import say
from vgpud.cli.common.starting import wait_for_starting_daemon
from vgpud.client import calls
from vgpud.client.calls import Call, Watched
from vgpud.client.connection import Connection
from vgpud.client.failures import ClientError
from vgpud.client.target import find_target, probe
from vgpud.errors import ExitCode, VgpudError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.errors import make_cli_error

T = TypeVar("T")


def _is_starting(settings: Settings) -> bool:
    """Whether this machine's daemon, which did not answer, was starting, and does by now. One that was named, by an
    option or the environment, is not waited for: it may be any."""
    target, context = find_target(settings.host)
    if settings.host or os.environ.get("VGPU_HOST") or context:
        return False

    def answers() -> bool:
        try:
            probe(target)
        except VgpudError:
            return False
        return True

    return wait_for_starting_daemon(answers, settings.timeout_s, say)


class Client(Connection):
    """A connection to the daemon; use it in a `with`. Methods raise CliError."""

    def __init__(self, settings: Settings, check: bool = True) -> None:
        try:
            try:
                super().__init__(settings.host, timeout_s=settings.timeout_s, check=check)
            except VgpudError as error:
                if error.exit_code != ExitCode.UNREACHABLE or not _is_starting(settings):
                    raise
                super().__init__(settings.host, timeout_s=settings.timeout_s, check=check)
        except VgpudError as error:
            raise make_cli_error(error) from error

    @property
    def own_uid(self) -> int:
        """The uid that this user has on the daemon's machine."""
        return self._context.uid if self._context else os.getuid()

    def send(self, call: Call[T]) -> T:
        try:
            return super().send(call)
        except ClientError as error:
            raise make_cli_error(error, self.remote) from error

    def watch(self, watch_call: Watched[T]) -> Iterator[T]:
        try:
            yield from super().watch(watch_call)
        except ClientError as error:
            raise make_cli_error(error, self.remote) from error

    def node(self) -> pb.Node:
        return self.send(calls.node())

    def devices(self) -> list[pb.Device]:
        return self.all(calls.devices())

    def drain_device(self, device: str, reason: str) -> pb.Device:
        """Drains the device with this UUID or index: nothing new is placed on it."""
        return self.send(calls.drain_device(device, reason))

    def undrain_device(self, device: str) -> pb.Device:
        return self.send(calls.undrain_device(device))

    def slices(self) -> list[pb.Slice]:
        return self.all(calls.slices())

    def processes(self, slice_name: str = "") -> list[pb.Process]:
        return self.all(calls.processes(slice_name))

    def events(self) -> list[pb.Event]:
        return self.all(calls.events())

    def get_slice(self, name: str) -> pb.Slice:
        return self.send(calls.get_slice(name))

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
        call = calls.create_slice(
            name, spec, ephemeral=ephemeral, owner_uid=owner_uid, cdi_device=cdi_device, queue=queue
        )
        return self.send(call)

    def update_slice(self, name: str, spec: pb.SliceSpec, fields: Sequence[str] = ()) -> pb.Slice:
        """Sets these fields as in `spec`, unset ones to their defaults; no fields: those that `spec` sets."""
        return self.send(calls.update_slice(name, spec, fields))

    def delete_slice(self, name: str, force: bool = False) -> None:
        self.send(calls.delete_slice(name, force))

    def suspend_slice(self, name: str, evict: bool, deadline_s: float) -> pb.Slice:
        """Pauses a slice, or moves its memory to the host. Waits as long as the daemon's own deadline."""
        return self.send(calls.suspend_slice(name, evict, deadline_s))

    def resume_slice(self, name: str, deadline_s: float) -> pb.Slice:
        return self.send(calls.resume_slice(name, deadline_s))

    def watch_slices(self, interval_ms: int) -> Iterator[pb.WatchSlicesResponse]:
        """All slices and devices, again every interval_ms and at every change."""
        return self.watch(calls.watch_slices(interval_ms))

    def watch_trace(self, name: str) -> Iterator[pb.WatchTraceResponse]:
        """Trace events of the arbiters of a slice's devices, as they come; some answers are empty."""
        return self.watch(calls.watch_trace(name))

    def watch_events(self, after_sequence: int) -> Iterator[pb.Event]:
        """Events later than after_sequence, as they come."""
        return self.watch(calls.watch_events(after_sequence))
