"""The watch over live containers: one has ended when its representative process has ended and its cgroup is empty.

Used by server.py. The representative is the low-level runtime until the container has started, and its first process
from then on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vgpud.core.model import Container
from vgpud.host import cgroups, processes

#: interval of checking the cgroup of a container that has lost its first process
EMPTY_S = 0.2


@dataclass(eq=False, slots=True)
class Watched:
    """A live container. `pidfd`: of its representative process, -1 after that has ended."""

    container: Container
    pidfd: int
    emptying: asyncio.Task[None] | None = None


class ContainerWatch:
    """Calls `on_end` (container id, reason) once for every container that has ended. On the running loop."""

    def __init__(self, on_end: Callable[[str, str], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, Watched] = {}

    @property
    def containers(self) -> list[Container]:
        return [watched.container for watched in self._watched.values()]

    def is_current(self, entry: Watched) -> bool:
        """Whether this container is still watched: it has neither ended nor been replaced under its id."""
        return self._watched.get(entry.container.container_id) is entry

    def runs(self, container_id: str) -> bool:
        """Whether the first process of a container with this id lives."""
        watched = self._watched.get(container_id)
        if watched is None or not watched.container.started or watched.pidfd < 0:
            return False
        return not processes.has_ended(watched.pidfd)  # its end may not have been noticed yet

    def adopt(self, containers: Iterable[Container]) -> None:
        """Restores a former daemon's containers: live ones are watched again, ended ones are released."""
        for container in containers:
            pidfd = processes.open_process(container.pid, container.pid_start)
            if pidfd >= 0 and container.cgroup and not cgroups.is_inside(container.pid, container.cgroup):
                os.close(pidfd)  # after a reboot the pid is another process
                pidfd = -1
            self.begin(container, pidfd)

    def begin(self, container: Container, pidfd: int) -> Watched:
        """Watches a container from now on; `pidfd` is kept, -1 if its process has ended already."""
        self.forget(container.container_id)
        watched = self._watched[container.container_id] = Watched(container, pidfd)
        if pidfd >= 0:
            self._loop.add_reader(pidfd, self._handle_process_end, watched)
        else:
            self._loop.call_soon(self._handle_process_end, watched)
        return watched

    def forget(self, container_id: str) -> Container | None:
        """Ends the watch over a container and returns it; None for an unknown one."""
        watched = self._watched.pop(container_id, None)
        if watched is None:
            return None
        if watched.emptying:
            watched.emptying.cancel()
        self._close(watched)
        return watched.container

    def close(self) -> None:
        """Ends the watch over all containers, which continue."""
        for container_id in list(self._watched):
            self.forget(container_id)

    def _close(self, entry: Watched) -> None:
        if entry.pidfd >= 0:
            self._loop.remove_reader(entry.pidfd)
            os.close(entry.pidfd)
            entry.pidfd = -1

    def _handle_process_end(self, entry: Watched) -> None:
        """The representative process has ended."""
        self._close(entry)
        container = entry.container
        if not self.is_current(entry):
            return
        if container.started and container.cgroup:
            entry.emptying = self._loop.create_task(self._until_empty(entry))
            return
        why = "ended" if container.started else "the engine gave up before it started"
        self._on_end(container.container_id, why)

    async def _until_empty(self, entry: Watched) -> None:
        """With its own pid namespace a container ends with its first process; otherwise other processes may live on."""
        while await asyncio.to_thread(cgroups.members, entry.container.cgroup):
            await asyncio.sleep(EMPTY_S)
        entry.emptying = None
        if self.is_current(entry):
            self._on_end(entry.container.container_id, "ended")
