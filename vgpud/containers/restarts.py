"""Containers that have ended and whose engine may start them again: docker by its restart policy, podman by the
clean-up that its monitor (conmon) starts and waits for.

Used by server.py. The core keeps their slices for a bounded time; here it is looked whether the engine still means to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from vgpud.containers.disk_work import Work
from vgpud.core.model import Container
from vgpud.host import processes
from vgpud.oci.restart_policy import will_restart

log = logging.getLogger("vgpud")

#: interval of looking whether a container that was to be started again has been stopped or removed
LOOK_S = 0.2
#: what reading docker's two files may take
READ_S = 5.0
#: podman's, and how many processes may be between it and the runtime's hook
MONITOR, DISTANCE_MAX = "conmon", 4


class Backend(Protocol):
    """The daemon's side."""

    def container(self, container_id: str) -> Container | None: ...
    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None: ...


class Restarts:
    """Ends containers, at once or once their engine does not start them again. On the running loop."""

    def __init__(self, backend: Backend, work: Work, spawn: Callable[..., asyncio.Task[None]]) -> None:
        self._backend = backend
        self._work = work
        self._spawn = spawn
        self._monitors: dict[str, tuple[int, int]] = {}  # pid and start time
        self._following: dict[str, asyncio.Task[None]] = {}

    def note_monitor(self, container_id: str, pid: int) -> None:
        """A container has started; `pid`: a process that its monitor, if it has one, is an ancestor of."""
        monitor = processes.find_ancestor(pid, MONITOR, DISTANCE_MAX)
        if monitor:
            self._monitors[container_id] = monitor, processes.start_time(monitor)

    def forget(self, container_id: str) -> None:
        """The container is not known any more, or another one has its id."""
        self._monitors.pop(container_id, None)
        task = self._following.pop(container_id, None)
        if task:
            task.cancel()

    def end(self, container_id: str, why: str) -> None:
        """A container has ended. Reported twice it has no further effect."""
        container = self._backend.container(container_id)
        if container is None or not container.started or not (container.engine_dir or container_id in self._monitors):
            self._backend.end_container(container_id, why)
        elif container_id not in self._following:
            self._following[container_id] = self._spawn(self._follow(container, why))

    async def _follow(self, container: Container, why: str) -> None:
        container_id = container.container_id
        try:
            while await self._may_restart(container):
                self._backend.end_container(container_id, why, restarts=True)
                await asyncio.sleep(LOOK_S)
                why = "its engine does not start it again"
            self._backend.end_container(container_id, why)
        finally:
            if self._following.get(container_id) is asyncio.current_task():
                del self._following[container_id]

    async def _may_restart(self, container: Container) -> bool:
        pid, begun = self._monitors.get(container.container_id, (0, 0))
        if pid:
            return processes.start_time(pid) == begun and processes.runs(pid)
        try:
            return await self._work.run(READ_S, will_restart, container.engine_dir)
        except Exception as error:  # whatever it is, its slice must end
            log.debug("the restart policy of container %s is not known: %s", container.container_id, error)
            return False
