"""Worker groups of elastic jobs in the simulator: the daemon's own step, with workers that do at once what they hear.

What a change of workers costs in time is the engine's (Costs.resize_ns); which workers a job has, and where, is decided
here as in the daemon.
"""

from __future__ import annotations

from collections import deque

from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import Membership, ProgressReport, WorkerGroup, has_workers, new_group
from vgpud.core.elastic.workers import step
from vgpud.core.jobs.model import Job, Placement

_STOPPED = 143  # exit code: 128 + SIGTERM


class WorkerGroups:
    """One for each job that has workers and runs, or is suspended where it was."""

    def __init__(self) -> None:
        self._groups: dict[int, LiveGroup] = {}

    def begin(self, job: Job, now_ns: int) -> None:
        """A new attempt of the job, at its placement."""
        if has_workers(job):
            group = self._groups[job.job_id] = LiveGroup(job, new_group(job))
            self._feed(group, we.Begin(), now_ns)

    def resize(self, job: Job, placement: Placement, now_ns: int) -> Placement:
        """What the job has when all workers that leave have gone: these places, in the order of its workers."""
        group = self._groups.get(job.job_id)
        if group is None:
            return placement
        (answer,) = self._feed(group, we.Resize(placement, "the queue resizes the job"), now_ns)
        return answer.placement

    def end(self, job_id: int, now_ns: int) -> None:
        """The attempt ends."""
        if group := self._groups.pop(job_id, None):
            self._feed(group, we.StopAll(), now_ns)

    def group(self, job_id: int) -> WorkerGroup | None:
        found = self._groups.get(job_id)
        return found.record if found else None

    def _feed(self, group: LiveGroup, event: we.Event, now_ns: int) -> list[we.Resized]:
        resized: list[we.Resized] = []
        events = deque([event])
        while events:
            for command in step(group, events.popleft(), now_ns):
                if isinstance(command, we.Resized):
                    resized.append(command)
                events += _follows(group.record, command)
            due_ns = group.next_deadline_ns()
            if due_ns is not None and due_ns <= now_ns:
                events.append(we.Tick())
        return resized


def _follows(group: WorkerGroup, command: we.Command) -> list[we.Event]:
    """What the workers, and the disk, make of a command."""
    match command:
        case we.Start(worker):
            return [we.Started(worker), we.StreamOpened(ProgressReport(group.job_id, group.attempt, worker))]
        case we.Stop(worker):
            return [we.WorkerEnded(worker, _STOPPED, is_stopped=True)]
        case we.Announce(generation):
            return [we.MembershipSaved(generation)]
        case we.Tell(worker, membership):
            return [_hears(group, worker, membership)]
    return []


def _hears(group: WorkerGroup, worker: int, membership: Membership) -> we.Event:
    if worker not in membership.workers:
        return we.WorkerEnded(worker, 0)
    return we.Reported(
        ProgressReport(group.job_id, group.attempt, worker, membership.generation, store="127.0.0.1:1", has_joined=True)
    )
