"""The controller's single entry point: step(snapshot, now_ns) -> what is to be saved, and orders to Slurm.

What the queue's machine has decided is compared with what Slurm shows, each time from the beginning: a job that is to
run and is held is released, one that is to stop and runs is requeued, one that would start by itself is held. So
nothing is lost with an order that was not carried out, with a controller that was killed before it, or with Slurm's own
restart; the next look gives it again. Events go to the machine in two parts, what has happened to jobs before what
became of the machine's commands, so that a recording replays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from vgpud.cluster.core.job_step import JobStep, asks_of
from vgpud.cluster.core.job_view import JobView
from vgpud.cluster.core.look import Decided, Look
from vgpud.cluster.core.model import (
    Binding,
    Cancel,
    Hold,
    Phase,
    Requeue,
    SetComment,
    Settings,
    SlurmJob,
    SlurmSnapshot,
)
from vgpud.cluster.core.nodes import Nodes
from vgpud.cluster.core.translate import NotOurs, spec_of
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import NEVER_NS, How, Job, JobState, QueueSpec
from vgpud.core.queue.machine import Machine

#: how the machine may stop a job here: a job that Slurm suspends keeps its GPUs, so that no other job gains by it
HOWS = (How.REQUEUE,)


#: hears a step of the machine at once, before jobs change further: when, what happened, what was commanded
Listener = Callable[[int, Sequence[qe.Event], Sequence[qe.Command]], None]


def left_over(jobs: Iterable[Job], queues: Iterable[QueueSpec]) -> tuple[QueueSpec, ...]:
    """Queues that are gone and have jobs of a former controller: without guarantee and limit until those have ended."""
    gone = {job.spec.queue for job in jobs} - {queue.name for queue in queues}
    return tuple(QueueSpec(name) for name in sorted(gone))


class Controller:
    """What is known between two looks. The machine is the daemon's and the simulator's own."""

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
        self.foreign = 0  # jobs that have GPUs of the partition and are not the queue's
        self.next_id = 1
        self._views: dict[str, JobView] = {}
        self._queue_views: dict[str, JobView] = {}  # those of the queue's jobs, as they entered it
        self._nodes = Nodes(settings)
        self._wake_ns = NEVER_NS
        self._began_ns = 0
        self._former: list[qe.Event] = []  # what the machine is to know of the time before, with the first step
        self._outcome = Decided()  # until the end of the next look

    def restore(self, jobs: Sequence[Job], bindings: Iterable[Binding], next_id: int, now_ns: int) -> None:
        """Takes over what a former controller saved, before the first step."""
        self.next_id, self._began_ns = next_id, now_ns
        self._views = {one.key: JobView(one.key, one) for one in bindings}
        self._queue_views = self._views.copy()
        self._hear(self.machine.restore(jobs, now_ns))
        self._former = [qe.AsksKnown(tuple(job.spec.ask for job in jobs))] if jobs else []
        for view in self._views.values():
            view.bound.last_order_ns = -1
            if self.machine.jobs[view.bound.job_id].stop_to in (JobState.PENDING, JobState.SUSPENDED):
                view.note_requeue_order(now_ns - 1)  # by the controller before, most likely

    def all_queues(self, queues: tuple[QueueSpec, ...]) -> tuple[QueueSpec, ...]:
        """These, and those that jobs of a former controller are still in: what the machine is to have."""
        used = {job.spec.queue for job in self.machine.jobs.values()} - {queue.name for queue in queues}
        return (*queues, *(queue for queue in self._left_over if queue.name in used))

    # ---- what is shown ----

    @property
    def bindings(self) -> dict[str, Binding]:
        """In the order in which jobs have entered the queue."""
        return {key: view.bound for key, view in self._queue_views.items()}

    @property
    def refusal_reasons(self) -> dict[str, str]:
        """Jobs that the queue does not take -> why."""
        return {key: view.refusal for key, view in self._views.items() if view.refusal}

    @property
    def delay_reasons(self) -> dict[str, str]:
        """Jobs that are to run, and are not released yet -> why."""
        return {key: view.delay for key, view in self._views.items() if view.delay}

    @property
    def unusable(self) -> dict[str, str]:
        """Nodes that are not used -> why."""
        return self._nodes.unusable

    # ---- a look ----

    def step(self, snapshot: SlurmSnapshot, now_ns: int, queues: tuple[QueueSpec, ...] = ()) -> Decided:
        """Compares what is with what is to be. `queues`: if given, these are the queues from now on; all_queues() of
        them were checked by machine.check_queues()."""
        look = self._begin_look(snapshot, now_ns)
        if queues:
            self._queues = look.queues = {queue.name for queue in queues}
            self._forget_refusals()
            self._tell(look, [qe.QueuesChanged(self.all_queues(queues))])
        former, self._former = self._former, []
        self._tell(look, former)
        self._look_at_nodes(look, snapshot)
        look.note_reruns({job.key for job in snapshot.jobs if job.phase is Phase.ENDED and self._is_rerun(look, job)})
        self.foreign = 0
        for job in sorted(look.by_key.values(), key=lambda one: one.number):
            self._look_at_safely(look, job)
        for key, view in self._queue_views.items():
            if key not in look.by_key:
                look.note_missing(self.machine.jobs[view.bound.job_id])
        self._update_devices(look)
        if now_ns >= self._wake_ns:
            self._wake_ns = NEVER_NS
            look.requests.append(qe.Woken())
        self._tell(look, look.requests)
        self._tell(look, look.answers)
        for job_id in dict.fromkeys(look.jobs_to_order):
            self._order_at_once(look, job_id)
        self._forget(look)
        self._outcome = Decided()
        return look.outcome

    def _begin_look(self, snapshot: SlurmSnapshot, now_ns: int) -> Look:
        return Look(
            now_ns,
            self._began_ns,
            self.machine,
            self._settings,
            self._queues,
            {job.key: job for job in snapshot.jobs},
            self._nodes.registrations,
            self._outcome,
        )

    def _tell(self, look: Look, events: list[qe.Event]) -> None:
        if not events:
            return
        commands = self.machine.steps(events, look.now_ns)
        look.outcome.steps += 1
        if self._listener:
            self._listener(look.now_ns, events, commands)
        look.jobs_to_order += self._hear(commands)

    def _hear(self, commands: Iterable[qe.Command]) -> list[int]:
        """Returns which jobs are to be started or stopped."""
        turned = []
        for command in commands:
            match command:
                case qe.SaveJob(job):
                    self._outcome.jobs[job.job_id] = job
                case qe.StartJob(job_id) | qe.StopJob(job_id):
                    turned.append(job_id)
                case qe.Wake(at_ns):
                    self._wake_ns = at_ns
                case qe.Note():
                    self._outcome.notes.append(command)
        return turned

    def _order_at_once(self, look: Look, job_id: int) -> None:
        """What was decided just now needs no second look; what happened meanwhile does."""
        job = self.machine.jobs[job_id]
        slurm_job = look.by_key.get(job.spec.name)
        if slurm_job is not None and job.state is JobState.RUNNING:
            look.requests, look.answers = [], []
            self._look_at_safely(look, slurm_job)

    def _forget(self, look: Look) -> None:
        """What has ended."""
        jobs = self.machine.jobs
        for key, view in list(self._queue_views.items()):
            if view.is_unsaved:
                look.outcome.bindings[key] = view.bound
                view.is_unsaved = False
            job = jobs[view.bound.job_id]
            if job.state.is_final:
                view.leave_queue()
                del self._queue_views[key]
                look.outcome.bindings[key] = None
                look.outcome.ended_jobs.append((key, job))
        for key in self._views.keys() - look.by_key.keys():
            self._views[key].disappear()
            if not self._views[key].is_needed:
                del self._views[key]
        self.machine.forget([job.job_id for _, job in look.outcome.ended_jobs])

    def _forget_refusals(self) -> None:
        """Jobs are refused for the queues and the nodes that there are."""
        for view in self._views.values():
            view.refusal = ""

    # ---- nodes ----

    def _look_at_nodes(self, look: Look, snapshot: SlurmSnapshot) -> None:
        running = self._running()
        look.outcome.orders += look.registrations.look(
            snapshot.nodes, snapshot.jobs, look.now_ns, look.list_starting_nodes(running)
        )
        for view in self._views.values():
            view.begin_look(look.registrations.unsure)
        events = self._nodes.look(snapshot.nodes, snapshot.jobs, running)
        if events:
            self._forget_refusals()
            self._tell(look, events)

    def _running(self) -> list[Job]:
        jobs = self.machine.jobs
        found = (jobs.get(view.bound.job_id) for view in self._queue_views.values())
        return [job for job in found if job is not None and job.state is JobState.RUNNING]

    def _update_devices(self, look: Look) -> None:
        """Which devices the running jobs have, and what others have."""
        gone = look.list_ended()
        held = [job for job in self._running() if job.job_id not in gone]
        elsewhere = {event.job_id for event in look.requests if isinstance(event, qe.Located)}
        running = [job for job in held if job.stop_to is None and look.runs(job) and job.job_id not in elsewhere]
        settled = self._nodes.settle([job for job in running if not look.by_key[job.spec.name].devices])
        for job_id, placement in settled.items():
            look.requests.append(qe.Located(job_id, self.machine.jobs[job_id].attempt, placement))
        look.requests += self._nodes.list_capacity_changes([settled.get(job.job_id, job.placement) for job in held])

    # ---- jobs ----

    def _look_at_safely(self, look: Look, slurm_job: SlurmJob) -> None:
        """A job that this controller cannot read stays as it is: it must not end the process, which would restart, meet
        that job and end again."""
        try:
            self._look_at(look, slurm_job)
        except Exception as error:
            view = self._view_of(slurm_job.key)
            fault = f"{type(error).__name__}: {error}"
            if view.fault != fault:
                view.fault = fault
                look.outcome.faults.append((slurm_job.key, error))
            if view.binding is None:
                self._refuse(look, view, "vgpu cluster cannot read it: its administrators find why in the log")

    def _view_of(self, key: str) -> JobView:
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = JobView(key)
        return view

    def _look_at(self, look: Look, slurm_job: SlurmJob) -> None:
        phase = slurm_job.phase
        view = self._views.get(slurm_job.key)
        if view is None and phase is not Phase.WAITS:
            self.foreign += phase is Phase.RUNS
            return
        view = view or self._view_of(slurm_job.key)
        may_start = phase is Phase.WAITS and not slurm_job.held
        if may_start and view.last_order_ns < look.registrations.restarted_ns:
            # Slurm itself may have started it, on nodes that it was bound to before, and have forgotten that; not where
            # it was released since: that names its nodes
            view.may_run = look.registrations.unsure
        if phase is Phase.RUNS and view.is_over(slurm_job):
            self._requeue_at_once(look, view, slurm_job)
            return
        if view.binding is None:
            self._look_at_newcomer(look, view, slurm_job)
            return
        job = self.machine.jobs[view.binding.job_id]
        if job.spec.uid != slurm_job.uid:
            # slurmctld was killed before it had saved that job, and gives its number away again
            look.note_missing(job)
            return
        JobStep(look, view, slurm_job, job).take()

    def _is_rerun(self, look: Look, slurm_job: SlurmJob) -> bool:
        view = self._views.get(slurm_job.key)
        if view is None or view.binding is None or self.machine.jobs[view.binding.job_id].spec.uid != slurm_job.uid:
            return False
        return view.is_rerun(slurm_job, look.registrations.restarted_ns, look.now_ns)

    def _requeue_at_once(self, look: Look, view: JobView, slurm_job: SlurmJob) -> None:
        """slurmctld was killed, and has forgotten an end or a requeue that this controller saw; by itself it would find
        that out only after the 25 s of Registrations. The GPUs are free then. Slurm can only run the job once more, as
        it does with all jobs that it misses."""
        self.foreign += view.binding is None
        if slurm_job.state == "COMPLETING" or look.registrations.unsure.intersection(slurm_job.node_names):
            return
        if view.binding is None:
            is_cancelled = view.take_cancellation()
            look.outcome.orders.append(Cancel(slurm_job.key) if is_cancelled else Requeue(slurm_job.key))
        elif view.may_tell(look.now_ns, self._settings.repeat_ns):
            look.outcome.orders.append(Requeue(slurm_job.key))

    def _look_at_newcomer(self, look: Look, view: JobView, slurm_job: SlurmJob) -> None:
        """A job that waits for others in Slurm enters the queue when they have ended, an element of an array when the
        array's limit is known: else more would count than the limit lets run."""
        if slurm_job.phase is not Phase.WAITS:
            self.foreign += slurm_job.phase is Phase.RUNS
            return
        if not slurm_job.held:
            look.outcome.orders.append(Hold(slurm_job.key))
        if view.refusal or slurm_job.array_limit is None:
            return
        if slurm_job.dependency and not look.ends.fulfil(slurm_job.dependency):
            return
        try:
            spec = spec_of(slurm_job, self._queues, self._settings)
            denied = self.machine.check(spec)
        except NotOurs as error:
            self._refuse(look, view, str(error))
            return
        if denied is not None:
            self._refuse(look, view, denied.message)
            return
        self._queue_views[view.key] = view
        view.enter_queue(Binding(slurm_job.key, self.next_id), asks_of(slurm_job, self._queues))
        look.requests.append(qe.Submitted((self.next_id,), spec, held=slurm_job.user_held))
        self.next_id += 1

    def _refuse(self, look: Look, view: JobView, why: str) -> None:
        view.refusal = why
        look.outcome.orders.append(SetComment(view.key, f"not queued: {why}"))
