"""What one job of the queue is to do, beside what Slurm shows of it: the orders and events of one look."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from vgpud.cluster.core import capacity
from vgpud.cluster.core.job_view import Asks, JobView
from vgpud.cluster.core.look import WAITING, Look
from vgpud.cluster.core.model import (
    CANCELLED,
    Cancel,
    Hold,
    JobOrder,
    Phase,
    Release,
    Requeue,
    SetComment,
    SlurmJob,
)
from vgpud.cluster.core.translate import NotOurs, queue_of, spec_of
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import How, Job, JobState

#: exit code of a job that was stopped: as if SIGTERM had ended it
TERMINATED = 143


def asks_of(slurm_job: SlurmJob, queues: Collection[str]) -> Asks:
    """What a job's user asks for, and of which queue."""
    return slurm_job.request, queue_of(slurm_job, queues), slurm_job.requeues, slurm_job.array_limit


@dataclass(slots=True)
class JobStep:
    """Of one look. `job`: as the queue's machine has it."""

    look: Look
    view: JobView
    slurm_job: SlurmJob
    job: Job

    def take(self) -> None:
        """Compares what is with what is to be."""
        if self.slurm_job.key in self.look.reruns:
            if self._may_tell():
                self._order(Requeue(self.slurm_job.key))
        elif self.job.state in WAITING:
            self._follow_wait()
        elif self.slurm_job.phase is Phase.ENDED:
            self._follow_end()
        elif self.slurm_job.phase is Phase.RUNS:
            self._follow_run()
        elif self.job.stop_to is not None:
            self._follow_stop()
        else:
            self._follow_start()

    # ---- it waits in the queue ----

    def _follow_wait(self) -> None:
        slurm_job, job = self.slurm_job, self.job
        if slurm_job.phase is Phase.ENDED:
            self.look.requests.append(qe.Cancelled(job.job_id, f"it is {slurm_job.state} in Slurm"))
        elif slurm_job.phase is Phase.RUNS:
            self.look.requests.append(qe.Cancelled(job.job_id, "Slurm has started it by itself"))
        else:
            self.view.sync_restarts(slurm_job, self.look.now_ns)
            self._hold()
            if slurm_job.user_held != (job.state is JobState.HELD):
                of_user = job.state is JobState.PENDING
                self.look.requests.append(qe.Held(job.job_id) if of_user else qe.Released(job.job_id))
            if self._is_request_changed():
                self._change()

    def _change(self) -> None:
        """Its user has changed its request (scontrol update) or its queue; an impossible change is not taken over."""
        self.view.take_request(asks_of(self.slurm_job, self.look.queues))
        try:
            changed = qe.Changed(self.job.job_id, spec_of(self.slurm_job, self.look.queues, self.look.settings))
            denied = self.look.machine.refusal(changed)
        except NotOurs as error:
            self._order(SetComment(self.slurm_job.key, f"still queued as it was: {error}"))
            return
        if denied is None:
            self.look.requests.append(changed)
        else:
            self._order(SetComment(self.slurm_job.key, f"still queued as it was: {denied.message}"))

    # ---- it is to run ----

    def _follow_end(self) -> None:
        slurm_job, job = self.slurm_job, self.job
        if slurm_job.state == CANCELLED:
            self.look.requests.append(qe.Cancelled(job.job_id, "cancelled in Slurm"))
        completed = slurm_job.state == "COMPLETED"
        code = 0 if completed else slurm_job.exit_code or TERMINATED
        why = "" if completed or slurm_job.state == "FAILED" else f"it is {slurm_job.state} in Slurm"
        self.look.answers.append(qe.JobEnded(job.job_id, job.attempt, code, why))
        self.view.note_end(slurm_job)

    def _follow_run(self) -> None:
        slurm_job, job = self.slurm_job, self.job
        self.view.note_run(slurm_job, job.attempt, self.look.now_ns)
        if job.stop_to is None:
            placement = capacity.on_devices(capacity.on_nodes(job.placement, slurm_job.node_names), slurm_job.devices)
            if placement != job.placement:
                self.look.requests.append(qe.Located(job.job_id, job.attempt, placement))
        elif slurm_job.state != "COMPLETING" and self._may_tell():
            ends = job.stop_to in (JobState.CANCELLED, JobState.TIMED_OUT)
            self._order(Cancel(slurm_job.key) if ends else Requeue(slurm_job.key))
            if not ends:
                self.view.note_requeue_order(self.look.now_ns)

    def _follow_stop(self) -> None:
        """It was to give its nodes back, and has: once it is held it will not take them again."""
        if self._is_unsure() or self._hold():
            return
        self._end_run()
        if self.job.stop_to is JobState.SUSPENDED:
            self.look.answers.append(qe.JobSuspended(self.job.job_id, How.REQUEUE))
        else:
            self.look.answers.append(qe.JobEnded(self.job.job_id, self.job.attempt, TERMINATED))

    def _follow_start(self) -> None:
        """It waits in Slurm."""
        if self._is_unsure():
            return
        look, view, slurm_job, job = self.look, self.view, self.slurm_job, self.job
        binding = view.bound
        if slurm_job.restarts < binding.restarts:
            # slurmctld has forgotten a requeue: its next run has this number
            view.sync_restarts(slurm_job, look.now_ns)
        if binding.attempt == job.attempt or slurm_job.restarts > binding.restarts:
            self._follow_requeue()
        elif self._is_request_changed() and not binding.giving_up:
            view.give_up()  # it was placed for what it asked before
            self._order(Hold(slurm_job.key))
        elif not slurm_job.held:
            since_ns = max(job.started_ns, look.began_ns, binding.last_order_ns)
            if look.now_ns - since_ns >= look.settings.start_wait_ns:
                view.give_up()
                self._order(Hold(slurm_job.key))
        elif binding.giving_up or slurm_job.user_held:
            view.end_giving_up()
            look.answers.append(qe.StartFailed(job.job_id, job.attempt, self._why_given_up(), True))
        elif self._is_ready() and self._may_tell():
            self._order(Release(slurm_job.key, tuple(sorted({place.node for place in job.placement}))))

    def _is_ready(self) -> bool:
        silent = self.look.registrations.silence.nodes
        return not self.view.delay_release(self.slurm_job, self.job, silent, self.look.began_ns, self.look.now_ns)

    def _follow_requeue(self) -> None:
        """It ran, and Slurm or a user has requeued it: a node failed, or scontrol requeue. Or slurmctld was killed, and
        has forgotten that it ran: then its number of restarts is the same. It waits its turn again."""
        if self._hold():
            return
        self._end_run()
        self.look.requests.append(qe.Requeued(self.job.job_id))
        self.look.answers.append(qe.JobEnded(self.job.job_id, self.job.attempt, TERMINATED))

    def _is_unsure(self) -> bool:
        """slurmctld was started: it may have begun this job before, and forgotten that."""
        may_run = {place.node for place in self.job.placement} | self.view.may_run
        unsure = self.look.registrations.unsure & may_run
        if unsure:
            self._hold()
            self.view.delay = f"slurmctld was started: {', '.join(sorted(unsure))} must register first"
        return bool(unsure)

    def _why_given_up(self) -> str:
        if self.slurm_job.user_held:
            return "its user holds it"
        if self._is_request_changed():
            return "it asks for something else now"
        return "Slurm did not start it on these nodes in time"

    def _end_run(self) -> None:
        self.view.end_run(self.slurm_job, self.job, self.look.registrations, self.look.now_ns)

    # ---- both ----

    def _order(self, order: JobOrder) -> None:
        self.look.outcome.orders.append(order)

    def _hold(self) -> bool:
        """Whether that must be ordered: it could start by itself."""
        if not self.slurm_job.held:
            self._order(Hold(self.slurm_job.key))
        return not self.slurm_job.held

    def _may_tell(self) -> bool:
        return self.view.may_tell(self.look.now_ns, self.look.settings.repeat_ns)

    def _is_request_changed(self) -> bool:
        """Before Slurm was asked for the limit of its array, as after a restart, that cannot be said."""
        if self.slurm_job.array_limit is None:
            return False
        return self.view.is_request_changed(asks_of(self.slurm_job, self.look.queues))
