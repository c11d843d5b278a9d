"""One decision: who of those that wait starts now, and who of those that run makes room for them.

Queues take turns, least served first (quota.py); within a queue its policy's order counts. With one queue and counted
GPUs the running jobs are afterwards exactly those that a walk through all jobs in order would choose which takes
whatever still fits: a job that runs always fits in that walk when its turn comes, because all that run fit together, so
only those that wait need to be looked at; those that make room are behind, and are looked at again when it is theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop

from vgpud.core.queue.estimate import ends_ns, reserved_start_ns
from vgpud.core.queue.line import Line
from vgpud.core.queue.model import NEVER_NS, How, Job, JobState, Placement
from vgpud.core.queue.order import Entry
from vgpud.core.queue.quota import Account
from vgpud.core.queue.world import World

#: so many jobs are looked at for backfill
BACKFILL_JOBS_MAX = 1000
#: what it costs to find no room for a shape, with that of putting a running job aside as the unit
TRY_COST = 4


@dataclass(slots=True)
class Turn:
    """Where a queue is in this decision."""

    line: Line
    cursor: Entry | None = None
    failed: int = 0  # bits of the shapes that do not fit any more
    until_ns: int = -1  # those behind a reservation must have ended by then; -1 = there is none
    looked_at: int = 0


class Decision:
    """Made and run once. Afterwards: `placed` have room and may start, `victims` must stop."""

    def __init__(self, world: World, now_ns: int) -> None:
        self.world = world
        self.now_ns = now_ns
        self.placed: list[Job] = []
        self.victims: dict[int, Job] = {}
        self.unparked: dict[int, Job] = {}  # suspended ones must give up what they kept, memory for the most part
        self.because: dict[int, int] = {}  # who makes room -> for whom
        self._given = 0  # how often room has been given
        self._stopped = 0  # jobs that have been put aside to see whether another fits then
        self._tried: dict[int, int] = {}  # by uid: what it has cost to find that jobs do not fit
        self.look_again_ns = NEVER_NS  # when a job that would have made room has run for long enough

    def run(self) -> None:
        turns = [Turn(line) for line in self.world.lines.values() if len(line.waiting)]
        for turn in turns:
            turn.line.refresh(self.world.jobs, self.now_ns)
        if len(self.world.lines) > 1 and turns:
            for line in self.world.lines.values():
                line.account.learn(self.now_ns, self.world.half_life_ns)
        waiting = _by_turn(turns)
        while waiting:
            turn = waiting[0][1]
            given = self._given
            while self._given == given:
                if not self._advance(turn):
                    heappop(waiting)
                    break
            else:  # only now may another one be next
                waiting = _by_turn([turn for _, turn in waiting])

    def _advance(self, turn: Turn) -> bool:
        """The next job of this queue; False when its turn is over."""
        line = turn.line
        entry = line.waiting.next(turn.cursor, turn.failed)
        if entry is None:
            return False
        turn.cursor = entry
        job = self.world.jobs[entry[1]]
        if turn.until_ns >= 0:
            turn.looked_at += 1
            if turn.looked_at > BACKFILL_JOBS_MAX:
                return False
            if ends_ns(job, self.now_ns) > turn.until_ns:
                return True
        if self._tried.get(job.spec.uid, 0) >= self.world.tries_max:
            return True
        bit, stopped = line.waiting.bit(job.job_id), self._stopped
        if self._start(job, entry, turn):
            return True
        turn.failed |= bit
        self._tried[job.spec.uid] = self._tried.get(job.spec.uid, 0) + TRY_COST + self._stopped - stopped
        if line.spec.strict and turn.until_ns < 0:
            if not line.spec.backfill:
                return False
            turn.until_ns = reserved_start_ns(self.world, job, self.now_ns)
            return turn.until_ns < NEVER_NS  # nobody can be said to end before a start that nobody knows
        return True

    def _start(self, job: Job, entry: Entry, turn: Turn) -> bool:
        world, line = self.world, turn.line
        if not job.spec.preemptible and not world.keeps_guarantees(job):
            return False
        placement = None if line.account.limit_for(job.spec) else self._find(job)
        if placement is not None:
            self._give(job, placement)
        elif not self._reclaim(job, line) and not self._within(job, entry, turn):
            return False
        self._settle(job)
        return True

    def _find(self, job: Job) -> Placement | None:
        if job.job_id in self.victims:  # it still runs: elsewhere it could go only by way of a stop
            return job.placement if self.world.has_slices(job) and self.world.room.fits(job.placement) else None
        return self.world.find(job)

    def _settle(self, job: Job) -> None:
        """It has been given room."""
        line = self.world.line(job)
        key = line.waiting.entry(job.job_id)[0]
        line.dequeue(job.job_id)
        if job.job_id in self.victims:
            line.run(job, key)
            del self.victims[job.job_id]
            self.because.pop(job.job_id, None)
        else:
            self.unparked.pop(job.job_id, None)
            self.world.unwatch(job)
            self.placed.append(job)

    # ---- making room ----

    def _within(self, job: Job, entry: Entry, turn: Turn) -> bool:
        """Takes room that jobs of its queue behind it have."""
        line = turn.line
        if not line.policy.preempts or turn.until_ns >= 0:
            return False
        free = self.world.room.free_milli() + line.running.weight_after(entry)
        if free < job.spec.width_milli or not (len(line.running) or self.world.parked):
            return False
        return self._make_room(job, line, _in_turn(self._behind(line, entry), self._parked_behind(line, entry)))

    def _behind(self, line: Line, entry: Entry) -> Iterator[Job]:
        at = line.running.worst(None)
        while at is not None and at > entry:
            victim = self.world.jobs[at[1]]
            if self._may_stop(victim, line):
                yield victim
            at = line.running.worst(at)

    def _parked_behind(self, line: Line, entry: Entry) -> Iterator[Job]:
        parked = [j for j in self.world.parked if j in line.waiting and line.waiting.entry(j) > entry]
        for job_id in sorted(parked, key=line.waiting.entry, reverse=True):
            yield self.world.jobs[job_id]

    def _parked_elsewhere(self, claimant: Account) -> Iterator[Job]:
        """Suspended jobs of queues that have no part in this guarantee, last come first."""
        for job_id in sorted(self.world.parked, reverse=True):
            line = self.world.line(self.world.jobs[job_id])
            if claimant not in line.account.chain and job_id in line.waiting:
                yield self.world.jobs[job_id]

    def _reclaim(self, job: Job, line: Line) -> bool:
        """Takes room that jobs of queues above their guarantee have, for a queue below its own."""
        width_milli = job.spec.width_milli
        claimant = line.account.below_guarantee(width_milli)
        if claimant is None:
            return False
        lines = [other for other in self.world.lines.values() if claimant not in other.account.chain]
        running = sum(other.running.weight for other in lines if other.account.excess_milli(line.account) > 0)
        if not (running or self.world.parked) or self.world.room.free_milli() + running < width_milli:
            return False
        covered, partly = (self._most_above(lines, line.account, whole=whole) for whole in (True, False))
        return self._make_room(job, line, _in_turn(covered, partly, self._parked_elsewhere(claimant)))

    def _most_above(self, lines: list[Line], claimant: Account, *, whole: bool) -> Iterator[Job]:
        """Jobs of these queues, of the one most above its guarantee first, as long as it is above.

        `whole`: as long as that leaves it all of its guarantee. The others run partly on what is guaranteed to their
        queue: they go only if that is not enough, for the guarantee of who claims is whole as well.
        """
        cursors = {line.spec.name: line.running.worst(None) for line in lines}
        left = [line for line in lines if cursors[line.spec.name] is not None]
        while left:
            line = max(left, key=lambda o: (o.account.share(), -o.account.index))
            at = cursors[line.spec.name]
            excess_milli = line.account.excess_milli(claimant)
            if at is None or excess_milli <= 0:
                left.remove(line)
                continue
            cursors[line.spec.name] = line.running.worst(at)
            victim = self.world.jobs[at[1]]
            if (not whole or excess_milli >= victim.width_milli) and self._may_stop(victim, line):
                yield victim

    def _may_stop(self, job: Job, line: Line) -> bool:
        if not job.spec.preemptible:
            return False
        until_ns = job.started_ns + line.spec.min_run_ns
        if until_ns > self.now_ns:
            self.look_again_ns = min(self.look_again_ns, until_ns)
            return False
        return True

    def _make_room(self, job: Job, line: Line, candidates: Iterator[Job]) -> bool:
        """Takes room from these, in this order, until the job fits; gives back, in the other, what is not needed."""
        stopped: list[Job] = []
        placement, ask_at = None, 1
        for victim in candidates:
            self._displace(victim)
            self._stopped += 1
            stopped.append(victim)
            if len(stopped) < ask_at or not self._may_fit(job, line):
                continue
            placement = self._find(job)
            if placement is not None:
                break
            ask_at = 2 * len(stopped)
        if placement is None and stopped and len(stopped) < ask_at and self._may_fit(job, line):
            placement = self._find(job)
        for victim in reversed(stopped):
            if placement is not None and not self._fit_both(victim, job, line):
                self.because[victim.job_id] = job.job_id
            elif victim.job_id in self.unparked:
                self._park_again(victim, job)
            elif self._fits_where_it_runs(victim):
                self._give(victim, victim.placement)
                self._settle(victim)
            else:
                self.because[victim.job_id] = job.job_id
        if placement is not None:
            kept = self._find(job)
            assert kept is not None, "it fits beside all that were given back"
            self._give(job, kept)
        return placement is not None

    def _fit_both(self, victim: Job, job: Job, line: Line) -> bool:
        """Whether the job still fits when this one has its room back."""
        world, runs = self.world, victim.job_id not in self.unparked
        back = victim.placement if runs else world.kept(victim, victim.suspended_how or How.REQUEUE)
        left_milli = world.room.free_milli() - (victim.width_milli if runs else 0)
        if left_milli < job.spec.width_milli or not world.room.fits(back):
            return False
        world.hold(victim, back)
        if runs:
            world.count(victim, 1, self.now_ns)
        fits = self._may_fit(job, line) and self._find(job) is not None
        if runs:
            world.count(victim, -1, self.now_ns)
        world.hold(victim, ())
        return fits

    def _may_fit(self, job: Job, line: Line) -> bool:
        return self.world.room.free_milli() >= job.spec.width_milli and not line.account.limit_for(job.spec)

    def _displace(self, victim: Job) -> None:
        """For now: it waits like others, and is kept if it still fits when its turn comes."""
        if victim.state is JobState.SUSPENDED:
            self.world.hold(victim, ())
            self.unparked[victim.job_id] = victim
            return
        line = self.world.line(victim)
        key = line.running.entry(victim.job_id)[0]
        line.stop(victim.job_id)
        line.enqueue(victim, key, pinned=True)
        self.world.hold(victim, ())
        self.world.count(victim, -1, self.now_ns)
        self.victims[victim.job_id] = victim

    def _park_again(self, job: Job, claimant: Job) -> None:
        """If what it kept is still free."""
        self.because[job.job_id] = claimant.job_id
        if self.world.room.fits(self.world.kept(job, job.suspended_how or How.REQUEUE)):
            self.world.park(job)
            del self.unparked[job.job_id]

    def _fits_where_it_runs(self, victim: Job) -> bool:
        account = self.world.line(victim).account
        fits = self.world.has_slices(victim) and self.world.room.fits(victim.placement)
        return fits and not account.limit_for(victim.spec)

    def _give(self, job: Job, placement: Placement) -> None:
        self._given += 1
        job.placement = placement
        self.world.hold(job, placement)
        self.world.count(job, 1, self.now_ns)


def _by_turn(turns: list[Turn]) -> list[tuple[tuple[int, ...], Turn]]:
    """A heap: the queue that is served next is first."""
    found = [(turn.line.account.turn(), turn) for turn in turns]
    heapify(found)
    return found


def _in_turn(*sources: Iterator[Job]) -> Iterator[Job]:
    for source in sources:
        yield from source
