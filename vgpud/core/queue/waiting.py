"""One queue: its jobs in order, waiting and running ones, and the shapes of the waiting ones."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from vgpud.core.jobs.model import Job, QueueSpec
from vgpud.core.policy.base import Key, Policy
from vgpud.core.queue.order import Order
from vgpud.core.queue.quota import Account

#: keys of a policy that has learnt which are computed again in one decision: a few milliseconds
KEYS_AT_ONCE = 256


class Shapes:
    """Bits for shapes: one for each shape that waits now, reused when no job of it waits any more."""

    def __init__(self) -> None:
        self._bits: dict[object, list[int]] = {}  # shape -> [bit, jobs]
        self._free: list[int] = []

    def enter(self, shape: object) -> int:
        known = self._bits.get(shape)
        if known is None:
            known = self._bits[shape] = [heappop(self._free) if self._free else 1 << len(self._bits), 0]
        known[1] += 1
        return known[0]

    def leave(self, shape: object) -> None:
        known = self._bits[shape]
        known[1] -= 1
        if not known[1]:
            del self._bits[shape]
            heappush(self._free, known[0])


class JobQueue:
    """A queue's jobs in order. Jobs with a claim, and jobs that have been told to stop, are in neither order."""

    def __init__(self, spec: QueueSpec, policy: Policy, account: Account) -> None:
        self.spec = spec
        self.policy = policy
        self.account = account
        self.waiting = Order()
        self.running = Order()
        self.shapes = Shapes()
        self._shape_of: dict[int, object] = {}
        self._width_of: dict[int, int] = {}  # of waiting jobs
        self._widths: Counter[int] = Counter()
        self._epoch = policy.epoch
        self._stale: list[int] = []  # jobs whose keys are to be computed again, since the policy has learnt

    def enqueue(self, job: Job, key: Key, is_pinned: bool, shape_details: tuple[object, ...] = ()) -> None:
        """The job waits from now on. `is_pinned`: it can resume only where it was, so no other job has its shape;
        `shape_details`: jobs of one shape have the same of these, too."""
        spec = job.spec
        shape: object = job.job_id
        if not is_pinned:
            shape = (
                spec.ask,
                spec.members,
                spec.one_per_node,
                spec.preemptible,
                spec.model,
                spec.skew_ppm,
                *shape_details,
            )
        self._shape_of[job.job_id] = shape
        self._width_of[job.job_id] = spec.width_milli
        self._widths[spec.width_milli] += 1
        bit = self.shapes.enter(shape)
        self.waiting.add(job.job_id, key, bit, spec.width_milli)

    def dequeue(self, job_id: int) -> None:
        self.waiting.remove(job_id)
        self.shapes.leave(self._shape_of.pop(job_id))
        width_milli = self._width_of.pop(job_id)
        self._widths[width_milli] -= 1
        if not self._widths[width_milli]:
            del self._widths[width_milli]

    @property
    def least_milli(self) -> int:
        """Width of the narrowest waiting job; there is one."""
        return min(self._widths)

    def run(self, job: Job, key: Key) -> None:
        self.running.add(job.job_id, key, 0, job.spec.width_milli)

    def stop(self, job_id: int) -> None:
        self.running.remove(job_id)

    def rekey(self, job: Job, now_ns: int) -> None:
        """Its key may have changed."""
        for order in (self.waiting, self.running):
            if job.job_id in order:
                entry = order.entry(job.job_id)
                key = self.policy.key(job, now_ns)
                if key != entry[0]:
                    bit = order.bit(job.job_id)
                    order.remove(job.job_id)
                    order.add(job.job_id, key, bit, job.spec.width_milli)

    def refresh(self, jobs: dict[int, Job], now_ns: int) -> bool:
        """Before a decision: recomputes keys that change by themselves. Whether some are left for the next one.

        Of a policy that has learnt only so many: until it is their turn, jobs keep the keys that they had.
        """
        policy = self.policy
        if policy.dynamic:
            policy.before_all([jobs[i] for i in (*self.waiting, *self.running)], now_ns)
            self.waiting.rekey((i, policy.key(jobs[i], now_ns)) for i in list(self.waiting))
        if policy.dynamic or policy.drifts:
            self.running.rekey((i, policy.key(jobs[i], now_ns)) for i in list(self.running))
        if not self._stale and policy.epoch != self._epoch:
            self._epoch = policy.epoch
            self._stale = self.waiting.ids() + self.running.ids()  # taken from the end: running jobs are the fewest
        for job_id in self._stale[-KEYS_AT_ONCE:]:
            if job_id in self.waiting or job_id in self.running:
                self.rekey(jobs[job_id], now_ns)
        del self._stale[-KEYS_AT_ONCE:]
        return bool(self._stale) or policy.epoch != self._epoch
