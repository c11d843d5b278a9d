"""Connections of the simulated device: how many there may be, and how long one may say nothing."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.node import wait_until
from tests.sim.conftest import MakeDevice
from vgpud.simdevice import control, state_page
from vgpud.simdevice.process import SimulatedDevice

HEADER = (Path(__file__).resolve().parents[2] / "shim/simgpu/server/places.h").read_text()
SOME_USER = 65534


def connect(device: SimulatedDevice, count: int) -> list[socket.socket]:
    found = []
    for _ in range(count):
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(device.directory / state_page.SOCKET_NAME))
        found.append(sock)
    return found


def alive(socks: list[socket.socket]) -> int:
    """Of these connections, those that the server has not closed."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    return len(socks) - len(poll.poll(0))


def descriptors(device: SimulatedDevice) -> int:
    return len(os.listdir(f"/proc/{device.pid}/fd"))


def as_user(uid: int, work: Callable[[], int]) -> int:
    """What it returns as a process of this user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.write(writer, str(work()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    return int(found)


def test_a_silent_client_is_disconnected_and_no_other(device: MakeDevice) -> None:
    made = device()
    before = descriptors(made)
    (other,) = connect(made, 1)
    other.send(control.REQUEST.pack(state_page.MAGIC, state_page.VERSION, control.MODE, 0, 0, 0, 0))
    assert control.REPLY.unpack(other.recv(control.REPLY.size))[1] == 0
    silent = connect(made, 40)
    wait_until(lambda: alive(silent) == 0, "the end of the silent ones")
    assert alive([other]) == 1
    assert descriptors(made) <= before + 2
    control.tell_xid(made.directory, 0, 8)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_one_user_has_a_share(device: MakeDevice) -> None:
    made = device()
    made.directory.chmod(0o755)
    made.directory.parent.chmod(0o755)
    share = int(HEADER.partition("#define PLACES_OF_USER_MAX ")[2].split()[0])

    def hoard() -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        socks = connect(made, share + 200)
        wait_until(lambda: alive(socks) <= share, "the refusals")
        return alive(socks)

    assert as_user(SOME_USER, hoard) == share
    control.tell_xid(made.directory, 0, 8)


def test_a_server_without_descriptors_refuses_and_rests(device: MakeDevice) -> None:
    """What it could not accept stayed in the backlog, and kept it busy without end."""
    made = device()
    resource.prlimit(made.pid, resource.RLIMIT_NOFILE, (descriptors(made) + 20,) * 2)
    socks = connect(made, 60)
    wait_until(lambda: alive(socks) <= 10, "the refusals")
    before_s = made.cpu_seconds()
    wait_until(lambda: alive(socks) == 0, "the end of the silent ones")
    assert made.cpu_seconds() - before_s < 0.3, "it sleeps most of two seconds"
    control.tell_xid(made.directory, 0, 8)
