"""The tasks of a driver or device plugin: they end with it, and it ends with a fault in one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from vgpud.k8s.shell.api_server import reason_of

log = logging.getLogger("vgpud.k8s")

E = TypeVar("E")


class Tasks:
    """on_failure: called with the reason when it cannot continue."""

    def __init__(self, on_failure: Callable[[str], None]) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._broken = on_failure

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Half a driver is worse than one that is started again: pods run on without it."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def ask(self, call: Coroutine[Any, Any, E], failed: Callable[[str], E], post: Callable[[E], None]) -> None:
        """The answer of a call is an event, also when the call has a fault: the core waits for it, and kubelet's calls
        about the same claim wait behind."""

        async def ask() -> None:
            try:
                answer = await call
            except Exception as error:
                log.exception("the driver has a fault")
                answer = failed(f"the driver has a fault, which its log has: {reason_of(error)}")
            post(answer)

        self.spawn(ask())

    async def stop(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("the driver has a fault", exc_info=error)
            self._broken(f"the driver has a fault: {reason_of(error)}")
