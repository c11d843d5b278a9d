"""The part of the composition root that runs the queue: its machine decides, its commands are carried out here.

Made by Daemon. What the machine has decided is written before anything of it is done, so a daemon that is killed at any
point finds each job as it was, asks the runner what became of those that were running, and goes on. The order is always
the same: the decision on the disk, the job's slices, its supervisor; and back: its supervisor's end, its slices gone,
the result on the disk, its directory removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from vgpud.config import Config
from vgpud.core import events as ev
from vgpud.core import quotas
from vgpud.core.model import EVICTED, NO_LIMIT, Denied, Reason, Slice, State
from vgpud.core.observed import QueueSample, SliceStats
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue import events as qe
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.core.queue.model import How, Job, JobState, Node
from vgpud.core.slices import job_slice
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.daemon_launch import LaunchError, attempt_of
from vgpud.daemon_queues import QueueDesk
from vgpud.errors import StoreBusyError, StoreError, VgpudError
from vgpud.jobcounts import JobCounts
from vgpud.jobs import Found, Jobs, StartError
from vgpud.jobs_image import find_engine
from vgpud.jobs_wire import Result
from vgpud.recording import Clock, Recorder
from vgpud.store_jobs import JobStore, Request
from vgpud.v1 import vgpud_pb2 as pb

log = logging.getLogger("vgpud")

#: as long is asked whether another process still holds the store
BUSY_S = 2.0
BUSY_EVERY_S = 0.01
#: how often the accounting's rows are brought up to now
ROWS_S = 10.0
#: how long a daemon that starts waits at most for what it puts right
SETTLE_S = 5.0
#: and how long one that runs and is still suspended waits before it is resumed again
GO_ON_S, GO_ON_MAX_S = 1.0, 60.0
DAY_NS = 86_400_000_000_000
#: jobs that have ended and are still in memory; all are in the store
ENDED_MAX = 1000
CHANGES_MAX = 20_000
#: exit code of what never came to run before it was told to end: as if SIGTERM had ended it
TERMINATED = 143
#: how jobs can be stopped here, the cheapest first
HOWS = (How.PAUSE, How.EVICT, How.REQUEUE)


class Host(Protocol):
    """What the desk needs of the daemon."""

    config: Config
    state: State
    node: str

    async def submit(self, event: ev.Event) -> Slice | Denied | None: ...
    async def saved(self) -> Denied | None: ...
    def run(self, event: ev.Event) -> list[ev.Command]: ...
    def note(self, entry: ev.Log) -> None: ...
    def node_view(self) -> pb.Node: ...
    def slice_counters(self, made: Slice) -> Sequence[SliceStats]: ...
    def attach_path(self, slice_name: str) -> str: ...
    def device_groups(self) -> tuple[int, ...]: ...
    def observe(self, method: str, code: str, seconds: float) -> None: ...
    async def suspend_job(self, name: str, evict: bool, job_id: int) -> Slice | Denied: ...
    async def resume_job(self, name: str, job_id: int) -> Slice | Denied: ...


def _ram_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(eq=False, slots=True)
class Turns:
    """Who is at a job, and those who wait for it (a lock does not say that it is waited for)."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


def _has_processes(job: Job) -> bool:
    """Whether an attempt of it is there, running or suspended where it was."""
    return job.state is JobState.RUNNING or (job.state is JobState.SUSPENDED and job.suspended_how is not None)


class JobDesk:
    """jobs.Backend, and what daemon_job_api.py answers requests with."""

    def __init__(self, host: Host, store: JobStore) -> None:
        self.node = host.node
        self._host = host
        self.store = store
        kept = store.load()
        self.next_id = kept.next_id
        self._kept = kept.jobs
        self._histories, self._history_at_ns = kept.histories, kept.history_at_ns
        self.clock = Clock(kept.latest_ns)
        self._loop = asyncio.get_running_loop()
        self.queues = QueueDesk(host, store, kept, self.clock.now_ns)
        devices = tuple(host.state.devices.values())
        model = devices[0].name if devices else ""
        cpu_milli, groups = (os.cpu_count() or 1) * 1000, host.device_groups()
        nodes = [Node(host.node, devices, cpu_milli, _ram_bytes(), model, groups)]
        self._recorder = Recorder(host.config.record_queue)
        self._recorder.begin(self.queues.specs, nodes, host.state.policy, HOWS, kept.jobs)
        cluster, most = Cluster(nodes, host.state.policy), members_max(host.state.policy)
        specs = self.queues.specs
        self.machine = Machine(specs, cluster, registry.make, hows=HOWS, members_max=most, tries_max=TRIES_MAX)
        engine = find_engine(host.config.jobs.engine, host.config.jobs.runtime, host.config.jobs.network)
        self._runner = Jobs(host.config.state / "jobs", self, host.config.runtime / "job.sock", engine)
        self._unsaved: dict[int, Job] = {}
        self._unsaved_requests: list[Request] = []
        self._pending: list[qe.Event] = []
        self._room: qe.RoomChanged | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turns: dict[int, Turns] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = JobCounts()
        self._ended: deque[int] = deque()
        self._changes: OrderedDict[int, int] = OrderedDict()  # job -> number of its last change, oldest first
        self._change = 0
        self._changed = asyncio.Event()
        self._rows_at_ns = 0

    # ---- life ----

    async def start(self) -> None:
        """Takes up what the former daemon left: who still runs, who has ended, who never began."""
        self._drop_orphans()
        live = [job for job in self._kept if _has_processes(job)]
        found = await self._runner.adopt([(job.job_id, job.attempt) for job in live])
        self.machine.remember(self._histories, self._history_at_ns)
        told_again = self.machine.restore(self._kept, self.clock.now_ns())
        for job in self._kept:
            self.counts.see(job)
        for job in live:
            fate = found[job.job_id, job.attempt]
            if isinstance(fate, Result):
                self._spawn(self._end(job.job_id, job.attempt, fate))
            elif fate is Found.GIVEN_UP:
                self._remove_slices(job)
                self._soon(qe.StartFailed(job.job_id, job.attempt, "its supervisor did not answer", True))
            elif fate is Found.NEVER_BEGAN:
                self._spawn(self._start(qe.StartJob(job.job_id, job.attempt, job.placement)))
            elif job.state is JobState.RUNNING:
                self._spawn(self._go_on(job))
        self._carry_out(told_again)
        self._kept = ()
        if self._tasks:  # who has ended makes room before all decisions
            await asyncio.wait(self._tasks, timeout=SETTLE_S)
        if not self._unsaved:
            await self._runner.note_boot()
        self._look_at_room()
        self.feed(qe.Woken())

    def _drop_orphans(self) -> None:
        """Slices of jobs that have none: the daemon was killed between the two."""
        live = {job.job_id for job in self._kept if _has_processes(job)}
        for made in list(self._host.state.slices.values()):
            if made.job_id and made.job_id not in live:
                self._host.run(ev.DeleteSlice("", made.name, True, job_id=made.job_id))

    async def stop(self) -> None:
        """Jobs go on; the next daemon finds them."""
        if self._timer:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._runner.close()
        try:
            self._write({})
            self.queues.save()
            self._save_history()
        except StoreError as error:
            log.error("%s", error)
        self._recorder.close()

    def tick(self) -> None:
        """Once a second: what the store could not take, and now and then the accounting."""
        try:
            if self._unsaved or self._unsaved_requests or self.queues.unsaved:
                self._write({})
            if self.clock.now_ns() >= self._rows_at_ns:
                self._rows_at_ns = self.clock.now_ns() + int(ROWS_S * 1e9)
                self.queues.save()
                self._save_history()
                self.store.forget_before(self.clock.now_ns() - self._host.config.accounting_days * DAY_NS)
        except StoreError as error:
            log.warning("%s", error)

    def _save_history(self) -> None:
        """When it has changed: a node that nobody uses writes nothing."""
        now_ns = self.clock.now_ns()
        found = {spec.name: self.machine.history(spec.name, now_ns) for spec in self.queues.specs}
        if found != self._histories:
            self.store.save_history(found, now_ns)
            self._histories = found

    # ---- what the daemon says ----

    def slice_changed(self, made: Slice) -> None:
        self.queues.slice_changed(made)
        self.room_changed()

    def slice_goes(self, made: Slice) -> None:
        """Before its counters go."""
        self.queues.slice_goes(made)
        self.room_changed()

    def samples(self) -> tuple[QueueSample, ...]:
        """For a scrape."""
        used = quotas.used_milli(self._host.state)
        rows = self.counts.rows()
        return tuple(
            QueueSample(
                name=spec.name,
                used_gpus=used.get(spec.name, 0) / MILLI_PER_DEVICE,
                guarantee_gpus=spec.guarantee_milli / MILLI_PER_DEVICE,
                limit_gpus=spec.limit_milli / MILLI_PER_DEVICE if spec.limit_milli < NO_LIMIT else None,
                jobs=tuple((state, count) for queue, state, count in rows if queue == spec.name),
                ended=tuple((state.value, self.counts.ended[spec.name, state]) for state in JobState if state.ended),
            )
            for spec in self.queues.specs
        )

    def room_changed(self) -> None:
        """Slices came or went, or devices are offered otherwise than before."""
        self._loop.call_soon(self._look_at_room)

    def _look_at_room(self) -> None:
        """Tells the machine what slices that are no jobs', and others, hold, when that has changed."""
        state = self._host.state
        direct = {uuid: [0, state.foreign_bytes(uuid)] for uuid in state.devices}
        for made in state.slices.values():
            if made.job_id or made.name in state.waiting:
                continue
            for share in made.shares:
                direct[share.device_uuid][0] += share.min_milli * made.keeps_time
                direct[share.device_uuid][1] += share.mem_min_bytes * made.keeps_memory
        held = sorted(quotas.used_milli(state, jobs=False).items())
        room = qe.RoomChanged(
            node=self.node,
            direct=tuple((device, milli, size) for device, (milli, size) in direct.items()),
            offered=tuple(uuid for uuid in state.devices if not state.closed(uuid)),
            held=tuple((queue, milli, 0, 0) for queue, milli in held if milli),
        )
        if room != self._room:
            self._room = room
            self.feed(room)

    # ---- events in, commands out ----

    def _soon(self, event: qe.Event) -> None:
        """With all others of this moment: they are decided on and written together."""
        if not self._pending:
            self._loop.call_soon(self.feed)
        self._pending.append(event)

    def feed(self, *events: qe.Event, request: Request | None = None) -> None:
        """Decides. What cannot be written now is kept for later, and nothing of it is begun before."""
        told = [*self._pending, *events]
        self._pending.clear()
        if not told:
            return
        now_ns = self.clock.now_ns()
        commands = self.machine.steps(told, now_ns)
        self._recorder.add(now_ns, told, commands)
        if request:
            self._unsaved_requests.append(request)
        self._carry_out(commands)

    def _carry_out(self, commands: Sequence[qe.Command]) -> None:
        jobs = {c.job.job_id: c.job for c in commands if isinstance(c, qe.SaveJob)}
        for job in jobs.values():
            self.queues.job_changed(job)
            self._note_change(job)
        try:
            self._write(jobs)
        except StoreBusyError:
            log.debug("the state database is held by another process: jobs are written later")
        except StoreError as error:
            log.error("%s", error)
        begun = {c.job_id for c in commands if isinstance(c, qe.StartJob) and not c.resume}
        for command in commands:
            if isinstance(command, qe.StartJob):
                self._spawn(self._start(command))
            elif isinstance(command, qe.StopJob):  # what runs now, not what the same decision has start after it
                attempt = self.machine.jobs[command.job_id].attempt - (command.job_id in begun)
                self._spawn(self._stop(command, attempt))
            elif isinstance(command, qe.Wake):
                self._wake_at(command.at_ns)
            elif isinstance(command, qe.Note):
                known = self.machine.jobs.get(command.job_id)
                text = f"job {command.job_id}" + (f": {command.text}" if command.text else "")
                self._host.note(ev.Log(command.kind, text, owner_uid=known.spec.uid if known else None))

    def _write(self, jobs: dict[int, Job]) -> None:
        """All that is not written yet, in one transaction. Raises StoreError: it is kept for later."""
        self._unsaved |= jobs
        self.store.save(list(self._unsaved.values()), self._unsaved_requests, self.next_id, self.queues.unsaved)
        self._unsaved.clear()
        self._unsaved_requests.clear()
        self.queues.saved()

    async def on_disk(self, job_ids: Iterable[int]) -> None:
        """Waits until what was decided on these jobs is on the disk. Raises StoreError."""
        wanted = set(job_ids)
        deadline_ns = time.monotonic_ns() + int(BUSY_S * 1e9)
        while not wanted.isdisjoint(self._unsaved):
            try:
                self._write({})
            except StoreBusyError:
                if time.monotonic_ns() > deadline_ns:
                    raise
                await asyncio.sleep(BUSY_EVERY_S)
        if denied := await self._host.saved():
            raise StoreError(denied.message)

    def _wake_at(self, at_ns: int) -> None:
        if self._timer:
            self._timer.cancel()
        delay_s = max(0.0, (at_ns - self.clock.now_ns()) / 1e9)
        self._timer = self._loop.call_later(delay_s, self._soon, qe.Woken())

    def changed_since(self, after: int) -> tuple[int, list[int]]:
        """The number of the last change, and the jobs that have changed since number `after`, oldest change first."""
        found = []
        for job_id, number in reversed(self._changes.items()):
            if number <= after:
                break
            found.append(job_id)
        return self._change, found[::-1]

    async def wait_change(self, after: int, timeout_s: float) -> None:
        if self._change <= after:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)

    def _note_change(self, job: Job) -> None:
        self._change += 1
        self._changes[job.job_id] = self._change
        self._changes.move_to_end(job.job_id)
        while len(self._changes) > CHANGES_MAX:
            self._changes.popitem(last=False)
        self._changed.set()
        self._changed = asyncio.Event()
        self.counts.see(job)
        if job.state.ended:
            self._ended.append(job.job_id)
            if len(self._ended) > ENDED_MAX:
                self.machine.forget([self._ended.popleft()])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("a job's step failed; going on", exc_info=error)

    @contextlib.asynccontextmanager
    async def _alone_with(self, job_id: int) -> AsyncIterator[None]:
        """What is done to one job is done in the order in which it was decided."""
        turns = self._turns.setdefault(job_id, Turns())
        turns.users += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[job_id]

    # ---- starting ----

    async def _start(self, command: qe.StartJob) -> None:
        async with self._alone_with(command.job_id):
            job = self.machine.jobs[command.job_id]
            why, again = "", True
            try:
                await self.on_disk([job.job_id])
                if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                    return  # whoever has told it to end finds that nothing runs
                denied = await (self._resume(job) if command.resume else self._begin(job))
                if denied is None:
                    return
                why, again = denied.message, denied.reason not in (Reason.INVALID, Reason.DENIED)
            except StartError as error:
                why, again = str(error), error.again
            except StoreError as error:
                why = str(error)
            except (LaunchError, VgpudError) as error:
                why, again = str(error), False
            except OSError as error:
                why = str(error)
            if not command.resume:
                self._remove_slices(job)
            self._soon(qe.StartFailed(job.job_id, command.attempt, why, again))

    async def _begin(self, job: Job) -> Denied | None:
        """Its slices, then its supervisor."""
        slices: list[tuple[str, str]] = []
        if job.spec.ask.spec.gpus_milli:
            for member, name in enumerate(self._slice_names(job)):
                answer = await self._make_slice(job, name, member)
                if isinstance(answer, Denied):
                    return answer
                slices.append((name, self._host.attach_path(name)))
        simulated = any(device.simulated for device in self._host.state.devices.values())
        attempt = attempt_of(job, slices, self._host.node_view(), simulated, self._host.config.job_grace_s)
        started = await self._runner.start(attempt)
        if started.note:
            text = f"job {job.job_id} runs, but {started.note}"
            self._host.note(ev.Log("job.warning", text, owner_uid=job.spec.uid))
        return None

    async def _make_slice(self, job: Job, name: str, member: int) -> Denied | None:
        shares = job.placement[member].shares
        there = self._host.state.slices.get(name)
        if there:
            if there.shares == shares:
                return None  # of before a restart
            self._host.run(ev.DeleteSlice("", name, True, job_id=job.job_id))
        event = ev.CreateSlice(
            request_id="",
            name=name,
            spec=job.spec.ask.spec,
            ephemeral=False,
            owner_uid=job.spec.uid,
            spare_name="",
            uid=str(uuid.uuid4()),
            wall_ns=self.clock.now_ns(),
            queue=job.spec.queue,
            job_id=job.job_id,
            shares=shares,
        )
        answer = await self._host.submit(event)
        return answer if isinstance(answer, Denied) else None

    def _slice_names(self, job: Job) -> list[str]:
        return [job_slice(job.job_id, job.spec.members, member) for member in range(job.spec.members)]

    def slices_of(self, job: Job) -> list[Slice]:
        known = self._host.state.slices
        return [known[name] for name in self._slice_names(job) if name in known]

    def _remove_slices(self, job: Job) -> None:
        for made in self.slices_of(job):
            self._host.run(ev.DeleteSlice("", made.name, True, job_id=job.job_id))

    async def _resume(self, job: Job) -> Denied | None:
        """It goes on where it was: all of its slices or none."""
        done: list[Slice] = []
        for made in self.slices_of(job):
            if not made.suspended:
                continue
            answer = await self._host.resume_job(made.name, job.job_id)
            if isinstance(answer, Denied):
                for other in done:
                    await self._host.suspend_job(other.name, other.suspended == EVICTED, job.job_id)
                return answer
            done.append(made)
        return None

    async def _go_on(self, job: Job) -> None:
        """One that runs, found again: the former daemon may have been at suspending it."""
        attempt, wait_s = job.attempt, GO_ON_S
        while True:
            async with self._alone_with(job.job_id):
                denied = await self._resume(job)
            if denied is None:
                return
            text = f"job {job.job_id} does not go on, and is asked to again: {denied.message}"
            self._host.note(ev.Log("job.warning", text, owner_uid=job.spec.uid))
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, GO_ON_MAX_S)
            if job.stopping or (job.state, job.attempt) != (JobState.RUNNING, attempt):
                return

    # ---- stopping ----

    async def _stop(self, command: qe.StopJob, attempt: int) -> None:
        async with self._alone_with(command.job_id):
            job = self.machine.jobs[command.job_id]
            if job.attempt != attempt or not _has_processes(job):
                return  # it has ended by itself
            if command.how in (How.PAUSE, How.EVICT) and await self._suspend(job, command.how is How.EVICT):
                self._soon(qe.JobSuspended(job.job_id, command.how))
                return
            if await self._runner.stop(job.job_id, attempt, self._host.config.job_grace_s):
                return  # its end comes as any other
        await self._end(job.job_id, attempt, Result(TERMINATED, stopped=True))

    async def _suspend(self, job: Job, evict: bool) -> bool:
        """All of its slices or none."""
        done: list[Slice] = []
        for made in self.slices_of(job):
            answer = await self._host.suspend_job(made.name, evict, job.job_id)
            if isinstance(answer, Denied):
                log.info("job %d is started anew instead: %s", job.job_id, answer.message)
                for other in done:
                    await self._host.resume_job(other.name, job.job_id)
                return False
            done.append(made)
        return bool(done)

    # ---- ending ----

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None:
        """All processes of the attempt have gone (jobs.Backend)."""
        self._spawn(self._end(job_id, attempt, result))

    async def _end(self, job_id: int, attempt: int, result: Result) -> None:
        async with self._alone_with(job_id):
            job = self.machine.jobs.get(job_id)
            if job is None or job.attempt != attempt or not _has_processes(job):
                return
            self._remove_slices(job)
            self._keep_result(job, result)
            cut_short = result.stopped or result.lost  # whatever its code: who saves his state at SIGTERM exits with 0
            if job.stop_to is JobState.SUSPENDED and cut_short:
                self._soon(qe.JobSuspended(job_id, How.REQUEUE))
            else:
                if job.stop_to is None and cut_short and not result.lost:
                    self._soon(qe.Requeued(job_id))  # told to make room by a daemon that did not live to hear of it
                self._soon(qe.JobEnded(job_id, attempt, result.exit_code, result.why))
            if result.lost:
                self._host.note(ev.Log("job.lost", f"job {job_id}: {result.why}", owner_uid=job.spec.uid))
            self.feed()
        try:
            await self.on_disk([job_id])
        except StoreError as error:
            log.warning("the directory of job %d stays until the next start: %s", job_id, error)
            return
        await self._runner.forget(job_id, attempt)

    def _keep_result(self, job: Job, result: Result) -> None:
        """What it used beside its slices, all attempts together."""
        try:
            before = self.store.facts(job.job_id)
            if int(before.get("attempt", 0)) >= job.attempt:
                return  # the former daemon was killed before it had kept that it ended
            cpu_ns = int(before.get("cpu_ns", 0)) + result.cpu_ns
            peak = max(int(before.get("ram_peak_bytes", 0)), result.ram_peak_bytes)
            self.store.set_facts(job.job_id, {"cpu_ns": cpu_ns, "ram_peak_bytes": peak, "attempt": job.attempt})
        except StoreError as error:
            log.warning("%s", error)
