"""Carries out what the core has decided: on arbiters, attach sockets, CDI files, containers, and in the event log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from vgpud.attach.server import Tenants
from vgpud.containers.server import Containers
from vgpud.core import events as ev
from vgpud.core.model import Slice
from vgpud.daemon.cdi import DeviceFiles
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters


class SliceObserver(Protocol):
    """What hears of changes to slices and of the capacity that is left for others."""

    def slice_changed(self, slice_: Slice) -> None: ...

    def slice_goes(self, slice_: Slice) -> None:
        """Before its counters go."""
        ...

    def capacity_changed(self) -> None: ...


class Effects:
    """Carries out the commands of one machine; `observers` hear of slices and capacity from when they are added."""

    def __init__(
        self,
        machine: SliceMachine,
        events: EventRecorder,
        changes: ChangeSignal,
        arbiters: Arbiters,
        tenants: Tenants,
        containers: Containers,
        files: DeviceFiles,
    ) -> None:
        self._events = events
        self._changes = changes
        self._arbiters = arbiters
        self._tenants = tenants
        self.observers: list[SliceObserver] = []
        #: what carries out each command; those that are not here are for the store, or answers
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.ApplySlice: self._apply_slice,
            ev.RemoveSlice: self._remove_slice,
            ev.SaveDrain: lambda command: self.capacity_changed(),
            ev.ForgetDrain: lambda command: self.capacity_changed(),
            ev.OpenSocket: self._open_socket,
            ev.CloseSocket: self._close_socket,
            ev.ForgetContainer: lambda command: containers.forget(command.container_id),
            ev.OpenDevice: lambda command: files.open(machine.state.slices[command.slice_name]),
            ev.CloseDevice: lambda command: files.close(command.slice_name),
            ev.DropProcess: lambda command: tenants.drop(command.process_id),
            ev.Log: events.note,
        }

    def carry_out(self, commands: Iterable[ev.Command]) -> None:
        """In their order. Raises OSError; the rest is then left out."""
        commands = list(commands)
        for command in commands:
            if isinstance(command, ev.RemoveSlice):
                self._events.log.remember_owner(command.slice.name, command.slice.owner_uid)
        for command in commands:
            if handler := self._handlers.get(type(command)):
                handler(command)
        self._changes.wake()

    def capacity_changed(self) -> None:
        """Others than slices have more or less of the devices than before."""
        for observer in self.observers:
            observer.capacity_changed()

    def _apply_slice(self, command: ev.ApplySlice) -> None:
        self._arbiters.apply(command.slice, command.dropped_uuids)
        for observer in self.observers:
            observer.slice_changed(command.slice)

    def _remove_slice(self, command: ev.RemoveSlice) -> None:
        for observer in self.observers:
            observer.slice_goes(command.slice)
        self._arbiters.remove(command.slice)

    def _open_socket(self, command: ev.OpenSocket) -> None:
        self._tenants.close(command.slice_name, keep_file=True)  # one that was left over
        self._tenants.open(command.slice_name)

    def _close_socket(self, command: ev.CloseSocket) -> None:
        self._tenants.close(command.slice_name)
        self._events.log.forget_noise(command.slice_name)
