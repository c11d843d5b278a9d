"""Events into the step of a worker group (core/elastic/workers.py), and its commands to be carried out.

A part of ElasticController. It remembers when each group is due next. An event that may start or stop workers is fed
under the job's lock; what starts and stops nothing is heard at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque

from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.workers import step
from vgpud.daemon.jobs.group_commands import GroupCommands
from vgpud.daemon.jobs.live_groups import LiveGroups
from vgpud.daemon.jobs.ports import WorkerPort
from vgpud.errors import StoreError

log = logging.getLogger("vgpud")


class GroupSteps:
    """One timer for a group, however many deadlines it has."""

    def __init__(self, jobs: WorkerPort, groups: LiveGroups, commands: GroupCommands) -> None:
        self._jobs = jobs
        self._groups = groups
        self._commands = commands
        self._timers: dict[int, tuple[int, asyncio.TimerHandle]] = {}  # by job: when, ns of the monotonic clock

    async def feed(self, group: LiveGroup, event: we.Event) -> bool:
        """Under the job's lock. Whether a worker that was told to stop did run."""
        did_run = False
        try:
            commands = deque(step(group, event, time.monotonic_ns()))
            while commands:
                command = commands.popleft()
                if isinstance(command, we.Start):
                    answer = await self._commands.start(group, command.worker)
                    commands += step(group, answer, time.monotonic_ns())
                elif isinstance(command, we.Stop):
                    did_run |= await self._commands.stop(group, command.worker)
                else:
                    self._carry_out(group, command)
        finally:  # what fails must not keep later deadlines from being met
            self.arm(group)
        return did_run

    def hear(self, group: LiveGroup, event: we.Event) -> None:
        """An event that starts and stops nothing."""
        for command in step(group, event, time.monotonic_ns()):
            self._carry_out(group, command)
        self.arm(group)

    def spawn_feed(self, group: LiveGroup, event: we.Event) -> None:
        """Feeds it when the job's lock is free, if the group is still its job's then."""
        self._jobs.spawn(self._feed_locked(group, event))

    def arm(self, group: LiveGroup) -> None:
        """Sets the timer to the group's next deadline; none for a group that is no longer its job's."""
        job_id = group.job.job_id
        at_ns = group.next_deadline_ns() if self._groups.has(group) else None
        if job_id in self._timers and self._timers[job_id][0] == at_ns:
            return  # most messages of workers change no deadline
        self.disarm(job_id)
        if at_ns is not None:
            loop, delay_s = asyncio.get_running_loop(), max(0.0, (at_ns - time.monotonic_ns()) / 1e9)
            self._timers[job_id] = at_ns, loop.call_later(delay_s, lambda: self._jobs.spawn(self._tick(group)))

    def disarm(self, job_id: int) -> None:
        if job_id in self._timers:
            self._timers.pop(job_id)[1].cancel()

    async def _tick(self, group: LiveGroup) -> None:
        async with self._jobs.attempts.job_lock(group.job.job_id):
            if self._groups.has(group):
                self.disarm(group.job.job_id)
                await self.feed(group, we.Tick())

    async def _feed_locked(self, group: LiveGroup, event: we.Event) -> None:
        async with self._jobs.attempts.job_lock(group.job.job_id):
            if self._groups.has(group):
                await self.feed(group, event)

    def _carry_out(self, group: LiveGroup, command: we.Command) -> None:
        if isinstance(command, we.Announce):
            self._jobs.spawn(self._announce_when_saved(group, command.generation))
        else:
            self._commands.carry_out(group, command)

    async def _announce_when_saved(self, group: LiveGroup, generation: int) -> None:
        try:
            await self._jobs.saver.on_disk([group.job.job_id])
        except StoreError as error:  # survivors say their generation to the next daemon, so that it is not used again
            log.warning("%s", error)
        if self._groups.has(group):
            self.hear(group, we.MembershipSaved(generation))
