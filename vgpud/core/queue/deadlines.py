"""A heap of times at which something happens by itself, each with what it is for. Obsolete ones are dropped."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush

from vgpud.core.jobs.model import NEVER_NS


class Due(IntEnum):
    KEY = 0  # the policy moves this job
    LIMIT = 1  # its time limit runs out
    BACKOFF = 2  # it may try again
    SIGNAL = 3  # its processes get their signal, ahead of its time limit


#: when, what, job, and a token by which an obsolete one is known
Deadline = tuple[int, int, int, int]


class Deadlines:
    def __init__(self, valid: Callable[[Deadline], bool]) -> None:
        self._heap: list[Deadline] = []
        self._valid = valid

    def add(self, at_ns: int, due: Due, job_id: int, token: int) -> None:
        if at_ns < NEVER_NS:
            heappush(self._heap, (at_ns, due, job_id, token))

    def pop(self, now_ns: int) -> tuple[Due, int] | None:
        """The next one that is due."""
        while self._heap and self._heap[0][0] <= now_ns:
            deadline = heappop(self._heap)
            if self._valid(deadline):
                return Due(deadline[1]), deadline[2]
        return None

    def next_ns(self) -> int:
        while self._heap and not self._valid(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else NEVER_NS
