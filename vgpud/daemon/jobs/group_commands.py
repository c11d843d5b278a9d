"""Carries out the commands of a worker group's step: one method each. A part of ElasticController."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vgpud.core import origins
from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import ProgressReport, Worker
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, Placement
from vgpud.core.model import Denied
from vgpud.core.queue import group_record
from vgpud.daemon.jobs.launch import LaunchError, find_grace_ms
from vgpud.daemon.jobs.mailboxes import Mailboxes
from vgpud.daemon.jobs.ports import WorkerPort
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreError, VgpudError
from vgpud.jobs.messages import Result
from vgpud.jobs.runner import StartError


class GroupCommands:
    """`on_progress` and `on_joined` are called with what workers report and when all members of a membership work."""

    def __init__(self, jobs: WorkerPort, mailboxes: Mailboxes) -> None:
        self._jobs = jobs
        self._mailboxes = mailboxes
        self.on_progress: Callable[[ProgressReport], None] = lambda report: None
        self.on_joined: Callable[[Job, tuple[int, ...]], None] = lambda job, workers: None
        self._handlers: dict[type, Callable[[LiveGroup, Any], None]] = {
            we.Save: self._save,
            we.Tell: self._tell,
            we.Resized: self._report_resize,
            we.Note: self._note,
            we.Progress: self._progress,
            we.Joined: self._report_members,
            we.StartAll: self._start_all,
            we.Ended: self._end_attempt,
        }

    def carry_out(self, group: LiveGroup, command: we.Command) -> None:
        """One that needs no answer."""
        self._handlers[type(command)](group, command)

    async def start(self, group: LiveGroup, number: int) -> we.Started | we.StartFailed:
        """A worker beside others that run."""
        job, worker = group.job, group.record.worker(number)
        assert worker
        try:
            await self._jobs.saver.on_disk([job.job_id])
            denied = await self.begin_worker(job, worker)
            if denied is None:
                return we.Started(number)
            why = denied.message
        except (StartError, LaunchError, StoreError, VgpudError, OSError) as error:
            why = str(error)
        self._jobs.slices.remove_one(job.job_id, JobSlices.of_worker(job.job_id, number))
        return we.StartFailed(number, why)

    async def stop(self, group: LiveGroup, number: int) -> bool:
        """Whether the worker did run."""
        grace_s = find_grace_ms(group.job, self._jobs.host.config.current) / 1000
        return await self._jobs.attempts.runner.stop(group.job.job_id, group.record.attempt, grace_s, number)

    async def begin_worker(self, job: Job, worker: Worker) -> Denied | None:
        """Its slice, then its supervisor. Raises as launch.py, the runner and the store do."""
        slices: list[tuple[str, str]] = []
        if job.spec.ask.spec.gpus_milli:
            origin = origins.Job(job.job_id, worker.number)
            denied = await self._jobs.slices.make(job, origin, worker.place.shares)
            if denied:
                return denied
            slices = [(origin.slice_name(), self._jobs.host.node.attach_path(origin.slice_name()))]
        await self._jobs.attempts.begin_attempt(job, slices, worker.number)
        return None

    def save(self, group: LiveGroup) -> None:
        """It is written with the next transaction: on_disk() waits for that."""
        self._jobs.saver.save_group(group.job.job_id, group_record.dump(group.record))

    def answer_resize(self, job: Job, placement: Placement, why: str) -> None:
        """Reports to the queue what the job has now; `why`, if that is not what it decided."""
        self._jobs.enqueue_event(qe.Resized(job.job_id, job.attempt, placement, why))

    def _save(self, group: LiveGroup, command: we.Save) -> None:
        self.save(group)

    def _tell(self, group: LiveGroup, command: we.Tell) -> None:
        self._mailboxes.put(group.job.job_id, command.worker, command.membership)

    def _report_resize(self, group: LiveGroup, command: we.Resized) -> None:
        self.answer_resize(group.job, command.placement, command.why)

    def _note(self, group: LiveGroup, command: we.Note) -> None:
        self._jobs.note(command.kind, group.job, command.text)

    def _progress(self, group: LiveGroup, command: we.Progress) -> None:
        self.on_progress(command.report)

    def _report_members(self, group: LiveGroup, command: we.Joined) -> None:
        self.on_joined(group.job, command.members)

    def _start_all(self, group: LiveGroup, command: we.StartAll) -> None:
        self._jobs.attempts.start_again(group.job)

    def _end_attempt(self, group: LiveGroup, command: we.Ended) -> None:
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
