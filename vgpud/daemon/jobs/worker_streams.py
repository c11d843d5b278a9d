"""The streams of elastic jobs' workers, and what programs report without one (api.workers.WorkerBackend).

A part of ElasticController. What workers say is heard at once, without the job's lock: it starts and stops nothing.
"""

from __future__ import annotations

from vgpud.api.workers import Mailbox
from vgpud.core.elastic import members
from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.worker_group import ProgressReport
from vgpud.core.jobs.model import JobState
from vgpud.core.model import Denied, Reason
from vgpud.daemon.jobs.group_commands import GroupCommands
from vgpud.daemon.jobs.group_steps import GroupSteps
from vgpud.daemon.jobs.live_groups import LiveGroups
from vgpud.daemon.jobs.mailboxes import Mailboxes, ended_refusal
from vgpud.daemon.jobs.ports import WorkerPort


class WorkerStreams:
    """The open ones are in `mailboxes`."""

    def __init__(
        self, jobs: WorkerPort, groups: LiveGroups, mailboxes: Mailboxes, steps: GroupSteps, commands: GroupCommands
    ) -> None:
        self._jobs = jobs
        self._groups = groups
        self._mailboxes = mailboxes
        self._steps = steps
        self._commands = commands

    def open_stream(self, report: ProgressReport) -> Mailbox | Denied:
        """A worker's first message. Another stream of the same worker ends."""
        job = self._jobs.machine.jobs.get(report.job_id)
        if job is None or job.state.is_final or job.attempt != report.attempt:
            return ended_refusal(report.job_id, report.attempt)
        group = self._groups.of_job(job)
        denied = members.refusal(group, report)
        if denied and job.state is not JobState.RUNNING and job.suspended_how is None:
            return Denied(Reason.PRECONDITION, f"job {job.job_id} does not run: it is {job.state.value}")
        if denied or group is None:
            return denied or ended_refusal(report.job_id, report.attempt)
        mailbox = self._mailboxes.open(report.job_id, report.worker)
        self._steps.hear(group, we.StreamOpened(report))
        return mailbox

    def close_stream(self, mailbox: Mailbox) -> None:
        """The stream has ended; the process may come back by another one."""
        if self._mailboxes.remove(mailbox) and (group := self._groups.of_id(mailbox.job_id)):
            self._steps.hear(group, we.StreamClosed(mailbox.worker))

    def hear(self, report: ProgressReport) -> None:
        """A further message of a stream."""
        if group := self._groups.of_attempt(report.job_id, report.attempt):
            self._steps.hear(group, we.Reported(report))

    def progress(self, report: ProgressReport) -> Denied | None:
        """What a program has done, said without a stream."""
        job = self._jobs.machine.jobs.get(report.job_id)
        if job is None or job.state is not JobState.RUNNING or job.attempt != report.attempt:
            return Denied(Reason.PRECONDITION, f"attempt {report.attempt} of job {report.job_id} does not run")
        self._commands.on_progress(report)
        return None
