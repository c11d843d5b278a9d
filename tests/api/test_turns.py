"""Whose request continues next: on a real loop, with a clock that the test turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from vgpud.api import turns as module
from vgpud.api.peer_proxy import Peer
from vgpud.api.permissions import Authorizer
from vgpud.api.turns import LOOK_NS, MESSAGE_NS, PIECE_NS, WAITING_MAX, Turn, Turns, begin, breathe
from vgpud.api.watches import INTERVAL_MIN_S, Snapshots
from vgpud.api.workers import WorkCalls, said_from
from vgpud.core.fairness.accounts import ADMINS, Accounts, Shares
from vgpud.v1alpha1 import vgpud_pb2 as pb

ALICE, BOB = 1000, 1001
S = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0
        self.turns = Turns(Accounts(Shares(all_overdrawn_ns=0)), lambda: self.now_ns)

    def overdraw(self, *uids: int) -> None:
        for uid in uids:
            self.turns.charge(uid, Shares().saved_ns + 50_000_000)

    def turn(self) -> None:
        """To when all users may continue."""
        self.now_ns += 10 * S
        if self.turns._timer:
            self.turns._timer.cancel()
            self.turns._next()

    async def pass_time(self) -> None:
        self.turn()
        await asyncio.sleep(0.02)


def on_a_clock(test: Callable[[Clock], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(Clock()), 30))

    run.__name__ = test.__name__
    return run


class Aborted(Exception):
    pass


class Context:
    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def peer(self) -> str:
        return ""

    async def abort(self, code: grpc.StatusCode, text: str, _trailing: object) -> None:
        raise Aborted(f"{code.name}: {text}")


async def guard_method(clock: Clock, uid: int, method: Callable[..., Any], make: Any = None) -> Any:
    async def handler(details: object) -> Any:
        made = make or grpc.unary_unary_rpc_method_handler
        return made(method, pb.GetNodeRequest.FromString, pb.GetNodeResponse.SerializeToString)

    authorizer = Authorizer(SimpleNamespace(), lambda address: Peer(uid, uid, (), 0, 0), clock.turns)  # type: ignore[arg-type]
    return await authorizer.intercept_service(handler, SimpleNamespace(method="/vgpud.v1alpha1.NodeService/GetNode"))


@on_a_clock
async def test_who_is_overdrawn_waits_and_no_other(clock: Clock) -> None:
    clock.overdraw(ALICE)
    await clock.turns.wait(BOB)
    await clock.turns.wait(ADMINS)
    await clock.turns.wait_apart(ADMINS)
    late = asyncio.create_task(clock.turns.wait(ALICE))
    await asyncio.sleep(0.02)
    assert not late.done()
    await clock.pass_time()
    assert late.done()


@on_a_clock
async def test_users_take_turns_and_what_has_begun_goes_first(clock: Clock) -> None:
    order: list[str] = []
    clock.overdraw(ALICE, BOB)

    async def wait(name: str, uid: int, **how: bool) -> None:
        await clock.turns.wait(uid, **how)
        order.append(name)

    asked = [("a1", ALICE, False), ("a2", ALICE, False), ("a3", ALICE, False), ("a0", ALICE, True), ("b1", BOB, False)]
    tasks = [asyncio.create_task(wait(name, uid, has_begun=begun)) for name, uid, begun in asked]
    await asyncio.sleep(0)
    clock.turn()
    await asyncio.gather(*tasks)
    assert order == ["a0", "b1", "a1", "a2", "a3"]


@on_a_clock
async def test_another_users_debt_delays_no_other(clock: Clock) -> None:
    """The timer was set to when Alice may continue, seconds later; users that arrive meanwhile need not wait."""
    clock.overdraw(ALICE)
    clock.turns.charge(BOB, 1)
    assert clock.turns.is_free(BOB)
    indebted = asyncio.create_task(clock.turns.wait(ALICE))
    await asyncio.sleep(0)
    timer = clock.turns._timer
    assert timer
    free = asyncio.create_task(clock.turns.wait_apart(BOB))
    await asyncio.sleep(0)
    assert clock.turns._timer and clock.turns._timer.when() < timer.when()
    await free
    assert not indebted.done()
    indebted.cancel()


@on_a_clock
async def test_a_debt_is_looked_at_again_when_the_others_have_gone(clock: Clock) -> None:
    """Alone a user's debt is paid ten times sooner than it seemed when they began to wait."""
    loop = asyncio.get_running_loop()
    clock.turns.charge(BOB, 1)
    clock.overdraw(ALICE)
    waiting = asyncio.create_task(clock.turns.wait(ALICE))
    await asyncio.sleep(0)
    timer = clock.turns._timer
    assert timer and timer.when() - loop.time() <= LOOK_NS / 1e9
    waiting.cancel()


@on_a_clock
async def test_streams_do_not_keep_calls_or_each_other_waiting(clock: Clock) -> None:
    """Their messages never end."""
    sent = [0, 0, 0]

    async def send(number: int) -> None:
        turn = Turn(clock.turns, ALICE)
        while True:
            await turn.message()
            sent[number] += 1

    clock.overdraw(ALICE)
    streams = [asyncio.create_task(send(number)) for number in range(len(sent))]
    call = asyncio.create_task(clock.turns.wait(ALICE))
    for _ in range(2 * len(streams) + 2):
        await asyncio.sleep(0)
        clock.turn()
    await asyncio.sleep(0)
    for stream in streams:
        stream.cancel()
    assert call.done()
    assert min(sent) >= 2


@on_a_clock
async def test_calls_do_not_keep_a_connection_from_being_heard(clock: Clock) -> None:
    """One that answers no pings is ended."""
    order: list[str] = []
    clock.overdraw(ALICE)

    async def wait(name: str, waiting: Coroutine[Any, Any, None]) -> None:
        await waiting
        order.append(name)

    turns = clock.turns
    calls = [asyncio.create_task(wait("call", turns.wait(ALICE, has_begun=True))) for _ in range(3)]
    bytes_ = [asyncio.create_task(wait("bytes", turns.wait_apart(ALICE, arriving=True))) for _ in range(2)]
    await asyncio.sleep(0)
    clock.turn()
    await asyncio.gather(*calls, *bytes_)
    assert order == ["bytes", "call", "bytes", "call", "call"]


@on_a_clock
async def test_a_call_that_is_given_up_leaves_the_queue(clock: Clock) -> None:
    clock.overdraw(ALICE)
    given_up, stays = (asyncio.create_task(clock.turns.wait(ALICE)) for _ in range(2))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert clock.turns.waiting(ALICE) == 1
    await clock.pass_time()
    assert stays.done()
    assert clock.turns.is_free(ALICE)


@on_a_clock
async def test_too_many_waiting_calls_are_refused_with_a_sentence(clock: Clock) -> None:
    answered = 0

    async def method(request: Any, context: Any) -> pb.GetNodeResponse:
        nonlocal answered
        answered += 1
        return pb.GetNodeResponse()

    call = (await guard_method(clock, ALICE, method)).unary_unary
    clock.overdraw(ALICE)
    waiting = [asyncio.create_task(call(b"", Context())) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0.01)
    assert answered == 0
    with pytest.raises(Aborted, match=f"RESOURCE_EXHAUSTED: uid {ALICE} has {WAITING_MAX} waiting calls"):
        await call(b"", Context())
    await (await guard_method(clock, BOB, method)).unary_unary(b"", Context())
    assert answered == 1, "another user's limit is their own"
    clock.turn()
    await asyncio.gather(*waiting)
    assert answered == 1 + WAITING_MAX


@on_a_clock
async def test_what_a_handler_takes_is_its_users(clock: Clock) -> None:
    """And a long one lets others continue in between."""
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    async def method(request: Any, context: Any) -> pb.GetNodeResponse:
        for _ in range(20):
            end_ns = time.thread_time_ns() + PIECE_NS  # as it is charged
            while time.thread_time_ns() < end_ns:
                pass
            await breathe()
        return pb.GetNodeResponse()

    beside = asyncio.create_task(other())
    answer = await (await guard_method(clock, ALICE, method)).unary_unary(b"", Context())
    beside.cancel()
    assert answer == pb.GetNodeResponse() or answer == b""
    assert others >= 15
    clock.turns.charge(ALICE, Shares().saved_ns - 20 * PIECE_NS)
    assert not clock.turns.is_free(ALICE), "its pieces were charged"


@on_a_clock
async def test_looking_up_the_jobs_that_a_watch_names_is_its_users(clock: Clock) -> None:
    """Each once, however often it is named; others continue in between."""
    others = 0
    looked: list[int] = []

    def job_owner(job_id: int) -> int:
        looked.append(job_id)
        end_ns = time.thread_time_ns() + PIECE_NS  # as it is charged
        while time.thread_time_ns() < end_ns:
            pass
        return ALICE

    async def other() -> None:
        nonlocal others
        while True:
            await asyncio.sleep(0)
            others += 1

    async def method(request: Any, context: Any) -> AsyncIterator[pb.WatchJobsResponse]:
        return
        yield

    async def handler(details: object) -> Any:
        return grpc.unary_stream_rpc_method_handler(method, pb.WatchJobsRequest.FromString, None)

    site: Any = SimpleNamespace(job_owner=job_owner)
    authorizer = Authorizer(site, lambda address: Peer(ALICE, ALICE, (), 0, 0), clock.turns)
    watch = await authorizer.intercept_service(handler, SimpleNamespace(method="/vgpud.v1alpha1.JobService/WatchJobs"))
    beside = asyncio.create_task(other())
    request = pb.WatchJobsRequest(job_ids=[*range(1, 21)] * 2)
    await watch.unary_stream(request.SerializeToString(), Context())
    beside.cancel()
    assert looked == [*range(1, 21)]
    assert others >= 15
    clock.turns.charge(ALICE, Shares().saved_ns - 10 * PIECE_NS)
    assert not clock.turns.is_free(ALICE), "looking them up was charged"


def left_for(clock: Clock, messages: int) -> None:
    """Leaves Alice so much of her savings; the clock stands."""
    clock.turns.charge(ALICE, Shares().saved_ns - messages * MESSAGE_NS)


@on_a_clock
async def test_a_streams_messages_wait_for_their_turn(clock: Clock) -> None:
    turn = Turn(clock.turns, ALICE)
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            await turn.message()
            sent += 1

    left_for(clock, 5)
    stream = asyncio.create_task(send())
    await asyncio.sleep(0.3)
    stream.cancel()
    assert 0 < sent <= 6


@on_a_clock
async def test_what_a_worker_says_is_its_users(clock: Clock) -> None:
    """A stream of Work is read by a task of its own."""
    heard: list[object] = []

    async def says() -> AsyncIterator[pb.WorkRequest]:
        while True:
            yield pb.WorkRequest(job_id=1)

    workers: Any = SimpleNamespace(hear=heard.append)
    request: Any = pb.WorkRequest(job_id=1)
    box: Any = SimpleNamespace(put=heard.append, close=lambda: None)
    begin(Turn(clock.turns, ALICE))
    left_for(clock, 5)
    reader = asyncio.create_task(WorkCalls(workers, {}.get)._read(says(), said_from(request), box))
    await asyncio.sleep(0.3)
    reader.cancel()
    assert 0 < len(heard) <= 7


@on_a_clock
async def test_cancelling_reaches_the_handler(clock: Clock) -> None:
    seen = []

    async def method(request: Any, context: Any) -> pb.GetNodeResponse:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return pb.GetNodeResponse()

    call = (await guard_method(clock, ALICE, method)).unary_unary
    running = asyncio.create_task(call(b"", Context()))
    await asyncio.sleep(0)
    running.cancel()
    assert isinstance((await asyncio.gather(running, return_exceptions=True))[0], asyncio.CancelledError)
    assert seen == ["cancelled"]


@on_a_clock
async def test_bytes_that_are_no_message_are_the_callers_mistake(clock: Clock) -> None:
    async def method(request: Any, context: Any) -> pb.GetNodeResponse:
        return pb.GetNodeResponse()

    async def stream(requests: Any, context: Any) -> AsyncIterator[pb.GetNodeResponse]:
        async for _ in requests:
            yield pb.GetNodeResponse()

    async def garbage() -> AsyncIterator[bytes]:
        yield b""
        yield b"\xff\xff"

    class Writing(Context):
        write_count = 0

        async def write(self, message: object) -> None:
            self.write_count += 1

    for uid in (ALICE, 0):
        call = (await guard_method(clock, uid, method)).unary_unary
        with pytest.raises(Aborted, match="INVALID_ARGUMENT: the request's 3 bytes are not this method's message"):
            await call(b"\xff\xff\xff", Context())
    talk = (await guard_method(clock, ALICE, stream, grpc.stream_stream_rpc_method_handler)).stream_stream
    context = Writing()
    with pytest.raises(Aborted, match="INVALID_ARGUMENT: the request's 2 bytes"):
        await talk(garbage(), context)
    assert context.write_count == 1


def test_watches_share_what_they_send() -> None:
    made: list[str] = []
    now_ns, change = 0, 0

    async def make(name: str) -> bytes:
        await asyncio.sleep(0)
        made.append(name)
        return name.encode()

    async def run() -> None:
        nonlocal now_ns, change
        snapshots = Snapshots(lambda: now_ns)

        async def get(name: str) -> Any:
            return await snapshots.get(name, lambda: change, lambda: make(name))

        several = await asyncio.gather(*(get("alice") for _ in range(16)))
        assert {shot.data for shot in several} == {b"alice"}
        await get("bob")
        assert made == ["alice", "bob"], "once for all with equal rights, and for nobody else"
        change = 1
        assert (await get("alice")).change == 0, "it knows that it is old"
        now_ns += int(INTERVAL_MIN_S * 1e9)
        assert (await get("alice")).change == 1
        assert made == ["alice", "bob", "alice"]
        assert not snapshots._locks

    asyncio.run(run())


def test_outside_of_calls_nothing_waits() -> None:
    asyncio.run(breathe())
    assert module.PIECE_NS < module.CALL_NS
