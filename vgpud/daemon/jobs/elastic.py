"""Carries out what is decided for jobs that are resized while they run: elastic slices, and groups of workers.

Part of the composition root, made by JobController. An elastic slice is resized where it is. Each worker of an elastic
job has a slice and a supervisor of its own; core/elastic/workers.py decides. As in controller.py, a decision is on the
disk before it is carried out: a daemon that is killed at any point finds which workers run, which were to start and
which were to leave, and continues. What is done to one job is done under its lock.

What is remembered is in the parts: the groups in live_groups.py, their timers in group_steps.py, the streams of workers
in mailboxes.py. group_commands.py carries out, and worker_streams.py hears the workers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace

from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.worker_group import has_workers
from vgpud.core.elastic.workers import step
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, JobState, Place, Placement
from vgpud.core.model import Denied
from vgpud.core.slices import admission
from vgpud.daemon.jobs.group_commands import GroupCommands
from vgpud.daemon.jobs.group_steps import GroupSteps
from vgpud.daemon.jobs.live_groups import LiveGroups
from vgpud.daemon.jobs.mailboxes import Mailboxes
from vgpud.daemon.jobs.ports import WorkerPort
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.daemon.jobs.worker_streams import WorkerStreams
from vgpud.errors import StoreError
from vgpud.jobs.messages import Key, Result, attempt_key
from vgpud.jobs.runner import Found

log = logging.getLogger("vgpud")

#: exit code of a worker whose supervisor never answered
NEVER_BEGAN = 126
#: workers that began beside one that could not are given up; how long that may take
ABANDON_S = 30.0
LOOK_S = 0.02


class ElasticController:
    """Resizes, and the attempts of jobs with worker groups. `saved_groups`: groups as the former daemon saved them."""

    def __init__(self, jobs: WorkerPort, saved_groups: Mapping[int, str]) -> None:
        self._jobs = jobs
        self.groups = LiveGroups(saved_groups)
        self._mailboxes = Mailboxes()
        self.commands = GroupCommands(jobs, self._mailboxes)
        self._steps = GroupSteps(jobs, self.groups, self.commands)
        self.streams = WorkerStreams(jobs, self.groups, self._mailboxes, self._steps, self.commands)

    def forget(self, job_id: int) -> None:
        """Its attempt has ended."""
        group = self.groups.of_id(job_id)
        had_group = self.groups.forget(job_id)
        if group:
            self._steps.disarm(job_id)
            self._mailboxes.end_attempt(job_id, group.record.attempt)
        if had_group:
            self._jobs.saver.save_group(job_id, None)

    # ---- after a restart ----

    def keys(self, job: Job) -> list[Key]:
        """The supervisors of a job that ran and that may still be there."""
        if not has_workers(job):
            return [attempt_key(job.job_id, job.attempt)]
        group = self.groups.of_job(job)
        return [attempt_key(job.job_id, job.attempt, w.number) for w in group.record.live] if group else []

    def settle(self, job: Job, outcomes: Mapping[Key, Found | Result]) -> None:
        """Continues with the workers of a job that ran for the former daemon."""
        group = self.groups.of_job(job)
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
        self._steps.spawn_feed(group, adopted)
        for number, result in (results | {n: unknown for n, fate in fates.items() if fate is Found.GIVEN_UP}).items():
            self.worker_ended(job.job_id, job.attempt, number, result)
        for number in unstarted if len(unstarted) < len(fates) else ():
            self._steps.spawn_feed(group, we.Unstarted(number))

    def reconcile_running(self, job: Job) -> None:
        """It runs again, or was found running: reports to the queue what it has, if that differs from what was decided
        when it was suspended or the former daemon was killed."""
        if job.spec.elastic is None or job.state is not JobState.RUNNING or job.resizing or job.stopping:
            return
        if group := self.groups.of_job(job):
            self._steps.hear(group, we.Reconcile())
        elif not has_workers(job) and job.placement:
            known = {made.name: made for made in self._jobs.slices.of(job)}
            pairs = list(zip(self._jobs.slices.names(job), job.placement, strict=True))
            has = tuple(replace(place, shares=known[name].shares) for name, place in pairs if name in known)
            if has and has != job.placement:
                self.commands.answer_resize(job, has, "it was found so")

    # ---- starting ----

    async def begin(self, job: Job) -> Denied | None:
        """All workers or none; the caller abandons it then. Raises as launch.py, the runner and the store do."""
        group = self.groups.of_job(job)
        if group is None:
            self.forget(job.job_id)
            group = self.groups.make(job)
        commands = step(group, we.Begin(), time.monotonic_ns())
        self.commands.save(group)
        await self._jobs.saver.on_disk([job.job_id])
        for start in [command for command in commands if isinstance(command, we.Start)]:
            worker = group.record.worker(start.worker)
            denied = await self.commands.begin_worker(job, worker) if worker else None
            if denied:
                return denied
            self._steps.hear(group, we.Started(start.worker))
        return None

    async def abandon(self, job: Job) -> None:
        """Some workers may have begun, and all of them cannot: none of them runs when this returns."""
        group = self.groups.of_job(job)
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
        group = self.groups.of_job(job)
        return await self._steps.feed(group, we.StopAll()) if group else False

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """All processes of it have gone (runner.Backend)."""
        self._jobs.spawn(self._worker_ended(job_id, attempt, worker, result))

    async def _worker_ended(self, job_id: int, attempt: int, number: int, result: Result) -> None:
        async with self._jobs.attempts.job_lock(job_id):
            if group := self.groups.of_attempt(job_id, attempt):
                worker = group.record.worker(number)
                if worker and not worker.done:
                    self._jobs.slices.remove_one(job_id, JobSlices.of_worker(job_id, number))
                await self._steps.feed(group, _event(number, result))
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
                    self.commands.answer_resize(job, job.placement, str(error))
                return
            if job is None or job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                return  # its end says all
            if not has_workers(job):
                why = await self._resize_slice(job, command.placement)
                self.commands.answer_resize(job, job.placement if why else command.placement, why)
            elif group := self.groups.of_job(job):
                await self._steps.feed(group, we.Resize(command.placement, command.why))

    async def _resize_slice(self, job: Job, placement: Placement) -> str:
        for name, place in zip(self._jobs.slices.names(job), placement, strict=False):
            denied = await self._jobs.slices.resize(job, name, place.shares)
            if denied:
                return denied.message
        return ""

    # ---- stragglers ----

    async def replace_straggler(self, job_id: int, number: int, why: str) -> None:
        async with self._jobs.attempts.job_lock(job_id):
            group = self.groups.of_id(job_id)
            worker = group.record.worker(number) if group else None
            if group and worker:
                await self._steps.feed(
                    group, we.Straggling(number, why, self._find_other_place(group.job, worker.place))
                )

    def _find_other_place(self, job: Job, place: Place) -> Place | None:
        """Where there is as much for a while, on another device if possible; None: nowhere."""
        state = self._jobs.host.slices.state
        named = job.spec.ask.spec.device_uuids or [device.uuid for device in admission.list_default_devices(state)]
        found = [place]
        if len(place.shares) == 1:
            (share,) = place.shares
            others = [uuid for uuid in state.devices if uuid in named and uuid != share.device_uuid]
            found = [*(replace(place, shares=(replace(share, device_uuid=uuid),)) for uuid in others), place]
        for one in found:
            if self._jobs.machine.may_borrow(job.job_id, one) and not isinstance(
                admission.check_shares(one.shares, state), Denied
            ):
                return one
        return None


def _event(number: int, result: Result) -> we.WorkerEnded:
    return we.WorkerEnded(
        number, result.exit_code, result.why, result.is_stopped, result.is_lost, result.cpu_ns, result.ram_peak_bytes
    )
