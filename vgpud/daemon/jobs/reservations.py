"""The part of the composition root that keeps reservations, and holds slices outside jobs to them.

Made by JobController; the queue's machine decides when they begin and end.
"""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core import events as ev
from vgpud.core.jobs.model import Reservation
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.store.jobs import JobStore


class ReservationRegistry:
    """Those that the store has. What writes raises StoreError."""

    def __init__(self, machine: SliceMachine, store: JobStore, reservations: Sequence[Reservation]) -> None:
        self._machine = machine
        self._store = store
        self._all = tuple(reservations)

    def at(self, now_ns: int) -> tuple[Reservation, ...]:
        """Those that have not ended."""
        return tuple(one for one in self._all if one.end_ns > now_ns)

    def replace(self, reservations: Sequence[Reservation]) -> None:
        self._store.save_reservations(reservations)
        self._all = tuple(reservations)

    def enforce(self, active: Sequence[Reservation]) -> None:
        """These are in force from now on: slices that are created otherwise than for jobs keep to them."""
        reserved = tuple((uuid, one.queue, one.what) for one in active for uuid in one.device_uuids)
        self._machine.run(ev.DevicesReserved(reserved))
