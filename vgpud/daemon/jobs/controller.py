"""The part of the composition root that runs the queue: its machine decides, its commands are carried out here.

Made by Daemon. What the machine has decided is written (saver.py) before anything of it is done (attempts.py), so a
daemon that is killed at any point finds each job as it was, asks the runner what became of those that were running, and
continues.
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
from vgpud.core.model import NO_LIMIT, Slice
from vgpud.core.observed import JobWaits, QueueSample
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.job_mix import JOBS_MAX
from vgpud.core.policy import registry
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.core.slices import queue_quota
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.daemon.jobs.attempts import JobAttempts, has_processes
from vgpud.daemon.jobs.changes import Changes
from vgpud.daemon.jobs.clock import FILE_NAME, Clock
from vgpud.daemon.jobs.elastic import ElasticController
from vgpud.daemon.jobs.host import Host
from vgpud.daemon.jobs.idleness import SessionIdleness
from vgpud.daemon.jobs.notices import Notifier
from vgpud.daemon.jobs.past import Past
from vgpud.daemon.jobs.progress import ProgressMonitor
from vgpud.daemon.jobs.queues import QueueRegistry
from vgpud.daemon.jobs.reservations import ReservationRegistry
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreBusyError, StoreError
from vgpud.store.elastic import ElasticStore
from vgpud.store.flush import while_busy
from vgpud.store.jobs import JobStore, Kept, Request
from vgpud.store.queue_recorder import Recorder

log = logging.getLogger("vgpud")

T = TypeVar("T")

#: how often the accounting's rows are brought up to now
ROWS_NS = 10 * 1_000_000_000
#: how long a daemon that starts waits at most for the repairs of what it found
SETTLE_S = 5.0
#: jobs that have ended from which a daemon that starts learns how long jobs take
DURATIONS_MAX = 2000
#: jobs that have ended and are still in memory; all are in the store
ENDED_MAX = 1000
#: how jobs can be stopped here, the cheapest first
HOWS = (How.PAUSE, How.EVICT, How.REQUEUE)


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class JobController:
    """What the queue's machine decides about, and the parts that answer the API (job_reader.py)."""

    def __init__(self, host: Host, store: JobStore) -> None:
        self.node = host.node.name
        self.host, self.store = host, store
        config, state = host.config.current, host.slices.state
        kept = store.load()
        self._kept = kept.jobs
        self._histories = kept.histories
        runs = any(has_processes(job) for job in kept.jobs) or bool(state.slices)
        self.clock = Clock(kept.latest_ns, config.runtime / FILE_NAME, continues=runs)
        self._loop = asyncio.get_running_loop()
        self.elastic = ElasticController(self, ElasticStore(store.database).groups())
        self.progress = ProgressMonitor(self, self.elastic)
        self.slices = JobSlices(host.slices, host.suspension, self.clock.now_ns, self.elastic.groups.numbers)
        self.queues = QueueRegistry(host.slices, host.counters, store, kept, self.clock.now_ns)
        self.saver = JobSaver(store, host.slices, self.queues, self.clock, kept.next_id)
        self.reservations = ReservationRegistry(host.slices, store, kept.reservations)
        devices = tuple(device for device in state.devices.values() if not device.profile)  # GPUs
        model = devices[0].name if devices else ""
        cpu_milli, groups = (os.cpu_count() or 1) * 1000, host.devices.groups(devices)
        swap_bytes = state.policy.swap_bytes
        nodes = [Node(self.node, devices, cpu_milli, _ram_bytes(), model, groups, swap_bytes=swap_bytes)]
        cluster, most = Cluster(nodes, state.policy), members_max(state.policy)
        specs = self.queues.specs
        self.machine = Machine(
            specs, cluster, registry.make, hows=HOWS, members_max=most, tries_max=TRIES_MAX, reports_starts=True
        )
        self._remember(kept)
        past = kept.past | {"orders": {spec.name: self.machine.knowledge(spec.name) for spec in specs}}
        self._recorder = Recorder(config.record_queue)
        self._recorder.begin(specs, nodes, state.policy, HOWS, kept.jobs, past, reports_starts=True)
        self.attempts = JobAttempts(self)
        self.idleness = SessionIdleness(self)
        self.notifier = Notifier(self, config.state / "notices", config.runtime / "job.sock")
        self._save_fault = ""
        self._pending: list[qe.Event] = []
        self._capacity: qe.RoomChanged | None = None
        self._timer: asyncio.TimerHandle | None = None
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
        live = [job for job in self._kept if has_processes(job)]
        found = await self.attempts.runner.adopt([key for job in live for key in self.elastic.keys(job)])
        await self.notifier.begin()
        commands = self.machine.restore(self._kept, self.clock.now_ns())
        self.progress.start()
        self._pending.append(qe.ReservationsChanged(self.reservations.at(self.clock.now_ns())))
        for job in self._kept:
            self.counts.see(job)
            self.progress.see(job)
        for job in live:
            self.idleness.adopt(job)
            if has_workers(job):
                self.elastic.settle(job, found)
                self.attempts.resume_if_running(job)
            else:
                self.attempts.settle(job, found[job.job_id, job.attempt])
        self._carry_out(commands)
        self._kept = ()
        if self._tasks:  # jobs that have ended release their capacity before the first decision
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        if self.saver.has_all_jobs:
            await self.attempts.runner.note_boot()
        self._look_at_capacity()
        self.process_events(*self._former_jobs(), qe.Woken())

    def _remember(self, saved_state: Kept) -> None:
        """What queues have used, and what their orders had learnt."""
        self.machine.remember(saved_state.histories, saved_state.history_at_ns)
        are_written = True
        for order in saved_state.orders:
            if not self.machine.remember_order(order.queue, order.knowledge, order.ended_jobs):
                log.info("queue %s learns its order again: it is another one, or of another version", order.queue)
            are_written = are_written and not order.ended_jobs
        self._saved_orders = self.machine.knowledge_versions() if are_written else {}

    def _former_jobs(self) -> list[qe.Event]:
        """How long jobs took that ended under former daemons, and what the newest asked for."""
        try:
            durations, asks = self.store.durations(DURATIONS_MAX), self.store.asks(JOBS_MAX)
        except StoreError as error:
            log.warning("how long jobs take, and what they ask for, is learned again: %s", error)
            return []
        found: list[qe.Event] = [qe.DurationsKnown(durations)] if durations else []
        return [*found, qe.AsksKnown(asks)] if asks else found

    def _drop_orphans(self) -> None:
        """Slices whose job does not run: the daemon was killed between the end of the job and theirs."""
        live = {job.job_id for job in self._kept if has_processes(job)}
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
        self.attempts.runner.close()
        self.notifier.close()
        self.progress.save()
        try:
            await while_busy(self._save_all)
        except StoreError as error:
            log.error("%s", error)
        self._recorder.close()

    def _save_all(self) -> None:
        self.saver.write()
        self._save_learning()

    def tick(self) -> None:
        """Once a second: progress of jobs, what the store could not take, and every ROWS_NS the accounting."""
        self.progress.tick()
        self.idleness.tick()
        if news := self.clock.news():
            self.host.events.note(ev.Log("node.clock", news))
        try:
            self.saver.write_rest()
            now_ns = self.clock.now_ns()
            if now_ns >= self._rows_at_ns:
                self._rows_at_ns = now_ns + ROWS_NS
                self._save_learning()
            self._past.forget(now_ns, self.clock.earlier_ns(), self.machine.jobs)
            self._save_fault = ""
        except StoreError as error:
            if str(error) != self._save_fault:
                self._save_fault = str(error)
                log.warning("%s", error)

    def _save_learning(self) -> None:
        """The accounting, and what queues have learnt of it. What has not changed is not written."""
        self.queues.save()
        now_ns = self.clock.now_ns()
        found = {spec.name: self.machine.history(spec.name, now_ns) for spec in self.queues.specs}
        if found != self._histories:
            self.store.save_history(found, now_ns)
            self._histories = found
        versions = self.machine.knowledge_versions()
        changed = [name for name, version in versions.items() if self._saved_orders.get(name) != version]
        if changed:
            self.store.save_orders({name: self.machine.knowledge(name) for name in changed}, now_ns)
        self._saved_orders = versions

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
        in_turn = []
        held = queue_quota.used_milli(state, jobs=False)
        borrowed = self.elastic.groups.find_borrowed_slices()
        for made in state.slices.values():
            if (made.origin.queue_job_id and made.name not in borrowed) or made.name in state.waiting:
                continue
            if made.origin.queue_job_id:
                held[made.queue] = held.get(made.queue, 0) + queue_quota.width_milli(made)
            for share in made.shares:
                direct[share.device_uuid][0] += share.min_milli * made.keeps_time
                if made.spec.mem_swap:
                    in_turn.append((share.device_uuid, share.mem_min_bytes, made.keeps_memory))
                else:
                    direct[share.device_uuid][1] += share.mem_min_bytes * made.keeps_memory
        capacity = qe.RoomChanged(
            node=self.node,
            direct=tuple((device, milli, size) for device, (milli, size) in direct.items()),
            offered=tuple(uuid for uuid in state.devices if not state.closed(uuid)),
            held=tuple((queue, milli, 0, 0) for queue, milli in sorted(held.items()) if milli),
            in_turn=tuple(sorted(in_turn)),
            swap_bytes=state.policy.swap_bytes,
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
            self.idleness.see(job)
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
                self.spawn(self.attempts.start(command))
            elif isinstance(command, qe.StopJob):  # what runs now, not what the same decision has start after it
                attempt = self.machine.jobs[command.job_id].attempt - (command.job_id in begun)
                self.spawn(self.attempts.stop(command, attempt))
            elif isinstance(command, qe.SignalJob):
                self.spawn(self.attempts.signal(command))
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

    async def _notify(self, job: Job, event: str) -> None:
        """`job`: a copy of the moment."""
        with contextlib.suppress(StoreError):  # what cannot be saved yet has happened all the same
            await self.saver.on_disk([job.job_id])
        await self.notifier.notify(job, event)
