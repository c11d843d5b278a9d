"""A daemon that starts where nothing can be written: it serves what is there, admits nothing new, and recovers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from tests.attach import client
from tests.daemon.node import Node, wait_until
from tests.daemon.test_shells import entry, make_slice
from vgpud import paths
from vgpud.core.events import SaveSlice
from vgpud.errors import ExitCode, StoreUnwritableError
from vgpud.jobs.messages import Attempt, Member
from vgpud.jobs.runner import Jobs, StartError
from vgpud.store import database as stores
from vgpud.store import opening
from vgpud.store.database import Store
from vgpud.v1alpha1 import vgpud_pb2 as pb

UNIT = Path(__file__).parents[2] / "vgpud" / "setup" / "vgpud.service"


@dataclass
class Disk:
    """A small file system of its own, mounted at a node's state directory."""

    node: Node

    def fill(self) -> None:
        with contextlib.suppress(OSError), (self.node.state / "filling").open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(b"x" * size)

    def free_space(self) -> None:
        (self.node.state / "filling").unlink()

    def remount(self, option: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{option}", self.node.state], check=True)


@pytest.fixture
def disk(node: Node) -> Iterator[Disk]:
    node.state.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2M,mode=700", "none", node.state]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield Disk(node)
    finally:
        if node.process:
            node.stop(signal.SIGKILL)
        subprocess.run(["umount", "-l", node.state], check=True)


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(grpc.RpcError) as error:
        call()
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(error.value.details())


def submit(node: Node) -> None:
    from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

    spec = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=10), command=["true"], directory="/", log="/dev/null")
    stubs.JobServiceStub(node.channel()).SubmitJob(pb.SubmitJobRequest(spec=spec))


def check_serves_without_writing(node: Node, why: str) -> None:
    """Slice a is there from before."""
    assert node.names() == ["a"]
    assert client.attach(node.socket(), client.request(client.RESUME)).status == client.OK, "a running program"
    assert client.attach(node.socket()).status == client.OK, "a new one, in a slice that is there"
    for call in (lambda: node.create("b", 100), lambda: submit(node)):
        text = refusal(call)
        assert "nothing was changed: the state database" in text and why in text and "Nothing new is admitted" in text
    assert not Path(node.socket("b")).exists()
    (message,) = node.messages("state.unwritable")
    assert why in message


def check_recovers(node: Node) -> None:
    wait_until(lambda: "state.writable" in node.event_kinds(), "the disk found writable")
    assert node.create("b", 100).name == "b"
    submit(node)
    node.stop(signal.SIGKILL)
    node.start()
    assert node.names() == ["a", "b"]
    assert "Traceback" not in node.log.read_text()


@pytest.mark.root
def test_a_daemon_starts_on_a_full_disk(disk: Disk) -> None:
    node = disk.node
    node.start()
    node.create("a", 100)
    node.stop()
    disk.fill()
    node.start()
    check_serves_without_writing(node, "check that its disk has free space")
    disk.free_space()
    check_recovers(node)


@pytest.mark.root
def test_a_disk_that_is_full_after_a_crash(disk: Disk) -> None:
    """What the crash left may be enough to open the database with; the first change is refused then."""
    node = disk.node
    node.start()
    node.create("a", 100)
    node.stop(signal.SIGKILL)
    disk.fill()
    node.start()
    assert node.names() == ["a"]
    for call in (lambda: node.create("b", 100), lambda: submit(node)):
        text = refusal(call)
        assert "nothing was changed" in text and "check that its disk has free space" in text
    disk.free_space()
    assert node.create("b", 100).name == "b"


@pytest.mark.root
def test_a_daemon_starts_on_a_read_only_disk(disk: Disk) -> None:
    """After a crash, so that the newest changes are in the log alone."""
    node = disk.node
    node.start()
    node.create("a", 100)
    node.stop(signal.SIGKILL)
    disk.remount("ro")
    node.start()
    check_serves_without_writing(node, "file system")
    assert node.run().returncode == ExitCode.CONFLICT, "and it is alone there all the same"
    disk.remount("rw")
    check_recovers(node)


@pytest.mark.root
def test_the_first_start_may_be_on_a_full_disk(disk: Disk) -> None:
    node = disk.node
    disk.fill()
    node.start()
    assert "check that its disk has free space" in refusal(lambda: node.create("a", 100))
    assert node.run().returncode == ExitCode.CONFLICT
    disk.free_space()
    wait_until(lambda: "state.writable" in node.event_kinds(), "the disk found writable")
    assert node.create("a", 100).name == "a"


@pytest.mark.root
def test_a_state_directory_that_cannot_be_made_yet_is_tried_again(disk: Disk) -> None:
    """By systemd: the exit code is none of those after which it gives up."""
    node = disk.node
    disk.remount("ro")
    mounted, node.state = node.state, node.state / "inside"
    done = node.run()
    node.state = mounted
    assert f"cannot create {mounted / 'inside'}: Read-only file system; free space" in done.stderr.splitlines()[-1]
    unit = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#")
    assert str(done.returncode) not in unit["RestartPreventExitStatus"].split()
    assert unit["Restart"] == "on-failure" and unit["StartLimitIntervalSec"] == "0", "it never gives up"


def test_jobs_start_where_their_directory_could_not_be_made_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = Attempt(1, 1, 0, 0, (), "/", 0, (Member(("true",), {}),))
    directory = tmp_path / "jobs"

    def full(path: Path, *_arguments: object) -> Path:
        raise paths.cannot_make(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    async def start() -> None:
        jobs = Jobs(directory, SimpleNamespace())  # type: ignore[arg-type]
        jobs._program = tmp_path / "none"
        with monkeypatch.context() as patch:
            patch.setattr(paths, "make_private_dir", full)
            assert await jobs.adopt([(1, 1)])
            with pytest.raises(StartError, match="No space left on device; free space") as error:
                await jobs.start(attempt)
            assert error.value.may_retry and not directory.exists()
        with pytest.raises(StartError, match="cannot start"):
            await jobs.start(attempt)
        jobs.close()

    asyncio.run(start())
    assert directory.is_dir() and directory.stat().st_mode & 0o777 == 0o700


def test_space_for_a_copy_is_not_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To write the file again, once after an upgrade, takes as much space again."""

    def full(_db: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(opening, "_vacuum", full)
        store = Store(tmp_path)
    assert not store.unwritable
    assert [text for text in store.notes if "tried again at the next start" in text] == store.notes != []
    store.close()
    for _ in range(2):
        store = Store(tmp_path)
        assert store.notes == []
        store.close()


def test_what_cannot_be_written_is_served_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without root: the error is injected."""
    store = Store(tmp_path)
    store.apply([SaveSlice(make_slice())])
    store.close()
    really = opening._open_file

    def full(*_arguments: object) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(opening, "_open_file", full)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    store = Store(tmp_path)
    assert store.load(1).slices == (make_slice(),)
    for write in (
        lambda: store.apply([SaveSlice(make_slice("b"))]),
        lambda: store.append_events([entry(1)], 5),
        lambda: store.forget_request("r"),
        store.flush,
    ):
        with pytest.raises(StoreUnwritableError, match="disk is full; check that its disk has free space"):
            write()
    assert not store.recover() and store.unwritable
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(opening, "_open_file", really)
    assert store.recover() and not store.unwritable
    store.apply([SaveSlice(make_slice("b"))])
    store.close()
    assert [one.name for one in Store(tmp_path).load(1).slices] == ["a", "b"]
    assert not [path for path in os.listdir("/dev/shm") if path.startswith("vgpud-")], "no copy is left"


def test_attempts_that_take_long_are_rare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call waits for them: copying a large database before its migration, for which there is no space."""
    store = Store(tmp_path)
    store.unwritable = "full"
    now_s, attempts = 100.0, 0

    def slow(*_arguments: object) -> None:
        nonlocal now_s, attempts
        now_s, attempts = now_s + 2, attempts + 1
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stores, "reopen", slow)
    monkeypatch.setattr(stores, "time", SimpleNamespace(monotonic=lambda: now_s))
    for _ in range(100):
        assert not store.recover()
        now_s += 1
    assert attempts == 2
    store.close()
