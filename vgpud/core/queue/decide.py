"""One decision: which waiting jobs start now, and which running jobs free capacity for them. preemption.py finds the
latter.

Queues take turns, least served first (quota.py); within a queue its policy's order counts. With one queue and counted
GPUs the running jobs are afterwards exactly those that a walk through all jobs in order would choose that takes
whatever still fits: a running job always fits in that walk when its turn comes, because all running jobs fit together.
So only waiting jobs need to be looked at; jobs that free capacity are behind, and are looked at again in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, How, Job, JobSpec, JobState, Placement
from vgpud.core.order import Entry
from vgpud.core.placement.base import Vacancy
from vgpud.core.queue import elasticity, sizes, strict
from vgpud.core.queue.estimate import ends_ns, reserved_start_ns
from vgpud.core.queue.preemption import VictimSearch
from vgpud.core.queue.sizes import Cut, Trim
from vgpud.core.queue.state import WAITING, QueueState
from vgpud.core.queue.victims import VictimTrial, group_by_node
from vgpud.core.queue.waiting import JobQueue

#: jobs looked at for backfill, at most
BACKFILL_JOBS_MAX = 1000
#: of so many jobs behind, so few are tried before it is counted what all of them free
MANY, FEW = 64, 16
#: a waiting job that has waited so many times as long as an elastic one has run may take what would make it narrower
WAITS_PER_RUN = 4
#: until the next decision, if nothing happens and keys are left to be computed again
REKEY_PAUSE_NS = SECOND_NS // 10
#: cost of finding no placement for a shape; the unit is the cost of putting one running job aside
TRY_COST = 4


@dataclass(slots=True)
class Turn:
    """Where a queue is in this decision."""

    line: JobQueue
    cursor: Entry | None = None  # the job looked at last
    failed: int = 0  # bits (waiting.Shapes) of the shapes that no longer fit
    until_ns: int = -1  # start of the reservation, by which backfilled jobs must have ended; -1 = none
    looked_at: int = 0
    has_grown: bool = False  # elastic jobs that come before all waiting ones have grown


@dataclass(slots=True)
class Request:
    """A job that is to be placed at the size of `spec`, which becomes its own when it is."""

    job: Job
    spec: JobSpec
    entry: Entry
    turn: Turn

    @property
    def line(self) -> JobQueue:
        return self.turn.line


class Decision:
    """Made and run once. Afterwards `placed_jobs` may start, `victims` stop, `trims` shrink."""

    def __init__(self, world: QueueState, now_ns: int) -> None:
        self.world = world
        self.now_ns = now_ns
        self.placed_jobs: list[Job] = []
        self.victims: dict[int, Job] = {}
        self.evicted_jobs: dict[int, Job] = {}  # suspended jobs that give up what they kept: memory, mostly
        self.victim_for: dict[int, int] = {}  # job that gives up capacity -> job that gets it
        self.trims: dict[int, Trim] = {}
        self.trimmed_for: dict[int, int] = {}  # elastic job that shrinks -> job that gets the capacity
        self.shrink_deadline_ns = NEVER_NS  # when a job has waited so long that elastic jobs shrink for it
        #: elastic job that grows before others start -> its spec before
        self.specs_before_growth: dict[int, JobSpec] = {}
        self._given = 0  # times that capacity has been given
        self._stopped = 0  # times that a job was put aside to see whether another fits then
        self._lent_at = (-1, -1)  # (_given, _stopped) as of _all_lent_milli
        self._all_lent_milli = 0
        #: by queue: what did not fit, although all jobs behind were to stop
        self._unfit: dict[str, list[Vacancy]] = {}
        self._tried: dict[int, int] = {}  # by uid: cost so far of finding that jobs do not fit
        self.look_again_ns = NEVER_NS  # when a job may grow, or a victim will have run for its minimum time
        self._search = VictimSearch(world, now_ns)

    def run(self) -> None:
        turns = [Turn(line) for line in self.world.lines.values() if len(line.waiting)]
        for line in self.world.lines.values():
            is_stale = line.refresh(self.world.jobs, self.now_ns)
            if is_stale and len(line.waiting):
                self.look_again_ns = self.now_ns + REKEY_PAUSE_NS
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
            else:  # only now can another queue be next
                waiting = _by_turn([turn for _, turn in waiting])
        self.look_again_ns = min(self.look_again_ns, self._search.look_again_ns)

    def _advance(self, turn: Turn) -> bool:
        """The next job of this queue; False when its turn is over."""
        line = turn.line
        if self.world.elastic and not turn.has_grown:
            turn.has_grown = True
            self._grow_ahead(line)
            return True
        entry = line.waiting.next(turn.cursor, turn.failed)
        if entry is None or self._none_fits(line):
            return False
        turn.cursor = entry
        job = self.world.jobs[entry[1]]
        if turn.until_ns >= 0:
            turn.looked_at += 1
            if turn.looked_at > BACKFILL_JOBS_MAX:
                return False
            if ends_ns(self.world, job, self.now_ns) > turn.until_ns:
                return True
        if self._tried.get(job.spec.uid, 0) >= self.world.tries_max:
            return True
        bit, stopped = line.waiting.bit(job.job_id), self._stopped
        if self._start(job, entry, turn):
            return True
        turn.failed |= bit
        self._tried[job.spec.uid] = self._tried.get(job.spec.uid, 0) + TRY_COST + self._stopped - stopped
        if line.spec.strict and turn.until_ns < 0 and strict.holds_up(self.world, job):
            if not line.spec.backfill:
                return False
            turn.until_ns = reserved_start_ns(self.world, job, self.now_ns)
            return turn.until_ns < NEVER_NS  # behind an unknown start nothing can be backfilled
        return True

    def _none_fits(self, line: JobQueue) -> bool:
        """The free capacity is too small for every waiting job, and no job frees capacity for them."""
        if line.policy.preempts or self.world.elastic:
            return False
        least_milli = line.least_milli
        return self.world.cluster.free_milli() < least_milli and line.account.below_guarantee(least_milli) is None

    def _start(self, job: Job, entry: Entry, turn: Turn) -> bool:
        """At its size; an eager elastic job at its maximum, or with what else is free."""
        asked = job.spec
        eager = (
            turn.line.spec.elastic_eager and asked.elastic and job.state in WAITING and not self.world.is_pinned(job)
        )
        if (
            eager
            and sizes.size(asked) < (most := sizes.max_size(job))
            and self._try_place(Request(job, sizes.beginning(asked, most), entry, turn))
        ):
            job.spec = sizes.with_size(asked, most)
            return True
        started = self._try_place(Request(job, asked, entry, turn))
        if started and eager:
            self._grow(job)
        return started

    def _try_place(self, request: Request) -> bool:
        job, spec = request.job, request.spec
        if not spec.preemptible and not self.world.keeps_guarantees(spec):
            return False
        placement = None if request.line.account.limit_for(spec) else self._find(request)
        if placement is not None:
            self._give(job, spec, placement)
        elif not (
            self._take_lent(request)
            or self._take_from_idle(request)
            or self._reclaim(request)
            or self._take_from_behind(request)
        ):
            return False
        self._settle(job)
        return True

    def _find(self, request: Request) -> Placement | None:
        job = request.job
        if job.job_id in self.victims:  # it still runs: elsewhere it could go only by way of a stop
            placement = self._get_placement(job)
            return placement if self.world.has_slices(job) and self.world.cluster.suits(job, placement) else None
        return self.world.find(job, request.spec)

    def _settle(self, job: Job) -> None:
        """The job has got its capacity: it runs on, or is among those that start."""
        line = self.world.line(job)
        key = line.waiting.entry(job.job_id)[0]
        line.dequeue(job.job_id)
        if job.job_id in self.victims:
            line.run(job, key)
            self._search.note_run(line)
            del self.victims[job.job_id]
            self.victim_for.pop(job.job_id, None)
        else:
            self.evicted_jobs.pop(job.job_id, None)
            self.world.unwatch(job)
            self.placed_jobs.append(job)

    # ---- elastic jobs grow before others start ----

    def _grow_ahead(self, line: JobQueue) -> None:
        """Running elastic jobs grow into free capacity: elastic workers to be as wide as the first waiting job, the
        narrowest first, for which a GPU does most; in an eager queue those before all waiting jobs, to all that they
        can use.
        """
        world, first = self.world, line.waiting.next(None, 0)
        is_freeing_capacity = (
            world.stopping or world.shrinking or world.claims or self.victims or self.trims or self.evicted_jobs
        )
        if first is None or is_freeing_capacity:
            return  # what is free is not yet free
        most_milli = NEVER_NS if line.spec.elastic_eager else world.jobs[first[1]].spec.width_milli
        for job in self._find_growing(line, first):
            if sizes.size(job.spec) >= sizes.max_size(job) or not elasticity.may_change(world, job, self.now_ns):
                continue
            due_ns = max(job.resized_ns, job.started_ns) + line.spec.elastic_idle_ns
            if due_ns > self.now_ns:
                self.look_again_ns = min(self.look_again_ns, due_ns)
                continue
            before = job.spec
            if elasticity.grow_to_most(world, job, most_milli, self.now_ns):
                self.specs_before_growth[job.job_id] = before
                self._given += 1
                key = line.running.entry(job.job_id)[0]
                line.stop(job.job_id)
                line.run(job, key)  # its width is what other jobs could take of it

    def _find_growing(self, line: JobQueue, first: Entry) -> list[Job]:
        """The elastic jobs that may grow before the first waiting job starts, in this order."""
        running = line.running
        jobs = [job for job in self.world.elastic.values() if self.world.line(job) is line and job.job_id in running]
        if line.spec.elastic_eager:
            jobs = [job for job in jobs if not line.policy.preempts or running.entry(job.job_id) <= first]
            return sorted(jobs, key=lambda job: running.entry(job.job_id))
        width_milli = self.world.jobs[first[1]].spec.width_milli
        jobs = [job for job in jobs if sizes.by_members(job.spec) and job.spec.width_milli < width_milli]
        jobs = [job for job in jobs if not _is_behind(line, job, first)]
        return sorted(jobs, key=lambda job: (job.spec.width_milli, job.job_id))

    def _grow(self, job: Job) -> None:
        """An elastic job that starts takes free capacity, up to its maximum."""
        while sizes.size(job.spec) < sizes.max_size(job):
            more = elasticity.one_more(self.world, job)
            if more is None:
                return
            self.world.hold(job, ())
            self.world.count(job, -1, self.now_ns)
            self._give(job, *more)

    def _shrink_back(self, job: Job) -> None:
        """A job that is put aside gives first what it has just grown by: with the rest it may keep running."""
        before = self.specs_before_growth.get(job.job_id)
        if before is not None and sizes.size(job.spec) >= sizes.size(before):
            self.trims.pop(job.job_id, None)
            del self.specs_before_growth[job.job_id]
            self.world.resize(job, before, job.placement, self.now_ns)

    def _get_placement(self, job: Job) -> Placement:
        """What a running job has if it keeps running."""
        trim = self.trims.get(job.job_id)
        return trim.now()[1] if trim else job.placement

    # ---- freeing capacity ----

    def _take_lent(self, request: Request) -> bool:
        """Takes capacity that elastic jobs have above their minimum, so that no job need stop."""
        world, job, line, width_milli = self.world, request.job, request.line, request.spec.width_milli
        if not world.elastic or request.turn.until_ns >= 0:
            return False
        if world.cluster.free_milli() + self._lent_milli() < width_milli:
            return False
        if self._is_barred(request):
            return False
        if not self._has_waited(job, line):
            if job.state in WAITING:
                due_ns = job.waiting_since_ns + line.spec.lent_after_ns
                self.shrink_deadline_ns = min(self.shrink_deadline_ns, due_ns)
            last = line.running.find_last(None)
            passes = line.policy.preempts and last is not None and last > request.entry
            if not passes and line.account.below_guarantee(width_milli) is None:
                return False
        return self._free_capacity(request, self._cuts(request))

    def _lent_milli(self) -> int:
        """What all elastic jobs could give; recomputed when capacity has been given or taken."""
        at = self._given, self._stopped
        if self._lent_at != at:
            self._lent_at, self._all_lent_milli = at, elasticity.lent_milli(self.world, self.now_ns)
        return self._all_lent_milli

    def _is_barred(self, request: Request) -> bool:
        """A quota keeps it waiting, and no elastic job in that quota can give anything: none shrinks for it."""
        over = request.line.account.limit_for(request.spec)
        lenders = (other for other in self.world.elastic.values() if elasticity.surplus_milli(other))
        return over is not None and not any(over.account in self.world.line(one).account.chain for one in lenders)

    def _has_waited(self, job: Job, line: JobQueue) -> bool:
        return job.state in WAITING and job.waited_at(self.now_ns) >= line.spec.lent_after_ns

    def _cuts(self, request: Request) -> Iterator[Cut]:
        return elasticity.cuts(self.world, self.trims, self.now_ns, self._may_give(request))

    def _may_give(self, request: Request) -> Callable[[Job, int], bool]:
        """Whether an elastic job gives so much to this one: which has waited, has a guarantee or comes before it.

        Merely for waiting, none has fewer workers than make it as wide as the job that waits, unless that has waited
        WAITS_PER_RUN times as long as it has run, or all others wait for it: a GPU does more for the narrower of two
        jobs.
        """
        line = request.line
        waited = self._has_waited(request.job, line)
        claimant = line.account.below_guarantee(request.spec.width_milli)

        def may_give(giver: Job, milli: int) -> bool:
            its = self.world.line(giver)
            if its is line:
                if not (waited or (line.policy.preempts and line.running.entry(giver.job_id) > request.entry)):
                    return False
                if line.spec.elastic_eager or _is_behind(line, giver, request.entry):
                    return True
                is_wider = elasticity.kept_milli(line, giver, request.spec) <= giver.spec.width_milli - milli
                long_ns = WAITS_PER_RUN * giver.executed_at(self.now_ns)
                return is_wider or (waited and request.job.waited_at(self.now_ns) >= long_ns)
            if not waited and (claimant is None or claimant in its.account.chain):
                return False
            return its.account.excess_milli(line.account) >= milli

        return may_give

    def _take_from_idle(self, request: Request) -> bool:
        """Takes what paused jobs have kept that no user uses: memory."""
        if not self._may_fit(request) or not any(job.waits_for_user for job in self.world.suspended_holders.values()):
            return False
        return self._free_capacity(request, self._search.find_idle())

    def _take_from_behind(self, request: Request) -> bool:
        """Takes capacity that jobs of its queue behind it have."""
        line, entry = request.line, request.entry
        if not line.policy.preempts or request.turn.until_ns >= 0:
            return False
        free = self.world.cluster.free_milli() + line.running.weight_after(entry)
        if free < request.spec.width_milli or not (len(line.running) or self.world.suspended_holders):
            return False
        search = self._search
        vacancy = self._ask_vacancy(request)
        if vacancy is not None:
            return self._stop_behind(request, vacancy)
        behind = search.find_running_behind(line, entry), search.find_suspended_behind(line, entry)
        return self._free_capacity(request, _in_turn(self._cuts(request), *behind))

    def _ask_vacancy(self, request: Request) -> Vacancy | None:
        """None: only placing the job tells whether it fits."""
        world, job = self.world, request.job
        if world.elastic or world.reservations.all:
            return None
        stays = job.job_id in self.victims or world.is_pinned(job)
        if stays and job.job_id in world.held:  # what it kept is free for it alone
            return None
        return world.cluster.ask_vacancy(request.spec, job.placement if stays else ())

    def _stop_behind(self, request: Request, vacancy: Vacancy) -> bool:
        """The same as _free_capacity() with the jobs behind, where counting tells which of them must stop."""
        job, unfit = request.job, self._unfit.setdefault(request.line.spec.name, [])
        if any(vacancy.needs_all_of(other) for other in unfit):
            if self.world.tries_max < NEVER_NS:
                self._stopped += len(self._list_behind(request))
            return False
        looked_at, victims = self._choose_victims(request, vacancy, unfit)
        self._stopped += looked_at
        for victim in victims:
            self._displace(victim)
            self.victim_for[victim.job_id] = job.job_id
        if victims:
            self._unfit = {request.line.spec.name: unfit}  # in other queues more may be free now
            placement = self._find(request)
            assert placement is not None, "it fits when these have left"
            self._give(job, request.spec, placement)
        return bool(victims)

    def _choose_victims(self, request: Request, vacancy: Vacancy, unfit: list[Vacancy]) -> tuple[int, list[Job]]:
        """How many jobs behind have been looked at, and which of them must stop. Where there are many, a few are enough
        most of the time; before all are looked at one by one, what they free is counted at once."""
        line, entry = request.line, request.entry
        trial = VictimTrial(self.world, request.job, request.spec, line.account, vacancy)
        some = self._search.list_running_behind(line, entry, MANY)
        looked_at, victims = trial.choose(some[:FEW], are_all=False) if len(some) == MANY else (0, [])
        if not victims:
            behind = self._list_behind(request)
            looked_at = len(behind)
            if vacancy.fits_without(group_by_node(self.world, behind)):
                looked_at, victims = trial.choose(behind, are_all=True)
            else:
                unfit.append(vacancy)
        self._search.note_running_behind(line, entry, looked_at if victims else NEVER_NS)
        return looked_at, victims

    def _list_behind(self, request: Request) -> list[Job]:
        """All jobs behind that may stop, or give up what they have kept."""
        line, entry = request.line, request.entry
        behind = self._search.list_running_behind(line, entry, NEVER_NS)
        return [*behind, *self._search.find_suspended_behind(line, entry)] if self.world.suspended_holders else behind

    def _reclaim(self, request: Request) -> bool:
        """Takes capacity that jobs of queues above their guarantee have, for a queue below its own."""
        line, width_milli = request.line, request.spec.width_milli
        claimant = line.account.below_guarantee(width_milli)
        if claimant is None:
            return False
        lines = [other for other in self.world.lines.values() if claimant not in other.account.chain]
        running = sum(other.running.weight for other in lines if other.account.excess_milli(line.account) > 0)
        if not (running or self.world.suspended_holders) or self.world.cluster.free_milli() + running < width_milli:
            return False
        search = self._search
        covered = search.find_above_guarantee(lines, line.account, keeps_guarantee=True)
        partly = search.find_above_guarantee(lines, line.account, keeps_guarantee=False)
        givers = covered, partly, search.find_suspended_elsewhere(claimant)
        return self._free_capacity(request, _in_turn(self._cuts(request), *givers))

    def _free_capacity(self, request: Request, candidates: Iterator[Job | Cut]) -> bool:
        """Takes capacity from these, in this order, until the job fits; gives back the surplus, in reverse order.

        Giving back asks for nothing but the job's own fit: what was there a moment ago can be there again, on a device
        that takes no new jobs, above a limit that was lowered, or beside residents with which it would not be placed
        now.
        """
        job = request.job
        stopped: list[Job | Cut] = []
        placement, ask_at = None, 1
        self._unfit.clear()
        for victim in candidates:
            if isinstance(victim, Cut):
                self._cut(victim)
            else:
                stopped = self._undo_cuts(victim, stopped)
                self._displace(victim)
            self._stopped += 1
            stopped.append(victim)
            if len(stopped) < ask_at or not self._may_fit(request):
                continue
            placement = self._find(request)
            if placement is not None:
                break
            ask_at = 2 * len(stopped)
        if placement is None and stopped and len(stopped) < ask_at and self._may_fit(request):
            placement = self._find(request)
        for victim in reversed(stopped):
            if isinstance(victim, Cut):
                self._uncut(victim, request, has_placement=placement is not None)
            elif placement is not None and not self._fit_both(victim, request):
                self.victim_for[victim.job_id] = job.job_id
            else:
                self._put_back(victim)
        if placement is not None:
            kept = self._find(request)
            assert kept is not None, "it fits beside all that were given back"
            self._give(job, request.spec, kept)
        return placement is not None

    def _cut(self, cut: Cut) -> None:
        cut.apply()
        self.trims[cut.trim.job.job_id] = cut.trim
        self._trim(cut.trim)

    def _trim(self, trim: Trim) -> None:
        spec, placement = trim.now()
        self.world.resize(trim.job, spec, placement, self.now_ns)
        if not trim.removed_members and not trim.gone_milli:
            self.trims.pop(trim.job.job_id, None)

    def _uncut(self, cut: Cut, request: Request, *, has_placement: bool) -> None:
        """Gives a step back, if the job does not need it."""
        cut.undo()
        self._trim(cut.trim)
        if has_placement and not (self._may_fit(request) and self._find(request) is not None):
            self._cut(cut)
            self.trimmed_for[cut.trim.job.job_id] = request.job.job_id

    def _undo_cuts(self, victim: Job, givers: list[Job | Cut]) -> list[Job | Cut]:
        """The victim gives all that it has: steps by which it was to give a part are undone."""
        trim = self.trims.get(victim.job_id)
        steps = [one for one in givers if isinstance(one, Cut) and one.trim is trim]
        for cut in steps:
            cut.undo()
        if trim is not None and steps:
            self._trim(trim)
        return [one for one in givers if one not in steps]

    def _fit_both(self, victim: Job, request: Request) -> bool:
        """Whether the job still fits when this one has its capacity back."""
        world, runs = self.world, victim.job_id not in self.evicted_jobs
        back = (
            self._get_placement(victim) if runs else world.kept_placement(victim, victim.suspended_how or How.REQUEUE)
        )
        world.hold(victim, back)
        if runs:
            world.count(victim, 1, self.now_ns)
        fits = self._may_fit(request) and self._find(request) is not None
        if runs:
            world.count(victim, -1, self.now_ns)
        world.hold(victim, ())
        return fits

    def _may_fit(self, request: Request) -> bool:
        free_milli, account = self.world.cluster.free_milli(), request.line.account
        return free_milli >= request.spec.width_milli and not account.limit_for(request.spec)

    def _displace(self, victim: Job) -> None:
        """For now: it waits like other jobs, and keeps running if it still fits when its turn comes."""
        if victim.state is JobState.SUSPENDED:
            self.world.hold(victim, ())
            self.evicted_jobs[victim.job_id] = victim
            return
        self._shrink_back(victim)
        line = self.world.line(victim)
        key = line.running.entry(victim.job_id)[0]
        line.stop(victim.job_id)
        self._search.note_stop(line, victim)
        line.put_aside(victim, key)
        self.world.hold(victim, ())
        self.world.count(victim, -1, self.now_ns)
        self.victims[victim.job_id] = victim

    def _put_back(self, victim: Job) -> None:
        """It is as it was before it was put aside for the present request."""
        if victim.job_id in self.evicted_jobs:
            self.world.park(victim)
            del self.evicted_jobs[victim.job_id]
        else:
            self._give(victim, victim.spec, self._get_placement(victim))
            self._settle(victim)

    def _give(self, job: Job, spec: JobSpec, placement: Placement) -> None:
        """Counts the job with this size and this placement."""
        self._given += 1
        job.spec = spec
        if job.job_id not in self.victims:
            job.placement = placement
        self.world.hold(job, placement)
        self.world.count(job, 1, self.now_ns)


def _is_behind(line: JobQueue, job: Job, entry: Entry) -> bool:
    """Whether its queue's policy, where it preempts, has a running job behind this entry, ties apart."""
    return line.policy.preempts and line.running.entry(job.job_id)[0][0] > entry[0][0]


def _by_turn(turns: list[Turn]) -> list[tuple[tuple[int, ...], Turn]]:
    """A heap: the queue that is served next is first."""
    found = [(turn.line.account.turn(), turn) for turn in turns]
    heapify(found)
    return found


def _in_turn(*sources: Iterator[Job] | Iterator[Cut]) -> Iterator[Job | Cut]:
    for source in sources:
        yield from source
