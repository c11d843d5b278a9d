"""Which jobs have changed since when, for watchers: bounded, the oldest changes are forgotten first."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict

CHANGES_MAX = 20_000


class Changes:
    """Of the running loop."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[int, int] = OrderedDict()  # job -> number of its last change, oldest first
        self._last = 0
        self._changed = asyncio.Event()

    def add(self, job_id: int) -> None:
        self._last += 1
        self._numbers[job_id] = self._last
        self._numbers.move_to_end(job_id)
        while len(self._numbers) > CHANGES_MAX:
            self._numbers.popitem(last=False)
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, after_change: int) -> tuple[int, list[int]]:
        """The number of the last change, and the jobs that have changed since `after_change`, oldest change first."""
        found = []
        for job_id, number in reversed(self._numbers.items()):
            if number <= after_change:
                break
            found.append(job_id)
        return self._last, found[::-1]

    async def wait(self, after_change: int, timeout_s: float) -> None:
        if self._last <= after_change:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)
