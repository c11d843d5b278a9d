"""Work that may wait for a disk for ever, such as a volume on a file server that is gone. Used by server.py.

Each piece has a daemon thread of its own: what hangs holds up neither other requests nor the daemon's end, as a pool's
threads would. Few are worked on at once; those that nobody waits for any more are counted apart, and bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from vgpud.errors import VgpudError

T = TypeVar("T")

#: pieces worked on at once; more wait
ACTIVE_MAX = 8
#: threads that are there, with those whose time was over
THREADS_MAX = 128


class Work:
    """Runs blocking calls for the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._active = asyncio.Semaphore(ACTIVE_MAX)
        self._threads = 0

    async def run(self, timeout_s: float, work: Callable[..., T], *arguments: Any) -> T:
        """What work() returns or raises. Raises asyncio.TimeoutError, and VgpudError when too much hangs already."""
        return await asyncio.wait_for(self._run(work, arguments), timeout_s)

    async def _run(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        async with self._active:
            if self._threads >= THREADS_MAX:
                text = f"{self._threads} earlier containers still wait for a disk"
                raise VgpudError(f"{text}: mend it (a volume on a file server that is gone?), or restart vgpud")
            done: asyncio.Future[T] = self._loop.create_future()
            self._threads += 1
            threading.Thread(target=self._work, args=(done, work, arguments), name="bundle", daemon=True).start()
            return await done

    def _work(self, done: asyncio.Future[T], work: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        tell: Callable[[Any], None] = done.set_result
        result: Any
        try:
            result = work(*arguments)
        except BaseException as error:
            tell, result = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the daemon has ended meanwhile
            self._loop.call_soon_threadsafe(self._end, done, tell, result)

    def _end(self, done: asyncio.Future[T], tell: Callable[[Any], None], result: Any) -> None:
        self._threads -= 1
        if not done.done():  # else nobody waits for it any more
            tell(result)
