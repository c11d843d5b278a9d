"""Runs the core on the one state of slices, devices, containers and processes: events in, commands out.

Events come from the API and the attach sockets, go through core's machine.step(), and the commands that come out are
carried out by effects.py. A step that must be saved runs on a copy: the copy becomes the state only when the store has
it, and a step whose effects fail is taken back, so nothing is half-created.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from vgpud.core import events as ev
from vgpud.core.model import Denied, Reason, Slice, State
from vgpud.core.slices.attach_rules import may_keep_rules
from vgpud.core.slices.machine import request_key, step
from vgpud.devices.arbiters import Arbiters
from vgpud.errors import StoreBusyError, StoreError, StoreUnwritableError
from vgpud.store.database import Store, saved_ones
from vgpud.store.flush import Flushing, while_busy

log = logging.getLogger("vgpud")


class Effects(Protocol):
    """What carries out commands. Raises OSError."""

    def carry_out(self, commands: Iterable[ev.Command]) -> None: ...


class AttachRules(Protocol):
    """The rules by which programs attach without asking the core."""

    def settle_attachments(self) -> AbstractContextManager[None]: ...
    def renew_rules(self) -> None: ...


class SliceMachine:
    """`state` is replaced at each change that must be saved: read it again each time, and change it by events only."""

    def __init__(self, store: Store, arbiters: Arbiters) -> None:
        self.state = State()
        self.flushing = Flushing(store)
        self._store = store
        self._arbiters = arbiters
        self._effects: Effects
        self._rules: AttachRules
        self._unsaved: list[ev.Command] = []  # of events of run(), while another process held the store
        self._save_fault = ""

    def begin(self, effects: Effects, rules: AttachRules, event: ev.Started) -> None:
        """The first event: what carries out commands often needs this object, so it is given here."""
        self._effects, self._rules = effects, rules
        self.run(event)

    def owner(self, slice_name: str) -> int | None:
        """The owner's uid; None: there is no such slice."""
        made = self.state.slices.get(slice_name)
        return made.owner_uid if made else None

    # ---- requests ----

    async def submit(self, event: ev.Event) -> Slice | Denied | None:
        """A user's request: decided, saved, carried out, in this order; wait_until_saved() says when the disk
        has it.

        New numbers of an existing slice do not wait for the store: the arbiters have them first, and get the old ones
        back when the new ones could not be saved. While another process holds the store, the request is decided again
        at each try, and other requests continue.
        """
        live: list[ev.ApplySlice] = []
        try:
            return await while_busy(lambda: self._try(event, live))
        except (StoreError, OSError) as error:
            log.error("%s", error)
            self._take_back(live)
            return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")
        except asyncio.CancelledError:  # the user has gone while the store was held
            self._take_back(live)
            raise

    def _try(self, event: ev.Event, live: list[ev.ApplySlice]) -> Slice | Denied | None:
        """Decides and carries out. Raises StoreError and OSError: nothing was changed but what `live` then holds."""
        with self._rules.settle_attachments():
            return self._try_settled(event, live)

    def _try_settled(self, event: ev.Event, live: list[ev.ApplySlice]) -> Slice | Denied | None:
        draft = self.state.copy()
        commands = step(draft, event, time.monotonic_ns())
        answer = next(c.result for c in commands if isinstance(c, ev.Answer))
        numbers = [c for c in commands if isinstance(c, ev.ApplySlice)] if isinstance(event, ev.UpdateSlice) else []
        if numbers != live:
            self._take_back(live)  # of an earlier try
            live[:] = numbers
            self._effects.carry_out(live)
        self._save(commands)
        self.state = draft
        try:
            # `live` again: another request of this slice may have been taken back meanwhile
            self._effects.carry_out(commands)
        except OSError as error:
            log.error("a request was not carried out: %s", error)
            said = "kept, but not carried out before a restart of vgpud"
            if isinstance(event, ev.ContainerCreated) and isinstance(answer, Slice):
                self.run(ev.ContainerEnded(event.container_id, "its slice could not be made"))
                said = "nothing was created"
            if isinstance(event, ev.CreateSlice) and isinstance(answer, Slice):
                self.run(ev.DeleteSlice("", answer.name, True))
                self._forget_request(request_key(event.asker.uid, event.request_id))
                said = "nothing was created"
            return Denied(Reason.UNAVAILABLE, f"{said}: {error.strerror or error}; see the daemon's log")
        return answer

    def _take_back(self, live: Iterable[ev.ApplySlice]) -> None:
        """Gives the arbiters the slices back as they are in our state."""
        for change in live:
            old = self.state.slices.get(change.slice.name)
            if old is None or old.serial != change.slice.serial:
                continue  # it has ended meanwhile
            kept = () if old.name in self.state.waiting else old.shares
            new = {share.device_uuid for share in change.slice.shares}
            dropped = new - {share.device_uuid for share in kept}
            try:
                self._arbiters.apply(replace(old, shares=kept), dropped)
            except OSError as error:
                log.error("slice %s: %s", old.name, error)

    def _forget_request(self, key: str) -> None:
        """A creation that was taken back must not be answered from memory, nor from the store's."""
        self.state.requests.pop(key, None)
        try:
            self._store.forget_request(key)
        except StoreError as error:
            log.error("%s", error)

    # ---- events without a caller ----

    def run(self, event: ev.Event) -> list[ev.Command]:
        """An event without a caller that waits for its answer: what cannot be saved now is saved with later events."""
        if may_keep_rules(self.state, event, time.monotonic_ns()):
            if isinstance(event, ev.ProcessGone | ev.ProcessDisconnected):
                self._rules.renew_rules()
            return self._run(event)
        with self._rules.settle_attachments():
            return self._run(event)

    def _run(self, event: ev.Event) -> list[ev.Command]:
        commands = step(self.state, event, time.monotonic_ns())
        try:
            self._save(commands)
            self._save_fault = ""
        except StoreBusyError:
            self._unsaved += saved_ones(commands)
        except StoreError as error:  # a full disk, for example: nothing new is admitted, so there is little of this
            if isinstance(error, StoreUnwritableError):
                self._unsaved += saved_ones(commands)
            if str(error) != self._save_fault:
                self._save_fault = str(error)
                log.error("%s", error)
        self._effects.carry_out(commands)
        return commands

    # ---- the store ----

    def _save(self, commands: Sequence[ev.Command]) -> None:
        """Writes what must outlive us, in the order in which it was decided. Raises StoreError."""
        self._store.apply([*self._unsaved, *commands])
        self._unsaved.clear()

    async def wait_until_saved(self) -> Denied | None:
        """Waits until the disk has what was carried out so far; why it may not have it."""
        try:
            await self.flushing.wait_until_saved()
        except StoreError as error:
            text = f"done, but a restart of the machine may lose it, since it could not be saved: {error}"
            return Denied(Reason.UNAVAILABLE, text)
        return None

    async def save_rest(self) -> None:
        """At the end: what could not be written before; and what jobs leave behind goes from the disk."""
        try:
            await while_busy(lambda: self._save(()))
            await self.flushing.wait_until_saved()
        except StoreError as error:
            log.error("%s", error)
