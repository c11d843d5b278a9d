"""A device belongs to one daemon, whatever folders, users and network namespaces the others are in."""

from __future__ import annotations

import array
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import make_device
from tests.daemon.node import Node, own_node, wait_until
from vgpud import paths
from vgpud.core.model import Device
from vgpud.errors import ConflictError, ExitCode
from vgpud.host.device_lock import DeviceLocks, Owner, lock_name, owner
from vgpud.simdevice.process import SimulatedDevice

UUID = f"GPU-{os.getpid():08x}-0000-0000-0000-000000000000"
NAME = lock_name(UUID)
ME = f"user {pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


def device(uuid: str = UUID, index: int = 0) -> Device:
    return make_device(index, uuid=uuid, is_simulated=False)


@pytest.fixture
def locks() -> Iterator[DeviceLocks]:
    made = DeviceLocks("/run/first/vgpud.sock")
    yield made
    made.close()


@pytest.fixture
def second(fake_driver: Path, node: Node) -> Iterator[Node]:
    """A daemon with other folders on the devices of `node`."""
    with own_node(fake_driver) as made:
        made.own_device = node.own_device
        yield made


def test_the_second_daemon_with_other_folders_is_refused(node: Node, second: Node) -> None:
    node.start()
    done = second.run()
    assert done.returncode == ExitCode.CONFLICT
    assert node.process
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"is owned by pid {node.process.pid} (" in done.stderr
    assert f"{ME}, API socket {node.runtime / 'vgpud.sock'}: stop that one" in done.stderr
    assert not second.runtime.exists(), "a daemon that cannot work leaves nothing behind"
    assert node.create().name == "a"


def test_the_second_daemon_takes_the_devices_that_are_left(node: Node, second: Node) -> None:
    node.env = second.env = {"FAKE_DEVICES": "2"}
    node.settings["device"] = '["0"]'
    node.start()
    second.start()
    left = second.nodes.ListDevices(_every_device()).devices
    assert [d.index for d in left] == [1]
    assert any(text.startswith("device 0 (GPU-") for text in second.messages("device.owned"))


def _every_device() -> object:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    return pb.ListDevicesRequest()


def test_a_killed_daemon_leaves_nothing_that_its_successor_must_wait_for(node: Node, second: Node) -> None:
    for _ in range(3):
        node.start()
        node.stop(signal.SIGKILL)
    second.start()


def test_whoever_asks_reads_pid_user_and_socket(locks: DeviceLocks) -> None:
    assert owner(NAME) is None
    assert locks.take([device()]) == (device(),)
    other = DeviceLocks("/run/second/vgpud.sock")
    with pytest.raises(ConflictError) as refused:
        other.take([device()])  # ours does not answer yet: its pid and user are the kernel's word
    assert f"device 0 ({UUID}) is owned by pid {os.getpid()} (" in str(refused.value)
    assert f"{ME}, which does not say that it is a vgpud: stop that one, or leave the device out" in str(refused.value)
    locks.close()
    assert other.take([device()]) == (device(),)
    other.close()


def test_a_holder_that_does_not_listen_is_named(locks: DeviceLocks) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(b"\0" + NAME.encode())
        with pytest.raises(ConflictError, match=f"owned by pid {os.getpid()} "):
            locks.take([device()])


def test_the_user_of_a_holder_that_no_process_has_open_is_named(locks: DeviceLocks) -> None:
    """The only descriptor is under way in a message."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as hidden:
            hidden.bind(b"\0" + NAME.encode())
            rights = array.array("i", [hidden.fileno()])
            ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        assert owner(NAME) == Owner(0, os.getuid())
        with pytest.raises(ConflictError, match=f"a process that cannot be seen from here, {ME.split(' (')[0]}"):
            locks.take([device()])


def test_another_users_holder_is_named_with_what_it_says() -> None:
    if os.getuid():
        pytest.skip("only root can be another user")
    work = "import os, socket, sys\nos.setgid(4711); os.setuid(4711)\n"
    work += (
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(b'\\0' + sys.argv[1].encode()); s.listen()\n"
    )
    work += "print(flush=True)\nwhile True:\n  s.accept()[0].send(b'/run/mine\\x1b[2J\\n')"
    squatter = subprocess.Popen([sys.executable, "-I", "-S", "-c", work, NAME], stdout=subprocess.PIPE)
    try:
        assert squatter.stdout
        squatter.stdout.readline()
        found = owner(NAME)
        assert found == Owner(squatter.pid, 4711, "/run/mine?[2J?")
        assert "user uid 4711, API socket /run/mine?[2J?" in str(found)
    finally:
        squatter.kill()
        squatter.communicate()


def test_a_daemon_in_another_network_namespace_is_seen(locks: DeviceLocks) -> None:
    if os.getuid():
        pytest.skip("needs root: unshare --net")
    work = "import signal, socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
    work += "s.bind(b'\\0' + sys.argv[1].encode()); s.listen(); print(flush=True); signal.pause()"
    command = ["unshare", "--net", sys.executable, "-I", "-S", "-c", work, NAME]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert other.stdout
        if not other.stdout.readline():
            pytest.skip("no network namespaces here")
        assert owner(NAME) == Owner(other.pid, 0)
        with pytest.raises(ConflictError, match=f"owned by pid {other.pid} "):
            locks.take([device()])
    finally:
        other.kill()
        other.communicate()


def test_simulated_devices_of_two_simulators_are_different_ones(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("one")
    one, two, link = (lock_name(UUID, str(tmp_path / name)) for name in ("one", "two", "link"))
    assert one == link != two
    assert lock_name("MIG-" + UUID[4:]) != lock_name(UUID)


@pytest.mark.skipif(not (paths.sim_lib_dir() / "vgpu-simd").exists(), reason="the simulated driver is not built")
def test_one_simulator_has_one_daemon_and_two_have_two(node: Node, second: Node) -> None:
    with SimulatedDevice(node.directory / "sim") as one, SimulatedDevice(second.directory / "sim") as two:
        node.start("--device", "sim", "--sim-dir", str(one.directory))
        done = second.run("--device", "sim", "--sim-dir", str(one.directory))
        assert (done.returncode, "is owned by pid" in done.stderr) == (ExitCode.CONFLICT, True)
        second.start("--device", "sim", "--sim-dir", str(two.directory))
        wait_until(lambda: second.nodes.ListDevices(_every_device()).devices)
