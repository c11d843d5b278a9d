"""One queue: its jobs in order, waiting and running ones, and the shapes of the waiting ones."""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from vgpud.core.jobs.model import Job, QueueSpec
from vgpud.core.order import Order
from vgpud.core.policy.base import Key, Policy
from vgpud.core.queue.drifting import DriftingOrder
from vgpud.core.queue.lanes import LanedOrder
from vgpud.core.queue.quota import Account

#: keys of a policy that has learnt which are computed again in one decision: a few milliseconds
KEYS_AT_ONCE = 256
#: more changed keys than this part of all are sorted again, instead of each being moved
REKEY_PARTS = 8


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
        self.waiting: Order | LanedOrder = LanedOrder(policy) if policy.has_lanes else Order()
        self.running = DriftingOrder()
        self.shapes = Shapes()
        self._shape_of: dict[int, object] = {}
        self._width_of: dict[int, int] = {}  # of waiting jobs
        self._widths: Counter[int] = Counter()
        self._epoch = policy.epoch
        self._stale: list[int] = []  # jobs whose keys are to be computed again, since the policy has learnt
        self._changed: dict[int, None] = {}  # jobs that came, went, or run and wait otherwise since the last refresh()

    def set_policy(self, policy: Policy, jobs: dict[int, Job]) -> None:
        """Another one from now on: rekey() all jobs then."""
        before = self.waiting
        self.policy = policy
        self._epoch, self._stale = policy.epoch, []
        self.waiting = LanedOrder(policy) if policy.has_lanes else Order()
        for job_id in before:
            self._wait(jobs[job_id], before.entry(job_id)[0], before.bit(job_id))
        self._changed.update(dict.fromkeys((*self.waiting, *self.running)))

    def _wait(self, job: Job, key: Key, bit: int) -> None:
        if isinstance(self.waiting, LanedOrder):
            self.waiting.join(job, bit)
        else:
            self.waiting.add(job.job_id, key, bit, job.spec.width_milli)

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
        self._wait(job, key, self._enter(job, shape))

    def put_aside(self, job: Job, key: Key) -> None:
        """A job that runs waits for the rest of a decision, where it would continue."""
        self.waiting.add(job.job_id, key, self._enter(job, job.job_id), job.spec.width_milli)

    def _enter(self, job: Job, shape: object) -> int:
        """Returns the bit of its shape."""
        self._changed[job.job_id] = None
        self._shape_of[job.job_id] = shape
        self._width_of[job.job_id] = job.spec.width_milli
        self._widths[job.spec.width_milli] += 1
        return self.shapes.enter(shape)

    def dequeue(self, job_id: int) -> None:
        self._changed[job_id] = None
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

    def set_time(self, now_ns: int) -> None:
        """Keys of running jobs that drift are those of this time from now on."""
        self.running.now_ns = now_ns

    def run(self, job: Job, key: Key) -> None:
        """The job runs, with this key as of set_time()."""
        self._changed[job.job_id] = None
        self.running.add(job.job_id, key, 0, job.spec.width_milli, self._pace(job))

    def stop(self, job_id: int) -> None:
        self._changed[job_id] = None
        self.running.remove(job_id)

    def _pace(self, job: Job) -> int:
        return self.policy.pace(job) if self.policy.drifts else 0

    def rekey(self, job: Job, now_ns: int) -> None:
        """Its key may have changed."""
        self.set_time(now_ns)
        self._changed[job.job_id] = None
        if job.job_id in self.waiting:
            key = self.policy.key(job, now_ns)
            if key != self.waiting.entry(job.job_id)[0] or self.policy.has_lanes:
                bit = self.waiting.bit(job.job_id)
                self.waiting.remove(job.job_id)
                self._wait(job, key, bit)
        if job.job_id in self.running:
            key = self.policy.key(job, now_ns)
            self._rekey_running(job, key)

    def _rekey_running(self, job: Job, key: Key) -> None:
        if key != self.running.entry(job.job_id)[0] or self._pace(job) != self.running.pace(job.job_id):
            self.running.remove(job.job_id)
            self.run(job, key)

    def _rekey_some(self, keys: dict[int, Key]) -> None:
        """Of running jobs, those that still run."""
        running = self.running
        keys = {i: key for i, key in keys.items() if i in running and key != running.entry(i)[0]}
        if len(keys) * REKEY_PARTS > len(running):
            running.rekey((i, keys.get(i) or running.entry(i)[0], 0) for i in list(running))
            return
        for job_id, key in keys.items():
            running.rekey_one(job_id, key)

    def refresh(self, jobs: dict[int, Job], now_ns: int) -> bool:
        """Before a decision: recomputes keys that change by themselves. Whether some are left for the next one.

        Of a policy that has learnt only so many: until it is their turn, jobs keep the keys that they had.
        """
        policy = self.policy
        self.set_time(now_ns)
        changed, self._changed = self._changed, {}
        if isinstance(self.waiting, LanedOrder):
            present = [job_id for job_id in changed if job_id in self.waiting or job_id in self.running]
            gone = list(changed.keys() - set(present))
            keys = dict(policy.update([jobs[i] for i in present], gone, now_ns))
            self._rekey_some(keys)
            self.waiting.begin(now_ns)
            return False
        if policy.dynamic:
            policy.before_all([jobs[i] for i in (*self.waiting, *self.running)], now_ns)
            self.waiting.rekey((i, policy.key(jobs[i], now_ns)) for i in list(self.waiting))
            self.running.rekey((i, policy.key(jobs[i], now_ns), self._pace(jobs[i])) for i in list(self.running))
        if not self._stale and policy.epoch != self._epoch:
            self._epoch = policy.epoch
            self._stale = self.waiting.ids() + self.running.ids()  # taken from the end: running jobs are the fewest
        for job_id in self._stale[-KEYS_AT_ONCE:]:
            if job_id in self.waiting or job_id in self.running:
                self.rekey(jobs[job_id], now_ns)
        del self._stale[-KEYS_AT_ONCE:]
        return bool(self._stale) or policy.epoch != self._epoch
