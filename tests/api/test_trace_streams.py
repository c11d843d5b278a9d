"""Who gets what the arbiters trace: by device, bounded, and only while a caller watches; and the RPC of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.attach import client
from tests.builders import make_device, make_slice
from tests.daemon.node import PATIENCE_S, Node, wait_until
from vgpud.api import trace_streams
from vgpud.api.caller import Caller, set_caller
from vgpud.api.server import SliceService
from vgpud.api.trace_streams import Tracing
from vgpud.core.model import Share, State
from vgpud.core.observed import TraceEvent
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words


class Source:
    """Fake arbiters: they report their state when they begin, and what the test puts."""

    def __init__(self) -> None:
        self.is_on = False
        self.begin_count = 0
        self.events: list[TraceEvent] = []

    def trace(self, is_on: bool) -> None:
        self.events = []
        self.is_on = is_on
        if is_on:
            self.begin_count += 1
            self.put("a", kind="regime")

    def put(self, device: str, kind: str = "waits", lost_count: int = 0) -> None:
        assert self.is_on
        self.events.append(TraceEvent(self.begin_count, device, 1, kind, lost_count=lost_count))

    def read_trace(self) -> list[TraceEvent]:
        taken, self.events = self.events, []
        return taken


def test_watchers_hear_of_their_devices_and_of_how_they_stood() -> None:
    source = Source()
    tracing = Tracing(source)

    async def story() -> None:
        with tracing.watch({"a"}) as first:
            source.put("a")
            source.put("b")
            with tracing.watch({"a", "b"}) as second:
                source.put("b")
                assert [e.kind for e in await second.take()] == ["regime", "waits"]
                assert [(e.device_uuid, e.kind) for e in await first.take()] == [
                    ("a", "regime"),
                    ("a", "waits"),
                    ("a", "regime"),
                ]
            assert source.is_on
            source.put("a")
            assert [e.kind for e in await first.take()] == ["waits"]
        assert not source.is_on

    asyncio.run(story())


def test_a_failed_watch_leaves_nothing_on() -> None:
    source = Source()

    async def story() -> None:
        with pytest.raises(ZeroDivisionError), Tracing(source).watch({"a"}):
            raise ZeroDivisionError

    asyncio.run(story())
    assert not source.is_on


def test_a_watch_that_cannot_begin_leaves_nothing_on_and_no_watcher_behind() -> None:
    class Broken(Source):
        def trace(self, is_on: bool) -> None:
            super().trace(is_on)
            if is_on:
                raise OSError(12, "no memory")  # on the second device of two

    source = Broken()
    tracing = Tracing(source)
    for _ in range(2):
        with pytest.raises(OSError, match="no memory"), tracing.watch({"a"}):
            raise AssertionError("it did begin")
    assert not source.is_on


def test_slow_watchers_lose_the_newest_and_are_notified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_streams, "WATCHER_EVENTS_MAX", 5)
    monkeypatch.setattr(trace_streams, "BATCH_EVENTS", 3)
    source = Source()
    tracing = Tracing(source)

    async def story() -> None:
        with tracing.watch({"a"}) as watcher:
            for number in range(8):
                source.put("a", lost_count=10 * (number == 6))
            tracing.hand_out()
            assert len(await watcher.take()) == 3
            source.put("a")
            tracing.hand_out()
            rest = await watcher.take()
            assert [e.lost_count for e in rest] == [0, 0, 14]
            assert await watcher.take() == []

    asyncio.run(story())


# ---- the RPC ----


@pytest.fixture
def trace_stream(node: Node) -> Iterator[Any]:
    """A slice of a real daemon whose trace is watched."""
    node.start()
    node.create("a", 250)
    stream = node.slices.WatchTrace(pb.WatchTraceRequest(name="a"), timeout=PATIENCE_S)
    yield stream
    stream.cancel()


def test_gates_of_a_slice_and_its_neighbour_are_reported(trace_stream: Any, node: Node) -> None:
    node.create("b", 250)
    tenants = [client.attach(node.socket(name)) for name in "ab"]
    heard: set[tuple[str, str]] = set()
    while not {("a", "open"), ("b", "open"), ("", "regime")} <= heard:
        events = next(trace_stream).events
        assert all(e.device_index == 0 and e.time_ns > 0 for e in events)
        heard |= {(e.slice, words.TRACE_EVENT_KIND.to_word(e.kind)) for e in events}
    assert len(tenants) == 2


def test_the_stream_ends_with_its_slice(trace_stream: Any, node: Node) -> None:
    next(trace_stream)
    node.slices.DeleteSlice(pb.DeleteSliceRequest(name="a"))
    assert all(answer is not None for answer in trace_stream)


def test_how_a_slice_ended_is_reported_to_slow_readers_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_streams, "BATCH_EVENTS", 3)
    source = Source()
    made = make_slice("a", Share("a", 250, 250, 1, 1), milli=250)
    state = State(devices={"a": make_device(uuid="a")}, slices={"a": made})
    node, machine = SimpleNamespace(name="n1"), SimpleNamespace(state=state)
    backend: Any = SimpleNamespace(node=node, machine=machine, tracing=Tracing(source), observe=None)
    service = SliceService(backend)

    async def story() -> list[str]:
        set_caller(Caller(0, 0, (), 0, admin=True))
        answers = service.WatchTrace(pb.WatchTraceRequest(name="a"), None)
        heard = [words.TRACE_EVENT_KIND.to_word(e.kind) for e in (await anext(answers)).events]
        for _ in range(9):
            source.put("a")
        state.slices.clear()
        source.put("a", kind="late")
        async for answer in answers:
            assert len(answer.events) <= 3
            heard += [words.TRACE_EVENT_KIND.to_word(e.kind) for e in answer.events]
        return heard

    assert asyncio.run(story()) == ["regime", *["waits"] * 9, "late"]
    assert not source.is_on


def test_a_slice_that_moves_is_followed(node: Node) -> None:
    node.env = {"FAKE_DEVICES": "2"}
    node.start()
    node.create("a", 250)
    first = node.get("a").devices[0]
    stream = node.slices.WatchTrace(pb.WatchTraceRequest(name="a"), timeout=PATIENCE_S)
    next(stream)
    node.create("rest", 750, spec={"device_uuids": [first.device_uuid]})
    spec = pb.SliceSpec(gpus_milli=500, min_milli=500, max_milli=500)
    node.slices.UpdateSlice(pb.UpdateSliceRequest(name="a", spec=spec))
    moved = node.get("a").devices[0]
    assert moved.device_index != first.device_index
    assert client.attach(node.socket()).status == client.OK
    heard: set[int] = set()
    while moved.device_index not in heard:
        heard |= {e.device_index for e in next(stream).events if (e.slice, e.kind) == ("a", pb.TRACE_EVENT_KIND_OPEN)}
    stream.cancel()


def test_a_daemon_that_stops_ends_its_watches(trace_stream: Any, node: Node) -> None:
    """Also those that no caller reads."""
    unread = [node.slices.WatchTrace(pb.WatchTraceRequest(name="a")) for _ in range(3)]
    next(trace_stream)
    assert node.process
    node.process.terminate()
    with pytest.raises(grpc.RpcError) as error:
        list(trace_stream)
    assert error.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    assert node.process.wait(PATIENCE_S) == 0
    node.process = None
    assert "Traceback" not in node.log.read_text()
    for stream in unread:
        stream.cancel()


def test_no_user_can_watch_what_is_not_there(node: Node) -> None:
    node.start()
    with pytest.raises(grpc.RpcError) as error:
        next(node.slices.WatchTrace(pb.WatchTraceRequest(name="none")))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "vgpu slice ls" in error.value.details()


def test_watchers_that_leave_free_their_places(node: Node) -> None:
    node.start()
    node.create("a", 250)
    streams = [node.slices.WatchTrace(pb.WatchTraceRequest(name="a")) for _ in range(64)]  # as many as may watch
    for stream in streams:
        next(stream)
        stream.cancel()

    def watched_again() -> bool:
        again = node.slices.WatchTrace(pb.WatchTraceRequest(name="a"))
        try:
            return next(again) is not None
        except grpc.RpcError:
            return False
        finally:
            again.cancel()

    wait_until(watched_again, "a watch after those that ended")
