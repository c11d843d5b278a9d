"""The part of the composition root that the attach sockets need: attachment to a slice, its usage, ends of processes.

Made by Daemon; decided by the core, with the arbiters' counters.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vgpud.attach.messages import uuid_text
from vgpud.attach.server import Attachment, Greeting, Usage
from vgpud.core import events as ev
from vgpud.core.model import Denied, Device, Process, Reason, Slice
from vgpud.core.slices import bounds, pending
from vgpud.core.slices.attach_rules import Rules, attach_rules
from vgpud.core.slices.make import unknown
from vgpud.daemon.containers import ContainerBackend
from vgpud.daemon.slices.counters import Counters
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.nvml import Devices

#: how often and how long the driver is asked whether it still lists a process that has ended
LISTED_EVERY_S = 0.05
LISTED_MAX_S = 5.0
#: threads that ask it
ASKERS = 4


class AttachBackend:
    """attach.server.Backend."""

    def __init__(
        self,
        machine: SliceMachine,
        events: EventRecorder,
        counters: Counters,
        arbiters: Arbiters,
        devices: Devices,
        containers: ContainerBackend,
    ) -> None:
        self._machine = machine
        self._events = events
        self._counters = counters
        self._arbiters = arbiters
        self._devices = devices
        self._containers = containers
        self._leaving: set[asyncio.Task[None]] = set()
        # of our own: a driver that hangs must not take the threads in which others wait for the disk
        self._askers = ThreadPoolExecutor(ASKERS, "listed")

    async def stop(self) -> None:
        """Waits for the driver no more."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        self._askers.shutdown(wait=False, cancel_futures=True)

    def attach(self, greeting: Greeting) -> Attachment | Denied:
        """Decides about a program that wants to join its slice."""
        process = Process(
            process_id=greeting.process_id,
            slice_name=greeting.slice_name,
            pid=greeting.pid,
            uid=greeting.uid,
            program=greeting.program,
            attached_wall_ns=time.time_ns(),
            is_resumed=greeting.is_resumed,
            holder=greeting.holder,
            container_id=greeting.container_id,
            account=greeting.account,
        )
        found = self._machine.state.slices.get(greeting.slice_name)
        credit: tuple[tuple[str, int], ...] = ()
        if greeting.held and found:
            credit = tuple((s.device_uuid, self._credit(found, s.device_uuid, s.mem_max_bytes)) for s in found.shares)
        if greeting.serial and (found is None or found.serial != greeting.serial):
            return Denied(Reason.NOT_FOUND, f"slice {greeting.slice_name} has ended")
        # others on the node may have the same bytes; a pending slice has none of its own yet
        own = tuple(share.device_uuid for share in found.shares) if found else ()
        held = tuple((uuid_text(raw, own or self._machine.state.devices), size) for raw, size in greeting.held)
        event = ev.ProcessAttached(process, held, credit, greeting.serial > 0, self._uuids(greeting.named_uuids))
        try:
            commands = self._machine.run(event)
        except OSError as error:
            if found is None or not found.pending:
                raise
            # it was bound to a device whose arbiter has no place for it
            self._machine.run(ev.DeleteSlice("", greeting.slice_name, True))
            text = f"slice {greeting.slice_name} could not be bound: {error.strerror or error}; see the daemon's log"
            return Denied(Reason.UNAVAILABLE, text)
        for command in commands:
            if isinstance(command, ev.AdmitProcess):
                return Attachment(process, command.slice, dict(command.held), self._machine.state.devices)
        return next(c.result for c in commands if isinstance(c, ev.Answer) and isinstance(c.result, Denied))

    def _uuids(self, named_uuids: tuple[bytes, ...]) -> tuple[str, ...]:
        return tuple(uuid_text(raw, self._machine.state.devices) for raw in named_uuids)

    def _credit(self, slice_: Slice, device: str, limit_bytes: int) -> int:
        now = self._arbiters.slice_stats(slice_.serial, device)  # past the ledger may be what this very process claims
        return max(0, limit_bytes - now.mem_held_bytes + now.mem_unattributed_bytes)

    def rules(self) -> tuple[Rules, Mapping[str, Device]]:
        """What may be admitted without asking, and the devices."""
        return attach_rules(self._machine.state), self._machine.state.devices

    def arbiter(self, device: str) -> Any:
        return self._arbiters.native(device)

    def container_id(self, cgroups: tuple[str, ...]) -> str:
        return self._containers.container_id(cgroups)

    def slice_in(self, cgroups: tuple[str, ...]) -> str:
        return self._containers.slice_in(cgroups)

    def account(self, account_uid: int, cgroups: tuple[str, ...]) -> str:
        """Whose connection this is: a container's, or a user's."""
        return bounds.account(account_uid, self._containers.container_id(cgroups))

    def look(
        self, slice_name: str, uid: int, cgroups: tuple[str, ...], named_uuids: tuple[bytes, ...] | None = None
    ) -> Attachment | Denied:
        """The slice's numbers for a program that only reads them. named_uuids: the devices that it names; a pending
        slice is shown as it would be on them, and not at all on none. None: they are not asked for."""
        found = self._machine.state.slices.get(slice_name)
        if found is None:
            return unknown(slice_name)
        stranger = self._containers.refusal(found, uid, cgroups)
        if stranger:
            return stranger
        if found.pending and named_uuids is not None:
            shown = pending.bind(self._machine.state, found, self._uuids(named_uuids))
            if isinstance(shown, Denied):
                return shown
            found = shown
        asking = Process(0, slice_name, 0, uid, "", 0, is_resumed=False)
        return Attachment(asking, found, {}, self._machine.state.devices)

    def usage(self, attachment: Attachment) -> Usage:
        """What the slice uses, as NVML is to show it."""
        shares = attachment.slice.shares
        stats = [self._arbiters.slice_stats(attachment.slice.serial, share.device_uuid) for share in shares]
        rows = []
        for process in self._machine.state.processes_of(attachment.slice.name):
            now = self._counters.of_process(process)
            for place, share in enumerate(shares):
                device = now[share.device_uuid]
                used_bytes = device.mem_used_bytes + device.mem_unattributed_bytes
                if device.contexts or used_bytes:
                    rows.append((process.process_id, place, used_bytes, device.mem_used_bytes))
        return Usage([s.mem_used_bytes for s in stats], [round(s.share_ratio * 1000) for s in stats], rows)

    def remove_process(self, process_id: int) -> None:
        """A process is no longer a tenant, at once."""
        self._machine.run(ev.ProcessGone(process_id))

    def note_disconnect(self, process_id: int) -> None:
        """A process has closed its connection and lives on."""
        self._machine.run(ev.ProcessDisconnected(process_id))

    def note_process_end(self, process_id: int) -> None:
        """A process has ended. A real driver may take a moment to release its memory: it is asked first (D7)."""
        process = self._machine.state.processes.get(process_id)
        real = any(not d.is_simulated for d in self._machine.state.devices.values())
        if process is None or process.holder or not real:
            self.remove_process(process_id)
            return
        task = asyncio.create_task(self._leave(process))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, process: Process) -> None:
        deadline_ns = time.monotonic_ns() + int(LISTED_MAX_S * 1e9)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(self._askers, self._devices.lists, process.pid):
            if time.monotonic_ns() > deadline_ns:
                text = f"pid {process.pid} has ended, but the driver still lists it: its memory may not be free yet"
                self._events.note(ev.Log("process.lingers", text, process.slice_name, process_id=process.process_id))
                break
            await asyncio.sleep(LISTED_EVERY_S)
        self.remove_process(process.process_id)

    def note_refusal(self, slice_name: str, pid: int, why: str) -> None:
        self._events.note_bounded(slice_name, ev.Log("attach.refused", f"pid {pid}: {why}", slice_name))

    def join(
        self, serial: int, process_id: int, device: str, pages: tuple[Any, Any, Any], bell: int, held: int
    ) -> None:
        self._arbiters.attach(serial, process_id, device, pages, bell, held)

    def leave(self, process_id: int, device: str) -> None:
        self._arbiters.detach(process_id, device)

    def disconnect(self, serial: int, process_id: int, device: str) -> None:
        self._arbiters.disconnect(serial, process_id, device)
