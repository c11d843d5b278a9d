"""What the controller remembers of one job of Slurm, from look to look."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from vgpud.cluster.core.model import Binding, SlurmJob
from vgpud.cluster.core.pauses import DEFERRED_NS, FORGOTTEN_NS, SETTLE_NS, Pauses
from vgpud.cluster.core.registrations import Registrations
from vgpud.cluster.core.reruns import Reruns
from vgpud.cluster.core.seen_runs import Runs
from vgpud.core.jobs.model import SECOND_NS, Job

#: what was decided starts so much later, and a look sees it so much later
NEAR_NS = 3 * SECOND_NS
#: what its user asks for, as Slurm shows it
Asks = tuple[object, ...]


@dataclass(slots=True)
class JobView:
    """Most of it is of jobs of the queue: of others there is little to remember."""

    key: str
    binding: Binding | None = None  # None: it is not the queue's
    is_unsaved: bool = False  # the binding has changed
    refusal: str = ""  # why the queue does not take it
    delay: str = ""  # why it is to run, and is not released yet
    former_delay: str = ""  # the same of the look before
    fault: str = ""  # why it could not be looked at
    may_run: frozenset[str] = frozenset()  # where it may run while it waits: of nodes that had not registered
    _pauses: Pauses = field(default_factory=Pauses)
    _reruns: Reruns = field(default_factory=Reruns)
    _runs: Runs = field(default_factory=Runs)
    _asks: Asks | None = None

    def begin_look(self, unsure: frozenset[str]) -> None:
        """`unsure`: nodes where something may run that slurmctld does not know of."""
        self.former_delay, self.delay = self.delay, ""
        if self.may_run:
            self.may_run &= unsure

    def enter_queue(self, binding: Binding, asks: Asks) -> None:
        self.binding, self._asks, self.is_unsaved = binding, asks, True

    def leave_queue(self) -> None:
        """It has ended, and its number may be another job's."""
        self.binding, self._asks, self.is_unsaved = None, None, False
        self._pauses, self._reruns = Pauses(), Reruns()
        self._runs.leave_queue()

    def disappear(self) -> None:
        """Slurm does not show it any longer."""
        self.refusal = self.fault = ""
        self._runs.forget_end()

    @property
    def is_needed(self) -> bool:
        """Of one that Slurm does not show."""
        return self.binding is not None or bool(self.may_run)

    @property
    def last_order_ns(self) -> int:
        return self.binding.last_order_ns if self.binding else -1

    @property
    def bound(self) -> Binding:
        """Of a job of the queue."""
        assert self.binding is not None
        return self.binding

    # ---- its runs ----

    def is_over(self, slurm_job: SlurmJob) -> bool:
        """Whether Slurm shows a run that has ended or was requeued, and forgot that."""
        return self._runs.is_over(slurm_job, self.binding.restarts if self.binding else None)

    def is_rerun(self, slurm_job: SlurmJob, restarted_ns: int, now_ns: int) -> bool:
        """Whether an end that Slurm shows does not count. `restarted_ns`: when slurmctld was seen to have been started,
        0 = never."""
        seen_ns = self._runs.seen_ns(slurm_job)
        return self._reruns.is_rerun(slurm_job, self.bound.restarts, seen_ns, restarted_ns, now_ns)

    def note_run(self, slurm_job: SlurmJob, attempt: int, now_ns: int) -> None:
        """Slurm shows that it runs: the queue's attempt of this number."""
        self._runs.saw(slurm_job, now_ns)
        binding = self.bound
        is_requeued = slurm_job.state == "COMPLETING" and binding.attempt == attempt
        # a requeue counts when it waits: see end_run
        restarts = binding.restarts if is_requeued else slurm_job.restarts
        if (binding.attempt, binding.restarts, binding.giving_up) != (attempt, restarts, False):
            binding.attempt, binding.restarts, binding.giving_up = attempt, restarts, False
            binding.last_order_ns = -1
            self.is_unsaved = True

    def note_end(self, slurm_job: SlurmJob) -> None:
        self._runs.note_end(slurm_job)

    def take_cancellation(self) -> bool:
        """Whether the job, which has left the queue, was cancelled; asked once."""
        return self._runs.take_cancellation()

    def end_run(self, slurm_job: SlurmJob, job: Job, registrations: Registrations, now_ns: int) -> None:
        """It was to run, and waits again."""
        self._reruns.clear_requeue_order()
        was_requeued = slurm_job.restarts > self.bound.restarts
        if slurm_job.restarts == self.bound.restarts and not self.former_delay:
            # Slurm has not requeued it: it may have run until its node registered, between two looks. Where the
            # controller has seen and awaited that, nothing is left
            self._pauses.pause(now_ns + FORGOTTEN_NS)
        self.sync_restarts(slurm_job, now_ns)
        if was_requeued:
            self._pause_after_lost_start(job, registrations, now_ns)

    def _pause_after_lost_start(self, job: Job, registrations: Registrations, now_ns: int) -> None:
        """Its run was requeued. If a node did not respond when that began, slurmctld may have its start in hand: sent
        while the job runs elsewhere, it would end that run. One that was started since has none of it."""
        seen_ns = self._runs.since_ns
        if seen_ns < job.started_ns:
            seen_ns = now_ns  # no look has shown that run
        names = {place.node for place in job.placement}
        until_ns = min(seen_ns + DEFERRED_NS, now_ns)
        was_silent = registrations.silence.was(names, job.started_ns - NEAR_NS, until_ns)
        if was_silent and seen_ns > registrations.restarted_ns:
            self._pauses.pause(now_ns + DEFERRED_NS)
            self._reruns.doubt(now_ns)

    def sync_restarts(self, slurm_job: SlurmJob, now_ns: int) -> None:
        """It waits, and gets its orders again: only what Slurm restarts from now on is news."""
        if self.bound.restarts != slurm_job.restarts:
            self.bound.restarts = slurm_job.restarts
            self._pauses.pause(now_ns + SETTLE_NS)
            self.is_unsaved = True
        self.bound.last_order_ns = -1

    # ---- orders about it ----

    def note_requeue_order(self, now_ns: int) -> None:
        self._reruns.note_requeue_order(now_ns)

    def give_up(self) -> None:
        """Its start takes too long, or is wrong by now: it is to be held again."""
        self.bound.giving_up = self.is_unsaved = True

    def end_giving_up(self) -> None:
        """It is held."""
        self.bound.giving_up, self.bound.last_order_ns = False, -1
        self.is_unsaved = True

    def may_tell(self, now_ns: int, repeat_ns: int) -> bool:
        """An order takes its time to show: it is not repeated at every look."""
        binding = self.bound
        if binding.last_order_ns >= 0 and now_ns - binding.last_order_ns < repeat_ns:
            return False
        binding.last_order_ns = now_ns
        return True

    def delay_release(self, slurm_job: SlurmJob, job: Job, silent: Collection[str], began_ns: int, now_ns: int) -> bool:
        """Whether it is too early. `silent`: nodes that do not respond; `began_ns`: when this controller did."""
        self.delay = self._pauses.why(slurm_job, job, silent, began_ns, now_ns)
        return bool(self.delay)

    # ---- what its user asks for ----

    def is_request_changed(self, asks: Asks) -> bool:
        """Since this controller first saw it, or since take_request()."""
        if self._asks is None:
            self._asks = asks
        return self._asks != asks

    def take_request(self, asks: Asks) -> None:
        self._asks = asks
