"""Watches the requests to give memory back, for the event log."""

from __future__ import annotations

from vgpud.core.observed import Reclaim
from vgpud.core.slices.reclaims import Holder, reclaim_entries
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters


class ReclaimWatch:
    def __init__(self, machine: SliceMachine, arbiters: Arbiters, events: EventRecorder) -> None:
        self._machine = machine
        self._arbiters = arbiters
        self._events = events
        self._last: dict[tuple[int, str], Reclaim] = {}

    def look(self) -> None:
        """Notes what has happened since the last look; called several times a second."""
        now = self._arbiters.reclaims()
        if now == self._last:
            return
        slices = {slice_.serial: slice_ for slice_ in self._machine.state.slices.values()}
        for (serial, uuid), reclaim in now.items():
            before = self._last.get((serial, uuid), Reclaim())
            if reclaim != before and serial in slices:
                for entry in reclaim_entries(slices[serial], uuid, before, reclaim, self._holders(uuid)):
                    self._events.note_bounded(f"{entry.kind} {entry.slice_name} {uuid}", entry)
        self._last = now

    def _holders(self, uuid: str) -> list[Holder]:
        holders: list[Holder] = []
        for slice_ in self._machine.state.slices.values():
            if share := slice_.share(uuid):
                beyond = self._arbiters.slice_stats(slice_.serial, uuid).mem_held_bytes - share.mem_min_bytes
                if beyond > 0:
                    holders.append(Holder(slice_.name, slice_.owner_uid, beyond))
        return holders
