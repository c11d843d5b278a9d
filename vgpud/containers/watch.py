"""The watch over containers that live: when the process that stands for one has ended, and its cgroup is empty.

Used by server.py. What stands for a container is the low-level runtime until the container has started, and its
first process from then on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vgpud.core.model import Container
from vgpud.host import cgroups, processes

#: how often a cgroup is looked at whose container has lost its first process
EMPTY_S = 0.2


@dataclass(eq=False, slots=True)
class Watched:
    """A container that lives. `pidfd`: of what stands for it, -1 when that has ended."""

    container: Container
    pidfd: int
    emptying: asyncio.Task[None] | None = None


class ContainerWatch:
    """Tells `on_end` (container id, why) once for every container that has ended. On the running loop."""

    def __init__(self, on_end: Callable[[str, str], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, Watched] = {}

    @property
    def containers(self) -> list[Container]:
        return [watched.container for watched in self._watched.values()]

    def is_current(self, watched: Watched) -> bool:
        """Whether this is still the life of its id that is watched: none that ended, or began anew."""
        return self._watched.get(watched.container.container_id) is watched

    def runs(self, container_id: str) -> bool:
        """Whether the first process of a container with this id lives."""
        watched = self._watched.get(container_id)
        if watched is None or not watched.container.started or watched.pidfd < 0:
            return False
        return not processes.has_ended(watched.pidfd)  # its end may not have been noticed yet

    def adopt(self, containers: Iterable[Container]) -> None:
        """Takes over what a former daemon knew: who lives is watched again, who has ended meanwhile is released."""
        for container in containers:
            pidfd = processes.open_process(container.pid, container.pid_start)
            if pidfd >= 0 and container.cgroup and not cgroups.is_inside(container.pid, container.cgroup):
                os.close(pidfd)  # the machine has started anew meanwhile, and this is another process
                pidfd = -1
            self.begin(container, pidfd)

    def begin(self, container: Container, pidfd: int) -> Watched:
        """Watches over a container from now on; `pidfd` is kept, -1 when its process has ended already."""
        self.forget(container.container_id)
        watched = self._watched[container.container_id] = Watched(container, pidfd)
        if pidfd >= 0:
            self._loop.add_reader(pidfd, self._ended, watched)
        else:
            self._loop.call_soon(self._ended, watched)
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
        """Ends the watch over all of them; they go on."""
        for container_id in list(self._watched):
            self.forget(container_id)

    def _close(self, watched: Watched) -> None:
        if watched.pidfd >= 0:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = -1

    def _ended(self, watched: Watched) -> None:
        """What stands for the container has ended."""
        self._close(watched)
        container = watched.container
        if not self.is_current(watched):
            return
        if container.started and container.cgroup:
            watched.emptying = self._loop.create_task(self._until_empty(watched))
            return
        why = "ended" if container.started else "the engine gave up before it started"
        self._on_end(container.container_id, why)

    async def _until_empty(self, watched: Watched) -> None:
        """With a pid namespace of its own all of it ends with its first process; without one, others may live on."""
        while await asyncio.to_thread(cgroups.members, watched.container.cgroup):
            await asyncio.sleep(EMPTY_S)
        watched.emptying = None
        if self.is_current(watched):
            self._on_end(watched.container.container_id, "ended")
