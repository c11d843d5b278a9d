"""Which jobs may give up what they have for another job, in which order, and in which way they are stopped.

decide.py takes them one by one until the other job fits, and gives back what it does not need; lifecycle.py stops them.
"""

from __future__ import annotations

from collections.abc import Iterator

from vgpud.core.jobs.model import NEVER_NS, How, Job
from vgpud.core.order import Entry
from vgpud.core.queue.drifting import DriftingOrder
from vgpud.core.queue.quota import Account
from vgpud.core.queue.state import QueueState
from vgpud.core.queue.waiting import JobQueue


class _Tail:
    """The last running jobs of a queue, the last one first, as far as they have been asked for: those that may stop,
    and when others may."""

    def __init__(self, running: DriftingOrder) -> None:
        self.version = self.walk_version = running.version
        self.walk = running.walk_back(None)
        self.next_entry = next(self.walk, None)
        self.entries: list[Entry] = []
        self.jobs: list[Job] = []
        self.wait_entries: list[tuple[Entry, int]] = []

    def count_behind(self, entry: Entry) -> int:
        """How many of them are behind this entry."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle] > entry:
                low = middle + 1
            else:
                high = middle
        return low


class VictimSearch:
    """Of one decision. look_again_ns: when a job that could be preempted will have run for its minimum time."""

    def __init__(self, world: QueueState, now_ns: int) -> None:
        self.world = world
        self.now_ns = now_ns
        self.look_again_ns = NEVER_NS
        self._tails: dict[str, _Tail] = {}

    def find_running_behind(self, line: JobQueue, entry: Entry) -> Iterator[Job]:
        at = line.running.find_last(None)
        while at is not None and at > entry:
            victim = self.world.jobs[at[1]]
            if self._may_stop(victim, line):
                yield victim
            at = line.running.find_last(at)

    def list_running_behind(self, line: JobQueue, entry: Entry, limit: int) -> list[Job]:
        """The first `limit` of them, while none of them stops. A decision asks for many jobs, each time with fewer
        behind."""
        tail = self._walk_to(line, entry, limit)
        return tail.jobs[: min(limit, tail.count_behind(entry))]

    def note_running_behind(self, line: JobQueue, entry: Entry, count: int) -> None:
        """Notes when jobs may stop that list_running_behind() has left out: of all behind, or of those before the last
        of the first `count` that may stop."""
        tail = self._tails[line.spec.name]
        if count <= len(tail.entries):
            entry = max(entry, tail.entries[count - 1])
        for at, may_stop_ns in tail.wait_entries:
            if at <= entry:
                break
            self.look_again_ns = min(self.look_again_ns, may_stop_ns)

    def note_stop(self, line: JobQueue, job: Job) -> None:
        """The job has just been put aside."""
        tail = self._tails.get(line.spec.name)
        if tail is None or tail.version != line.running.version - 1 or job not in tail.jobs:
            return
        at = tail.jobs.index(job)
        del tail.jobs[at], tail.entries[at]
        tail.version += 1

    def note_run(self, line: JobQueue) -> None:
        """A job that was put aside runs on: it is before all jobs that are still asked for."""
        tail = self._tails.get(line.spec.name)
        if tail is not None and tail.version == line.running.version - 1:
            tail.version += 1

    def _walk_to(self, line: JobQueue, entry: Entry, limit: int) -> _Tail:
        tail = self._tails.get(line.spec.name)
        if tail is None or tail.version != line.running.version:
            tail = self._tails[line.spec.name] = _Tail(line.running)
        if tail.walk_version != tail.version and tail.next_entry is not None and tail.next_entry > entry:
            tail.walk_version, tail.walk = tail.version, line.running.walk_back(tail.next_entry)
        while len(tail.jobs) < limit and (at := tail.next_entry) is not None and at > entry:
            job = self.world.jobs[at[1]]
            may_stop_ns = self._may_stop_ns(job, line)
            if may_stop_ns <= self.now_ns:
                tail.entries.append(at)
                tail.jobs.append(job)
            elif may_stop_ns < NEVER_NS:
                tail.wait_entries.append((at, may_stop_ns))
            tail.next_entry = next(tail.walk, None)
        return tail

    def find_suspended_behind(self, line: JobQueue, entry: Entry) -> Iterator[Job]:
        parked = [j for j in self.world.suspended_holders if j in line.waiting and line.waiting.entry(j) > entry]
        for job_id in sorted(parked, key=line.waiting.entry, reverse=True):
            if self.world.cluster.offers(self.world.held[job_id]):
                yield self.world.jobs[job_id]

    def find_idle(self) -> Iterator[Job]:
        """Suspended jobs of all queues that wait for nothing but their users, the newest first."""
        for job_id in sorted(self.world.suspended_holders, reverse=True):
            job = self.world.jobs[job_id]
            if job.waits_for_user and self.world.cluster.offers(self.world.held[job_id]):
                yield job

    def find_suspended_elsewhere(self, claimant: Account) -> Iterator[Job]:
        """Suspended jobs of queues that have no part in this guarantee, the newest first."""
        for job_id in sorted(self.world.suspended_holders, reverse=True):
            line = self.world.line(self.world.jobs[job_id])
            waits = claimant not in line.account.chain and job_id in line.waiting
            if waits and self.world.cluster.offers(self.world.held[job_id]):
                yield self.world.jobs[job_id]

    def find_above_guarantee(self, lines: list[JobQueue], claimant: Account, *, keeps_guarantee: bool) -> Iterator[Job]:
        """Jobs of these queues, of the one most above its guarantee first, as long as it is above.

        `keeps_guarantee`: as long as that leaves it all of its guarantee. Other jobs run partly on the guarantee of
        their queue and stop only if that is not enough: the claiming queue's guarantee is to be met in full, too.
        """
        cursors = {line.spec.name: line.running.find_last(None) for line in lines}
        left = [line for line in lines if cursors[line.spec.name] is not None]
        while left:
            line = max(left, key=lambda o: (o.account.share(), -o.account.index))
            at = cursors[line.spec.name]
            excess_milli = line.account.excess_milli(claimant)
            if at is None or excess_milli <= 0:
                left.remove(line)
                continue
            cursors[line.spec.name] = line.running.find_last(at)
            victim = self.world.jobs[at[1]]
            if (not keeps_guarantee or excess_milli >= victim.width_milli) and self._may_stop(victim, line):
                yield victim

    def _may_stop(self, job: Job, line: JobQueue) -> bool:
        may_stop_ns = self._may_stop_ns(job, line)
        if self.now_ns < may_stop_ns < NEVER_NS:
            self.look_again_ns = min(self.look_again_ns, may_stop_ns)
        return may_stop_ns <= self.now_ns

    def _may_stop_ns(self, job: Job, line: JobQueue) -> int:
        """When it has run for its minimum time; NEVER_NS where stopping it is of no use."""
        if not job.spec.preemptible or job.resizing or not self.world.cluster.offers(job.placement):
            return NEVER_NS
        return job.started_ns + line.spec.min_run_ns


def choose_how(world: QueueState, victim: Job) -> How:
    """The way that is cheapest for its user and leaves enough capacity for the job that it stops for: the victim's own
    placement is not held any more."""
    if not world.has_slices(victim):  # a suspended job keeps its slices
        return How.REQUEUE
    keeps = (how for how in world.hows if how is not How.REQUEUE)
    return next((how for how in keeps if world.cluster.fits(world.kept_placement(victim, how))), How.REQUEUE)


def choose_eviction(world: QueueState, job: Job) -> How:
    """How a suspended job gives up what it kept: its memory moves to the host, or it starts again."""
    may_move = How.EVICT in world.hows and job.suspended_how is How.PAUSE and world.has_slices(job)
    return How.EVICT if may_move and world.cluster.fits(world.kept_placement(job, How.EVICT)) else How.REQUEUE
