"""Weighted fair share among the users of a queue, over GPUs and device memory, now and over history.

Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011): a user's share is the larger of its part of the GPUs and of
their memory, and the user with the least share over weight is served next. A job's key is what its user would hold
without it and without those of its jobs that come before it, so the order of the keys is that of progressive filling.

History, as in Slurm's multifactor priority and KAI: what was held in the past counts as well, half as much for each
half-life that has passed, as the mean number of GPUs held in that time. `memory_gib` is that of one device; 0 counts
GPUs alone. `half_life_h` = 0: only what is held now counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from fractions import Fraction

from vgpud.core.jobs.model import SECOND_NS, Job, JobState
from vgpud.core.order import Order
from vgpud.core.policy.base import Key, Plain

#: shares are counted in millionths of a device
PPM = 1_000_000
HOUR_NS = 3600 * SECOND_NS
GIB = 1 << 30
#: history decays in this many steps for a half-life, by this factor (2**(-1/32) in units of 2**-62)
STEPS = 32
STEP_ONE_BITS = 62


def _step_factor() -> int:
    factor = 1 << (STEP_ONE_BITS - 1)  # 1/2
    for _ in range(STEPS.bit_length() - 1):
        factor = math.isqrt(factor << STEP_ONE_BITS)
    return factor


STEP_FACTOR = _step_factor()


class Fair(Plain):
    def __init__(
        self, name: str, *, memory_gib: Fraction, half_life_h: Fraction, weights: Mapping[int, Fraction]
    ) -> None:
        self.name = name
        self.dynamic = self.has_lanes = True
        self.device_bytes = int(memory_gib * GIB)
        self.step_ns = int(half_life_h * HOUR_NS) // STEPS
        self.weights = weights
        self.past: dict[int, int] = defaultdict(int)  # by uid: millionths of a device x ns, decayed
        self.past_step = 0  # up to which `past` has decayed
        self.charged_ns: dict[int, int] = {}  # by job: ns that it has run and that are in `past`
        self.users: dict[int, Order] = {}  # by uid: its jobs in their own order, with their shares
        self._uid_of: dict[int, int] = {}  # by job in one of these
        self._running: dict[int, dict[int, Job]] = {}  # by uid: those of them that run

    def share_ppm(self, job: Job) -> int:
        """Its dominant share, in millionths of a device."""
        share = job.width_milli * 1000
        if self.device_bytes:
            held = (job.spec.ask.spec.mem_min_bytes or 0) * job.spec.members
            share = max(share, held * PPM // self.device_bytes)
        return share

    def before_all(self, jobs: list[Job], now_ns: int) -> None:
        present = {job.job_id for job in jobs}
        self.update(jobs, [job_id for job_id in self._uid_of if job_id not in present], now_ns)

    def update(self, changed_jobs: list[Job], gone_ids: list[int], now_ns: int) -> Iterator[tuple[int, Key]]:
        """A user's running jobs have other keys when one of its jobs before them has come or gone, or its history has
        changed."""
        self._decay(now_ns)
        uids = dict.fromkeys(self._uid_of[job_id] for job_id in gone_ids if job_id in self._uid_of)
        for job_id in gone_ids:
            self._forget(job_id)
        for job in changed_jobs:
            self._forget(job.job_id)
            uid = self._uid_of[job.job_id] = job.spec.uid
            self.users.setdefault(uid, Order()).add(job.job_id, _own_order(job), 0, self.share_ppm(job))
            uids[uid] = None
            self._charge(job, now_ns)
            if job.state is JobState.RUNNING:
                self._running.setdefault(uid, {})[job.job_id] = job
        for uid in list(self._running) if self.step_ns else ():
            uids[uid] = None
            for job in self._running[uid].values():
                self._charge(job, now_ns)
        return (pair for uid in uids if uid in self._running for pair in self._running_keys(uid))

    def _running_keys(self, uid: int) -> Iterator[tuple[int, Key]]:
        """A user's running jobs come first in its own order."""
        held, weight, running = self._past_ppm(uid), self.weights.get(uid, 1), self._running[uid]
        for (own_order, job_id), share in self.users[uid].walk():
            if job_id not in running:
                return
            yield job_id, (int(held / weight), *own_order)
            held += share

    def _forget(self, job_id: int) -> None:
        uid = self._uid_of.pop(job_id, None)
        if uid is None:
            return
        self.users[uid].remove(job_id)
        if not len(self.users[uid]):
            del self.users[uid]
        if uid in self._running:
            self._running[uid].pop(job_id, None)
            if not self._running[uid]:
                del self._running[uid]

    def key(self, job: Job, now_ns: int) -> Key:
        """As of the last update()."""
        return (self._held_before(job), *_own_order(job))

    def _held_before(self, job: Job) -> int:
        uid = self._uid_of.get(job.job_id)
        if uid is None:
            return 0
        held = self._past_ppm(uid) + self.users[uid].weight_before(job.job_id)
        return int(held / self.weights.get(uid, 1))

    def lane(self, job: Job) -> tuple[int, Key]:
        """Its user's."""
        return job.spec.uid, _own_order(job)

    def bound(self, lane: Hashable, place: Key, key: Key, now_ns: int) -> Key:
        return (*key, 0)

    def record_end(self, job: Job) -> None:
        self._decay(job.ended_ns)
        self._charge(job, job.ended_ns)
        self.charged_ns.pop(job.job_id, None)

    def touch(self, job: Job, now_ns: int) -> None:
        self._decay(now_ns)
        self._charge(job, now_ns)

    def _charge(self, job: Job, now_ns: int) -> None:
        """Service since the last call; at first that of its present attempt only."""
        if self.step_ns:
            ran_ns = _ran_ns(job, now_ns)
            before_ns = self.charged_ns.get(job.job_id, ran_ns - job.executed_at(now_ns))
            self.past[job.spec.uid] += self.share_ppm(job) * max(0, ran_ns - before_ns)
            self.charged_ns[job.job_id] = ran_ns

    def _decay(self, now_ns: int) -> None:
        if not self.step_ns or now_ns // self.step_ns <= self.past_step:
            return
        steps, self.past_step = now_ns // self.step_ns - self.past_step, now_ns // self.step_ns
        factor = 1 << STEP_ONE_BITS
        for _ in range(min(steps, STEPS * STEP_ONE_BITS)):
            factor = factor * STEP_FACTOR >> STEP_ONE_BITS
        for uid, held in self.past.items():
            self.past[uid] = held * factor >> STEP_ONE_BITS

    def _past_ppm(self, uid: int) -> int:
        """Mean held in the window of the past: a constant use of x decays to x times half-life / ln 2."""
        return self.past[uid] * 693_147 // (self.step_ns * STEPS * PPM) if self.step_ns else 0


def _ran_ns(job: Job, now_ns: int) -> int:
    """In all its attempts: otherwise a requeue would erase the usage of its user."""
    return job.attained_at(now_ns) // job.width_milli if job.width_milli else job.executed_at(now_ns)


def _own_order(job: Job) -> Key:
    """Order of one user's jobs: running ones, then by priority, then first in, first out."""
    return (0 if job.state is JobState.RUNNING else 1, -job.spec.priority, job.submitted_ns, job.job_id)
