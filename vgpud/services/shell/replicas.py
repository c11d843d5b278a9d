"""The replicas of the service, and the requests that wait for one of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from vgpud.services.core.choice import Choice
from vgpud.services.core.model import Replica
from vgpud.services.core.reconcile import Traffic
from vgpud.services.shell.upstream import Upstreams


class NoReplicaError(Exception):
    """None is ready, and none has become so in time."""


class Replicas:
    """Shared by the address, the checks and the loop, all in one thread. `nudge`: something has changed that may need
    a decision."""

    def __init__(self, nudge: Callable[[], None]) -> None:
        self.by_id: dict[int, Replica] = {}
        self.traffic = Traffic(last_s=time.monotonic())
        self.upstreams = Upstreams()
        self._choice = Choice()
        self.are_ending = False  # the service is being stopped: nothing is waited for
        self._nudge = nudge
        self._changed = asyncio.Event()

    def note_change(self) -> None:
        """A replica may have become ready: requests that wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def forget(self, job_id: int) -> None:
        self.by_id.pop(job_id, None)
        self.upstreams.forget(job_id)
        self._choice.forget(job_id)

    def note_failure(self, replica: Replica) -> None:
        """A connection to it has failed: it gets no request before its next check, which comes at once."""
        replica.is_suspect = True
        self._nudge()

    async def take(self, tried_ids: Collection[int], until_s: float) -> Replica:
        """A replica that is ready, by then at the latest. Raises NoReplicaError."""
        found = self._choice.pick(self.by_id.values(), tried_ids)
        if found:
            return found
        self.traffic.waiting += 1
        self._nudge()  # it may sleep
        try:
            while True:
                left_s = until_s - time.monotonic()
                changed = self._changed
                if left_s <= 0 or self.are_ending:
                    raise NoReplicaError
                try:
                    await asyncio.wait_for(changed.wait(), left_s)
                except asyncio.TimeoutError:
                    raise NoReplicaError from None
                if found := self._choice.pick(self.by_id.values(), tried_ids):
                    return found
        finally:
            self.traffic.waiting -= 1

    @contextmanager
    def under_way(self, replica: Replica) -> Iterator[None]:
        """While it answers a request."""
        replica.outstanding += 1
        try:
            yield
        finally:
            replica.outstanding -= 1
            if replica.draining_since_s is not None:
                self._nudge()

    @contextmanager
    def request(self) -> Iterator[None]:
        """While a client has a request here."""
        self.traffic.under_way += 1
        try:
            yield
        finally:
            self.traffic.under_way -= 1
            self.traffic.last_s = time.monotonic()
