"""The controller's single entry point: step(snapshot, now_ns) -> what is to be saved, and orders to Slurm.

What the queue's machine has decided is compared with what Slurm shows, each time from the beginning: a job that is to
run and is held is released, one that is to stop and runs is requeued, one that would start by itself is held. So
nothing is lost with an order that was not carried out, with a controller that was killed before it, or with Slurm's own
restart; the next look gives it again. Events go to the machine in two parts, what has happened to jobs before what
became of the machine's commands, so that a recording replays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vgpud.cluster.core import capacity
from vgpud.cluster.core.dependencies import Ends
from vgpud.cluster.core.model import (
    CANCELLED,
    Binding,
    Cancel,
    Hold,
    Order,
    Phase,
    Release,
    Requeue,
    SetComment,
    Settings,
    SlurmJob,
    SlurmNode,
    SlurmSnapshot,
)
from vgpud.cluster.core.pauses import DEFERRED_NS, FORGOTTEN_NS, SETTLE_NS, Pauses
from vgpud.cluster.core.registrations import Registrations
from vgpud.cluster.core.reruns import Reruns
from vgpud.cluster.core.seen_runs import Runs
from vgpud.cluster.core.translate import NotOurs, node_of, objection, queue_of, spec_of
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, How, Job, JobState, Placement, QueueSpec
from vgpud.core.queue.machine import Machine

#: how the machine may stop a job here: a job that Slurm suspends keeps its GPUs, so that no other job gains by it
HOWS = (How.REQUEUE,)
#: exit code of a job that was stopped: as if SIGTERM had ended it; and of one whose end was not seen
TERMINATED, UNSEEN = 143, 255
WAITING = (JobState.PENDING, JobState.HELD)
#: what was decided starts so much later, and a look sees it so much later
NEAR_NS = 3 * SECOND_NS


#: hears a step of the machine at once, before jobs change further: when, what happened, what was commanded
Listener = Callable[[int, Sequence[qe.Event], Sequence[qe.Command]], None]


@dataclass(slots=True)
class Decided:
    """What follows from one look. `jobs`, `bindings` and `ended_jobs` are saved before an order is carried out."""

    orders: list[Order] = field(default_factory=list)
    steps: int = 0  # of the machine
    jobs: dict[int, Job] = field(default_factory=dict)
    bindings: dict[str, Binding | None] = field(default_factory=dict)  # None: it is no more
    ended_jobs: list[tuple[str, Job]] = field(default_factory=list)
    notes: list[qe.Note] = field(default_factory=list)
    faults: list[tuple[str, Exception]] = field(default_factory=list)  # of jobs, see _look_at_safely


def left_over(jobs: Iterable[Job], queues: Iterable[QueueSpec]) -> tuple[QueueSpec, ...]:
    """Queues that are gone and have jobs of a former controller: without guarantee and limit until those have ended."""
    gone = {job.spec.queue for job in jobs} - {queue.name for queue in queues}
    return tuple(QueueSpec(name) for name in sorted(gone))


class Controller:
    """State between two looks. The machine is the daemon's and the simulator's own."""

    def __init__(
        self,
        machine: Machine,
        queues: Collection[str],
        settings: Settings,
        listener: Listener | None = None,
        left_over: tuple[QueueSpec, ...] = (),
    ) -> None:
        """`queues`: names of those that jobs may enter; `left_over`: the others of the machine, see left_over()."""
        self.machine = machine
        self._listener = listener
        self._queues = queues
        self._left_over = left_over
        self._settings = settings
        self.bindings: dict[str, Binding] = {}
        self.refusal_reasons: dict[str, str] = {}  # jobs that the queue does not take -> why
        self.unusable: dict[str, str] = {}  # nodes that are not used -> why
        self.delay_reasons: dict[str, str] = {}  # jobs that are to run, and are not released yet -> why
        self.foreign = 0  # jobs that have GPUs of the partition and are not the queue's
        self.next_id = 1
        self._asked: dict[str, tuple[object, ...]] = {}
        self._nodes: dict[str, SlurmNode] = {}
        self._hardware: tuple[object, ...] | None = None  # what the machine knows of the nodes' make
        self._capacities: dict[str, qe.RoomChanged] = {}
        self._others: capacity.Held = {}  # what jobs that are not the queue's have
        self._ends = Ends(())
        self._wake_ns = NEVER_NS
        self._began_ns = self._now_ns = 0
        self._pauses = Pauses()
        self._may_run: dict[str, frozenset[str]] = {}  # where jobs may run that wait: of nodes that had not registered
        self._registrations = Registrations()
        self._was_delayed: dict[str, str] = {}  # of the look before
        self._runs_seen = Runs()
        self._rerun_history = Reruns()
        self._reruns: set[str] = set()  # jobs of this look whose end does not count
        self._out = Decided()
        self._requests: list[qe.Event] = []
        self._answers: list[qe.Event] = []
        self._turned: list[int] = []  # jobs that were started or stopped in this step
        self._faults: dict[str, str] = {}  # of jobs that could not be looked at

    def restore(self, jobs: Sequence[Job], bindings: Iterable[Binding], next_id: int, now_ns: int) -> None:
        """Takes over what a former controller saved, before the first step."""
        self.next_id, self._began_ns = next_id, now_ns
        self._pauses.began_ns = now_ns
        self.bindings = {one.key: one for one in bindings}
        for one in self.bindings.values():
            one.last_order_ns = -1
        self._hear(self.machine.restore(jobs, now_ns))
        for key, one in self.bindings.items():
            if self.machine.jobs[one.job_id].stop_to in (JobState.PENDING, JobState.SUSPENDED):
                self._rerun_history.note_requeue_order(key, now_ns - 1)  # by the controller before, most likely

    def all_queues(self, queues: tuple[QueueSpec, ...]) -> tuple[QueueSpec, ...]:
        """These, and those that jobs of a former controller are still in: what the machine is to have."""
        used = {job.spec.queue for job in self.machine.jobs.values()} - {queue.name for queue in queues}
        return (*queues, *(queue for queue in self._left_over if queue.name in used))

    # ---- a look ----

    def step(self, snapshot: SlurmSnapshot, now_ns: int, queues: tuple[QueueSpec, ...] = ()) -> Decided:
        """Compares what is with what is to be. `queues`: if given, these are the queues from now on; all_queues() of
        them were checked by machine.check_queues()."""
        self._now_ns = now_ns
        self._requests, self._answers, self._turned = [], [], []
        if queues:
            self._queues = {queue.name for queue in queues}
            self.refusal_reasons.clear()
            self._tell([qe.QueuesChanged(self.all_queues(queues))], now_ns)
        by_key = {job.key: job for job in snapshot.jobs}
        self._was_delayed, self.delay_reasons = self.delay_reasons, {}
        self._out.orders += self._registrations.look(snapshot.nodes, snapshot.jobs, now_ns, self._starting(by_key))
        unsure = self._registrations.unsure
        self._may_run = {key: nodes & unsure for key, nodes in self._may_run.items() if nodes & unsure}
        self._reruns = {job.key for job in snapshot.jobs if job.phase is Phase.ENDED and self._is_rerun(job)}
        self._ends = Ends(self._with_reruns(snapshot.jobs) if self._reruns else snapshot.jobs)
        self._look_at_nodes(snapshot.nodes, snapshot.jobs, now_ns)
        self.foreign = 0
        for job in sorted(by_key.values(), key=lambda one: one.number):
            self._look_at_safely(job, now_ns)
        for key in [key for key in self.bindings if key not in by_key]:
            self._handle_missing_job(self.bindings[key])
        self._update_devices(by_key)
        if now_ns >= self._wake_ns:
            self._wake_ns = NEVER_NS
            self._requests.append(qe.Woken())
        self._tell(self._requests, now_ns)
        self._tell(self._answers, now_ns)
        for job_id in dict.fromkeys(self._turned):
            self._order_at_once(job_id, by_key, now_ns)
        self._forget(by_key)
        made, self._out = self._out, Decided()
        return made

    def _tell(self, events: list[qe.Event], now_ns: int) -> None:
        if not events:
            return
        commands = self.machine.steps(events, now_ns)
        self._out.steps += 1
        if self._listener:
            self._listener(now_ns, events, commands)
        self._hear(commands)

    def _hear(self, commands: Iterable[qe.Command]) -> None:
        for command in commands:
            match command:
                case qe.SaveJob(job):
                    self._out.jobs[job.job_id] = job
                case qe.StartJob(job_id) | qe.StopJob(job_id):
                    self._turned.append(job_id)
                case qe.Wake(at_ns):
                    self._wake_ns = at_ns
                case qe.Note():
                    self._out.notes.append(command)

    def _order_at_once(self, job_id: int, by_key: Mapping[str, SlurmJob], now_ns: int) -> None:
        """What was decided just now needs no second look; what happened meanwhile does."""
        job = self.machine.jobs[job_id]
        shown = by_key.get(job.spec.name)
        if shown is not None and job.state is JobState.RUNNING:
            self._requests, self._answers = [], []
            self._look_at_safely(shown, now_ns)

    def _forget(self, by_key: Mapping[str, SlurmJob]) -> None:
        """What has ended."""
        for key, binding in list(self.bindings.items()):
            job = self.machine.jobs[binding.job_id]
            if job.state.is_final:
                del self.bindings[key]
                self._asked.pop(key, None)
                self._runs_seen.forget_job(key)
                self._rerun_history.forget_job(key)
                self._pauses.forget_job(key)
                self._out.bindings[key] = None
                self._out.ended_jobs.append((key, job))
        for key in self.refusal_reasons.keys() - by_key.keys():
            del self.refusal_reasons[key]
        self._runs_seen.keep(by_key)
        self._faults = {key: fault for key, fault in self._faults.items() if key in by_key}
        self.machine.forget([job.job_id for _, job in self._out.ended_jobs])

    def _mark_binding_changed(self, binding: Binding) -> None:
        self._out.bindings[binding.key] = binding

    # ---- nodes ----

    def _look_at_nodes(self, nodes: Sequence[SlurmNode], jobs: Sequence[SlurmJob], now_ns: int) -> None:
        self.unusable = {}
        nodes = [self._as_known(node) for node in nodes]
        have_shards = any(node.shards for node in nodes)
        for node in nodes:
            if text := objection(node, self._settings, have_shards):
                self.unusable[node.name] = text
        used = sorted((node for node in nodes if node.name not in self.unusable), key=lambda node: node.name)
        self._nodes = {node.name: node for node in used}
        ours = {job.spec.name for job in self._running()}
        others = (one for job in jobs if job.key not in ours for one in job.devices)
        self._others = capacity.foreign(others, self._nodes)
        hardware = tuple((node.name, node.gpus, node.gpu_model, node.cpus, node.memory_bytes) for node in used)
        if hardware != self._hardware:
            self._hardware = hardware
            self._capacities.clear()
            self.refusal_reasons.clear()
            changed = qe.NodesChanged(tuple(node_of(node, self._settings) for node in used))
            self._tell(
                [changed, *self._list_capacity_changes(capacity.held_by(self._placements(), self._nodes))], now_ns
            )

    def _as_known(self, node: SlurmNode) -> SlurmNode:
        """slurmctld does not know what a node has before it has registered."""
        known = self._nodes.get(node.name)
        return (
            replace(known, state=node.state, used_milli=node.used_milli) if known and not node.is_registered else node
        )

    def _running(self) -> list[Job]:
        found = (self.machine.jobs.get(one.job_id) for one in self.bindings.values())
        return [job for job in found if job is not None and job.state is JobState.RUNNING]

    def _placements(self) -> list[Placement]:
        return [job.placement for job in self._running()]

    def _list_capacity_changes(self, held: capacity.Held) -> list[qe.Event]:
        """Of the nodes where something has changed."""
        found: list[qe.Event] = []
        for name, node in self._nodes.items():
            offered = node.is_schedulable and name not in self._registrations.unsure
            capacity_event = capacity.make_capacity_event(node, held[name], self._others[name], offered)
            if self._capacities.get(name) != capacity_event:
                self._capacities[name] = capacity_event
                found.append(capacity_event)
        return found

    def _update_devices(self, by_key: Mapping[str, SlurmJob]) -> None:
        """Which devices the running jobs have, and what others have."""
        answers = (one for one in self._answers if isinstance(one, qe.JobEnded | qe.JobSuspended | qe.StartFailed))
        gone = {event.job_id for event in answers}
        held = [job for job in self._running() if job.job_id not in gone]
        elsewhere = {event.job_id for event in self._requests if isinstance(event, qe.Located)}
        running = [job for job in held if job.stop_to is None and self._runs(job, by_key)]
        running = [job for job in running if job.job_id not in elsewhere and not by_key[job.spec.name].devices]
        settled = capacity.settle(running, self._nodes)
        for job_id, placement in settled.items():
            self._requests.append(qe.Located(job_id, self.machine.jobs[job_id].attempt, placement))
        sums = capacity.held_by([settled.get(job.job_id, job.placement) for job in held], self._nodes)
        self._requests += self._list_capacity_changes(sums)

    def _runs(self, job: Job, by_key: Mapping[str, SlurmJob]) -> bool:
        shown = by_key.get(job.spec.name)
        return shown is not None and shown.phase is Phase.RUNS

    # ---- jobs ----

    def _look_at_safely(self, slurm_job: SlurmJob, now_ns: int) -> None:
        """A job that this controller cannot read stays as it is: it must not end the process, which would restart, meet
        that job and end again."""
        try:
            self._look_at(slurm_job, now_ns)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
            if self._faults.get(slurm_job.key) != fault:
                self._faults[slurm_job.key] = fault
                self._out.faults.append((slurm_job.key, error))
            if slurm_job.key not in self.bindings:
                self._refuse(slurm_job.key, "vgpu cluster cannot read it: its administrators find why in the log")

    def _look_at(self, slurm_job: SlurmJob, now_ns: int) -> None:
        binding = self.bindings.get(slurm_job.key)
        last_order_ns = binding.last_order_ns if binding else -1
        if slurm_job.phase is Phase.WAITS and not slurm_job.held and last_order_ns < self._registrations.restarted_ns:
            # Slurm itself may have started it, on nodes that it was bound to before, and have forgotten that; not where
            # it was released since: that names its nodes
            self._may_run[slurm_job.key] = self._registrations.unsure
        if slurm_job.phase is Phase.RUNS and self._runs_seen.is_over(slurm_job, binding.restarts if binding else None):
            self._requeue_at_once(slurm_job, binding)
            return
        if binding is None:
            self._newcomer(slurm_job)
            return
        job = self.machine.jobs[binding.job_id]
        if job.spec.uid != slurm_job.uid:
            # slurmctld was killed before it had saved that job, and gives its number away again
            self._handle_missing_job(binding)
            return
        if slurm_job.key in self._reruns:
            if self._may_tell(binding, now_ns):
                self._out.orders.append(Requeue(slurm_job.key))
        elif job.state in WAITING:
            self._waits(slurm_job, binding, job)
        elif slurm_job.phase is Phase.ENDED:
            self._handle_end(slurm_job, job)
        elif slurm_job.phase is Phase.RUNS:
            self._on_running(slurm_job, binding, job, now_ns)
        elif job.stop_to is not None:
            self._handle_stop(slurm_job, binding, job)
        else:
            self._starts(slurm_job, binding, job, now_ns)

    def _is_rerun(self, slurm_job: SlurmJob) -> bool:
        binding = self.bindings.get(slurm_job.key)
        if binding is None or self.machine.jobs[binding.job_id].spec.uid != slurm_job.uid:
            return False
        seen_ns, restarted_ns = self._runs_seen.seen_ns(slurm_job), self._registrations.restarted_ns
        return self._rerun_history.is_rerun(slurm_job, binding.restarts, seen_ns, restarted_ns, self._now_ns)

    def _with_reruns(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        """As others that come after those jobs are to see them."""
        return [replace(job, state="REQUEUED") if job.key in self._reruns else job for job in jobs]

    def _requeue_at_once(self, slurm_job: SlurmJob, binding: Binding | None) -> None:
        """slurmctld was killed, and has forgotten an end or a requeue that this controller saw; by itself it would find
        that out only after the 25 s of Registrations. The GPUs are free then. Slurm can only run the job once more, as
        it does with all jobs that it misses."""
        self.foreign += binding is None
        if slurm_job.state == "COMPLETING" or self._registrations.unsure.intersection(slurm_job.node_names):
            return
        if binding is None:
            cancelled = self._runs_seen.was_cancelled(slurm_job.key)
            self._out.orders.append(Cancel(slurm_job.key) if cancelled else Requeue(slurm_job.key))
        elif self._may_tell(binding, self._now_ns):
            self._out.orders.append(Requeue(slurm_job.key))

    def _newcomer(self, slurm_job: SlurmJob) -> None:
        """A job that waits for others in Slurm enters the queue when they have ended, an element of an array when the
        array's limit is known: else more would count than the limit lets run."""
        if slurm_job.phase is not Phase.WAITS:
            self.foreign += slurm_job.phase is Phase.RUNS
            return
        if not slurm_job.held:
            self._out.orders.append(Hold(slurm_job.key))
        if slurm_job.key in self.refusal_reasons or slurm_job.array_limit is None:
            return
        if slurm_job.dependency and not self._ends.fulfil(slurm_job.dependency):
            return
        try:
            spec = spec_of(slurm_job, self._queues, self._settings)
            denied = self.machine.check(spec)
        except NotOurs as error:
            self._refuse(slurm_job.key, str(error))
            return
        if denied is not None:
            self._refuse(slurm_job.key, denied.message)
            return
        binding = self.bindings[slurm_job.key] = Binding(slurm_job.key, self.next_id)
        self._asked[slurm_job.key] = self._asks(slurm_job)
        self.next_id += 1
        self._mark_binding_changed(binding)
        self._requests.append(qe.Submitted((binding.job_id,), spec, held=slurm_job.user_held))

    def _refuse(self, key: str, why: str) -> None:
        self.refusal_reasons[key] = why
        self._out.orders.append(SetComment(key, f"not queued: {why}"))

    def _waits(self, slurm_job: SlurmJob, binding: Binding, job: Job) -> None:
        if slurm_job.phase is Phase.ENDED:
            self._requests.append(qe.Cancelled(job.job_id, f"it is {slurm_job.state} in Slurm"))
        elif slurm_job.phase is Phase.RUNS:
            self._requests.append(qe.Cancelled(job.job_id, "Slurm has started it by itself"))
        else:
            self._sync_restarts(slurm_job, binding)
            if not slurm_job.held:
                self._out.orders.append(Hold(slurm_job.key))
            if slurm_job.user_held != (job.state is JobState.HELD):
                of_user = job.state is JobState.PENDING
                self._requests.append(qe.Held(job.job_id) if of_user else qe.Released(job.job_id))
            if self._request_changed(slurm_job):
                self._asked[slurm_job.key] = self._asks(slurm_job)
                self._changes(slurm_job, job)

    def _changes(self, slurm_job: SlurmJob, job: Job) -> None:
        """Its user has changed its request (scontrol update) or its queue; an impossible change is not taken over."""
        try:
            changed = qe.Changed(job.job_id, spec_of(slurm_job, self._queues, self._settings))
            denied = self.machine.refusal(changed)
        except NotOurs as error:
            self._out.orders.append(SetComment(slurm_job.key, f"still queued as it was: {error}"))
            return
        if denied is None:
            self._requests.append(changed)
        else:
            self._out.orders.append(SetComment(slurm_job.key, f"still queued as it was: {denied.message}"))

    def _handle_end(self, slurm_job: SlurmJob, job: Job) -> None:
        if slurm_job.state == CANCELLED:
            self._requests.append(qe.Cancelled(job.job_id, "cancelled in Slurm"))
        completed = slurm_job.state == "COMPLETED"
        code = 0 if completed else slurm_job.exit_code or TERMINATED
        why = "" if completed or slurm_job.state == "FAILED" else f"it is {slurm_job.state} in Slurm"
        self._answers.append(qe.JobEnded(job.job_id, job.attempt, code, why))
        self._runs_seen.note_end(slurm_job)

    def _handle_missing_job(self, binding: Binding) -> None:
        """squeue shows jobs for a while after their end (MinJobAge): it ended when no controller looked."""
        job = self.machine.jobs[binding.job_id]
        why = "Slurm does not know it any longer: its end was not seen"
        if job.state in WAITING:
            self._requests.append(qe.Cancelled(job.job_id, why))
        elif job.state is JobState.RUNNING:
            self._answers.append(qe.JobEnded(job.job_id, job.attempt, UNSEEN, why))

    def _on_running(self, slurm_job: SlurmJob, binding: Binding, job: Job, now_ns: int) -> None:
        self._runs_seen.saw(slurm_job, now_ns)
        if slurm_job.state == "COMPLETING" and binding.attempt == job.attempt:
            restarts = binding.restarts  # a requeue counts when it waits: see _may_run_still
        else:
            restarts = slurm_job.restarts
        if (binding.attempt, binding.restarts, binding.giving_up) != (job.attempt, restarts, False):
            binding.attempt, binding.restarts, binding.giving_up = job.attempt, restarts, False
            binding.last_order_ns = -1
            self._mark_binding_changed(binding)
        if job.stop_to is None:
            placement = capacity.on_devices(capacity.on_nodes(job.placement, slurm_job.node_names), slurm_job.devices)
            if placement != job.placement:
                self._requests.append(qe.Located(job.job_id, job.attempt, placement))
        elif slurm_job.state != "COMPLETING" and self._may_tell(binding, now_ns):
            ends = job.stop_to in (JobState.CANCELLED, JobState.TIMED_OUT)
            self._out.orders.append(Cancel(slurm_job.key) if ends else Requeue(slurm_job.key))
            if not ends:
                self._rerun_history.note_requeue_order(slurm_job.key, now_ns)

    def _handle_stop(self, slurm_job: SlurmJob, binding: Binding, job: Job) -> None:
        """It was to give its nodes back, and has: once it is held it will not take them again."""
        if self._is_unsure(slurm_job, job):
            return
        if not slurm_job.held:
            self._out.orders.append(Hold(slurm_job.key))
            return
        self._run_is_over(slurm_job, binding, job)
        if job.stop_to is JobState.SUSPENDED:
            self._answers.append(qe.JobSuspended(job.job_id, How.REQUEUE))
        else:
            self._answers.append(qe.JobEnded(job.job_id, job.attempt, TERMINATED))

    def _starts(self, slurm_job: SlurmJob, binding: Binding, job: Job, now_ns: int) -> None:
        """It is to run, and waits."""
        if self._is_unsure(slurm_job, job):
            return
        if slurm_job.restarts < binding.restarts:
            self._sync_restarts(slurm_job, binding)  # slurmctld has forgotten a requeue: its next run has this number
        if binding.attempt == job.attempt or slurm_job.restarts > binding.restarts:
            self._handle_requeue(slurm_job, binding, job)
        elif self._request_changed(slurm_job) and not binding.giving_up:
            binding.giving_up = True  # it was placed for what it asked before
            self._mark_binding_changed(binding)
            self._out.orders.append(Hold(slurm_job.key))
        elif not slurm_job.held:
            if now_ns - max(job.started_ns, self._began_ns, binding.last_order_ns) >= self._settings.start_wait_ns:
                binding.giving_up = True
                self._mark_binding_changed(binding)
                self._out.orders.append(Hold(slurm_job.key))
        elif binding.giving_up or slurm_job.user_held:
            binding.giving_up, binding.last_order_ns = False, -1
            self._mark_binding_changed(binding)
            self._answers.append(qe.StartFailed(job.job_id, job.attempt, self._why_given_up(slurm_job), True))
        elif why := self._pauses.why(slurm_job, job, self._registrations.silence.nodes, now_ns):
            self.delay_reasons[slurm_job.key] = why
        elif self._may_tell(binding, now_ns):
            self._out.orders.append(Release(slurm_job.key, tuple(sorted({place.node for place in job.placement}))))

    def _is_unsure(self, slurm_job: SlurmJob, job: Job) -> bool:
        """slurmctld was started: it may have begun this job before, and forgotten that."""
        may_run = {place.node for place in job.placement} | self._may_run.get(slurm_job.key, frozenset())
        if unsure := self._registrations.unsure & may_run:
            if not slurm_job.held:
                self._out.orders.append(Hold(slurm_job.key))
            self.delay_reasons[slurm_job.key] = (
                f"slurmctld was started: {', '.join(sorted(unsure))} must register first"
            )
        return bool(unsure)

    def _run_is_over(self, slurm_job: SlurmJob, binding: Binding, job: Job) -> None:
        self._rerun_history.clear_requeue_order(slurm_job.key)
        self._pause_after_unseen_run(slurm_job, binding)
        was_requeued = slurm_job.restarts > binding.restarts
        self._sync_restarts(slurm_job, binding)
        if was_requeued:
            self._pause_after_lost_start(slurm_job, job)

    def _pause_after_unseen_run(self, slurm_job: SlurmJob, binding: Binding) -> None:
        """It was released and waits again, and Slurm has not requeued it: it may have run until its node registered,
        between two looks. Where the controller has seen and awaited that, nothing is left."""
        if slurm_job.restarts == binding.restarts and slurm_job.key not in self._was_delayed:
            self._pauses.pause(slurm_job.key, self._now_ns + FORGOTTEN_NS)

    def _pause_after_lost_start(self, slurm_job: SlurmJob, job: Job) -> None:
        """Its run was requeued. If a node did not respond when that began, slurmctld may have its start in hand: sent
        while the job runs elsewhere, it would end that run. One that was started since has none of it."""
        seen_ns = self._runs_seen.since_ns(slurm_job.key)
        if seen_ns < job.started_ns:
            seen_ns = self._now_ns  # no look has shown that run
        names = {place.node for place in job.placement}
        until_ns = min(seen_ns + DEFERRED_NS, self._now_ns)
        was_silent = self._registrations.silence.was(names, job.started_ns - NEAR_NS, until_ns)
        if was_silent and seen_ns > self._registrations.restarted_ns:
            self._pauses.pause(slurm_job.key, self._now_ns + DEFERRED_NS)
            self._rerun_history.doubt(slurm_job.key, self._now_ns)

    def _starting(self, by_key: Mapping[str, SlurmJob]) -> set[str]:
        """Nodes of jobs that were released and do not run yet."""
        shown = ((job, by_key.get(job.spec.name)) for job in self._running())
        waits = (job for job, one in shown if one is not None and one.phase is Phase.WAITS and not one.held)
        return {place.node for job in waits for place in job.placement}

    def _why_given_up(self, slurm_job: SlurmJob) -> str:
        if slurm_job.user_held:
            return "its user holds it"
        if self._request_changed(slurm_job):
            return "it asks for something else now"
        return "Slurm did not start it on these nodes in time"

    def _handle_requeue(self, slurm_job: SlurmJob, binding: Binding, job: Job) -> None:
        """It ran, and Slurm or a user has requeued it: a node failed, or scontrol requeue. Or slurmctld was killed, and
        has forgotten that it ran: then its number of restarts is the same. It waits its turn again."""
        if not slurm_job.held:
            self._out.orders.append(Hold(slurm_job.key))
            return
        self._run_is_over(slurm_job, binding, job)
        self._requests.append(qe.Requeued(job.job_id))
        self._answers.append(qe.JobEnded(job.job_id, job.attempt, TERMINATED))

    def _sync_restarts(self, slurm_job: SlurmJob, binding: Binding) -> None:
        """It waits, and gets its orders again: only what Slurm restarts from now on is news."""
        if binding.restarts != slurm_job.restarts:
            binding.restarts = slurm_job.restarts
            self._pauses.pause(slurm_job.key, self._now_ns + SETTLE_NS)
            self._mark_binding_changed(binding)
        binding.last_order_ns = -1

    def _may_tell(self, binding: Binding, now_ns: int) -> bool:
        """An order takes its time to show: it is not repeated at every look."""
        if binding.last_order_ns >= 0 and now_ns - binding.last_order_ns < self._settings.repeat_ns:
            return False
        binding.last_order_ns = now_ns
        return True

    def _request_changed(self, slurm_job: SlurmJob) -> bool:
        """Whether it asks for something else than when this controller first saw it, or than what was taken over since.
        Before Slurm was asked for the limit of its array, as after a restart, that cannot be said."""
        if slurm_job.array_limit is None:
            return False
        asks = self._asks(slurm_job)
        return self._asked.setdefault(slurm_job.key, asks) != asks

    def _asks(self, slurm_job: SlurmJob) -> tuple[object, ...]:
        return (
            slurm_job.gres,
            slurm_job.nodes,
            slurm_job.cpus,
            slurm_job.time_limit_ns,
            queue_of(slurm_job, self._queues),
            slurm_job.comment,
            slurm_job.requeues,
            slurm_job.array_limit,
        )
