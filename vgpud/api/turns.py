"""The order of users' requests: the shell of core/fairness on the running loop.

A user's connections, calls and streams wait here while the user's account is overdrawn. One of them continues at a
time, users in turn; of one user, calls that have begun come before new ones. Admins never wait. Handlers with much to
do call breathe() between small pieces, so that a long answer does not delay other users.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from vgpud.core.fairness.accounts import ADMINS, Accounts

T = TypeVar("T")

#: calls of one user that may wait
WAITING_MAX = 128
#: a handler that has run for this long lets others go first
PIECE_NS = 100_000
#: least time between two turns: the one before runs its piece first, and is charged for it
APART_NS = 1_000_000
#: least period of looking at debts: a user's rate changes with the number of users of the API
LOOK_NS = 50_000_000
#: time that gRPC takes of the loop for a call and for each message of a stream, beside the handler; measured
CALL_NS, MESSAGE_NS = 400_000, 200_000
#: time that a new connection takes
CONNECTION_NS = 1_000_000
#: time that passing on a read takes, each other frame in it, and 1 KiB
READ_NS, FRAME_NS, KIB_NS = 40_000, 4_000, 1_000


class _Queue:
    """One user's waiting work: what arrives on connections, and calls. They alternate, since connections end that
    answer no pings."""

    def __init__(self) -> None:
        self.arriving: deque[asyncio.Future[None]] = deque()
        self.calls: deque[asyncio.Future[None]] = deque()
        self._arrived = False  # the last turn was for something that arrives

    def __bool__(self) -> bool:
        return bool(self.arriving or self.calls)

    def take(self) -> asyncio.Future[None]:
        self._arrived = bool(self.arriving) and not (self._arrived and self.calls)
        return (self.arriving if self._arrived else self.calls).popleft()

    def forget(self, future: asyncio.Future[None]) -> None:
        for futures in (self.arriving, self.calls):
            if future in futures:
                futures.remove(future)


class Turns:
    """The turns of one loop. `uid` is ADMINS for every admin."""

    def __init__(self, accounts: Accounts | None = None, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._accounts = accounts or Accounts()
        self._now_ns = now_ns
        self._waiting: OrderedDict[int, _Queue] = OrderedDict()  # users in the order of their turns
        self._timer: asyncio.TimerHandle | None = None

    def charge(self, uid: int, spent_ns: int) -> None:
        now_ns = self._now_ns()
        self._accounts.record_use(uid, now_ns)
        if uid != ADMINS:
            self._accounts.charge(uid, spent_ns, now_ns)

    def is_free(self, uid: int) -> bool:
        """Whether this user need not wait now."""
        return uid == ADMINS or (uid not in self._waiting and not self._accounts.wait_ns(uid, self._now_ns()))

    def waiting(self, uid: int) -> int:
        """Number of waiting calls of this user."""
        queue = self._waiting.get(uid)
        return len(queue.calls) if queue else 0

    async def wait(self, uid: int, *, has_begun: bool = False) -> None:
        """Until it is the turn of a call of this user; `has_begun`: one that has run before."""
        if not self.is_free(uid):
            calls = self._queue(uid).calls
            await self._wait(uid, calls.appendleft if has_begun else calls.append)

    async def wait_apart(self, uid: int, *, arriving: bool = False) -> None:
        """As wait(), for work that never runs together with other work of the user, also when the account would allow
        it: what arrives on a connection, or a stream's next message. Messages and new calls continue in the order of
        their arrival, since a stream need not end."""
        if uid != ADMINS:
            queue = self._queue(uid)
            await self._wait(uid, (queue.arriving if arriving else queue.calls).append)

    def _queue(self, uid: int) -> _Queue:
        return self._waiting.setdefault(uid, _Queue())

    async def _wait(self, uid: int, enqueue: Callable[[asyncio.Future[None]], None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        enqueue(future)
        self._arm((uid,))
        try:
            await future
        except asyncio.CancelledError:
            queue = self._waiting.get(uid)
            if queue:
                queue.forget(future)
                if not queue:
                    del self._waiting[uid]
            raise

    def _arm(self, uids: Iterable[int]) -> None:
        """Schedules _next() for when one of these users may continue, unless it is due earlier."""
        now_ns = self._now_ns()
        wait_ns = min((self._accounts.wait_ns(uid, now_ns) for uid in uids), default=None)
        if wait_ns is None:
            return
        loop = asyncio.get_running_loop()
        at_s = loop.time() + min(max(wait_ns, APART_NS), LOOK_NS) / 1e9
        if self._timer:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._next)

    def _next(self) -> None:
        """The first user who may continue does; then it is the turn of the others."""
        self._timer = None
        now_ns = self._now_ns()
        for uid in self._waiting:
            self._accounts.record_use(uid, now_ns)
        for uid in list(self._waiting):
            if self._accounts.wait_ns(uid, now_ns):
                continue
            queue = self._waiting.pop(uid)
            future = queue.take()
            if queue:
                self._waiting[uid] = queue  # behind the others
            if not future.done():
                future.set_result(None)
            break
        self._arm(self._waiting)


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
        await self._turns.wait(self._uid, has_begun=True)

    async def message(self) -> None:
        """Before each message that a stream sends, and after each that it has received."""
        self._turns.charge(self._uid, MESSAGE_NS)
        await self._turns.wait_apart(self._uid)

    def charge(self, spent_ns: int) -> None:
        """Processor time that was spent for this call in another thread."""
        self._turns.charge(self._uid, spent_ns)

    def run(self, work: Awaitable[T]) -> Awaitable[T]:
        """The same work, every piece of which is charged to its user."""
        return _Metered(work, self)

    def step(self, resume: Callable[[Any], Any], value: Any) -> Any:
        self._began_ns = time.perf_counter_ns()
        before_ns = time.thread_time_ns()  # on a busy host the clock would charge what other programs took
        try:
            return resume(value)
        finally:
            self._turns.charge(self._uid, time.thread_time_ns() - before_ns)


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
            except BaseException as error:  # cancellation, which the work may handle
                resume, value = inner.throw, error


_turn: ContextVar[Turn] = ContextVar("turn")


def begin(turn: Turn) -> None:
    """The call that runs now is this one."""
    _turn.set(turn)


async def breathe() -> None:
    """Lets others go first when this call has run for a while."""
    turn = _turn.get(None)
    if turn:
        await turn.breathe()


def charge_work(work: Awaitable[T]) -> Awaitable[T]:
    """The same work, for a task that outlives this call: its user is charged for it all the same."""
    turn = _turn.get(None)
    return turn.run(work) if turn else work


def charge_thread(spent_ns: int) -> None:
    """Processor time that a thread has spent for this call: its user is charged for it as for the loop's."""
    turn = _turn.get(None)
    if turn:
        turn.charge(spent_ns)


async def charge_message() -> None:
    """After each message that a stream's own task has read: charges it, and waits for the turn of the next one."""
    turn = _turn.get(None)
    if turn:
        await turn.message()
