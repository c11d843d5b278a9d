"""Whose request goes on next: the shell of core/fairness on the running loop.

A user's connections, calls and streams wait here while the user's account is overdrawn. One of them goes on at a time,
users in turn; of one user what has begun goes before what has not. Admins never wait. Handlers that do much call
breathe() between small pieces, so that nobody waits for a long answer to somebody else.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from vgpud.core.fairness.accounts import ADMINS, Accounts

T = TypeVar("T")

#: calls of one user that may wait
WAITING_MAX = 128
#: after so long a handler lets others go first
PIECE_NS = 100_000
#: what gRPC takes of the loop for a call and for each message of a stream, beside the handler; measured
CALL_NS, MESSAGE_NS = 400_000, 200_000
#: what a new connection takes
CONNECTION_NS = 1_000_000
#: what passing a read on takes, each other frame in it, and 1 KiB
READ_NS, FRAME_NS, KIB_NS = 40_000, 4_000, 1_000

_Waiting = deque["asyncio.Future[None]"]


class Turns:
    """Of one loop. `uid` is ADMINS for every admin."""

    def __init__(self, accounts: Accounts | None = None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._accounts = accounts or Accounts()
        self._now_ns = now_ns
        self._waiting: OrderedDict[int, _Waiting] = OrderedDict()  # users in the order of their turns
        self._timer: asyncio.Handle | None = None

    def charge(self, uid: int, spent_ns: int) -> None:
        now_ns = self._now_ns()
        self._accounts.seen(uid, now_ns)
        if uid != ADMINS:
            self._accounts.charge(uid, spent_ns, now_ns)

    def is_free(self, uid: int) -> bool:
        """Whether this user need not wait now."""
        return uid == ADMINS or (uid not in self._waiting and not self._accounts.wait_ns(uid, self._now_ns()))

    def waiting(self, uid: int) -> int:
        return len(self._waiting.get(uid, ()))

    async def wait(self, uid: int, *, begun: bool = False, apart: bool = False) -> None:
        """Until it is this user's turn; `begun`: for something that has gone on before; `apart`: never at the same time
        as others of the user's, also when the account would allow it."""
        if uid == ADMINS or (not apart and self.is_free(uid)):
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        queue = self._waiting.setdefault(uid, deque())
        (queue.appendleft if begun else queue.append)(future)
        self._arm()
        try:
            await future
        except asyncio.CancelledError:
            self._forget(uid, future)
            raise

    def _forget(self, uid: int, future: asyncio.Future[None]) -> None:
        queue = self._waiting.get(uid)
        if queue and future in queue:
            queue.remove(future)
            if not queue:
                del self._waiting[uid]

    def _arm(self) -> None:
        """Has _next() called as soon as somebody may go on."""
        if self._timer or not self._waiting:
            return
        now_ns = self._now_ns()
        wait_ns = min(self._accounts.wait_ns(uid, now_ns) for uid in self._waiting)
        # 1 ms at least: the one before has its piece first, and is charged for it
        self._timer = asyncio.get_running_loop().call_later(max(wait_ns / 1e9, 0.001), self._next)

    def _next(self) -> None:
        """The first user who may, may; then it is the others' turn."""
        self._timer = None
        now_ns = self._now_ns()
        for uid in list(self._waiting):
            if self._accounts.wait_ns(uid, now_ns):
                continue
            queue = self._waiting.pop(uid)
            future = queue.popleft()
            if queue:
                self._waiting[uid] = queue  # behind the others
            if not future.done():
                future.set_result(None)
            break
        self._arm()


class Turn:
    """One call, for as long as it lasts."""

    def __init__(self, turns: Turns, uid: int) -> None:
        self._turns = turns
        self._uid = uid
        self._began_ns = time.perf_counter_ns()

    async def breathe(self) -> None:
        """Lets others go first when this call has run for a while."""
        if time.perf_counter_ns() - self._began_ns < PIECE_NS:
            return
        await asyncio.sleep(0)  # ends the piece, which is charged
        await self._turns.wait(self._uid, begun=True)

    async def message(self) -> None:
        """Before each message of a stream."""
        self._turns.charge(self._uid, MESSAGE_NS)
        await self._turns.wait(self._uid, begun=True, apart=True)

    def run(self, work: Awaitable[T]) -> Awaitable[T]:
        """The same work, every piece of which is charged to its user."""
        return _Metered(work, self)

    def step(self, resume: Callable[[Any], Any], value: Any) -> Any:
        self._began_ns = time.perf_counter_ns()
        try:
            return resume(value)
        finally:
            self._turns.charge(self._uid, time.perf_counter_ns() - self._began_ns)


class _Metered(Awaitable[T]):
    def __init__(self, work: Awaitable[T], turn: Turn) -> None:
        self._work = work
        self._turn = turn

    def __await__(self) -> Generator[Any, Any, T]:
        inner: Any = self._work.__await__()
        resume, value = next, inner
        while True:
            try:
                wanted = self._turn.step(resume, value)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            try:
                sent = yield wanted
                resume, value = (next, inner) if sent is None else (inner.send, sent)
            except BaseException as error:  # cancellation, which the work may have something to say to
                resume, value = inner.throw, error


_turn: ContextVar[Turn] = ContextVar("turn")


def begin(turn: Turn) -> None:
    """The call that runs now is this one."""
    _turn.set(turn)


async def breathe() -> None:
    """Between small pieces of a handler's work; outside of calls nothing."""
    turn = _turn.get(None)
    if turn:
        await turn.breathe()
