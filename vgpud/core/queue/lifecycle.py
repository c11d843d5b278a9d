"""The life of a job: it is submitted, waits, starts, is stopped, ends. Each step appends commands for the shell.

Nothing here chooses between jobs: decide.py does, and preemption.py how one is stopped.
"""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.jobs.events import (
    Command,
    JobEnded,
    JobSuspended,
    Located,
    Note,
    Notify,
    SaveJob,
    SignalJob,
    Started,
    StartFailed,
    StartJob,
    StopJob,
    Submitted,
)
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, START, How, Job, JobSpec, JobState, Reservation, UserWait
from vgpud.core.jobs.states import END_EVENTS, JobEvent, enter
from vgpud.core.queue import estimate, reasons, running_size, sizes
from vgpud.core.queue.deadlines import Due
from vgpud.core.queue.preemption import choose_eviction, choose_how
from vgpud.core.queue.reservations import touches
from vgpud.core.queue.resizing import Resizing
from vgpud.core.queue.state import WAITING, QueueState

#: backoff before the next try of a failed job, doubled each time
BACKOFF_FIRST_NS = 10 * SECOND_NS
BACKOFF_MAX_NS = 3600 * SECOND_NS
#: the same for a start that the shell could not carry out
START_BACKOFF_FIRST_NS = SECOND_NS
START_BACKOFF_MAX_NS = 300 * SECOND_NS


class Lifecycle:
    """The steps. `commands`: in order; the caller empties it."""

    def __init__(self, world: QueueState) -> None:
        self._world = world
        self.commands: list[Command] = []
        self.resizing = Resizing(world, lambda command: self.commands.append(command))

    @property
    def jobs(self) -> dict[int, Job]:
        return self._world.jobs

    def _save(self, job: Job) -> None:
        self._world.arrays.note_change(job)
        self.commands.append(SaveJob(job))

    def fill_arrays(self, now_ns: int) -> None:
        """Jobs of arrays with a limit take the slots that others have left."""
        world = self._world

        def keeps(job_id: int) -> bool:
            job = self.jobs.get(job_id)
            if job is None or job.state in (JobState.RUNNING, JobState.SUSPENDED):
                return job is not None
            return job.job_id in world.claims or (job.state is JobState.PENDING and world.waits(job))

        def waits(job_id: int) -> bool:
            return job_id in self.jobs and self.jobs[job_id].state is JobState.PENDING

        for job_id in world.arrays.free(keeps, waits):
            self.admit(self.jobs[job_id], now_ns)

    def _note(self, kind: str, job: Job, text: str) -> None:
        self.commands.append(Note(kind, job.job_id, text))

    # ---- submission ----

    def add_jobs(self, event: Submitted, now_ns: int) -> None:
        array = len(event.job_ids) > 1 or event.spec.index > 0 or bool(event.indices)
        at_ns = event.submitted_ns if event.array else now_ns
        if event.array:
            self._world.incomplete_arrays.add(event.array)
        for number, job_id in enumerate(event.job_ids):
            spec = self._world.cluster.shared(event.spec)
            if array:
                index = event.indices[number] if event.indices else spec.index + number
                spec = replace(spec, array=event.array or event.job_ids[0], index=index)
            job = Job(job_id, spec, at_ns, waiting_since_ns=at_ns, not_before_ns=spec.begin_ns)
            self.jobs[job_id] = job
            self._world.cluster.count_ask(event.spec.ask)
            if event.held:
                enter(job, JobEvent.HOLD)
            estimate.expect(self._world, job, now_ns)
            self._save(job)
            self._depend(job, now_ns)
            self.admit(job, now_ns)

    def array_there(self, job_ids: tuple[int, ...], now_ns: int) -> None:
        for job in [self.jobs[job_id] for job_id in job_ids if job_id in self.jobs]:
            self._world.incomplete_arrays.discard(job.spec.array)
            self.admit(job, now_ns)

    def _depend(self, job: Job, now_ns: int) -> None:
        """Notes the jobs that it depends on; it ends at once if one of them has failed."""
        for other_id in job.spec.after:
            other = self.jobs.get(other_id)
            if other is None:
                self._finish(job, JobState.CANCELLED, f"job {other_id}, which it comes after, is not known", now_ns)
                return
            if other.state.is_final and not job.spec.is_satisfied_by(other_id, other.state):
                self._finish(job, JobState.CANCELLED, _unmet(job, other), now_ns)
                return
        self.wait_for_others(job)

    def wait_for_others(self, job: Job) -> None:
        """Notes the jobs that it depends on and that have not ended."""
        unmet = {i for i in job.spec.after if i in self.jobs and not self.jobs[i].state.is_final}
        if unmet:
            self._world.unmet[job.job_id] = unmet
            self._world.unmet_of[job.spec.uid] += len(unmet)
            for other_id in unmet:
                self._world.dependents.setdefault(other_id, {})[job.job_id] = None

    def admit(self, job: Job, now_ns: int) -> None:
        """The job waits for capacity, unless something else keeps it."""
        world = self._world
        if job.state not in WAITING or job.waits_for_user or job.job_id in world.unmet or world.waits(job):
            return
        if job.job_id in world.claims or job.job_id in world.stopping or job.spec.array in world.incomplete_arrays:
            return
        if job.not_before_ns > now_ns:
            world.deadlines.add(job.not_before_ns, Due.BACKOFF, job.job_id, job.not_before_ns)
            return
        if world.arrays.enter(job):
            world.enqueue(job, now_ns)

    def _leave(self, job: Job, now_ns: int) -> None:
        """The job no longer waits, and gives up its claim if it has one."""
        world = self._world
        if world.waits(job):
            world.line(job).dequeue(job.job_id)
        elif job.job_id in world.claims:
            del world.claims[job.job_id]
            world.count_claim(job, -1)
            world.count(job, -1, now_ns)
            world.hold(job, ())
            self.begins_again(job)  # it may have been about to start with more
            world.park(job)
        world.unwatch(job)

    def begins_again(self, job: Job) -> None:
        """A job starts at its minimum size; a suspended job that can resume only where it was keeps its size."""
        if not self._world.is_pinned(job):
            job.spec = sizes.at_least(job.spec)

    def withdraw(self, now_ns: int) -> None:
        """Takes back all claims: the capacity of one of them will not become free, or its node may be gone."""
        for job in list(self._world.claims.values()):
            self._leave(job, now_ns)
            self.admit(job, now_ns)

    # ---- reservations ----

    def queue_again(self, now_ns: int) -> None:
        """Other reservations than before: jobs that had one shape may have several now."""
        for line in self._world.lines.values():
            for job_id in list(line.waiting):
                line.dequeue(job_id)
                self._world.enqueue(self.jobs[job_id], now_ns)

    def clear_devices(self, reservation: Reservation, now_ns: int) -> None:
        """A reservation begins: other queues' jobs leave its devices, except jobs that cannot be preempted."""
        world = self._world
        there = [j for j, placement in world.held.items() if touches(placement, reservation.device_uuids)]
        for job in [self.jobs[job_id] for job_id in there]:
            queues = [account.spec.name for account in world.line(job).account.chain]
            if reservation.queue in queues or not job.spec.preemptible:
                continue
            if job.job_id in world.claims:
                self._leave(job, now_ns)
                self.admit(job, now_ns)
            elif job.user_wait is UserWait.RESUME:
                self._move_away(job, f"{reservation.what} has begun")
            elif job.stop_to in (None, JobState.SUSPENDED):
                self.stop(job, None, JobState.PENDING, f"{reservation.what} has begun", now_ns)

    def _move_away(self, job: Job, why: str) -> None:
        """A job that its user has suspended is not started again: what it keeps on its devices moves to the host, or
        stays."""
        if job.state is JobState.SUSPENDED and job.stop_to is None and choose_eviction(self._world, job) is How.EVICT:
            self._give_up(job, How.EVICT, why)

    # ---- users change their minds ----

    def hold(self, job: Job, now_ns: int) -> None:
        if job.state is JobState.PENDING:
            self._leave(job, now_ns)
            enter(job, JobEvent.HOLD)
            self._save(job)

    def release(self, job: Job, now_ns: int) -> None:
        if job.state is JobState.HELD:
            enter(job, JobEvent.RELEASE)
            job.waiting_since_ns = now_ns
            self._save(job)
            self.admit(job, now_ns)

    def requeue(self, job: Job, now_ns: int) -> None:
        """One that has ended stays so: what it ran with is not kept any longer."""
        if job.state in (JobState.RUNNING, JobState.SUSPENDED):
            job.user_wait = None
            self.stop(job, None, JobState.PENDING, "requeued by its user", now_ns)

    def pause_idle(self, job: Job, why: str, now_ns: int) -> None:
        """It keeps its memory, which other jobs may have it give up, and waits for its next use."""
        if job.state is JobState.RUNNING and job.job_id not in self._world.stopping and job.spec.preemptible:
            job.user_wait = UserWait.USE
            self.stop(job, self._world.hows[0], JobState.SUSPENDED, why, now_ns)

    def use(self, job: Job, now_ns: int) -> None:
        if job.user_wait is UserWait.USE:
            self._end_wait(job, now_ns)

    def _end_wait(self, job: Job, now_ns: int) -> None:
        """It waits for capacity alone, as a job that was preempted; one that is about to be suspended does so after
        that."""
        job.user_wait = None
        job.waiting_since_ns = now_ns
        self._save(job)
        self.admit(job, now_ns)

    def suspend(self, job: Job, now_ns: int) -> None:
        """It gives up its GPUs, for its user: what it keeps is on the host."""
        if job.state is JobState.RUNNING and job.stop_to is None:
            job.user_wait = UserWait.RESUME
            self.stop(job, How.EVICT, JobState.SUSPENDED, "suspended by its user", now_ns)
            self._world.hold(job, self._world.kept_placement(job, How.PAUSE))  # until it is known that its memory moved

    def resume(self, job: Job, now_ns: int) -> None:
        if job.user_wait is UserWait.RESUME:
            self._end_wait(job, now_ns)

    def change(self, job: Job, spec: JobSpec, now_ns: int) -> None:
        """It keeps its place in the order of submission; in another queue, too."""
        if job.state.is_final:
            return
        job.changed = True
        if job.state in (JobState.PENDING, JobState.HELD):
            self._leave(job, now_ns)
            if spec.begin_ns != job.spec.begin_ns:
                job.not_before_ns = spec.begin_ns
            job.spec = self._world.cluster.shared(spec)
            estimate.expect(self._world, job, now_ns)
            self.admit(job, now_ns)
        else:
            if spec.ask.spec.gpus_milli != job.spec.ask.spec.gpus_milli:
                before = running_size.begin(self._world, job, spec, now_ns)
                self.resizing.begin(job, before, "its user, or an admin, has asked for it", now_ns)
            job.spec = replace(job.spec, time_limit_ns=spec.time_limit_ns)
            self._limit(job, now_ns)
        self._save(job)

    def _limit(self, job: Job, now_ns: int) -> None:
        """The end of a running job's time, and the signal that it gets before."""
        if job.state is JobState.RUNNING and job.spec.time_limit_ns < NEVER_NS:
            left_ns = max(1, job.spec.time_limit_ns - job.executed_at(now_ns))
            self._world.deadlines.add(now_ns + left_ns, Due.LIMIT, job.job_id, job.started_ns)
            if job.spec.signal_lead_ns and job.signal_attempt < job.attempt:
                at_ns = now_ns + max(1, left_ns - job.spec.signal_lead_ns)
                self._world.deadlines.add(at_ns, Due.SIGNAL, job.job_id, job.started_ns)

    def signal(self, job: Job, now_ns: int) -> None:
        """Once in an attempt, unless its time limit was raised meanwhile."""
        spec = job.spec
        is_early = job.executed_at(now_ns) < spec.time_limit_ns - spec.signal_lead_ns
        if is_early or job.signal_attempt == job.attempt:
            return
        job.signal_attempt = job.attempt
        self._save(job)
        self.commands.append(SignalJob(job.job_id, job.attempt))
        self._note("job.signalled", job, f"its time limit is {reasons.duration(spec.signal_lead_ns)} away")

    def end(self, job: Job, state: JobState, why: str, now_ns: int) -> None:
        """It shall end, whatever it is doing."""
        if job.state in (JobState.PENDING, JobState.HELD):
            self._leave(job, now_ns)
            self._finish(job, state, why, now_ns)
        elif not job.state.is_final:
            self.stop(job, None, state, why, now_ns)

    # ---- jobs stop ----

    def stop(self, job: Job, how: How | None, state: JobState, why: str, now_ns: int) -> None:
        """Tells a job to stop. Its capacity is given to other jobs, which get it when the job has gone."""
        world = self._world
        if job.job_id not in world.stopping:
            if job.state is JobState.RUNNING:
                world.line(job).stop(job.job_id)
                world.count(job, -1, now_ns)
                self.resizing.undo(job, now_ns)
            else:
                self._leave(job, now_ns)
            self._go(job, how, now_ns)
        job.stop_to, job.stopping = state, why
        self._save(job)
        self.commands.append(StopJob(job.job_id, how, why))

    def _go(self, job: Job, how: How | None, now_ns: int) -> None:
        """Notes what the job physically has until it has gone; the cluster counts what it will keep."""
        world = self._world
        world.stopping[job.job_id] = job.placement if job.state is JobState.RUNNING else world.held.get(job.job_id, ())
        if job.state is JobState.RUNNING:
            world.stop_order_ns[job.job_id] = now_ns
            world.count_stopping(job, 1)
        world.hold(job, world.kept_placement(job, how) if how else ())

    def _release_capacity(self, job: Job, now_ns: int, *, is_preempted: bool = False) -> None:
        """The job has given up its capacity, of whatever type; its times are added up: without the time that its
        preemption took, in which it was served nothing."""
        world = self._world
        running = job.state is JobState.RUNNING
        if job.job_id in world.stopping:
            del world.stopping[job.job_id]
            if running:
                world.count_stopping(job, -1)
        elif running:
            world.line(job).stop(job.job_id)
            world.count(job, -1, now_ns)
        else:
            self._leave(job, now_ns)
        stop_order_ns = world.stop_order_ns.pop(job.job_id, now_ns)
        world.hold(job, ())
        world.unwatch(job)
        if job.spec.elastic or job.resizing:
            self.resizing.forget_job(job)
        if running:
            estimate.stops(world, job)
            end_ns = stop_order_ns if is_preempted else now_ns
            ran_ns = end_ns - job.started_ns
            job.overhead_ns += max(0, min(job.working_since_ns, end_ns) - job.started_ns)
            job.executed_ns += ran_ns
            job.attained += ran_ns * job.width_milli

    def handle_job_end(self, event: JobEnded, now_ns: int) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or event.attempt != job.attempt or job.state not in (JobState.RUNNING, JobState.SUSPENDED):
            return
        stop_to, why = job.stop_to, job.stopping
        self._release_capacity(job, now_ns)
        job.stop_to, job.stopping, job.exit_code, job.start_failures = None, "", event.exit_code, 0
        if stop_to is JobState.PENDING:
            self._reset_job(job, now_ns)
            self.admit(job, now_ns)
        elif stop_to in (JobState.CANCELLED, JobState.TIMED_OUT):
            self._finish(job, stop_to, why, now_ns)
        elif event.exit_code == 0:
            self._finish(job, JobState.COMPLETED, event.why, now_ns)
        else:
            reason = f": {event.why}" if event.why else ""
            self._failed(job, f"it ended with exit code {event.exit_code}{reason}", now_ns)

    def _failed(self, job: Job, why: str, now_ns: int) -> None:
        """Another try if it has one left."""
        job.failures += 1
        if job.failures > job.spec.retries:
            tries = f" in the last of {job.failures} tries" if job.failures > 1 else ""
            self._finish(job, JobState.FAILED, why + tries, now_ns)
            return
        job.not_before_ns = now_ns + min(BACKOFF_FIRST_NS << min(job.failures - 1, 20), BACKOFF_MAX_NS)
        self._reset_job(job, now_ns)
        self._note("job.retried", job, f"{why}; try {job.failures + 1} of {job.spec.retries + 1} follows")
        self.admit(job, now_ns)

    def _reset_job(self, job: Job, now_ns: int) -> None:
        """The job waits to start from the beginning: its progress is lost, its attained service is not."""
        enter(job, JobEvent.RESTART)
        job.spec = sizes.at_least(job.spec)
        job.placement, job.suspended_how = (), None
        job.executed_ns = job.overhead_ns = job.promoted_executed_ns = 0
        job.waiting_since_ns = now_ns
        self._save(job)

    def suspended(self, event: JobSuspended, now_ns: int) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or job.job_id not in self._world.stopping:
            return
        stop_to, why, how = job.stop_to, job.stopping, event.how
        if stop_to is not JobState.SUSPENDED and how is not How.REQUEUE:
            return  # suspended before the order to end arrived: JobEnded follows
        running = job.state is JobState.RUNNING
        self._release_capacity(job, now_ns, is_preempted=True)
        job.stop_to, job.stopping = None, ""
        if running and job.user_wait:
            self._note("job.paused" if job.user_wait is UserWait.USE else "job.suspended", job, why)
        elif running:
            job.preemptions += 1
            job.lost_runs += how is How.REQUEUE
            self._note("job.preempted", job, why)
        if stop_to in (JobState.CANCELLED, JobState.TIMED_OUT):
            self._finish(job, stop_to, why, now_ns)
            return
        if how is How.REQUEUE:
            self._reset_job(job, now_ns)
        else:
            enter(job, JobEvent.SUSPEND)
            job.suspended_how = how
            job.waiting_since_ns = now_ns if running else job.waiting_since_ns
            self.begins_again(job)
            self._world.park(job)
            self._save(job)
        self.admit(job, now_ns)

    def note_start(self, event: Started, now_ns: int) -> None:
        """Not saved by itself: each start would be written twice."""
        job = self.jobs.get(event.job_id)
        if job is None or job.state is not JobState.RUNNING or event.attempt != job.attempt or job.makes_progress:
            return
        job.working_since_ns = now_ns
        if job.job_id in self._world.line(job).running:
            self._world.touch(job, now_ns)

    def start_failed(self, event: StartFailed, now_ns: int) -> None:
        job = self.jobs.get(event.job_id)
        if job is None or event.attempt != job.attempt or job.state is not JobState.RUNNING:
            return
        stop_to, why = job.stop_to, job.stopping
        if job.spec.elastic or job.changed:  # it ran, perhaps with more than one size: that cannot be taken back
            job.attained = job.attained_at(now_ns)
        job.started_ns = now_ns  # nothing of it ran
        self._release_capacity(job, now_ns)
        job.stop_to, job.stopping = None, ""
        if stop_to in (JobState.CANCELLED, JobState.TIMED_OUT):
            self._finish(job, stop_to, why, now_ns)
            return
        if not event.again:
            self._failed(job, f"it could not be started: {event.why}", now_ns)
            return
        job.start_failures += 1
        wait_ns = min(START_BACKOFF_FIRST_NS << min(job.start_failures - 1, 20), START_BACKOFF_MAX_NS)
        job.not_before_ns = now_ns + wait_ns
        how = job.suspended_how
        if how is None or stop_to is JobState.PENDING:
            self._reset_job(job, now_ns)
        else:
            enter(job, JobEvent.SUSPEND)
            job.waiting_since_ns = now_ns
            self._world.park(job)
            self._save(job)
        self._note("job.start_failed", job, event.why)
        self.admit(job, now_ns)

    def _finish(self, job: Job, state: JobState, why: str, now_ns: int) -> None:
        """The job has ended. Jobs that depend on it begin to wait for capacity, or end as well, and so do those after
        them."""
        world = self._world
        self._close(job, state, why, now_ns)
        closed = [job]
        for one in closed:  # it grows: a chain of jobs may be longer than Python's stack
            for other_id in world.dependents.pop(one.job_id, ()):
                other, unmet = self.jobs[other_id], world.unmet[other_id]
                unmet.discard(one.job_id)
                world.unmet_of[other.spec.uid] -= 1
                if not other.spec.is_satisfied_by(one.job_id, one.state):
                    self._close(other, JobState.CANCELLED, _unmet(other, one), now_ns)
                    closed.append(other)
                elif not unmet:
                    del world.unmet[other_id]
                    other.waiting_since_ns = now_ns
                    self.admit(other, now_ns)

    def _close(self, job: Job, state: JobState, why: str, now_ns: int) -> None:
        world = self._world
        enter(job, END_EVENTS[state])
        job.reason, job.ended_ns = why, now_ns
        job.placement, job.suspended_how, job.user_wait = (), None, None
        world.target_reasons.pop(job.job_id, None)
        for other_id in world.unmet.pop(job.job_id, ()):
            del world.dependents[other_id][job.job_id]
            world.unmet_of[job.spec.uid] -= 1
        self._save(job)
        self._note(f"job.{state.value}", job, why)
        if event := world.notices.due_at_end(job, now_ns):
            self.commands.append(Notify(job.job_id, event))
        world.line(job).policy.record_end(job)
        estimate.learn(world, job)

    # ---- decisions are carried out ----

    def preempt(self, victim: Job, claimant_id: int, now_ns: int) -> None:
        """Stops the job for another one, in the way that preemption.py chooses."""
        world = self._world
        world.line(victim).dequeue(victim.job_id)
        world.stopping[victim.job_id] = victim.placement
        world.stop_order_ns[victim.job_id] = now_ns
        world.count_stopping(victim, 1)
        how = choose_how(world, victim)
        world.hold(victim, world.kept_placement(victim, how))
        world.acted_ns = now_ns
        victim.stop_to = JobState.SUSPENDED
        victim.stopping = reasons.explain_preemption(world, victim, self.jobs[claimant_id])
        self._save(victim)
        self.commands.append(StopJob(victim.job_id, how, victim.stopping))

    def evict(self, job: Job, claimant_id: int) -> None:
        """It is suspended, and gives up what it kept."""
        if not job.waits_for_user:
            self._world.line(job).dequeue(job.job_id)
        why = reasons.explain_eviction(self._world, job, self.jobs[claimant_id])
        self._give_up(job, choose_eviction(self._world, job), why)

    def _give_up(self, job: Job, how: How, why: str) -> None:
        world = self._world
        world.stopping[job.job_id] = world.kept_placement(job, job.suspended_how or how)
        world.hold(job, world.kept_placement(job, how))
        job.stop_to = JobState.SUSPENDED
        job.stopping = why
        self._save(job)
        self.commands.append(StopJob(job.job_id, how, why))

    def start(self, job: Job, now_ns: int) -> None:
        world = self._world
        del world.claims[job.job_id]
        world.count_claim(job, -1)
        resume = job.state is JobState.SUSPENDED
        if not resume:
            job.attempt += 1
        enter(job, JobEvent.START)
        job.started_ns = now_ns
        job.working_since_ns = NEVER_NS if world.reports_starts else now_ns
        if job.first_started_ns < 0:
            job.first_started_ns = now_ns
        world.acted_ns = now_ns
        self._runs(job, now_ns)
        self._limit(job, now_ns)
        estimate.expect(world, job, now_ns)
        self._save(job)
        self.commands.append(StartJob(job.job_id, job.attempt, job.placement, resume))
        if not resume and world.notices.due(job, START, now_ns):
            self.commands.append(Notify(job.job_id, START))
        if world.explains:
            self._note("job.resumed" if resume else "job.started", job, reasons.explain_placement(world, job))

    def _runs(self, job: Job, now_ns: int) -> None:
        self._world.run(job, now_ns)
        estimate.runs(self._world, job)
        if job.spec.elastic:
            self._world.elastic[job.job_id] = job

    def update_placement(self, event: Located) -> None:
        """It counts where it is, whoever else was to have that; not while it stops or changes its size."""
        job = self.jobs.get(event.job_id)
        if job is None or job.state is not JobState.RUNNING or event.attempt != job.attempt or job.resizing:
            return
        if job.job_id in self._world.stopping or len(event.placement) != len(job.placement):
            return
        job.placement = self._world.cluster.annotate_placement(job, event.placement)
        self._world.hold(job, job.placement)
        self._save(job)

    # ---- after a restart ----

    def readopt(self, job: Job, now_ns: int) -> None:
        world = self._world
        if not job.makes_progress:  # when it was started has not been saved
            job.working_since_ns = job.started_ns
        world.hold(job, job.resizing or job.placement)
        world.count(job, 1, now_ns)
        self._runs(job, now_ns)
        self.resizing.resend_commands(job)
        self._limit(job, now_ns)
        if job.stop_to is not None:
            how = world.hows[0] if job.stop_to is JobState.SUSPENDED else None
            if how and job.user_wait is UserWait.RESUME:
                how = How.EVICT
            self.stop(job, how, job.stop_to, job.stopping, now_ns)


def _unmet(job: Job, other: Job) -> str:
    """Why the job will never start: how the other one, which it depends on, has ended."""
    how = "whose failure it waits for" if job.spec.waits_for_failure(other.job_id) else "which it comes after"
    return f"job {other.job_id}, {how}, is {other.state.value}"
