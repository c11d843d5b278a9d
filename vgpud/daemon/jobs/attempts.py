"""Starts, suspends, stops and ends the attempts of jobs, as was decided, and adopts those of a former daemon.

Made by JobController. What is done to one job is done under its lock, in the order in which it was decided. An attempt
goes the same way each time: the decision on the disk, the job's slices, its supervisor; and back: its supervisor's end,
its slices removed, the result on the disk, its directory removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

from vgpud.core.elastic.worker_group import has_workers
from vgpud.core.jobs import events as qe
from vgpud.core.jobs import session
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import How, Job, JobState, UserWait
from vgpud.core.model import Denied, Reason
from vgpud.daemon.jobs.elastic import ElasticController
from vgpud.daemon.jobs.host_warnings import HostWarnings
from vgpud.daemon.jobs.launch import LaunchError, attempt_of, find_grace_ms, find_needs
from vgpud.daemon.jobs.locks import JobLocks
from vgpud.daemon.jobs.ports import JobPort
from vgpud.daemon.jobs.progress import ProgressMonitor
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.errors import StoreError, VgpudError
from vgpud.jobs import session_ports
from vgpud.jobs.image import find_engine
from vgpud.jobs.messages import NO_NEEDS, Result
from vgpud.jobs.runner import Found, Jobs, StartError
from vgpud.jobs.session_ports import Ports, SessionPorts
from vgpud.jobs.terminal import Terminal
from vgpud.store.jobs import JobStore

log = logging.getLogger("vgpud")

#: delay before a running job whose slices are still suspended is resumed again
RESUME_S, RESUME_MAX_S = 1.0, 60.0
#: exit code of a job that was stopped before it ran: as if SIGTERM had ended it
TERMINATED = 143


def has_processes(job: Job) -> bool:
    """Whether an attempt has processes, running or suspended."""
    return job.state is JobState.RUNNING or (job.state is JobState.SUSPENDED and job.suspended_how is not None)


def has_page(job: Job) -> bool:
    """Whether it is a session that serves a page."""
    launch = job.spec.run
    return isinstance(launch, Launch) and launch.session not in ("", session.SHELL)


class AttemptPort(JobPort, Protocol):
    """What is needed of the controller."""

    elastic: ElasticController
    progress: ProgressMonitor
    saver: JobSaver
    store: JobStore

    def process_events(self, *events: qe.Event) -> None: ...


class JobAttempts:
    """runner.Backend and api.job_backend.Terminals: what has processes, and the step that each job is at."""

    def __init__(self, jobs: AttemptPort) -> None:
        self._jobs = jobs
        self._locks = JobLocks()
        self._ports = SessionPorts()
        self._host_warnings = HostWarnings()
        self._joined: dict[int, Terminal] = {}  # the terminal that was joined last, by job
        config = jobs.host.config.current
        engine = find_engine(config.jobs.engine, config.jobs.runtime, config.jobs.network)
        self.runner = Jobs(config.state / "jobs", self, config.runtime / "job.sock", engine)

    def job_lock(self, job_id: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Held for all that is done to one job, in the order in which it was decided."""
        return self._locks.hold(job_id)

    def join_terminal(self, job: Job) -> Terminal | None:
        """The terminal of the job's present attempt; None: it is not there, not yet or not any more."""
        found = self.runner.terminal((job.job_id, job.attempt)) if job.attempt else None
        if found:
            self._joined[job.job_id] = found
        return found

    def has_viewer(self, job_id: int) -> bool:
        """Whether a call shows the job's terminal."""
        return job_id in self._joined and not self._joined[job_id].is_closed

    # ---- of a former daemon ----

    def settle(self, job: Job, fate: Found | Result) -> None:
        if isinstance(fate, Result):
            self._jobs.spawn(self.end(job.job_id, job.attempt, fate))
            return
        if has_page(job):
            self._hold_ports(job)
        if fate is Found.GIVEN_UP:
            self._jobs.slices.remove(job)
            self._jobs.enqueue_event(qe.StartFailed(job.job_id, job.attempt, "its supervisor did not answer", True))
        elif fate is Found.NEVER_BEGAN:
            self.start_again(job)
        else:
            self.resume_if_running(job)

    def start_again(self, job: Job) -> None:
        """An attempt that was decided on and of which nothing has begun."""
        self._jobs.spawn(self.start(qe.StartJob(job.job_id, job.attempt, job.placement)))

    def resume_if_running(self, job: Job) -> None:
        if job.state is JobState.RUNNING:
            self._jobs.spawn(self._resume_found(job))

    async def _resume_found(self, job: Job) -> None:
        """A running job of the former daemon, which may have been about to suspend it."""
        attempt, wait_s = job.attempt, RESUME_S
        while True:
            async with self.job_lock(job.job_id):
                denied = await self._jobs.slices.resume(job)
            if denied is None:
                self._jobs.elastic.reconcile_running(job)
                return
            self._jobs.note("job.warning", job, f"it could not be resumed, trying again: {denied.message}")
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RESUME_MAX_S)
            if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, attempt):
                return

    # ---- starting ----

    async def start(self, command: qe.StartJob) -> None:
        async with self.job_lock(command.job_id):
            job = self._jobs.machine.jobs[command.job_id]
            why, again = "", True
            try:
                await self._jobs.saver.on_disk([job.job_id])
                if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                    return  # the request that stopped it finds that nothing runs
                denied = await (self._jobs.slices.resume(job) if command.resume else self._begin(job))
                if denied is None:
                    self._jobs.elastic.reconcile_running(job)
                    self._jobs.enqueue_event(qe.Started(job.job_id, command.attempt))
                    return
                why, again = denied.message, denied.reason not in (Reason.INVALID, Reason.DENIED)
            except StartError as error:
                why, again = str(error), error.may_retry
            except StoreError as error:
                why = str(error)
            except (LaunchError, VgpudError) as error:
                why, again = str(error), False
            except OSError as error:
                why = str(error)
            if not command.resume:
                self._ports.release(job.job_id)
                await self._jobs.elastic.abandon(job)
                self._jobs.slices.remove(job)
            self._jobs.enqueue_event(qe.StartFailed(job.job_id, command.attempt, why, again))

    async def _begin(self, job: Job) -> Denied | None:
        """Its slices, then its supervisor."""
        if has_workers(job):
            return await self._jobs.elastic.begin(job)
        slices: list[tuple[str, str]] = []
        if job.spec.ask.spec.gpus_milli:
            for place, origin in zip(job.placement, self._jobs.slices.list_origins(job), strict=True):
                denied = await self._jobs.slices.make(job, origin, place.shares)
                if denied:
                    return denied
                slices.append((origin.slice_name(), self._jobs.host.node.attach_path(origin.slice_name())))
        await self.begin_attempt(job, slices)
        return None

    async def begin_attempt(self, job: Job, slices: Sequence[tuple[str, str]], worker: int = -1) -> None:
        """A supervisor, of all members or of one worker. Raises StartError, LaunchError, VgpudError."""
        node, grace_ms = self._jobs.host.node.view(), find_grace_ms(job, self._jobs.host.config.current)
        ports = self._find_ports(job) if has_page(job) else None
        host, launch = self._jobs.host, job.spec.run
        needs = NO_NEEDS
        if isinstance(launch, Launch):
            needs = find_needs(launch, host.environments.catalog, host.config.current.jobs, ports)
        attempt = attempt_of(job, slices, node, node.simulated, grace_ms, worker, ports, needs)
        started = await self.runner.start(attempt)
        if started.note and self._host_warnings.is_new(job.spec.uid, started.note):
            text = f"it runs, but {started.note} (later jobs of this user do not say so again)"
            self._jobs.note("job.warning", job, text)

    def _find_ports(self, job: Job) -> Ports:
        """Where this attempt of a session listens: saved before it begins, so that a restarted daemon knows it. Raises
        StoreError, StartError."""
        known, launch = self._jobs.store.facts(job.job_id), job.spec.run
        assert isinstance(launch, Launch)
        ports = session_ports.known_ports(known, job.attempt)
        if ports is None:
            ports = self._ports.choose(job.job_id, job.spec.uid, launch.session_ports)
            self._jobs.store.set_facts(job.job_id, known | session_ports.as_facts(ports, job.attempt))
        return ports

    def _hold_ports(self, job: Job) -> None:
        """Those of a session that a former daemon has started."""
        with contextlib.suppress(StoreError):  # then another one may get them, and finds that a program listens there
            ports = session_ports.known_ports(self._jobs.store.facts(job.job_id), job.attempt)
            if ports:
                self._ports.hold(job.job_id, job.spec.uid, ports)

    # ---- stopping ----

    async def stop(self, command: qe.StopJob, attempt: int) -> None:
        async with self.job_lock(command.job_id):
            job = self._jobs.machine.jobs[command.job_id]
            if job.attempt != attempt or not has_processes(job):
                return  # it has ended by itself
            if how := await self._suspend(job, command.how):
                self._jobs.enqueue_event(qe.JobSuspended(job.job_id, how))
                return
            grace_s = find_grace_ms(job, self._jobs.host.config.current) / 1000
            elastic = self._jobs.elastic
            if await (elastic.stop(job) if has_workers(job) else self.runner.stop(job.job_id, attempt, grace_s)):
                return  # job_ended() follows
        await self.end(job.job_id, attempt, Result(TERMINATED, is_stopped=True))

    async def _suspend(self, job: Job, how: How | None) -> How | None:
        """How it has been suspended; None: it has not been, so it is stopped. One that its user suspends is not
        stopped for that: where its memory cannot be moved, it stays on the device, until another job needs it."""
        if how not in (How.PAUSE, How.EVICT):
            return None
        if await self._jobs.slices.suspend(job, how is How.EVICT):
            return how
        is_first = job.user_wait is UserWait.RESUME and job.state is JobState.RUNNING
        return How.PAUSE if is_first and await self._jobs.slices.suspend(job, evict=False) else None

    async def signal(self, command: qe.SignalJob) -> None:
        """The signal that its user has asked for, to all of its processes."""
        async with self.job_lock(command.job_id):
            job = self._jobs.machine.jobs[command.job_id]
            if (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                return
            for key in self._jobs.elastic.keys(job):
                self.runner.signal(key)

    # ---- ending ----

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        """All processes of the attempt have gone (runner.Backend)."""
        self._jobs.spawn(self.end(job_id, attempt, result))

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """The same of one worker of an elastic job."""
        self._jobs.elastic.worker_ended(job_id, attempt, worker, result)

    async def end(self, job_id: int, attempt: int, result: Result) -> None:
        """Nothing of an attempt is left."""
        async with self.job_lock(job_id):
            job = self._jobs.machine.jobs.get(job_id)
            if job is None or job.attempt != attempt or not has_processes(job):
                return
            self._jobs.progress.ends(job, result.exit_code == 0)
            self._jobs.slices.remove(job)
            self._ports.release(job_id)
            self._joined.pop(job_id, None)
            self._add_resource_use(job, result)
            self._jobs.elastic.forget(job_id)
            # whatever its code: a program that saves its state at SIGTERM exits with 0
            cut_short = result.is_stopped or result.is_lost
            if job.stop_to is JobState.SUSPENDED and cut_short:
                self._jobs.enqueue_event(qe.JobSuspended(job_id, How.REQUEUE))
            else:
                if job.stop_to is None and cut_short and not result.is_lost:
                    # preempted by a daemon that was killed before it heard of the end
                    self._jobs.enqueue_event(qe.Requeued(job_id))
                self._jobs.enqueue_event(qe.JobEnded(job_id, attempt, result.exit_code, result.why))
            if result.is_lost:
                self._jobs.note("job.lost", job, result.why)
            self._jobs.process_events()
        try:
            await self._jobs.saver.on_disk([job_id])
        except StoreError as error:
            log.warning("the directory of job %d stays until the next start: %s", job_id, error)
            return
        await self.runner.forget(job_id, attempt)

    def _add_resource_use(self, job: Job, result: Result) -> None:
        """CPU time and memory of all attempts together."""
        try:
            before = self._jobs.store.facts(job.job_id)
            if int(before.get("attempt", 0)) >= job.attempt:
                return  # the former daemon was killed before it had saved the end
            cpu_ns = int(before.get("cpu_ns", 0)) + result.cpu_ns
            peak = max(int(before.get("ram_peak_bytes", 0)), result.ram_peak_bytes)
            before |= {"cpu_ns": cpu_ns, "ram_peak_bytes": peak, "attempt": job.attempt}
            self._jobs.store.set_facts(job.job_id, before)
        except StoreError as error:
            log.warning("%s", error)
