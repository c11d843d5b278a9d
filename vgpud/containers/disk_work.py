"""Work that may wait for a disk forever, such as a volume on a file server that is gone. Used by server.py.

Each call has a daemon thread of its own: one that hangs holds up neither other requests nor the daemon's end, as a
pool's threads would. Few run at once; threads whose caller no longer waits are counted separately, and bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from vgpud.errors import VgpudError

T = TypeVar("T")

#: calls that run at once; more wait
ACTIVE_MAX = 8
#: all threads, including those that have timed out
THREADS_MAX = 128


class Work:
    """Runs blocking calls for the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._active = asyncio.Semaphore(ACTIVE_MAX)
        self._threads = 0

    async def run(self, timeout_s: float, work: Callable[..., T], *arguments: Any) -> T:
        """What work() returns or raises. Raises asyncio.TimeoutError, and VgpudError if too many calls hang already."""
        return await asyncio.wait_for(self._run(work, arguments), timeout_s)

    async def _run(self, work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        async with self._active:
            if self._threads >= THREADS_MAX:
                text = f"{self._threads} earlier containers still wait for a disk"
                raise VgpudError(f"{text}: repair it (a volume on a file server that is gone?), or restart vgpud")
            done: asyncio.Future[T] = self._loop.create_future()
            threading.Thread(target=self._work, args=(done, work, arguments), name="bundle", daemon=True).start()
            self._threads += 1  # it ends on this loop, so not before
            return await done

    def _work(self, done: asyncio.Future[T], work: Callable[..., T], arguments: tuple[Any, ...]) -> None:
        tell: Callable[[Any], None] = done.set_result
        result: Any
        try:
            result = work(*arguments)
        except BaseException as error:
            tell, result = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the daemon has ended in the meantime
            self._loop.call_soon_threadsafe(self._end, done, tell, result)

    def _end(self, done: asyncio.Future[T], tell: Callable[[Any], None], result: Any) -> None:
        self._threads -= 1
        if not done.done():  # otherwise its caller no longer waits
            tell(result)
