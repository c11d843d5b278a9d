"""The part of the composition root that ends or pauses sessions which no user uses (core/jobs/idleness.py decides).

Made by JobController, which calls it once a second.
"""

from __future__ import annotations

import logging
from typing import Protocol

from vgpud.core.jobs import events as qe
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.idleness import LOOK_NS, Idleness
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.queue.reasons import duration
from vgpud.daemon.jobs.ports import MonitorPort
from vgpud.errors import StoreError

log = logging.getLogger("vgpud")

#: of one look: each is a write
SAVES_MAX = 20
FACT = "session_used_ns"


class Viewers(Protocol):
    """What is needed of attempts.py."""

    def has_viewer(self, job_id: int) -> bool: ...


class IdlePort(MonitorPort, Protocol):
    """What is needed of the controller."""

    @property
    def attempts(self) -> Viewers: ...


class SessionIdleness:
    """Sessions with `idle_after`, while they run."""

    def __init__(self, jobs: IdlePort) -> None:
        self._jobs = jobs
        self._idleness = Idleness()
        self._look_at_ns = 0

    def see(self, job: Job) -> None:
        """A job that has been decided on, in its present state."""
        launch = job.spec.run
        after_ns = launch.idle_after_ns if isinstance(launch, Launch) else 0
        if not after_ns:
            return
        if job.state is JobState.RUNNING and job.stop_to is None:
            self._idleness.watch(job.job_id, job.started_ns, after_ns, self._jobs.clock.now_ns())
        else:
            self._idleness.forget(job.job_id)

    def adopt(self, job: Job) -> None:
        """A job of a former daemon, which runs."""
        launch = job.spec.run
        if not (isinstance(launch, Launch) and launch.idle_after_ns and job.state is JobState.RUNNING):
            return
        try:
            saved_ns = int(self._jobs.store.facts(job.job_id).get(FACT, job.started_ns))
        except StoreError as error:
            log.warning("when session %d was last used is not known: %s", job.job_id, error)
            saved_ns = -1
        now_ns = self._jobs.clock.now_ns()
        self._idleness.watch(job.job_id, job.started_ns, launch.idle_after_ns, now_ns, max(saved_ns, job.started_ns))

    def use(self, job_id: int) -> None:
        self._idleness.use(job_id, self._jobs.clock.now_ns())

    def last_use_ns(self, job_id: int) -> int:
        """By the queue's clock; -1 = not known."""
        return self._idleness.last_use_ns(job_id)

    def tick(self) -> None:
        now_ns = self._jobs.clock.now_ns()
        if now_ns < self._look_at_ns:
            return
        self._look_at_ns = now_ns + LOOK_NS
        for job_id in list(self._idleness):
            job = self._jobs.machine.jobs[job_id]
            counters = [one for made in self._jobs.slices.of(job) for one in self._jobs.host.counters.of_slice(made)]
            self._idleness.note_launches(job_id, sum(one.launches for one in counters), now_ns)
            if self._jobs.attempts.has_viewer(job_id):
                self._idleness.use(job_id, now_ns)
        for job_id in self._idleness.look(now_ns):
            self._end(self._jobs.machine.jobs[job_id])
        self._save()

    def _end(self, job: Job) -> None:
        self._idleness.forget(job.job_id)
        launch = job.spec.run
        assert isinstance(launch, Launch)
        why = f"it was not used for {duration(launch.idle_after_ns)} (--idle-after)"
        event = qe.Idled(job.job_id, why) if job.spec.preemptible else qe.Cancelled(job.job_id, why)
        self._jobs.enqueue_event(event)

    def _save(self) -> None:
        try:
            for job_id, used_ns in self._idleness.take_unsaved(SAVES_MAX):
                self._jobs.store.set_facts(job_id, self._jobs.store.facts(job_id) | {FACT: used_ns})
        except StoreError as error:
            log.warning("when sessions were last used could not be saved: %s", error)
