"""Passes the arbiters' trace events to watchers. The arbiters trace only while there is one.

The watcher that asks next reads new events for all: they are kept for each watcher up to a bound. A watcher that is too
slow loses the newest and is sent their number; if no watcher asks, the arbiters' own bounded rings lose the oldest.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from vgpud.core.observed import TraceEvent

READ_S = 0.05
#: period of messages to a watcher, with or without events
BEAT_S = 0.25
WATCHER_EVENTS_MAX = 100_000
#: some 100 KiB as a message
BATCH_EVENTS = 2000


class Source(Protocol):
    """The source of events: the arbiters."""

    def trace(self, is_on: bool) -> None: ...
    def read_trace(self) -> Sequence[TraceEvent]: ...


class Watcher:
    """Receives the events of some devices."""

    def __init__(self, tracing: Tracing, uuids: Collection[str]) -> None:
        self._tracing = tracing
        self._uuids = frozenset(uuids)
        self._events: deque[TraceEvent] = deque()
        self._lost = 0

    def put(self, event: TraceEvent) -> None:
        if event.device_uuid not in self._uuids:
            return
        if len(self._events) == WATCHER_EVENTS_MAX:
            self._lost += 1 + event.lost_count
            return
        self._events.append(replace(event, lost_count=event.lost_count + self._lost) if self._lost else event)
        self._lost = 0

    async def take(self) -> list[TraceEvent]:
        """The next events, BATCH_EVENTS at most; none after BEAT_S without any."""
        for _ in range(round(BEAT_S / READ_S)):
            if self._events:
                break
            await asyncio.sleep(READ_S)
            self._tracing.hand_out()
        return self.rest()

    def rest(self) -> list[TraceEvent]:
        """The next events that were read, BATCH_EVENTS at most; none when all are taken."""
        return [self._events.popleft() for _ in range(min(len(self._events), BATCH_EVENTS))]


class Tracing:
    """All watchers."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._watchers: set[Watcher] = set()

    @contextlib.contextmanager
    def watch(self, uuids: Collection[str]) -> Iterator[Watcher]:
        """A watcher of these devices; the first events are their present state. Raises OSError."""
        watcher = Watcher(self, uuids)
        if self._watchers:
            self.hand_out()
            self._source.trace(False)  # the arbiters report their state when tracing begins: restart it
        self._watchers.add(watcher)
        try:
            self._source.trace(True)
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._source.trace(False)

    def hand_out(self) -> None:
        """Gives every watcher what the arbiters have kept since the last call."""
        for event in self._source.read_trace():
            for watcher in self._watchers:
                watcher.put(event)
