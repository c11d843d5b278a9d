"""Waiting jobs in order where every decision changes their keys: in lanes, of which a decision looks at the first jobs.

The policy says in which lane a job is, and where (Policy.lane); from there it knows a bound of the keys of all jobs
behind it in the lane (Policy.bound). So lanes are merged, and keys are computed of jobs that may be next, not of all
that wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from heapq import heappop, heappush

from vgpud.core.jobs.model import Job
from vgpud.core.order import Entry, Order
from vgpud.core.policy.base import Key, Policy

#: the least possible entry; of a job (0), or of those of a lane (1) behind a place; the lane, the place
_Head = tuple[Entry, int, int, Hashable, Entry | None]


class LanedOrder:
    """As Order. Keys are as of begin(), which announces each decision. Within it next() is asked with cursors and bits
    that only grow."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._now_ns = 0
        self._lanes: dict[Hashable, Order] = {}
        self._jobs: dict[int, tuple[Job, Hashable]] = {}
        self._aside = Order()  # running jobs that have been put aside in this decision, with their keys
        self._heads: list[_Head] | None = None
        self._sorted: list[Entry] | None = None

    def __len__(self) -> int:
        return len(self._jobs) + len(self._aside)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._jobs or job_id in self._aside

    def __iter__(self) -> Iterator[int]:
        """Job ids, best first."""
        return iter([job_id for _, job_id in self._sort()])

    def _sort(self) -> list[Entry]:
        """For questions of users: all keys, once for a decision."""
        if self._sorted is None:
            self._sorted = sorted(self.entry(job_id) for job_id in (*self._jobs, *self._aside))
        return self._sorted

    def begin(self, now_ns: int) -> None:
        """Keys are others from now on."""
        self._now_ns = now_ns
        self._heads = self._sorted = None

    def entry(self, job_id: int) -> Entry:
        if job_id in self._aside:
            return self._aside.entry(job_id)
        return (self._policy.key(self._jobs[job_id][0], self._now_ns), job_id)

    def bit(self, job_id: int) -> int:
        order = self._aside if job_id in self._aside else self._lanes[self._jobs[job_id][1]]
        return order.bit(job_id)

    def add(self, job_id: int, key: Key, bit: int, weight: int) -> None:
        """A running job that is put aside."""
        self._sorted = None
        self._aside.add(job_id, key, bit, weight)

    def join(self, job: Job, bit: int) -> None:
        """A job that waits, with the key that the policy gives it."""
        self._heads = self._sorted = None
        lane, place = self._policy.lane(job)
        self._jobs[job.job_id] = job, lane
        self._lanes.setdefault(lane, Order()).add(job.job_id, place, bit, job.spec.width_milli)

    def remove(self, job_id: int) -> None:
        self._sorted = None
        if job_id in self._aside:
            self._aside.remove(job_id)
            return
        _, lane = self._jobs.pop(job_id)
        self._lanes[lane].remove(job_id)
        if not len(self._lanes[lane]):
            del self._lanes[lane]

    def rank(self, job_id: int) -> int:
        """How many are before it."""
        return bisect_left(self._sort(), self.entry(job_id))

    def find_neighbour(self, entry: Entry) -> Entry | None:
        """The entry just before this one; of the first one the entry just behind it. None: there is no other."""
        entries = self._sort()
        index = bisect_left(entries, entry)
        return entries[index - 1] if index else entries[1] if len(entries) > 1 else None

    # ---- the next one ----

    def next(self, cursor: Entry | None, skip: int) -> Entry | None:
        """The first entry beyond `cursor` (None: of all) whose bit is not in `skip`."""
        aside = self._aside.next(cursor, skip) if len(self._aside) else None
        found = self._next_in_lanes(cursor, skip)
        if aside is None or found is None:
            return found or aside
        return min(found, aside)

    def _next_in_lanes(self, cursor: Entry | None, skip: int) -> Entry | None:
        if self._heads is None:
            self._heads = []
            for lane in self._lanes:
                self._look_behind(lane, None, skip, len(self._heads))
        heads = self._heads
        while heads:
            entry, is_rest, number, lane, place = heads[0]
            if is_rest:
                heappop(heads)
                self._look_behind(lane, place, skip, number)
                continue
            is_next = entry[1] in self._jobs and (cursor is None or entry > cursor)
            if is_next and not self.bit(entry[1]) & skip:
                return entry
            heappop(heads)
        return None

    def _look_behind(self, lane: Hashable, place: Entry | None, skip: int, number: int) -> None:
        """The next job of a lane, and a bound of those behind it. `number`: any that no other lane has."""
        order = self._lanes.get(lane)
        found = order.next(place, skip) if order is not None else None
        if found is None or self._heads is None:
            return
        entry = self.entry(found[1])
        heappush(self._heads, (entry, 0, number, lane, None))
        bound = self._policy.bound(lane, found[0], entry[0], self._now_ns)
        heappush(self._heads, ((bound, -1), 1, number, lane, found))
