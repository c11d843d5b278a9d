"""Waits for the disk without blocking the loop: one flush at a time, for all callers that wait meanwhile.

Used by daemon/slices/machine.py. A flush covers what was written before it begins; later writers wait for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from vgpud.errors import StoreBusyError, StoreError, StoreFlushingError

log = logging.getLogger("vgpud")

T = TypeVar("T")

#: how often work is tried again while another process writes into the database, and how long it waits in between
BUSY_TRIES, BUSY_EVERY_S = 200, 0.01


async def while_busy(work: Callable[[], T]) -> T:
    """Retries it while another process (BUSY_TRIES times in a row), or our own flush, holds the store. Raises as it
    does.

    A flush takes as long as the disk does, and wait_until_saved() waits for it afterwards in any case. Tries are
    counted, not time: on a machine that stands still the next try may come seconds later, and a flush may have ended
    just before it was asked about.
    """
    busy = 0
    while True:
        try:
            return work()
        except StoreFlushingError:
            busy = 0
        except StoreBusyError:
            busy += 1
            if busy > BUSY_TRIES:
                raise
        await asyncio.sleep(BUSY_EVERY_S)


class Store(Protocol):
    """What is flushed."""

    needs_flush: bool

    def flush(self) -> None: ...


class Flushing:
    """The flushes of one store, on the running loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._fault = ""

    async def wait_until_saved(self) -> None:
        """Returns when all that was written before is on the disk. Raises StoreError."""
        task = self.begin()
        if task:
            await asyncio.shield(task)

    def begin(self) -> asyncio.Task[None] | None:
        """Has what was written flushed soon; what there is to wait for, None when all is on the disk."""
        if self._next is None and self._store.needs_flush:
            self._next = asyncio.create_task(self._flush(self._under_way))
            self._next.add_done_callback(self._note)
        return self._next or self._under_way

    async def _flush(self, previous_flush: asyncio.Task[None] | None) -> None:
        if previous_flush:
            await asyncio.wait([previous_flush])
        self._under_way, self._next = self._next, None
        self._store.needs_flush = False
        try:
            await asyncio.to_thread(self._store.flush)
        except BaseException:
            self._store.needs_flush = True
            raise
        finally:
            self._under_way = None

    def _note(self, done: asyncio.Task[None]) -> None:
        """A fault is logged once: there may be no caller that waits for this flush."""
        error = None if done.cancelled() else done.exception()
        if error and str(error) != self._fault:
            log.error("%s", error, exc_info=None if isinstance(error, StoreError) else error)
        self._fault = str(error or "")
