"""The state that the machine's parts share: jobs, queues, placements, and the operations that keep these consistent.

A job's placement is `held` from the decision that gives it until the job's end, or until the decision that takes it
away: then the job is `going`, physically still there, and the job that gets its placement has a claim on it until it
has gone. Of an elastic job that shrinks the same holds for a part of its placement, which is `leaving`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from vgpud.core.estimates import Estimates
from vgpud.core.jobs.model import NEVER_NS, How, Job, JobSpec, JobState, Node, Placement, QueueSpec, Reservation
from vgpud.core.placement.base import ClusterCapacity, Tentative
from vgpud.core.policy.base import Policy
from vgpud.core.queue import sizes
from vgpud.core.queue.arrays import Arrays
from vgpud.core.queue.deadlines import Deadline, Deadlines, Due
from vgpud.core.queue.notices import Notices
from vgpud.core.queue.quota import Account, Amount
from vgpud.core.queue.reservations import Reservations, devices_of, touches
from vgpud.core.queue.waiting import JobQueue

WAITING = (JobState.PENDING, JobState.SUSPENDED)


class QueueState:
    def __init__(
        self,
        cluster: ClusterCapacity,
        make_policy: Callable[[str], Policy],
        hows: tuple[How, ...],
        moves: bool,
        half_life_ns: int,
    ) -> None:
        self.cluster = cluster
        self.make_policy = make_policy
        self.hows = hows
        self.moves = moves
        self.half_life_ns = half_life_ns
        self.jobs: dict[int, Job] = {}
        self.lines: dict[str, JobQueue] = {}
        self.held: dict[int, Placement] = {}  # what is reserved for a job
        self.stopping: dict[int, Placement] = {}  # what a job that has been told to stop still has
        self.stop_order_ns: dict[int, int] = {}  # when a running job was told to stop
        #: what an elastic job that has been told to shrink still has beyond `held`
        self.shrinking: dict[int, Placement] = {}
        self.elastic: dict[int, Job] = {}  # elastic jobs that run
        self.left_alone_ns: dict[int, int] = {}  # elastic jobs that could not be resized: when that is tried again
        self.target_reasons: dict[int, str] = {}  # elastic jobs: the reasons of their autoscalers' last targets
        self.acted_ns = 0  # when something was started, stopped or resized last
        self.suspended_holders: dict[int, Job] = {}  # suspended jobs that still have a reservation
        self.claims: dict[int, Job] = {}  # jobs whose placement is still being freed, oldest first
        self.notices = Notices()
        self.reservations = Reservations()
        self.now_ns = 0  # of the present step or question
        #: reservations that keep a job from their devices now; set by the machine, which knows when jobs end
        self.reserved_from: Callable[[Job], list[Reservation]] = lambda job: []
        self.arrays = Arrays()  # those of which only so many jobs run at once
        self.incomplete_arrays: set[int] = set()  # those whose last part has not been submitted, by their first job
        self.unmet: dict[int, set[int]] = {}  # job -> jobs that it depends on
        self.dependents: dict[int, dict[int, None]] = {}  # job -> jobs that depend on it, in order
        self.unmet_of: Counter[int] = Counter()  # by uid: number of dependencies of all its jobs
        #: answers to readers, valid until something happens
        self.answer_cache: dict[object, Any] = {}
        #: members of all placed jobs: each has a slice, and a node has only so many
        self.members = 0
        self.members_max = NEVER_NS
        self.tries_max = NEVER_NS  # see machine.TRIES_MAX
        self.reports_starts = False  # the shell sends Started
        self.explains = True
        self.deadlines = Deadlines(self._holds)
        self.estimates = Estimates()  # of jobs that have similarity classes (JobSpec.kinds)
        self._key_changes_ns: dict[int, int] = {}

    # ---- queues ----

    def set_queues(self, queues: tuple[QueueSpec, ...], now_ns: int) -> None:
        """Replaces the queues; one that still has jobs stays."""
        gone = [n for n, line in self.lines.items() if n not in {q.name for q in queues}]
        busy = {job.spec.queue for job in self.jobs.values() if not job.state.is_final} if gone else set()
        queues += tuple(self.lines[n].spec for n in gone if n in busy)
        before = self.lines
        self.lines = {}
        for index, spec in enumerate(sorted(queues, key=lambda q: q.parent != "")):
            parent = self.lines[spec.parent].account if spec.parent else None
            self.lines[spec.name] = self._line(spec, before.get(spec.name), Account(spec, index, parent), now_ns)
        self.cluster.rules({q.name: (q.placement, q.spread) for q in queues})

    def _line(self, spec: QueueSpec, old: JobQueue | None, account: Account, now_ns: int) -> JobQueue:
        if old is None:
            account.history_at_ns = now_ns
            return JobQueue(spec, self._make_policy(spec), account)
        old.account.learn(now_ns, self.half_life_ns)
        same_parent = old.spec.parent == spec.parent
        account.adopt(old.account)
        assert same_parent or not account.used.milli, "a queue in use has moved"  # check_queues() refuses it
        old.account = account
        if old.spec.policy != spec.policy:
            old.set_policy(self._make_policy(spec), self.jobs)
            for job_id in (*old.waiting, *old.running):
                self.touch(self.jobs[job_id], now_ns, line=old)
        old.spec = spec
        return old

    def _make_policy(self, spec: QueueSpec) -> Policy:
        policy = self.make_policy(spec.policy)
        if self.hows == (How.REQUEUE,) and not policy.restarts:
            policy.preempts = False
        return policy

    def line(self, job: Job) -> JobQueue:
        return self.lines[job.spec.queue]

    # ---- order ----

    def enqueue(self, job: Job, now_ns: int) -> None:
        """The job waits for capacity from now on."""
        line = self.line(job)
        line.policy.touch(job, now_ns)
        spec = job.spec
        apart: tuple[object, ...] = ()
        if self.reservations.all:  # what decides on which devices it may be, besides what it asks for
            apart = (spec.time_limit_ns, spec.duration_ns, job.executed_ns, spec.kinds)
        line.enqueue(job, line.policy.key(job, now_ns), self.is_pinned(job), apart)
        self._watch(job, line, now_ns)

    def run(self, job: Job, now_ns: int) -> None:
        """The job runs from now on."""
        line = self.line(job)
        line.policy.touch(job, now_ns)
        line.set_time(now_ns)
        line.run(job, line.policy.key(job, now_ns))
        self._watch(job, line, now_ns)

    def touch(self, job: Job, now_ns: int, line: JobQueue | None = None) -> None:
        """Recomputes the job's place in its policy's order."""
        line = line or self.line(job)
        line.policy.touch(job, now_ns)
        line.rekey(job, now_ns)
        self._watch(job, line, now_ns)

    def _watch(self, job: Job, line: JobQueue, now_ns: int) -> None:
        at_ns = line.policy.changes_at(job, now_ns)
        if at_ns <= now_ns:
            at_ns = now_ns + 1  # a policy that does not move a job when it said it would must not stop the clock
        if self._key_changes_ns.get(job.job_id) != at_ns:
            self._key_changes_ns[job.job_id] = at_ns
            self.deadlines.add(at_ns, Due.KEY, job.job_id, at_ns)

    def unwatch(self, job: Job) -> None:
        self._key_changes_ns.pop(job.job_id, None)

    def _holds(self, deadline: Deadline) -> bool:
        _, due, job_id, token = deadline
        job = self.jobs.get(job_id)
        if job is None:
            return False
        if due == Due.KEY:
            return self._key_changes_ns.get(job_id) == token
        if due in (Due.LIMIT, Due.SIGNAL):
            return job.state is JobState.RUNNING and job.started_ns == token and job_id not in self.stopping
        return job.state in WAITING and job.not_before_ns == token

    def waits(self, job: Job) -> bool:
        return job.job_id in self.line(job).waiting

    # ---- placements ----

    def is_pinned(self, job: Job) -> bool:
        """Whether it can resume only where it was."""
        return job.state is JobState.SUSPENDED and not (self.moves and job.suspended_how is How.EVICT)

    def find(self, job: Job, spec: JobSpec | None = None) -> Placement | None:
        """A placement for a job now, not taken yet. `spec`: at this size instead of its own."""
        wanted = job if spec is None or spec is job.spec else replace(job, spec=spec)
        if wanted.spec.width_milli > self.cluster.free_milli() or not self.has_slices(wanted):
            return None
        closed = devices_of(self.reserved_from(wanted)) if self.reservations.all else frozenset()
        if not self.is_pinned(job):
            return self.cluster.place_outside(wanted, closed) if closed else self.cluster.place(wanted)
        if touches(job.placement, closed):
            return None
        return job.placement if self.could_have(job, job.placement) else None

    def could_have(self, job: Job, placement: Placement) -> bool:
        """Whether exactly this placement is free for it, counting what it holds now as free, and its rule lets it go
        there."""
        kept = self.held.get(job.job_id, ())
        self.cluster.release(kept)
        suits = self.cluster.suits(job, placement)
        self.cluster.take(kept)
        return suits

    def newcomer(self, job: Job) -> Placement | None:
        """A placement for one more member of a running job."""
        if job.spec.ask.width_milli > self.cluster.free_milli() or self.members >= self.members_max:
            return None
        one = replace(job, spec=replace(job.spec, members=1))
        closed = devices_of(self.reserved_from(one)) if self.reservations.all else frozenset()
        one = Job(job.job_id, one.spec, job.submitted_ns)
        return self.cluster.place_outside(one, closed) if closed else self.cluster.place(one)

    def resize(self, job: Job, spec: JobSpec, placement: Placement, now_ns: int) -> None:
        """A running job has this size and this placement from now on, as decided. Its attained service stays."""
        self.hold(job, ())
        self.count(job, -1, now_ns)
        job.attained += (now_ns - job.started_ns) * (job.spec.width_milli - spec.width_milli)
        job.spec = spec
        self.count(job, 1, now_ns)
        self.hold(job, placement)

    def has_slices(self, job: Job) -> bool:
        """Whether the node has slices left for its members."""
        return job.job_id in self.held or self.members + job.spec.members <= self.members_max

    def shortage(self, job: Job) -> str:
        """What of the placement that a pinned job had is not free."""
        kept = self.held.get(job.job_id, ())
        self.cluster.release(kept)
        missing = self.cluster.shortage(job.placement)
        self.cluster.take(kept)
        return missing

    def hold(self, job: Job, placement: Placement) -> None:
        """Reserves exactly this for the job."""
        self.suspended_holders.pop(job.job_id, None)
        kept = self.held.pop(job.job_id, ())
        if kept:
            self.cluster.release(kept)
            self.members -= job.spec.members
        if placement:
            self.held[job.job_id] = placement
            self.cluster.take(placement)
            self.members += job.spec.members

    def park(self, job: Job) -> None:
        """A suspended job: reserves what it still takes."""
        kept = self.kept_placement(job, job.suspended_how) if job.suspended_how else ()
        self.hold(job, kept)
        if kept:
            self.suspended_holders[job.job_id] = job

    def kept_placement(self, job: Job, how: How) -> Placement:
        """What a job that has been stopped this way still takes: its memory on the devices, its RAM."""
        if how is How.REQUEUE or (how is How.EVICT and self.moves):
            return ()
        if how is How.EVICT:
            return tuple(
                replace(
                    place,
                    cpu_milli=0,
                    shares=(),
                    host_sizes=tuple((s.device_uuid, s.mem_min_bytes) for s in place.shares) if place.in_turn else (),
                )
                for place in job.placement
                if place.ram_bytes or place.in_turn
            )
        return tuple(
            replace(
                place, cpu_milli=0, shares=tuple(replace(s, min_milli=0) for s in place.shares), utilisation_milli=-1
            )
            for place in job.placement
        )

    def startable_claims(self) -> list[Job]:
        """Jobs with a claim whose placement has been left by all jobs that had it: they can start."""
        if not self.stopping and not self.shrinking:
            return list(self.claims.values())
        nodes = {
            place.node for left in (self.stopping, self.shrinking) for placement in left.values() for place in placement
        }
        candidates = [j for j in self.claims if any(place.node in nodes for place in self.held[j])]
        waiting = {*candidates} - self._physically_free(candidates)
        return [job for job in self.claims.values() if job.job_id not in waiting]

    def _physically_free(self, candidates: list[int]) -> set[int]:
        """Those of these claims whose placement fits beside what is physically there: all of jobs that stop or shrink,
        nothing that is only claimed."""
        occupied = {
            **self.stopping,
            **self.shrinking,
            **{
                j: self.kept_placement(job, job.suspended_how)
                for j in candidates
                if (job := self.jobs[j]).suspended_how
            },
        }
        found: set[int] = set()
        if not candidates:
            return found
        with Tentative(self.cluster) as tentative:
            for job_id in (*candidates, *self.stopping):
                tentative.release(self.held.get(job_id, ()))
            for placement in occupied.values():
                tentative.take(placement)
            for job_id in candidates:
                tentative.release(occupied.get(job_id, ()))
                if tentative.fits(self.held[job_id]):
                    found.add(job_id)
                    tentative.take(self.held[job_id])
                else:
                    tentative.take(occupied.get(job_id, ()))
        return found

    def set_nodes(self, nodes: Sequence[Node], now_ns: int) -> None:
        """Other nodes: what is reserved on those that are left stays so."""
        for name in self.cluster.replace_nodes(nodes):
            self.set_direct(name, (), now_ns)
        for placement in self.held.values():
            self.cluster.take(placement)

    # ---- quotas ----

    def count(self, job: Job, sign: int, now_ns: int) -> None:
        """The job uses its queue's quota, as decided (+1), or does no longer (-1)."""
        for account in self.line(job).account.chain:
            account.learn(now_ns, self.half_life_ns)
            account.used.add(job.spec, sign)
            if not job.spec.preemptible:
                account.fixed_milli += sign * job.spec.least_width_milli

    def count_claim(self, job: Job, sign: int) -> None:
        for account in self.line(job).account.chain:
            account.claimed_amount.add(job.spec, sign)

    def count_stopping(self, job: Job, sign: int) -> None:
        for account in self.line(job).account.chain:
            account.stopping.add(job.spec, sign)

    def count_shrinking(self, job: Job, sign: int) -> None:
        """What a job that has been told to shrink still has; call it before `leaving` forgets it."""
        more = sizes.with_size(job.spec, sizes.has(job.spec, job.placement))
        for account in self.line(job).account.chain:
            account.stopping.add(more, sign)
            account.stopping.add(job.spec, -sign)

    def keeps_guarantees(self, spec: JobSpec, *, is_alone: bool = False) -> bool:
        """Whether all guarantees can still be met when such a job runs, which cannot be preempted.

        `is_alone`: if nothing else were to run.
        """
        if not spec.width_milli:
            return True  # it takes no part of them
        own = self.lines[spec.queue].account
        fixed_milli = 0 if is_alone else own.fixed_milli
        if fixed_milli + spec.width_milli <= own.spec.guarantee_milli:
            return True
        if not any(line.spec.guarantee_milli for line in self.lines.values()):
            return True
        needed = 0
        for line in self.lines.values():
            if line.account.parent is None:
                needed += self._needs(line.account, own, spec.width_milli, is_alone)
        return needed <= self.cluster.total_milli()

    def _needs(self, account: Account, own: Account, width_milli: int, is_alone: bool) -> int:
        """What it may demand: its guarantee, or more where jobs that cannot be preempted use more."""
        below = [line.account for line in self.lines.values() if line.account.parent is account]
        fixed = 0 if is_alone else account.fixed_milli - sum(child.fixed_milli for child in below)
        if account is own:
            fixed += width_milli
        needed = sum(self._needs(child, own, width_milli, is_alone) for child in below)
        return max(account.spec.guarantee_milli, fixed + needed)

    def set_direct(self, node: str, held: tuple[tuple[str, int, int, int], ...], now_ns: int) -> None:
        """What slices that are no jobs' hold on this node of each queue's quota."""
        sums: dict[str, Amount] = {}
        for queue, milli, cpu_milli, ram_bytes in held:
            if queue in self.lines:
                for account in self.lines[queue].account.chain:
                    amount = sums.setdefault(account.spec.name, Amount())
                    amount.milli += milli
                    amount.cpu_milli += cpu_milli
                    amount.ram_bytes += ram_bytes
        for name, line in self.lines.items():
            line.account.learn(now_ns, self.half_life_ns)
            line.account.set_direct(node, sums.get(name, Amount()))
