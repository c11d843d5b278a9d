"""Wakes those who show slices and events to users whenever something has changed."""

from __future__ import annotations

import asyncio

#: changes that come close together wake the watchers once
COALESCE_S = 0.02


class ChangeSignal:
    """`count`: the number of changes so far, to be compared before waiting for the next one."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Something has changed."""
        self.count += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """Returns at the next change, or after the timeout."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
            await asyncio.sleep(COALESCE_S)
        except asyncio.TimeoutError:
            return
