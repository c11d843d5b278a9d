"""A lock for each job, there while it is used."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class _Lock:
    """A job's lock, with a count of its users: a lock does not say that it is waited for."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class JobLocks:
    def __init__(self) -> None:
        self._locks: dict[int, _Lock] = {}

    @contextlib.asynccontextmanager
    async def hold(self, job_id: int) -> AsyncIterator[None]:
        """In the order in which it was asked for."""
        lock = self._locks.setdefault(job_id, _Lock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[job_id]
