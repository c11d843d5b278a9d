"""The queue's machine: events in, commands out. Policies order, rules place, the machine decides; it does no IO.

`steps(events, now_ns)` applies what happens at one instant and decides once. The shell carries the commands out in
their order and answers StartJob and StopJob with events. Drive it so:

    machine = Machine(queues, cluster, registry.make)
    commands = machine.steps([Submitted((1,), spec)], now_ns)

and send Woken when the last Wake says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from vgpud.core.estimates import Estimate
from vgpud.core.jobs.events import (
    ArrayThere,
    AsksKnown,
    Cancelled,
    Changed,
    Command,
    DurationsKnown,
    Event,
    Held,
    Idled,
    JobEnded,
    JobSuspended,
    Located,
    Measured,
    NodesChanged,
    PairLoses,
    PairsKnown,
    QueuesChanged,
    Released,
    Requeued,
    ReservationsChanged,
    Reserve,
    Resized,
    Resumed,
    RoomChanged,
    Started,
    StartFailed,
    Submitted,
    Suspended,
    Used,
    Wake,
    Wished,
    Woken,
)
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, How, Job, JobSpec, JobState, Place, QueueSpec, Reservation
from vgpud.core.model import Denied
from vgpud.core.model import SiteLimits as Site
from vgpud.core.placement.base import ClusterCapacity
from vgpud.core.policy.base import Policy
from vgpud.core.queue import advice, check, elasticity, estimate, reasons, reservations, sharing, sizes
from vgpud.core.queue.deadlines import Due
from vgpud.core.queue.decide import Decision
from vgpud.core.queue.lifecycle import Lifecycle
from vgpud.core.queue.state import QueueState

HALF_LIFE_NS = 7 * 24 * 3600 * SECOND_NS


#: cost of one user's jobs that do not fit, per decision, in units of decide.py: a thousand shapes if no job is to be
#: stopped for them. More of the user's waiting jobs are looked at when others have started or gone
TRIES_MAX = 4000


def members_max(site: Site) -> int:
    """How many members of jobs may have slices at once: a quarter of all slices is left to users who create theirs
    directly."""
    return max(1, site.slices_max - site.slices_max // 4)


class Machine:
    """`hows`: how the shell can stop jobs. `moves`: evicted jobs may resume elsewhere. `half_life_ns` 0: no history.
    `members_max`: members of jobs that run at once. `tries_max`: TRIES_MAX where there are many users.
    `reports_starts`: the shell sends Started; else jobs make progress from StartJob on. `explains`: it notes why each
    job is where it starts."""

    def __init__(
        self,
        queues: tuple[QueueSpec, ...],
        cluster: ClusterCapacity,
        make_policy: Callable[[str], Policy],
        *,
        hows: tuple[How, ...] = (How.PAUSE, How.EVICT, How.REQUEUE),
        moves: bool = False,
        half_life_ns: int = HALF_LIFE_NS,
        members_max: int = NEVER_NS,
        tries_max: int = NEVER_NS,
        reports_starts: bool = False,
        explains: bool = True,
    ) -> None:
        self._world = QueueState(cluster, make_policy, hows, moves, half_life_ns)
        self._world.explains = explains
        self._world.members_max, self._world.tries_max = members_max, tries_max
        self._world.reports_starts = reports_starts
        self._world.set_queues(queues, 0)
        self._lives = Lifecycle(self._world)
        self._wake_ns = NEVER_NS
        self._look_again_ns = NEVER_NS
        self._active: tuple[Reservation, ...] = ()
        self._world.reserved_from = self._reserved_from

    @property
    def jobs(self) -> dict[int, Job]:
        """All jobs, ended ones included. Read only."""
        return self._world.jobs

    # ---- in and out ----

    def step(self, event: Event, now_ns: int) -> list[Command]:
        return self.steps((event,), now_ns)

    def steps(self, events: Iterable[Event], now_ns: int) -> list[Command]:
        """Everything that happens at one instant, then one decision."""
        self._world.answer_cache.clear()
        self._world.now_ns = now_ns
        for event in events:
            self._apply(event, now_ns)
        self._due(now_ns)
        self._begin_reservations(now_ns)
        self._lives.fill_arrays(now_ns)
        self._decide(now_ns)
        self._wake(now_ns)
        out, self._lives.commands = self._lives.commands, []
        return out

    def _apply(self, event: Event, now_ns: int) -> None:
        match event:
            case Submitted():
                self._lives.add_jobs(event, now_ns)
            case ArrayThere(job_ids):
                self._lives.array_there(job_ids, now_ns)
            case Cancelled(job_id, why):
                self._lives.end(self.jobs[job_id], JobState.CANCELLED, why, now_ns)
            case Held(job_id):
                self._lives.hold(self.jobs[job_id], now_ns)
            case Released(job_id):
                self._lives.release(self.jobs[job_id], now_ns)
            case Requeued(job_id):
                self._lives.requeue(self.jobs[job_id], now_ns)
            case Idled(job_id, why):
                self._lives.pause_idle(self.jobs[job_id], why, now_ns)
            case Used(job_id):
                self._lives.use(self.jobs[job_id], now_ns)
            case Suspended(job_id):
                self._lives.suspend(self.jobs[job_id], now_ns)
            case Resumed(job_id):
                self._lives.resume(self.jobs[job_id], now_ns)
            case Changed(job_id, spec):
                self._lives.change(self.jobs[job_id], spec, now_ns)
            case JobEnded():
                self._lives.handle_job_end(event, now_ns)
            case JobSuspended():
                self._lives.suspended(event, now_ns)
            case Started():
                self._lives.note_start(event, now_ns)
            case StartFailed():
                self._lives.start_failed(event, now_ns)
            case RoomChanged(node, direct, offered, held, in_turn, swap_bytes):
                self._world.cluster.change(node, direct, offered, in_turn, swap_bytes)
                self._world.set_direct(node, held, now_ns)
            case NodesChanged(nodes):
                self._world.set_nodes(nodes, now_ns)
                self._lives.withdraw(now_ns)
            case Located():
                self._lives.update_placement(event)
            case Wished():
                self._lives.resizing.set_target(event)
            case Resized():
                if self._lives.resizing.update_size(event, now_ns):
                    self._lives.withdraw(now_ns)
            case DurationsKnown(known):
                for ran in known:
                    self._world.estimates.learn(ran.kinds, ran.ran_ns, has_completed=ran.ended)
            case AsksKnown(asks):
                for ask in asks:
                    self._world.cluster.count_ask(ask)
            case Measured():
                sharing.update_utilisation(self._world, self._lives, event)
            case PairLoses():
                sharing.part(self._world, self._lives, event, now_ns)
            case PairsKnown(pairs):
                for kind, other in pairs:
                    self._world.cluster.lose(kind, other)
            case QueuesChanged(queues):
                self._world.set_queues(queues, now_ns)
            case ReservationsChanged(found):
                self._world.reservations.all = found
                self._lives.queue_again(now_ns)
            case Woken():
                self._wake_ns = NEVER_NS

    # ---- time ----

    def _due(self, now_ns: int) -> None:
        world = self._world
        while (due := world.deadlines.pop(now_ns)) is not None:
            what, job_id = due
            job = self.jobs[job_id]
            if what is Due.KEY:
                world.touch(job, now_ns)
            elif what is Due.LIMIT:
                if job.executed_at(now_ns) < job.spec.time_limit_ns:
                    continue  # it was raised meanwhile
                self._lives.end(job, JobState.TIMED_OUT, reasons.time_limit(job), now_ns)
            elif what is Due.SIGNAL:
                self._lives.signal(job, now_ns)
            else:
                job.waiting_since_ns = now_ns
                self._lives.admit(job, now_ns)

    def _wake(self, now_ns: int) -> None:
        at_ns = min(self._world.deadlines.next_ns(), self._look_again_ns, self._world.reservations.next_ns(now_ns))
        if at_ns < NEVER_NS and (at_ns != self._wake_ns or self._wake_ns <= now_ns):
            self._lives.commands.append(Wake(at_ns))
            self._wake_ns = at_ns

    # ---- reservations ----

    def _reserved_from(self, job: Job) -> list[Reservation]:
        world = self._world
        queues = {account.spec.name for account in world.line(job).account.chain}
        ends_ns = estimate.ends_ns(world, job, world.now_ns)
        return world.reservations.against(job, queues, ends_ns, world.now_ns)

    def _begin_reservations(self, now_ns: int) -> None:
        """What begins or ends now."""
        world = self._world
        if not world.reservations.all and not self._active:
            return
        world.reservations.prune(now_ns)
        active = world.reservations.active(now_ns)
        if active == self._active:
            return
        begun = [one for one in active if one not in self._active]
        self._active = active
        self._lives.commands.append(Reserve(active))
        for one in begun:
            self._lives.clear_devices(one, now_ns)

    # ---- decisions ----

    def _decide(self, now_ns: int) -> None:
        world = self._world
        decision = Decision(world, now_ns)
        decision.run()
        self._look_again_ns = min(decision.look_again_ns, decision.shrink_deadline_ns)
        if world.elastic:
            self._resize(decision, now_ns)
        for victim in decision.victims.values():
            self._lives.preempt(victim, decision.victim_for[victim.job_id], now_ns)
        for parked in decision.evicted_jobs.values():
            self._lives.evict(parked, decision.victim_for[parked.job_id])
        for job in decision.placed_jobs:
            world.claims[job.job_id] = job
            world.count_claim(job, 1)
        for job in world.startable_claims():
            is_capacity_free = not world.stopping and not world.shrinking
            if is_capacity_free or not world.line(job).account.limit_for(job.spec, standing=True):
                self._lives.start(job, now_ns)
        if world.elastic:
            self._resize_elastic(decision, now_ns)

    def _resize(self, decision: Decision, now_ns: int) -> None:
        """Elastic jobs grow and shrink, as decided; jobs that stop as a whole do neither first."""
        world = self._world
        for job_id in {**decision.specs_before_growth, **decision.trims}:
            job, trim = self.jobs[job_id], decision.trims.get(job_id)
            before = (
                decision.specs_before_growth[job_id]
                if trim is None
                else decision.specs_before_growth.get(job_id, trim.spec)
            )
            if job_id in decision.victims:
                job.attained += (now_ns - job.started_ns) * (job.width_milli - before.width_milli)
                job.spec = before
            elif world.held[job_id] == job.placement:
                continue  # what it grew by it has given again
            elif trim is None or sizes.size(job.spec) >= sizes.size(before):
                self._lives.resizing.begin(job, before, reasons.grown_ahead(world, job, before), now_ns)
            else:
                claimant = self.jobs[decision.trimmed_for[job_id]]
                self._lives.resizing.begin(job, before, reasons.shrunk(world, job, claimant, now_ns), now_ns)

    def _resize_elastic(self, decision: Decision, now_ns: int) -> None:
        """What elastic jobs do for themselves: give what they have no use for, take what idles."""
        world, resizing = self._world, self._lives.resizing
        for job_id in sorted(world.target_reasons.keys() & world.elastic.keys()):
            job = world.elastic[job_id]
            wanted = sizes.max_size(job)
            if sizes.size(job.spec) > wanted and elasticity.may_change(world, job, now_ns):
                before = job.spec
                world.resize(job, sizes.with_size(before, wanted), world.held[job.job_id][:wanted], now_ns)
                resizing.begin(job, before, world.target_reasons[job_id], now_ns)
        self._look_again_ns = min(self._look_again_ns, elasticity.tried_again_ns(world, now_ns))
        if decision.shrink_deadline_ns < NEVER_NS:
            return  # another job is about to be given some of it
        at_ns = elasticity.grow_at_ns(world, now_ns)
        if at_ns > now_ns:
            self._look_again_ns = min(self._look_again_ns, at_ns)
            return
        idle_ns = now_ns - world.acted_ns
        for job_id, (spec, _) in elasticity.grow(world, now_ns).items():
            job = self.jobs[job_id]
            resizing.begin(job, spec, reasons.explain_growth(world, job, spec, idle_ns), now_ns)

    # ---- after a restart ----

    def restore(self, jobs: Iterable[Job], now_ns: int) -> list[Command]:
        """Takes over saved jobs, once and before all steps. Jobs that were to stop get their order again.

        Running jobs keep their capacity, whatever else has changed; the shell reports then what became of them.
        """
        world = self._world
        world.answer_cache.clear()
        world.acted_ns = world.now_ns = now_ns
        known = sorted(jobs, key=lambda job: job.job_id)
        self.jobs.update((job.job_id, job) for job in known)
        for job in known:
            if job.spec.ask.spec.mem_swap:  # a placement from before places said so
                job.placement = tuple(replace(place, in_turn=True) for place in job.placement)
                job.resizing = tuple(replace(place, in_turn=True) for place in job.resizing)
            if job.state in (JobState.RUNNING, JobState.SUSPENDED):
                world.arrays.enter(job)
            if job.state is JobState.RUNNING:
                self._lives.readopt(job, now_ns)
            elif job.state is JobState.SUSPENDED and job.suspended_how is not None:
                world.park(job)
        for job in known:
            if job.state in (JobState.PENDING, JobState.HELD):
                self._lives.begins_again(job)  # it may have been saved with a claim to more
                # dependencies that have ended are fulfilled: else it would have been cancelled with them
                self._lives.wait_for_others(job)
            if job.state is JobState.SUSPENDED and job.stop_to is JobState.SUSPENDED:
                # it was to give up its memory: only if another job still needs that
                job.stop_to, job.stopping = None, ""
            elif job.state is JobState.SUSPENDED and job.stop_to is not None:
                self._lives.stop(job, None, job.stop_to, job.stopping, now_ns)
            self._lives.admit(job, now_ns)
        self._wake(now_ns)
        out, self._lives.commands = self._lives.commands, []
        return out

    def remember(self, histories: dict[str, int], at_ns: int) -> None:
        """Takes over the result of an earlier history(), before restore(): fair shares outlive a restart."""
        for name, history in histories.items():
            if name in self._world.lines:
                account = self._world.lines[name].account
                account.history, account.history_at_ns = history, at_ns

    def remember_order(self, name: str, knowledge: dict[str, Any], ended_jobs: Iterable[Job] = ()) -> bool:
        """Takes over an earlier knowledge() of a queue, before restore(): its order decides as before. `ended_jobs`:
        those that have ended since then. False: the queue has another order now, and learns again."""
        line = self._world.lines.get(name)
        if line is None or knowledge.get("policy") != line.spec.policy:
            return False
        try:
            line.policy.restore_knowledge(knowledge)
        except ValueError:
            return False
        for job in ended_jobs:
            line.policy.record_end(job)
        return True

    def forget(self, job_ids: Iterable[int]) -> None:
        """Ended jobs that will not be asked for again."""
        for job_id in job_ids:
            if job_id in self.jobs and self.jobs[job_id].state.is_final:
                del self.jobs[job_id]

    # ---- questions ----

    def check(self, spec: JobSpec, count: int = 1) -> Denied | None:
        """Why such a job, or an array of them, is refused."""
        return check.check_job(self._world, spec, count)

    def refusal(self, event: Event) -> Denied | None:
        """Why this request of a user is refused."""
        return check.refusal(self._world, event)

    def check_queues(self, queues: tuple[QueueSpec, ...]) -> Denied | None:
        """Why queues cannot become these."""
        return check.check_queues(self._world, queues)

    def check_reservation(self, new: Reservation, now_ns: int) -> Denied | None:
        """Why this cannot be one more reservation."""
        found = (*(one for one in self._world.reservations.all if one.end_ns > now_ns), new)
        return reservations.check(found, self._world.lines.keys(), now_ns)

    def check_direct(self, queue: str, milli: int, cpu_milli: int = 0, ram_bytes: int = 0) -> Denied | None:
        """Why a slice that is no job of the queue is refused."""
        return check.check_direct(self._world, queue, milli, cpu_milli, ram_bytes)

    def may_borrow(self, job_id: int, place: Place) -> bool:
        """Whether the shell may start one more worker of a job there for a while; it reports that with RoomChanged
        meanwhile."""
        return elasticity.may_borrow(self._world, self.jobs[job_id], place)

    def reason(self, job_id: int, now_ns: int) -> str:
        """Why it waits, or how it ended: one sentence."""
        self._world.now_ns = now_ns
        return reasons.reason(self._world, self.jobs[job_id], now_ns)

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Similarity classes whose jobs slow each other down on one device, to be restored after a restart with
        events.PairsKnown."""
        return self._world.cluster.pairs()

    def queue(self, name: str) -> QueueSpec:
        return self._world.lines[name].spec

    def history(self, name: str, now_ns: int) -> int:
        """What a queue has used on average, each half-life ago counting half: milli-GPU << quota.HISTORY_BITS."""
        return self._world.lines[name].account.history_now(now_ns, self._world.half_life_ns)

    def knowledge_versions(self) -> dict[str, tuple[str, int]]:
        """By queue, another one whenever knowledge() is."""
        return {name: (line.spec.policy, line.policy.knowledge_version) for name, line in self._world.lines.items()}

    def knowledge(self, name: str) -> dict[str, Any] | None:
        """What a queue's order has learnt, as JSON values, for remember_order(); None: that order learns nothing."""
        line = self._world.lines[name]
        found = line.policy.knowledge()
        return None if found is None else {"policy": line.spec.policy, **found}

    def position(self, job_id: int) -> int:
        """Position in its queue, from 1; 0 = it does not wait for capacity."""
        job = self.jobs[job_id]
        return self._world.line(job).waiting.rank(job_id) + 1 if self._world.waits(job) else 0

    def explain_order(self, job_id: int, now_ns: int, viewer_uid: int | None) -> str:
        """Why it is behind the waiting job before it, or before the next: one sentence; "" = there is no other.
        `viewer_uid`: None = an admin."""
        return reasons.explain_order(self._world, self.jobs[job_id], now_ns, viewer_uid)

    def advice(self, job_id: int, now_ns: int) -> list[str]:
        """What would let it start now or sooner, a sentence each."""
        self._world.now_ns = now_ns
        return advice.advice(self._world, self.jobs[job_id], now_ns)

    def estimate(self, job_id: int, now_ns: int) -> Estimate | None:
        """How long jobs like it took, as far as is known now."""
        return self._world.estimates.of(self.jobs[job_id].spec.kinds, now_ns)

    def estimated_start(self, job_id: int, now_ns: int) -> int:
        """NEVER_NS = not known."""
        return estimate.estimated_start_ns(self._world, self.jobs[job_id], now_ns)
