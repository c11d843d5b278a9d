"""The part of the composition root that answers the API about queues, reservations and usage (api.jobs.QueueBackend).

Made by Daemon; the controller holds the state, decides and carries out what is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from vgpud.core.jobs.events import Event, QueuesChanged, ReservationsChanged
from vgpud.core.jobs.facts import QueueNow, UsageRow
from vgpud.core.jobs.model import JobState, QueueSpec, Reservation
from vgpud.core.model import Asker, Denied, Reason
from vgpud.core.queue.machine import HALF_LIFE_NS
from vgpud.core.queue.quota import HISTORY_BITS
from vgpud.core.slices.drains import find
from vgpud.core.slices.queue_quota import used_milli
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.queues import WAITING
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.errors import StoreError
from vgpud.store.flush import while_busy

#: a queue's history is an average that is halved every half-life: so long a time is in it (half-life / ln 2)
HISTORY_NS = HALF_LIFE_NS * 1000 // 693


class QueueRequests:
    """api.jobs.QueueBackend."""

    def __init__(self, node: str, machine: SliceMachine, jobs: JobController) -> None:
        self.node = node
        self._machine = machine
        self._jobs = jobs

    def queue_for(self, name: str, asker: Asker) -> str | Denied:
        return self._jobs.queues.choose(name, asker)

    def queues(self) -> Sequence[QueueSpec]:
        return self._jobs.queues.specs

    def queue_now(self, name: str) -> QueueNow:
        children = {spec.name for spec in self._jobs.queues.specs if spec.parent == name}
        used = used_milli(self._machine.state)
        counts = self._jobs.counts
        return QueueNow(
            members=self._jobs.queues.members(name),
            used_milli=sum(used.get(one, 0) for one in (name, *children)),
            running=sum(counts.in_state(one, JobState.RUNNING) for one in (name, *children)),
            pending=sum(counts.in_state(one, *WAITING) for one in (name, *children)),
            history=self._jobs.machine.history(name, self._jobs.clock.now_ns()) * HISTORY_NS >> HISTORY_BITS,
        )

    async def set_queue(self, spec: QueueSpec, members: Sequence[str]) -> Denied | None:
        def change() -> Denied | None:
            queues = self._jobs.queues.with_queue(spec, members)
            denied = queues if isinstance(queues, Denied) else self._jobs.machine.check_queues(queues)
            if not denied:
                self._jobs.queues.set(spec, members)
            return denied

        return await self._change(change, lambda: QueuesChanged(self._jobs.queues.specs))

    async def delete_queue(self, name: str) -> Denied | None:
        def change() -> Denied | None:
            denied = self._jobs.queues.why_kept(name, self._jobs.counts.in_state(name, *JobState))
            if not denied:
                self._jobs.queues.delete(name)
            return denied

        return await self._change(change, lambda: QueuesChanged(self._jobs.queues.specs))

    async def _change(self, change: Callable[[], Denied | None], event: Callable[[], Event]) -> Denied | None:
        """`change` checks and writes. It is tried again while the store is busy, and others are answered meanwhile."""
        try:
            denied = await while_busy(change)
        except StoreError as error:
            return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")
        if denied:
            return denied
        self._jobs.process_events(event())
        return await self._machine.wait_until_saved()

    # ---- reservations ----

    def reservations(self) -> Sequence[Reservation]:
        return self._jobs.reservations.at(self._jobs.clock.now_ns())

    async def create_reservation(self, reservation: Reservation) -> Reservation | Denied:
        """Its devices are UUIDs or indices; begin 0 is now."""
        now_ns, found = self._jobs.clock.now_ns(), []
        for name in reservation.device_uuids:
            device = find(name, self._machine.state)
            if isinstance(device, Denied):
                return device
            found.append(device.uuid)
        uuids = tuple(dict.fromkeys(found))
        new = replace(reservation, node=self.node, device_uuids=uuids, begin_ns=reservation.begin_ns or now_ns)

        def add() -> Denied | None:
            denied = self._jobs.machine.check_reservation(new, now_ns)
            if not denied:
                self._jobs.reservations.replace((*self.reservations(), new))
            return denied

        return await self._change(add, self._reservations_changed) or new

    async def delete_reservation(self, name: str) -> Denied | None:
        def delete() -> Denied | None:
            known = self.reservations()
            if name not in {one.name for one in known}:
                names = ", ".join(sorted(one.name for one in known)) or "none"
                return Denied(Reason.NOT_FOUND, f"no reservation {name[:60]!r}: there are {names}", "name")
            self._jobs.reservations.replace(tuple(one for one in known if one.name != name))
            return None

        return await self._change(delete, self._reservations_changed)

    def _reservations_changed(self) -> Event:
        return ReservationsChanged(tuple(self.reservations()))

    async def usage(self, since_ns: int, until_ns: int, by: str, uid: int | None) -> Sequence[UsageRow]:
        live = [job for job in self._jobs.machine.jobs.values() if not job.state.is_final]
        return await self._jobs.queues.usage(since_ns, until_ns, by, uid, live)
