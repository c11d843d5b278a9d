"""Repairs continue by themselves, and a runtime directory that a user removed comes back under a live daemon."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
from pathlib import Path

import grpc
import pytest

from tests.attach import client
from tests.attach.test_server import kill, spawn
from tests.daemon.node import Node, wait_until
from vgpud.core.events import Log
from vgpud.errors import ConflictError, ExitCode
from vgpud.host.directories import DirectoryLock, RuntimeDirectory
from vgpud.host.upkeep import TELL_AFTER_NS, PeriodicTasks
from vgpud.v1alpha1 import vgpud_pb2 as pb


def test_a_repair_that_fails_keeps_no_other_from_being_done() -> None:
    log_entries: list[Log] = []
    now_ns = 0
    faults: list[str] = ["no room"]
    done: list[str] = []

    def broken() -> None:
        if faults:
            raise OSError(faults[0])

    async def good() -> None:
        done.append("good")

    async def main() -> None:
        nonlocal now_ns
        upkeep = PeriodicTasks(log_entries.append, lambda: now_ns)

        async def turn() -> None:
            await upkeep.do("the first", broken)
            await upkeep.do("the second", good)

        for _ in range(100):  # reported once in this time
            now_ns += TELL_AFTER_NS // 100 - 1
            await turn()
        assert [entry.kind for entry in log_entries] == ["upkeep.failed"]
        assert log_entries[0].message == "the first failed (OSError: no room): it is tried again; everything else works"
        for _ in range(1000):  # then less and less often
            now_ns += TELL_AFTER_NS
            await turn()
        assert 5 < len(log_entries) < 15
        faults[0] = "another"
        await turn()
        assert "another" in log_entries[-1].message
        faults.clear()
        await turn()
        await turn()
        assert [entry.message for entry in log_entries[-2:]][1] == "the first: works again"
        assert len(done) == 1103

    asyncio.run(main())


def test_runtime_directory_comes_back_with_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir(mode=0o750)
    path.chmod(0o750)
    directory = RuntimeDirectory(path)
    assert directory.make_private().stat().st_mode & 0o777 == 0o700
    assert not directory.repair()
    shutil.rmtree(path)
    assert directory.repair()
    assert not directory.repair()
    modes = {entry.name: entry.stat().st_mode & 0o777 for entry in path.iterdir()}
    assert modes == {"slices": 0o755, "cdi": 0o755, "containers": 0o755, "private": 0o700}
    assert path.stat().st_mode & 0o777 == 0o750


def test_a_lock_whose_file_was_removed_is_taken_again(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path, "--runtime-dir")
    assert not lock.repair()
    (tmp_path / "vgpud.lock").unlink()
    assert lock.repair()
    with pytest.raises(ConflictError, match=f"another vgpud .pid {os.getpid()}. uses"):
        DirectoryLock(tmp_path, "--runtime-dir")
    lock.close()
    DirectoryLock(tmp_path, "--runtime-dir").close()


def test_users_who_can_open_the_directory_cannot_keep_the_daemon_out(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    users = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(users, fcntl.LOCK_SH)
    DirectoryLock(tmp_path, "--runtime-dir").close()
    tmp_path.chmod(0o700)  # now it is ours alone: a daemon that could make no file there holds it so
    with pytest.raises(ConflictError):
        DirectoryLock(tmp_path, "--runtime-dir")
    os.close(users)


def _answers(node: Node) -> bool:
    node.hang_up()
    try:
        return bool(node.nodes.GetNode(pb.GetNodeRequest(), timeout=2).node.name)
    except grpc.RpcError:
        return False


def _knows(node: Node, process_id: int) -> bool:
    try:
        return process_id in {p.process_id for p in node.processes()}
    except grpc.RpcError:  # a call that was on its way to the server that is replaced
        return False


def test_a_removed_runtime_directory_comes_back_whole(node: Node) -> None:
    """Programs that are attached are not hurt, new ones find their sockets, and the daemon is still alone there."""
    node.start()
    node.create()
    program = spawn(node)
    attached = wait_until(node.processes, "the program in the list")[0].process_id
    for _ in range(2):  # what was repaired can be repaired
        shutil.rmtree(node.runtime)
        wait_until(lambda: _answers(node), "the API")
        wait_until(Path(node.socket()).exists, "the slice's socket")
        wait_until(lambda: _knows(node, attached), "the program")
        assert client.attach(node.socket()).status == client.OK
        wait_until((node.runtime / "runtime.sock").exists, "the runtime's socket")
        wait_until((node.runtime / "cdi" / "attach.sock").exists, "the socket that containers share")
        wait_until((node.runtime / "vgpud.lock").exists, "the lock")
    node.create("b", 100)
    assert client.attach(node.socket("b")).status == client.OK
    assert (node.runtime.stat().st_mode & 0o777, (node.runtime / "private").stat().st_mode & 0o777) == (0o755, 0o700)
    assert "Traceback" not in node.log.read_text()
    assert node.run().returncode == ExitCode.CONFLICT
    assert "socket.repaired" in node.event_kinds()
    kill(program)
    wait_until(lambda: all(p.process_id != attached for p in node.processes()), "the end of the program")
    assert node.stop(signal.SIGTERM) == ExitCode.OK


def test_what_cannot_be_repaired_keeps_nothing_else_waiting(node: Node) -> None:
    """A file in the place of a directory: one slice has no socket, the others and the API have theirs."""
    node.start()
    node.create("a", 100)
    node.create("b", 100)
    slices = node.runtime / "slices"
    shutil.rmtree(slices / "a")
    (slices / "a").write_text("in the way")
    wait_until(lambda: "upkeep.failed" in node.event_kinds(), "the event")
    assert any(text.startswith("the attach socket of slice a failed") for text in node.messages("upkeep.failed"))
    shutil.rmtree(slices / "b")
    wait_until(Path(node.socket("b")).exists, "the other slice's socket")
    (slices / "a").unlink()
    wait_until(Path(node.socket("a")).exists, "the slice's socket")
    wait_until(lambda: "the attach socket of slice a: works again" in node.messages("upkeep.worked"), "the event")
