"""A disk that takes its time, or fails: only a call that promises that something is kept waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import struct
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.attach import client
from tests.builders import make_slice
from tests.daemon.node import Node, wait_until
from vgpud._shim import ffi
from vgpud.core import events as ev
from vgpud.core.events import SaveSlice
from vgpud.core.model import Process, Share, SiteLimits, Slice
from vgpud.core.observed import Entry
from vgpud.core.origins import User
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.errors import StoreBusyError, StoreError, StoreFlushingError
from vgpud.store import database as stores
from vgpud.store import flush
from vgpud.store.database import Store
from vgpud.store.flush import Flushing
from vgpud.v1alpha1 import vgpud_pb2 as pb

LIMITS = client.PAGE + ffi.offsetof("struct vg_control_device", "min_milli")
#: vgpud on a disk whose flushes last as long as the file of the variable SLOW_DISK exists; one that says so fails them
SLOW = """
import errno, os, time
flush = os.fdatasync
def slow(fd):
    while os.path.exists(os.environ["SLOW_DISK"]):
        with open(os.environ["SLOW_DISK"]) as said:
            if said.read() == "fail":
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        time.sleep(0.01)
    flush(fd)
os.fdatasync = slow
from vgpud.serve import main
main()
"""


def slice_of(name: str, revision: int = 1) -> Slice:
    return make_slice(name, Share("GPU-0", 250, 250, 1, 1), milli=250, revision=revision)


@pytest.fixture
def slow(node: Node) -> Path:
    """Starts the node with two slices; while the returned file is there, its disk does not get ready."""
    flag = node.directory / "slow"
    node.program = ["-c", SLOW]
    node.env = {"SLOW_DISK": str(flag)}
    node.start()
    node.create("a", 250)
    node.create("b", 250)
    return flag


def numbers(node: Node, name: str) -> Callable[[], tuple[int, int]]:
    """Attaches to the slice; what its control page says of minimum and maximum now."""
    tenant = client.attach(node.socket(name))
    control, _report = tenant.map()

    def read_limits(_tenant: client.Tenant = tenant) -> tuple[int, int]:
        return struct.unpack_from("<II", control, LIMITS)

    return read_limits


def change(node: Node, name: str, milli: int) -> Any:
    spec = pb.SliceSpec(min_milli=milli, max_milli=milli)
    return node.slices.UpdateSlice.future(pb.UpdateSliceRequest(name=name, spec=spec))


def test_nothing_waits_for_a_disk_that_another_request_waits_for(node: Node, slow: Path) -> None:
    a, b = numbers(node, "a"), numbers(node, "b")
    slow.touch()
    waiting = [change(node, "a", 300)]
    wait_until(lambda: a() == (300, 300), "the first change in force")
    waiting.append(change(node, "b", 400))
    wait_until(lambda: b() == (400, 400), "the second change in force")
    waiting.append(change(node, "a", 100))
    wait_until(lambda: a() == (100, 100), "the third change in force")
    assert client.attach(node.socket("b")).status == client.OK
    assert node.get("a").revision == 3
    made = node.slices.CreateSlice.future(pb.CreateSliceRequest(name="c", spec=pb.SliceSpec(gpus_milli=100)))
    wait_until(lambda: "c" in node.names(), "the new slice")
    assert not made.done() and not any(one.done() for one in waiting), "what is answered is on the disk"
    slow.unlink()
    assert [one.result(30).slice.revision for one in waiting] == [2, 2, 3]
    assert made.result(30).slice.name == "c"
    node.stop(signal.SIGKILL)
    node.start()
    assert (node.get("a").revision, node.get("b").revision, node.names()) == (3, 2, ["a", "b", "c"])


def test_a_repeated_request_waits_for_the_disk_as_the_first_did(node: Node, slow: Path) -> None:
    slow.touch()
    request = pb.CreateSliceRequest(name="c", spec=pb.SliceSpec(gpus_milli=100), request_id="r")
    first = node.slices.CreateSlice.future(request)
    wait_until(lambda: "c" in node.names(), "the new slice")
    with pytest.raises(grpc.RpcError) as error:
        node.slices.CreateSlice(request, timeout=0.3)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    slow.unlink()
    assert node.slices.CreateSlice(request).slice.uid == first.result(30).slice.uid


def test_a_disk_that_fails_is_said(node: Node, slow: Path) -> None:
    slow.write_text("fail")
    failed = change(node, "a", 300)
    assert failed.code() is grpc.StatusCode.UNAVAILABLE
    assert (
        "done, but a restart of the machine may lose it" in failed.details()
        and "Input/output error" in failed.details()
    )
    assert node.get("a").revision == 2
    slow.unlink()
    assert change(node, "a", 400).result(30).slice.revision == 3
    assert "Traceback" not in node.log.read_text()


def test_who_holds_the_database_delays_no_other(node: Node) -> None:
    """Two requests wait for another process's write, both in force; programs come and go, and the end is kept."""
    node.start()
    node.create("a", 250)
    node.create("b", 250)
    node.create("brief", 100, ephemeral=True)
    a, b = numbers(node, "a"), numbers(node, "b")
    brief = client.attach(node.socket("brief"), client.request(client.HOLD))
    with contextlib.closing(sqlite3.connect(node.state / stores.FILE_NAME, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        waiting = [change(node, "a", 300)]
        wait_until(lambda: a() == (300, 300), "the first change in force")
        waiting.append(change(node, "b", 400))
        wait_until(lambda: b() == (400, 400), "the second change in force")
        assert not any(one.done() for one in waiting)
        assert node.get("a").revision == 1, "not saved, not changed"
        impatient = node.slices.UpdateSlice.future(pb.UpdateSliceRequest(name="a", spec=pb.SliceSpec(max_milli=900)))
        wait_until(lambda: a() == (250, 900), "the third change in force")
        impatient.cancel()  # type: ignore[no-untyped-call]
        wait_until(lambda: a() != (250, 900), "that change taken back")
        brief.close()
        wait_until(lambda: node.names() == ["a", "b"], "the end of the slice that nobody holds any more")
        busy.execute("COMMIT")
    assert [one.result(30).slice.revision for one in waiting] == [2, 2]
    wait_until(lambda: (a(), b()) == ((300, 300), (400, 400)), "what was saved in force")
    node.stop(signal.SIGKILL)
    node.start()
    assert node.names() == ["a", "b"]


# ---- the store and its flushes by themselves ----


def test_a_held_database_is_said_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / stores.FILE_NAME, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusyError, match="which other process has it open"):
            store.apply([SaveSlice(slice_of("a"))])
    assert not store.needs_flush
    assert store.load(1).slices == ()


def test_a_request_waits_for_a_flush_as_long_as_the_disk_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For another process that holds the database it tries BUSY_TRIES times."""
    monkeypatch.setattr(flush, "BUSY_TRIES", 0)
    store = Store(tmp_path)
    store.erase()
    begun, ready = threading.Event(), threading.Event()
    begin_log = stores._begin_log

    def slow_disk(db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        begun.set()
        ready.wait(60)
        db.execute("ROLLBACK")
        begin_log(db)

    monkeypatch.setattr(stores, "_begin_log", slow_disk)

    async def story() -> None:
        flushed = asyncio.create_task(asyncio.to_thread(store.flush))
        await asyncio.to_thread(begun.wait, 60)
        kept = asyncio.create_task(flush.while_busy(lambda: store.apply([SaveSlice(slice_of("a"))])))
        done, _ = await asyncio.wait([kept], timeout=0.2)
        assert not done, kept.exception()
        ready.set()
        await asyncio.gather(flushed, kept)

    asyncio.run(story())
    assert [s.name for s in store.load(1).slices] == ["a"]


def test_tries_are_counted_and_not_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own flush begins the count again: it may have ended a moment before it was asked about."""
    monkeypatch.setattr(flush, "BUSY_TRIES", 2)
    monkeypatch.setattr(flush, "BUSY_EVERY_S", 0.0)
    held, flushing = StoreBusyError("held"), StoreFlushingError("flushing")
    answers: list[StoreBusyError | str] = [held, held, flushing, held, held, "written"]

    def work() -> str:
        answer = answers.pop(0)
        if isinstance(answer, StoreBusyError):
            raise answer
        return answer

    assert asyncio.run(flush.while_busy(work)) == "written"
    answers += [held, held, held, "written"]
    with pytest.raises(StoreBusyError, match="held"):
        asyncio.run(flush.while_busy(work))


def test_only_what_is_to_be_kept_waits_for_a_held_database() -> None:
    """Programs come and go for as long as it is held."""

    def busy(_commands: object) -> None:
        raise StoreBusyError("held")

    made = replace(slice_of("a"), origin=User("a", ephemeral=True))
    store: Any = SimpleNamespace(apply=busy)
    effects: Any = SimpleNamespace(carry_out=list)
    rules: Any = SimpleNamespace(settle_attachments=nullcontext, renew_rules=list)
    no_arbiters: Any = None
    held = SliceMachine(store, no_arbiters)
    held.begin(effects, rules, ev.Started(SiteLimits(), (), (), ()))
    held.state.slices["a"] = made
    for number in range(10):
        held.run(ev.ProcessAttached(Process(number, "a", 1, 0, "p", 0, False), (), ()))
    for number in range(9):
        held.run(ev.ProcessGone(number))
    assert held._unsaved == []
    held.run(ev.ProcessGone(9))
    assert held._unsaved == [ev.ForgetSlice(made.uid)], "the slice ends with its last program"


def test_the_log_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no call waits for the disk: events alone make it long."""
    monkeypatch.setattr(stores, "LOG_BYTES", 200_000)
    store, log = Store(tmp_path), tmp_path / f"{stores.FILE_NAME}-wal"
    longest = 0
    for sequence in range(1, 300):
        store.append_events([Entry(sequence, 0, "kind", "a", "", 0, "x" * 2000)], 100)
        longest = max(longest, log.stat().st_size)
        if store.needs_flush:
            store.needs_flush = False
            store.flush()
            assert log.stat().st_size < 100_000, "begun anew, so that no writer has the disk wait for its head"
    assert 200_000 <= longest < 300_000
    assert 100 <= len(store.load(1000).events) <= 106
    store.close()
    store.flush()  # nothing is left to be done


def test_no_writer_waits_for_a_log_that_begins(tmp_path: Path) -> None:
    """SQLite has the disk wait for the head of a log: the call that opens the store has written it."""
    Store(tmp_path).close()
    log = tmp_path / f"{stores.FILE_NAME}-wal"
    assert not log.exists()
    store = Store(tmp_path)
    assert log.stat().st_size
    store.close()


def test_a_held_database_is_flushed_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "LOG_BYTES", 1)
    store = Store(tmp_path)
    store.apply([SaveSlice(slice_of("a"))])
    with contextlib.closing(sqlite3.connect(tmp_path / stores.FILE_NAME, isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        store.flush()
    store.close()


class Disk:
    """Flushes last until they are let go."""

    def __init__(self) -> None:
        self.needs_flush = False
        self.begin_count = 0
        self.go = threading.Semaphore(0)
        self.fault = ""

    def flush(self) -> None:
        self.begin_count += 1
        self.go.acquire()
        if self.fault:
            raise StoreError(self.fault)


def test_all_who_write_during_a_flush_share_the_next() -> None:
    disk = Disk()

    async def story() -> None:
        flushing = Flushing(disk)
        await flushing.wait_until_saved()  # nothing was written: nothing to wait for

        async def write() -> None:
            disk.needs_flush = True
            await flushing.wait_until_saved()

        first = asyncio.create_task(write())
        while not disk.begin_count:
            await asyncio.sleep(0.001)
        reading = asyncio.create_task(flushing.wait_until_saved())
        rest = [asyncio.create_task(write()) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert disk.begin_count == 1, "one at a time"
        rest[0].cancel()  # a call that does not wait any longer ends no flush
        disk.go.release()
        await first
        done, _ = await asyncio.wait([reading, *rest[1:]], timeout=0.1)
        assert done <= {reading}
        disk.go.release()
        await asyncio.gather(*rest[1:], reading)
        assert disk.begin_count == 2 and not disk.needs_flush

    asyncio.run(story())


def test_a_flush_that_failed_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.fault, disk.needs_flush = "no disk", True

    async def story() -> None:
        flushing = Flushing(disk)
        for _ in range(2):
            disk.go.release()
            with pytest.raises(StoreError, match="no disk"):
                await flushing.wait_until_saved()
        disk.fault = ""
        disk.go.release()
        await flushing.wait_until_saved()

    asyncio.run(story())
    assert disk.begin_count == 3 and not disk.needs_flush
    assert caplog.text.count("no disk") == 1, "said once"


def test_files_of_the_store_are_really_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: flushed.append(os.readlink(f"/proc/self/fd/{fd}")))
    store = Store(tmp_path)
    store.apply([SaveSlice(slice_of("a"))])
    assert store.needs_flush
    store.flush()
    assert flushed == [str(tmp_path / f"{stores.FILE_NAME}-wal")]
