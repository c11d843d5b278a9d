"""The tasks of a driver: they end with it, and one that fails is said in its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger("vgpud.k8s")

E = TypeVar("E")


class Tasks:
    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def ask(self, call: Coroutine[Any, Any, E], post: Callable[[E], None]) -> None:
        """The answer of a call is an event for the core."""

        async def ask() -> None:
            post(await call)

        self.spawn(ask())

    async def stop(self) -> None:
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("the driver failed", exc_info=error)
