"""The part of the composition root that runs the queue: its machine decides, its commands are carried out here.

Made by Daemon. What the machine has decided is written before anything of it is done, so a daemon that is killed at any
point finds each job as it was, asks the runner what became of those that were running, and continues. The order is
always the same: the decision on the disk, the job's slices, its supervisor; and back: its supervisor's end, its slices
removed, the result on the disk, its directory removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from vgpud.core import events as ev
from vgpud.core.elastic.worker_group import has_workers
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.counts import JobCounts
from vgpud.core.jobs.model import How, Job, JobState, Node
from vgpud.core.model import NO_LIMIT, Denied, Reason, Slice
from vgpud.core.observed import JobWaits, QueueSample
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.core.slices import queue_quota
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.daemon.jobs.changes import Changes
from vgpud.daemon.jobs.clock import FILE_NAME, Clock
from vgpud.daemon.jobs.elastic import ElasticController
from vgpud.daemon.jobs.host import Host
from vgpud.daemon.jobs.launch import LaunchError, attempt_of
from vgpud.daemon.jobs.locks import JobLocks
from vgpud.daemon.jobs.notices import Notifier
from vgpud.daemon.jobs.past import Past
from vgpud.daemon.jobs.progress import ProgressMonitor
from vgpud.daemon.jobs.queues import QueueRegistry
from vgpud.daemon.jobs.reservations import ReservationRegistry
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreBusyError, StoreError, VgpudError
from vgpud.jobs.image import find_engine
from vgpud.jobs.messages import Result
from vgpud.jobs.runner import Found, Jobs, StartError
from vgpud.store.elastic import ElasticStore
from vgpud.store.flush import while_busy
from vgpud.store.jobs import JobStore, Request
from vgpud.store.queue_recorder import Recorder

log = logging.getLogger("vgpud")

T = TypeVar("T")

#: how often the accounting's rows are brought up to now
ROWS_NS = 10 * 1_000_000_000
#: how long a daemon that starts waits at most for the repairs of what it found
SETTLE_S = 5.0
#: delay before a running job whose slices are still suspended is resumed again
RESUME_S, RESUME_MAX_S = 1.0, 60.0
#: jobs that have ended from which a daemon that starts learns how long jobs take
DURATIONS_MAX = 2000
#: jobs that have ended and are still in memory; all are in the store
ENDED_MAX = 1000
#: exit code of a job that was stopped before it ran: as if SIGTERM had ended it
TERMINATED = 143
#: how jobs can be stopped here, the cheapest first
HOWS = (How.PAUSE, How.EVICT, How.REQUEUE)


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _has_processes(job: Job) -> bool:
    """Whether an attempt has processes, running or suspended."""
    return job.state is JobState.RUNNING or (job.state is JobState.SUSPENDED and job.suspended_how is not None)


class JobController:
    """runner.Backend, and the state that requests.py answers from."""

    def __init__(self, host: Host, store: JobStore) -> None:
        self.node = host.node.name
        self.host, self.store = host, store
        config, state = host.config.current, host.slices.state
        kept = store.load()
        self._kept = kept.jobs
        self._histories, self._history_at_ns = kept.histories, kept.history_at_ns
        runs = any(_has_processes(job) for job in kept.jobs) or bool(state.slices)
        self.clock = Clock(kept.latest_ns, config.runtime / FILE_NAME, continues=runs)
        self._loop = asyncio.get_running_loop()
        self.elastic = ElasticController(self, ElasticStore(store.database).groups())
        self.progress = ProgressMonitor(self, self.elastic)
        self.slices = JobSlices(host.slices, host.suspension, self.clock.now_ns, self.elastic.numbers)
        self.queues = QueueRegistry(host.slices, host.counters, store, kept, self.clock.now_ns)
        self.saver = JobSaver(store, host.slices, self.queues, self.clock, kept.next_id)
        self.reservations = ReservationRegistry(host.slices, store, kept.reservations)
        devices = tuple(device for device in state.devices.values() if not device.profile)  # GPUs
        model = devices[0].name if devices else ""
        cpu_milli, groups = (os.cpu_count() or 1) * 1000, host.devices.groups(devices)
        nodes = [Node(self.node, devices, cpu_milli, _ram_bytes(), model, groups)]
        self._recorder = Recorder(config.record_queue)
        self._recorder.begin(self.queues.specs, nodes, state.policy, HOWS, kept.jobs, kept.past)
        cluster, most = Cluster(nodes, state.policy), members_max(state.policy)
        specs = self.queues.specs
        self.machine = Machine(specs, cluster, registry.make, hows=HOWS, members_max=most, tries_max=TRIES_MAX)
        engine = find_engine(config.jobs.engine, config.jobs.runtime, config.jobs.network)
        self.runner = Jobs(config.state / "jobs", self, config.runtime / "job.sock", engine)
        self.notifier = Notifier(self, config.state / "notices", config.runtime / "job.sock")
        self._save_fault = ""
        self._pending: list[qe.Event] = []
        self._capacity: qe.RoomChanged | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._locks = JobLocks()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.counts = JobCounts()
        self._ended: deque[int] = deque()
        self.changes = Changes()
        self._rows_at_ns = 0
        self._past = Past(host.config, host.events, store, kept.latest_ns, self.clock.now_ns())

    # ---- life ----

    async def start(self) -> None:
        """Adopts the jobs of the former daemon: those that still run, have ended, or never began."""
        self._drop_orphans()
        live = [job for job in self._kept if _has_processes(job)]
        found = await self.runner.adopt([key for job in live for key in self.elastic.keys(job)])
        await self.notifier.begin()
        self.machine.remember(self._histories, self._history_at_ns)
        commands = self.machine.restore(self._kept, self.clock.now_ns())
        self.progress.start()
        self._pending.append(qe.ReservationsChanged(self.reservations.at(self.clock.now_ns())))
        for job in self._kept:
            self.counts.see(job)
            self.progress.see(job)
        for job in live:
            if has_workers(job):
                self.elastic.settle(job, found)
                self._resume_if_running(job)
            else:
                self._settle(job, found[job.job_id, job.attempt])
        self._carry_out(commands)
        self._kept = ()
        if self._tasks:  # jobs that have ended release their capacity before the first decision
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        if self.saver.has_all_jobs:
            await self.runner.note_boot()
        self._look_at_capacity()
        self.process_events(*self._durations(), qe.Woken())

    def _durations(self) -> list[qe.Event]:
        """Durations of jobs that ended under former daemons."""
        try:
            known = self.store.durations(DURATIONS_MAX)
        except StoreError as error:
            log.warning("how long jobs take is learned again: %s", error)
            return []
        return [qe.DurationsKnown(known)] if known else []

    def _settle(self, job: Job, fate: Found | Result) -> None:
        if isinstance(fate, Result):
            self.spawn(self.end(job.job_id, job.attempt, fate))
        elif fate is Found.GIVEN_UP:
            self.slices.remove(job)
            self.enqueue_event(qe.StartFailed(job.job_id, job.attempt, "its supervisor did not answer", True))
        elif fate is Found.NEVER_BEGAN:
            self.start_again(job)
        else:
            self._resume_if_running(job)

    def start_again(self, job: Job) -> None:
        """An attempt that was decided on and of which nothing has begun."""
        self.spawn(self._start(qe.StartJob(job.job_id, job.attempt, job.placement)))

    def _resume_if_running(self, job: Job) -> None:
        if job.state is JobState.RUNNING:
            self.spawn(self._resume_found(job))

    def _drop_orphans(self) -> None:
        """Slices whose job does not run: the daemon was killed between the end of the job and theirs."""
        live = {job.job_id for job in self._kept if _has_processes(job)}
        for made in list(self.host.slices.state.slices.values()):
            job_id = made.origin.queue_job_id
            if job_id and job_id not in live:
                self.host.slices.run(ev.DeleteSlice("", made.name, True, job_id=job_id))

    async def stop(self) -> None:
        """Jobs keep running; the next daemon adopts them."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.runner.close()
        self.notifier.close()
        self.progress.save()
        try:
            await while_busy(self._save_all)
        except StoreError as error:
            log.error("%s", error)
        self._recorder.close()

    def _save_all(self) -> None:
        self.saver.write()
        self.queues.save()
        self._save_history()

    def tick(self) -> None:
        """Once a second: progress of jobs, what the store could not take, and every ROWS_NS the accounting."""
        self.progress.tick()
        if news := self.clock.news():
            self.host.events.note(ev.Log("node.clock", news))
        try:
            self.saver.write_rest()
            now_ns = self.clock.now_ns()
            if now_ns >= self._rows_at_ns:
                self._rows_at_ns = now_ns + ROWS_NS
                self.queues.save()
                self._save_history()
            self._past.forget(now_ns, self.clock.earlier_ns(), self.machine.jobs)
            self._save_fault = ""
        except StoreError as error:
            if str(error) != self._save_fault:
                self._save_fault = str(error)
                log.warning("%s", error)

    def _save_history(self) -> None:
        """If it has changed: an idle node writes nothing."""
        now_ns = self.clock.now_ns()
        found = {spec.name: self.machine.history(spec.name, now_ns) for spec in self.queues.specs}
        if found != self._histories:
            self.store.save_history(found, now_ns)
            self._histories = found

    # ---- slice observer ----

    def slice_changed(self, slice_: Slice) -> None:
        self.queues.slice_changed(slice_)
        self.capacity_changed()

    def slice_goes(self, slice_: Slice) -> None:
        """Before its counters go."""
        self.queues.slice_goes(slice_)
        self.capacity_changed()

    def samples(self) -> tuple[QueueSample, ...]:
        """For a scrape."""
        used = queue_quota.used_milli(self.host.slices.state)
        rows = self.counts.rows()
        return tuple(
            QueueSample(
                name=spec.name,
                used_gpus=used.get(spec.name, 0) / MILLI_PER_DEVICE,
                guarantee_gpus=spec.guarantee_milli / MILLI_PER_DEVICE,
                limit_gpus=spec.limit_milli / MILLI_PER_DEVICE if spec.limit_milli < NO_LIMIT else None,
                jobs=tuple((state, count) for queue, state, count in rows if queue == spec.name),
                ended_jobs=tuple(
                    (state.value, self.counts.ends_by_state[spec.name, state]) for state in JobState if state.is_final
                ),
                waits=self.counts.waits.get(spec.name, JobWaits()),
            )
            for spec in self.queues.specs
        )

    def capacity_changed(self) -> None:
        """Slices were created or deleted, or other devices are offered than before."""
        self._loop.call_soon(self._look_at_capacity)

    def _look_at_capacity(self) -> None:
        """Reports to the machine what slices outside jobs and other processes hold, when that has changed; also by
        workers that it does not count for their job."""
        state = self.host.slices.state
        direct = {uuid: [0, state.foreign_bytes(uuid)] for uuid in state.devices}
        held = queue_quota.used_milli(state, jobs=False)
        borrowed = self.elastic.find_borrowed_slices()
        for made in state.slices.values():
            if (made.origin.queue_job_id and made.name not in borrowed) or made.name in state.waiting:
                continue
            if made.origin.queue_job_id:
                held[made.queue] = held.get(made.queue, 0) + queue_quota.width_milli(made)
            for share in made.shares:
                direct[share.device_uuid][0] += share.min_milli * made.keeps_time
                direct[share.device_uuid][1] += share.mem_min_bytes * made.keeps_memory
        capacity = qe.RoomChanged(
            node=self.node,
            direct=tuple((device, milli, size) for device, (milli, size) in direct.items()),
            offered=tuple(uuid for uuid in state.devices if not state.closed(uuid)),
            held=tuple((queue, milli, 0, 0) for queue, milli in sorted(held.items()) if milli),
        )
        if capacity != self._capacity:
            self._capacity = capacity
            self.process_events(capacity)

    # ---- events in, commands out ----

    def enqueue_event(self, event: qe.Event) -> None:
        """Together with all others of this moment: they are decided on and written at once."""
        if not self._pending:
            self._loop.call_soon(self.process_events)
        self._pending.append(event)

    def process_events(self, *events: qe.Event, request: Request | None = None) -> None:
        """Decides on these and all that are enqueued. What cannot be written now is carried out when it is written."""
        found = [*self._pending, *events]
        self._pending.clear()
        if not found:
            return
        now_ns = self.clock.now_ns()
        commands = self.machine.steps(found, now_ns)
        self._recorder.add(now_ns, found, commands)
        if request:
            self.saver.add_request(request)
        self._carry_out(commands)

    def _carry_out(self, commands: Sequence[qe.Command]) -> None:
        jobs = {c.job.job_id: c.job for c in commands if isinstance(c, qe.SaveJob)}
        for note in commands:
            if isinstance(note, qe.Note):
                self.saver.note(note.kind, note.job_id, note.text)
        for job in jobs.values():
            self.queues.job_changed(job)
            self.progress.see(job)
            self._note_change(job)
        if any(has_workers(job) for job in jobs.values()):
            self.capacity_changed()
        try:
            self.saver.write(jobs)
        except StoreBusyError:
            log.debug("the state database is held by another process: jobs are written later")
        except StoreError as error:
            log.error("%s", error)
        begun = {c.job_id for c in commands if isinstance(c, qe.StartJob) and not c.resume}
        for command in commands:
            if isinstance(command, qe.StartJob):
                self.spawn(self._start(command))
            elif isinstance(command, qe.StopJob):  # what runs now, not what the same decision has start after it
                attempt = self.machine.jobs[command.job_id].attempt - (command.job_id in begun)
                self.spawn(self._stop(command, attempt))
            elif isinstance(command, qe.ResizeJob):
                self.spawn(self.elastic.resize(command))
            elif isinstance(command, qe.Wake):
                self._wake_at(command.at_ns)
            elif isinstance(command, qe.Reserve):
                self.reservations.enforce(command.active)
            elif isinstance(command, qe.Notify):
                self.spawn(self._notify(replace(self.machine.jobs[command.job_id]), command.event))
            elif isinstance(command, qe.Note):
                self._tell(command.kind, command.job_id, command.text)

    def note(self, kind: str, job: Job, text: str) -> None:
        """A note for users: in the event log, and in the job's own trail."""
        self.saver.note(kind, job.job_id, text)
        self._tell(kind, job.job_id, text)

    def _tell(self, kind: str, job_id: int, text: str) -> None:
        known = self.machine.jobs.get(job_id)
        said = f"job {job_id}" + (f": {text}" if text else "")
        self.host.events.note(ev.Log(kind, said, owner_uid=known.spec.uid if known else None))

    def _wake_at(self, at_ns: int) -> None:
        if self._timer:
            self._timer.cancel()
        delay_s = max(0.0, (at_ns - self.clock.now_ns()) / 1e9)
        self._timer = self._loop.call_later(delay_s, self.enqueue_event, qe.Woken())

    def _note_change(self, job: Job) -> None:
        self.changes.add(job.job_id)
        self.counts.see(job)
        if job.state.is_final:
            self._ended.append(job.job_id)
            if len(self._ended) > ENDED_MAX:
                self.machine.forget([self._ended.popleft()])

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a job's step failed; continuing", exc_info=error)

    def job_lock(self, job_id: int) -> contextlib.AbstractAsyncContextManager[None]:
        """Held for all that is done to one job, in the order in which it was decided."""
        return self._locks.hold(job_id)

    async def _notify(self, job: Job, event: str) -> None:
        """`job`: a copy of the moment."""
        with contextlib.suppress(StoreError):  # what cannot be saved yet has happened all the same
            await self.saver.on_disk([job.job_id])
        await self.notifier.notify(job, event)

    # ---- starting ----

    async def _start(self, command: qe.StartJob) -> None:
        async with self.job_lock(command.job_id):
            job = self.machine.jobs[command.job_id]
            why, again = "", True
            try:
                await self.saver.on_disk([job.job_id])
                if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                    return  # the request that stopped it finds that nothing runs
                denied = await (self.slices.resume(job) if command.resume else self._begin(job))
                if denied is None:
                    self.elastic.reconcile_running(job)
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
                await self.elastic.abandon(job)
                self.slices.remove(job)
            self.enqueue_event(qe.StartFailed(job.job_id, command.attempt, why, again))

    async def _begin(self, job: Job) -> Denied | None:
        """Its slices, then its supervisor."""
        if has_workers(job):
            return await self.elastic.begin(job)
        slices: list[tuple[str, str]] = []
        if job.spec.ask.spec.gpus_milli:
            for place, origin in zip(job.placement, self.slices.list_origins(job), strict=True):
                denied = await self.slices.make(job, origin, place.shares)
                if denied:
                    return denied
                slices.append((origin.slice_name(), self.host.node.attach_path(origin.slice_name())))
        await self.begin_attempt(job, slices)
        return None

    async def begin_attempt(self, job: Job, slices: Sequence[tuple[str, str]], worker: int = -1) -> None:
        """A supervisor, of all members or of one worker. Raises StartError, LaunchError, VgpudError."""
        node, grace_s = self.host.node.view(), self.host.config.current.job_grace_s
        attempt = attempt_of(job, slices, node, node.simulated, grace_s, worker)
        started = await self.runner.start(attempt)
        if started.note:
            self.note("job.warning", job, f"it runs, but {started.note}")

    async def _resume_found(self, job: Job) -> None:
        """A running job of the former daemon, which may have been about to suspend it."""
        attempt, wait_s = job.attempt, RESUME_S
        while True:
            async with self.job_lock(job.job_id):
                denied = await self.slices.resume(job)
            if denied is None:
                self.elastic.reconcile_running(job)
                return
            self.note("job.warning", job, f"it could not be resumed, trying again: {denied.message}")
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RESUME_MAX_S)
            if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, attempt):
                return

    # ---- stopping ----

    async def _stop(self, command: qe.StopJob, attempt: int) -> None:
        async with self.job_lock(command.job_id):
            job = self.machine.jobs[command.job_id]
            if job.attempt != attempt or not _has_processes(job):
                return  # it has ended by itself
            if command.how in (How.PAUSE, How.EVICT) and await self.slices.suspend(job, command.how is How.EVICT):
                self.enqueue_event(qe.JobSuspended(job.job_id, command.how))
                return
            grace_s = self.host.config.current.job_grace_s
            if await (self.elastic.stop(job) if has_workers(job) else self.runner.stop(job.job_id, attempt, grace_s)):
                return  # job_ended() follows
        await self.end(job.job_id, attempt, Result(TERMINATED, is_stopped=True))

    # ---- ending ----

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        """All processes of the attempt have gone (runner.Backend)."""
        self.spawn(self.end(job_id, attempt, result))

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """The same of one worker of an elastic job."""
        self.elastic.worker_ended(job_id, attempt, worker, result)

    async def end(self, job_id: int, attempt: int, result: Result) -> None:
        """Nothing of an attempt is left."""
        async with self.job_lock(job_id):
            job = self.machine.jobs.get(job_id)
            if job is None or job.attempt != attempt or not _has_processes(job):
                return
            self.progress.ends(job, result.exit_code == 0)
            self.slices.remove(job)
            self._add_resource_use(job, result)
            self.elastic.forget(job_id)
            # whatever its code: a program that saves its state at SIGTERM exits with 0
            cut_short = result.is_stopped or result.is_lost
            if job.stop_to is JobState.SUSPENDED and cut_short:
                self.enqueue_event(qe.JobSuspended(job_id, How.REQUEUE))
            else:
                if job.stop_to is None and cut_short and not result.is_lost:
                    # preempted by a daemon that was killed before it heard of the end
                    self.enqueue_event(qe.Requeued(job_id))
                self.enqueue_event(qe.JobEnded(job_id, attempt, result.exit_code, result.why))
            if result.is_lost:
                self.note("job.lost", job, result.why)
            self.process_events()
        try:
            await self.saver.on_disk([job_id])
        except StoreError as error:
            log.warning("the directory of job %d stays until the next start: %s", job_id, error)
            return
        await self.runner.forget(job_id, attempt)

    def _add_resource_use(self, job: Job, result: Result) -> None:
        """CPU time and memory of all attempts together."""
        try:
            before = self.store.facts(job.job_id)
            if int(before.get("attempt", 0)) >= job.attempt:
                return  # the former daemon was killed before it had saved the end
            cpu_ns = int(before.get("cpu_ns", 0)) + result.cpu_ns
            peak = max(int(before.get("ram_peak_bytes", 0)), result.ram_peak_bytes)
            before |= {"cpu_ns": cpu_ns, "ram_peak_bytes": peak, "attempt": job.attempt}
            self.store.set_facts(job.job_id, before)
        except StoreError as error:
            log.warning("%s", error)
