"""Records what happens on the node: in the daemon's own log, in the event log that users read, and in the store."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from vgpud.core import events as ev
from vgpud.core.observed import Entry
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.event_log import EventLog
from vgpud.errors import StoreError
from vgpud.store.database import Store

log = logging.getLogger("vgpud")


class EventRecorder:
    """`find_owner`: the uid of a slice that there is, None of any other."""

    def __init__(
        self, event_log: EventLog, store: Store, changes: ChangeSignal, find_owner: Callable[[str], int | None]
    ) -> None:
        self.log = event_log
        self._store = store
        self._changes = changes
        self._find_owner = find_owner
        self._store_fault = ""

    def note(self, entry: ev.Log) -> None:
        log.info("%s: %s", entry.kind, entry.message)
        self.log.add(
            Entry(
                sequence=self.log.next_sequence,
                wall_ns=time.time_ns(),
                kind=entry.kind,
                slice_name=entry.slice_name,
                device_uuid=entry.device_uuid,
                process_id=entry.process_id,
                message=entry.message,
                owner_uid=self._owner_of(entry),
            )
        )
        self._changes.wake()

    def note_bounded(self, key: str, entry: ev.Log) -> None:
        """An event that others can cause as often as they like."""
        if not self.log.too_noisy(key, time.monotonic_ns()):
            self.note(entry)

    def _owner_of(self, entry: ev.Log) -> int:
        if entry.owner_uid is not None:
            return entry.owner_uid
        owner = self._find_owner(entry.slice_name)
        return self.log.owner(entry.slice_name) if owner is None else owner

    def write(self, events_max: int) -> None:
        """Entries that the store does not have yet; it keeps `events_max` at most. What fails is tried again."""
        entries = self.log.take_unwritten()
        try:
            self._store.append_events(entries, events_max)
            self._store_fault = ""
        except StoreError as error:
            self.log.keep_unwritten(entries)
            if str(error) != self._store_fault:
                self._store_fault = str(error)
                log.error("%s", error)
