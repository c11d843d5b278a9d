"""Carries out what is decided for jobs that are resized while they run: elastic slices, and groups of workers.

Part of the composition root, made by JobController. An elastic slice is resized where it is. Each worker of an elastic
job has a slice and a supervisor of its own; core/elastic/workers.py decides, and each command of its step is one method
here. As in controller.py, a decision is on the disk before it is carried out: a daemon that is killed at any point
finds which workers run, which were to start and which were to leave, and continues. What is done to one job is done
under its lock; only what workers say on their streams is heard at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vgpud.api.workers import Mailbox
from vgpud.core import origins
from vgpud.core.elastic import members
from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import ProgressReport, Worker, WorkerGroup, difference, has_workers, new_group
from vgpud.core.elastic.workers import step
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, JobState, Place, Placement
from vgpud.core.model import Denied, Reason
from vgpud.core.queue import group_record
from vgpud.core.slices import capacity
from vgpud.daemon.jobs.launch import LaunchError
from vgpud.daemon.jobs.ports import WorkerPort
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreError, VgpudError
from vgpud.jobs.messages import Key, Result, attempt_key
from vgpud.jobs.runner import Found, StartError

log = logging.getLogger("vgpud")

#: exit code of a worker whose supervisor never answered
NEVER_BEGAN = 126
#: workers that began beside one that could not are given up; how long that may take
ABANDON_S = 30.0
LOOK_S = 0.02


class ElasticController:
    """Resizes, and the worker groups of all jobs that have one. `saved_groups`: groups as the former daemon saved them.

    `on_progress` and `on_joined` are called with what workers report and when all members of a membership work.
    """

    def __init__(self, jobs: WorkerPort, saved_groups: Mapping[int, str]) -> None:
        self._jobs = jobs
        self._groups: dict[int, LiveGroup] = {}
        self._kept: dict[int, WorkerGroup] = {}  # of the former daemon, until they are asked for
        self._mailboxes: dict[tuple[int, int], Mailbox] = {}  # by job and worker
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}  # by job: when, ns of the monotonic clock
        self.on_progress: Callable[[ProgressReport], None] = lambda report: None
        self.on_joined: Callable[[Job, tuple[int, ...]], None] = lambda job, workers: None
        self._handlers: dict[type, Callable[[LiveGroup, Any], None]] = {
            we.Save: self._save,
            we.Tell: self._tell,
            we.Announce: self._announce,
            we.Resized: self._report_resize,
            we.Note: self._note,
            we.Progress: self._progress,
            we.Joined: self._report_members,
            we.StartAll: self._start_all,
            we.Ended: self._attempt_ended,
        }
        for job_id, text in saved_groups.items():
            try:
                self._kept[job_id] = group_record.parse(text)
            except ValueError as error:
                log.error("the workers of job %d cannot be read, and are started again: %s", job_id, error)

    def numbers(self, job: Job) -> Sequence[int] | None:
        """Of the job's workers; None: it has no such."""
        if not has_workers(job):
            return None
        group = self.group(job)
        return [worker.number for worker in group.record.workers] if group else ()

    def group(self, job: Job) -> LiveGroup | None:
        """Of the job's present attempt."""
        kept = self._kept.get(job.job_id)
        if kept and kept.attempt == job.attempt:
            self._groups[job.job_id] = LiveGroup(job, self._kept.pop(job.job_id))
        return self._of_attempt(job.job_id, job.attempt)

    def _of_attempt(self, job_id: int, attempt: int) -> LiveGroup | None:
        group = self._groups.get(job_id)
        return group if group and group.record.attempt == attempt else None

    def find_borrowed_slices(self) -> set[str]:
        """Slices of workers that the queue does not count for their job, or not yet."""
        found: set[str] = set()
        for job_id, group in self._groups.items():
            counted = max(group.job.placement, group.job.resizing, key=len)
            uncounted, _ = difference(group.record.workers, counted)
            found.update(JobSlices.of_worker(job_id, worker.number) for worker in uncounted)
        return found

    def forget(self, job_id: int) -> None:
        """Its attempt has ended."""
        kept = self._kept.pop(job_id, None)
        group = self._groups.pop(job_id, None)
        if group:
            self._arm(group)
            ended = _ended_refusal(job_id, group.record.attempt)
            for key in [key for key in self._mailboxes if key[0] == job_id]:
                self._mailboxes.pop(key).put(ended)
        if group or kept:
            self._jobs.saver.save_group(job_id, None)

    # ---- events in, commands out ----

    async def _feed(self, group: LiveGroup, event: we.Event) -> bool:
        """Under the job's lock. Whether a worker that was told to stop did run."""
        did_run = False
        try:
            commands = deque(step(group, event, time.monotonic_ns()))
            while commands:
                command = commands.popleft()
                if isinstance(command, we.Start):
                    answer = await self._start(group, command.worker)
                    commands += step(group, answer, time.monotonic_ns())
                elif isinstance(command, we.Stop):
                    did_run |= await self._stop(group, command.worker)
                else:
                    self._handlers[type(command)](group, command)
        finally:  # what fails must not keep later deadlines from being met
            self._arm(group)
        return did_run

    def _hear(self, group: LiveGroup, event: we.Event) -> None:
        """An event that starts and stops nothing."""
        for command in step(group, event, time.monotonic_ns()):
            self._handlers[type(command)](group, command)
        self._arm(group)

    def _arm(self, group: LiveGroup) -> None:
        """One timer for a group, however many deadlines it has."""
        job_id = group.job.job_id
        at_ns = group.next_deadline_ns() if self._groups.get(job_id) is group else None
        if job_id in self._timers and self._timers[job_id][0] == at_ns:
            return  # most messages of workers change no deadline
        self._disarm(job_id)
        if at_ns is not None:
            loop, delay_s = asyncio.get_running_loop(), max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
            self._timers[job_id] = at_ns, loop.call_later(delay_s, lambda: self._jobs.spawn(self._tick(group)))

    def _disarm(self, job_id: int) -> None:
        if job_id in self._timers:
            self._timers.pop(job_id)[1].cancel()

    async def _tick(self, group: LiveGroup) -> None:
        async with self._jobs.attempts.job_lock(group.job.job_id):
            if self._groups.get(group.job.job_id) is group:
                self._disarm(group.job.job_id)
                await self._feed(group, we.Tick())

    def _spawn_feed(self, group: LiveGroup, event: we.Event) -> None:
        self._jobs.spawn(self._feed_alone(group, event))

    async def _feed_alone(self, group: LiveGroup, event: we.Event) -> None:
        async with self._jobs.attempts.job_lock(group.job.job_id):
            if self._groups.get(group.job.job_id) is group:
                await self._feed(group, event)

    # ---- commands ----

    def _save(self, group: LiveGroup, command: we.Save) -> None:
        """It is written with the next transaction: on_disk() waits for that."""
        self._jobs.saver.save_group(group.job.job_id, group_record.dump(group.record))

    def _tell(self, group: LiveGroup, command: we.Tell) -> None:
        if mailbox := self._mailboxes.get((group.job.job_id, command.worker)):
            mailbox.put(command.membership)

    def _announce(self, group: LiveGroup, command: we.Announce) -> None:
        self._jobs.spawn(self._announce_when_saved(group, command.generation))

    async def _announce_when_saved(self, group: LiveGroup, generation: int) -> None:
        try:
            await self._jobs.saver.on_disk([group.job.job_id])
        except StoreError as error:  # survivors say their generation to the next daemon, so that it is not used again
            log.warning("%s", error)
        if self._groups.get(group.job.job_id) is group:
            self._hear(group, we.MembershipSaved(generation))

    def _report_resize(self, group: LiveGroup, command: we.Resized) -> None:
        self._answer(group.job, command.placement, command.why)

    def _note(self, group: LiveGroup, command: we.Note) -> None:
        self._jobs.note(command.kind, group.job, command.text)

    def _progress(self, group: LiveGroup, command: we.Progress) -> None:
        self.on_progress(command.report)

    def _report_members(self, group: LiveGroup, command: we.Joined) -> None:
        self.on_joined(group.job, command.members)

    def _start_all(self, group: LiveGroup, command: we.StartAll) -> None:
        self._jobs.attempts.start_again(group.job)

    def _attempt_ended(self, group: LiveGroup, command: we.Ended) -> None:
        saved = group.record
        result = Result(
            saved.code,
            why=saved.why,
            is_stopped=saved.stopped,
            is_lost=saved.lost,
            cpu_ns=saved.cpu_ns,
            ram_peak_bytes=saved.ram_peak_bytes,
        )
        self._jobs.spawn(self._jobs.attempts.end(saved.job_id, saved.attempt, result))

    async def _start(self, group: LiveGroup, number: int) -> we.Started | we.StartFailed:
        """A worker beside others that run."""
        job, worker = group.job, group.record.worker(number)
        assert worker
        try:
            await self._jobs.saver.on_disk([job.job_id])
            denied = await self._begin_worker(job, worker)
            if denied is None:
                return we.Started(number)
            why = denied.message
        except (StartError, LaunchError, StoreError, VgpudError, OSError) as error:
            why = str(error)
        self._jobs.slices.remove_one(job.job_id, JobSlices.of_worker(job.job_id, number))
        return we.StartFailed(number, why)

    async def _stop(self, group: LiveGroup, number: int) -> bool:
        grace_s = self._jobs.host.config.current.job_grace_s
        return await self._jobs.attempts.runner.stop(group.job.job_id, group.record.attempt, grace_s, number)

    # ---- after a restart ----

    def keys(self, job: Job) -> list[Key]:
        """The supervisors of a job that ran and that may still be there."""
        if not has_workers(job):
            return [attempt_key(job.job_id, job.attempt)]
        group = self.group(job)
        return [attempt_key(job.job_id, job.attempt, w.number) for w in group.record.live] if group else []

    def settle(self, job: Job, outcomes: Mapping[Key, Found | Result]) -> None:
        """Continues with the workers of a job that ran for the former daemon."""
        group = self.group(job)
        if group is None:
            self._jobs.attempts.start_again(job)
            return
        fates = {w.number: outcomes[attempt_key(job.job_id, job.attempt, w.number)] for w in group.record.live}
        unknown = Result(NEVER_BEGAN, why="its supervisor did not answer")
        results = {n: fate for n, fate in fates.items() if isinstance(fate, Result)}
        unstarted = tuple(n for n, fate in fates.items() if fate is Found.NEVER_BEGAN)
        adopted = we.Adopted(
            running=tuple(n for n, fate in fates.items() if fate is Found.RUNS),
            ended_workers=tuple(_event(n, result) for n, result in results.items()),
            unstarted_workers=unstarted,
        )
        self._spawn_feed(group, adopted)
        for number, result in (results | {n: unknown for n, fate in fates.items() if fate is Found.GIVEN_UP}).items():
            self.worker_ended(job.job_id, job.attempt, number, result)
        for number in unstarted if len(unstarted) < len(fates) else ():
            self._spawn_feed(group, we.Unstarted(number))

    def reconcile_running(self, job: Job) -> None:
        """It runs again, or was found running: reports to the queue what it has, if that differs from what was decided
        when it was suspended or the former daemon was killed."""
        if job.spec.elastic is None or job.state is not JobState.RUNNING or job.resizing or job.stopping:
            return
        if group := self.group(job):
            self._hear(group, we.Reconcile())
        elif not has_workers(job) and job.placement:
            known = {made.name: made for made in self._jobs.slices.of(job)}
            pairs = list(zip(self._jobs.slices.names(job), job.placement, strict=True))
            has = tuple(replace(place, shares=known[name].shares) for name, place in pairs if name in known)
            if has and has != job.placement:
                self._answer(job, has, "it was found so")

    # ---- starting ----

    async def begin(self, job: Job) -> Denied | None:
        """All workers or none; the caller abandons it then. Raises as launch.py, the runner and the store do."""
        group = self.group(job)
        if group is None:
            self.forget(job.job_id)
            group = self._groups[job.job_id] = LiveGroup(job, new_group(job))
        commands = step(group, we.Begin(), time.monotonic_ns())
        self._save(group, we.Save())
        await self._jobs.saver.on_disk([job.job_id])
        for start in [command for command in commands if isinstance(command, we.Start)]:
            worker = group.record.worker(start.worker)
            denied = await self._begin_worker(job, worker) if worker else None
            if denied:
                return denied
            self._hear(group, we.Started(start.worker))
        return None

    async def _begin_worker(self, job: Job, worker: Worker) -> Denied | None:
        """Its slice, then its supervisor."""
        slices: list[tuple[str, str]] = []
        if job.spec.ask.spec.gpus_milli:
            origin = origins.Job(job.job_id, worker.number)
            denied = await self._jobs.slices.make(job, origin, worker.place.shares)
            if denied:
                return denied
            slices = [(origin.slice_name(), self._jobs.host.node.attach_path(origin.slice_name()))]
        await self._jobs.attempts.begin_attempt(job, slices, worker.number)
        return None

    async def abandon(self, job: Job) -> None:
        """Some workers may have begun, and all of them cannot: none of them runs when this returns."""
        group = self.group(job)
        if group is None:
            return
        keys = self.keys(job)
        for worker in group.record.live:
            await self._jobs.attempts.runner.stop(job.job_id, job.attempt, 0.0, worker.number)
        deadline = time.monotonic() + ABANDON_S
        while time.monotonic() < deadline and not set(keys).isdisjoint(self._jobs.attempts.runner.running):
            await asyncio.sleep(LOOK_S)
        self._jobs.slices.remove(job)
        self.forget(job.job_id)
        for worker in group.record.live:
            await self._jobs.attempts.runner.forget(job.job_id, job.attempt, worker.number)

    # ---- ending ----

    async def stop(self, job: Job) -> bool:
        """All of its workers. Whether one of them ran: the job's end is reported when all have gone."""
        group = self.group(job)
        return await self._feed(group, we.StopAll()) if group else False

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """All processes of it have gone (runner.Backend)."""
        self._jobs.spawn(self._worker_ended(job_id, attempt, worker, result))

    async def _worker_ended(self, job_id: int, attempt: int, number: int, result: Result) -> None:
        async with self._jobs.attempts.job_lock(job_id):
            if group := self._of_attempt(job_id, attempt):
                worker = group.record.worker(number)
                if worker and not worker.done:
                    self._jobs.slices.remove_one(job_id, JobSlices.of_worker(job_id, number))
                await self._feed(group, _event(number, result))
        try:
            await self._jobs.saver.on_disk([job_id])
        except StoreError as error:
            log.warning("the directory of job %d's worker %d stays: %s", job_id, number, error)
            return
        await self._jobs.attempts.runner.forget(job_id, attempt, number)

    # ---- resizing ----

    async def resize(self, command: qe.ResizeJob) -> None:
        """Answered by Resized, now or when the workers to leave have gone."""
        async with self._jobs.attempts.job_lock(command.job_id):
            job = self._jobs.machine.jobs.get(command.job_id)
            try:
                await self._jobs.saver.on_disk([command.job_id])
            except StoreError as error:
                if job:
                    self._answer(job, job.placement, str(error))
                return
            if job is None or job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                return  # its end says all
            if not has_workers(job):
                why = await self._resize_slice(job, command.placement)
                self._answer(job, job.placement if why else command.placement, why)
            elif group := self.group(job):
                await self._feed(group, we.Resize(command.placement, command.why))

    async def _resize_slice(self, job: Job, placement: Placement) -> str:
        for name, place in zip(self._jobs.slices.names(job), placement, strict=False):
            denied = await self._jobs.slices.resize(job, name, place.shares)
            if denied:
                return denied.message
        return ""

    def _answer(self, job: Job, placement: Placement, why: str) -> None:
        self._jobs.enqueue_event(qe.Resized(job.job_id, job.attempt, placement, why))

    # ---- stragglers ----

    async def replace_straggler(self, job_id: int, number: int, why: str) -> None:
        async with self._jobs.attempts.job_lock(job_id):
            group = self._groups.get(job_id)
            worker = group.record.worker(number) if group else None
            if group and worker:
                await self._feed(group, we.Straggling(number, why, self._find_other_place(group.job, worker.place)))

    def _find_other_place(self, job: Job, place: Place) -> Place | None:
        """Where there is as much for a while, on another device if possible; None: nowhere."""
        state = self._jobs.host.slices.state
        named = job.spec.ask.spec.device_uuids or [device.uuid for device in capacity.list_default_devices(state)]
        found = [place]
        if len(place.shares) == 1:
            (share,) = place.shares
            others = [uuid for uuid in state.devices if uuid in named and uuid != share.device_uuid]
            found = [*(replace(place, shares=(replace(share, device_uuid=uuid),)) for uuid in others), place]
        for one in found:
            if self._jobs.machine.may_borrow(job.job_id, one) and not isinstance(
                capacity.check_shares(one.shares, state), Denied
            ):
                return one
        return None

    # ---- streams of workers, and what programs report without one ----

    def open_stream(self, report: ProgressReport) -> Mailbox | Denied:
        """A worker's first message. Another stream of the same worker ends."""
        job = self._jobs.machine.jobs.get(report.job_id)
        if job is None or job.state.is_final or job.attempt != report.attempt:
            return _ended_refusal(report.job_id, report.attempt)
        group = self.group(job)
        denied = members.refusal(group, report)
        if denied and job.state is not JobState.RUNNING and job.suspended_how is None:
            return Denied(Reason.PRECONDITION, f"job {job.job_id} does not run: it is {job.state.value}")
        if denied or group is None:
            return denied or _ended_refusal(report.job_id, report.attempt)
        key = report.job_id, report.worker
        if before := self._mailboxes.pop(key, None):
            before.close()
        mailbox = self._mailboxes[key] = Mailbox(*key)
        self._hear(group, we.StreamOpened(report))
        return mailbox

    def close_stream(self, mailbox: Mailbox) -> None:
        """The stream has ended; the process may come back by another one."""
        key = mailbox.job_id, mailbox.worker
        if self._mailboxes.get(key) is mailbox:
            del self._mailboxes[key]
            if group := self._groups.get(mailbox.job_id):
                self._hear(group, we.StreamClosed(mailbox.worker))

    def hear(self, report: ProgressReport) -> None:
        """A further message of a stream."""
        if group := self._of_attempt(report.job_id, report.attempt):
            self._hear(group, we.Reported(report))

    def progress(self, report: ProgressReport) -> Denied | None:
        """What a program has done, said without a stream."""
        job = self._jobs.machine.jobs.get(report.job_id)
        if job is None or job.state is not JobState.RUNNING or job.attempt != report.attempt:
            return Denied(Reason.PRECONDITION, f"attempt {report.attempt} of job {report.job_id} does not run")
        self.on_progress(report)
        return None


def _event(number: int, result: Result) -> we.WorkerEnded:
    return we.WorkerEnded(
        number, result.exit_code, result.why, result.is_stopped, result.is_lost, result.cpu_ns, result.ram_peak_bytes
    )


def _ended_refusal(job_id: int, attempt: int) -> Denied:
    return Denied(Reason.PRECONDITION, f"attempt {attempt} of job {job_id} has ended")
