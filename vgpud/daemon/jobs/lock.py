"""The lock of a job: what is done to it is done by one task at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class JobLock:
    """A job's lock, with a count of its users: a lock does not say that it is waited for."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
