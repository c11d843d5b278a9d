"""The attach thread beside a loop that is busy: programs are answered meanwhile, and Python has the last word."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.attach import client
from tests.builders import GIB, make_device, make_slice
from vgpud.attach.messages import ffi, lib
from vgpud.attach.server import Attachment, Greeting, Tenants
from vgpud.attach.thread import AttachThread
from vgpud.config import ArbiterConfig, arbiter_items
from vgpud.core.model import Denied, Device, Process, Reason, Share, State
from vgpud.core.slices.attach_rules import Rules, attach_rules
from vgpud.devices.arbiters import Arbiters

UUID = "GPU-00000000-0000-0000-0000-000000000001"
DEVICE = make_device(uuid=UUID, context_bytes=GIB, granule_bytes=GIB)


class Backend:
    """A daemon's part for the sockets; `refusal`: what the core says of every program."""

    def __init__(self, uid: int) -> None:
        self.slice = make_slice("a", Share(UUID, 500, 500, GIB, GIB), uid="a", owner_uid=uid)
        self.state = State(devices={UUID: DEVICE}, slices={"a": self.slice})
        self.arbiters = Arbiters([DEVICE], dict(arbiter_items(ArbiterConfig())))
        self.arbiters.apply(self.slice)
        self.refusal: Denied | None = None
        self.greetings: list[Greeting] = []
        self.ends: list[int] = []
        self.refused_ones: list[str] = []

    def arbiter(self, device: str) -> Any:
        return self.arbiters.native(device)

    def rules(self) -> tuple[Rules, Mapping[str, Device]]:
        return attach_rules(self.state), self.state.devices

    def attach(self, greeting: Greeting) -> Attachment | Denied:
        self.greetings.append(greeting)
        if self.refusal:
            return self.refusal
        process = Process(greeting.process_id, "a", greeting.pid, greeting.uid, greeting.program, 0, False)
        return Attachment(process, self.slice, {}, self.state.devices)

    def join(self, serial: int, process_id: int, device: str, *pages_and_bell: object) -> None:
        """Only a program that has gone comes this way here."""

    def remove_process(self, process_id: int) -> None:
        self.ends.append(process_id)

    def leave(self, process_id: int, device: str) -> None:
        self.ends.append(process_id)
        self.arbiters.detach(process_id, device)

    def look(self, *_arguments: object) -> Denied:
        return Denied(Reason.DENIED, "only the attach thread answers here")

    def slice_in(self, cgroups: tuple[str, ...]) -> str:
        return ""

    def container_id(self, cgroups: tuple[str, ...]) -> str:
        return ""

    def account(self, account_uid: int, cgroups: tuple[str, ...]) -> str:
        return f"uid {account_uid}"

    def disconnect(self, serial: int, process_id: int, device: str) -> None:
        self.arbiters.disconnect(serial, process_id, device)

    def note_disconnect(self, process_id: int) -> None:
        self.ends.append(process_id)

    def note_refusal(self, slice_name: str, pid: int, why: str) -> None:
        self.refused_ones.append(why)


def run(tmp_path: Path, backend: Backend, work: Callable[[Tenants, str], Awaitable[None]]) -> None:
    async def main() -> None:
        tenants = Tenants(tmp_path / "slices", tmp_path / "shared", "n", "open", backend)  # type: ignore[arg-type]
        tenants.open("a")
        await asyncio.sleep(0.1)  # the rules are made
        try:
            await work(tenants, str(tmp_path / "slices" / "a" / "attach.sock"))
        finally:
            tenants.close_all()
            backend.arbiters.close()

    asyncio.run(asyncio.wait_for(main(), 60))


class Program(threading.Thread):
    """A program that attaches in a thread of its own."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self.tenant: client.Tenant | None = None
        self.start()

    def run(self) -> None:
        sock = client.connect(self._path)
        sock.settimeout(2)
        sock.send(client.request())
        try:
            self.tenant = client.receive(sock)
        except (TimeoutError, AssertionError):
            sock.close()


@pytest.fixture
def backend() -> Backend:
    return Backend(os.geteuid())


def test_a_program_is_answered_while_python_is_busy(tmp_path: Path, backend: Backend) -> None:
    async def work(tenants: Tenants, path: str) -> None:
        program = Program(path)
        program.join()  # the loop waits, and cannot answer
        assert program.tenant, "no answer while the loop waited"
        assert (program.tenant.status, len(program.tenant.fds), backend.greetings) == (client.OK, 3, [])
        await asyncio.sleep(0.2)
        assert [g.process_id for g in backend.greetings] == [program.tenant.process_id]
        assert backend.greetings[0].serial == 1
        program.tenant.close()

    run(tmp_path, backend, work)


@pytest.mark.parametrize("message", [b"", client.request(client.QUERY)], ids=["silent", "for Python"])
def test_connections_that_wait_for_python_keep_no_program_out(tmp_path: Path, backend: Backend, message: bytes) -> None:
    """Once 32 of them waited, the thread accepted none that it could have answered itself."""

    async def work(tenants: Tenants, path: str) -> None:
        waiting = []
        for _ in range(100):
            waiting.append(client.connect(path))
            waiting[-1].send(message) if message else None
        time.sleep(0.5)  # the loop waits as well: those without a message are Python's by now
        program = Program(path)
        program.join()
        assert program.tenant, "the thread does not accept before Python has taken something"
        assert program.tenant.status == client.OK
        program.tenant.close()
        for sock in waiting:
            sock.close()

    run(tmp_path, backend, work)


def test_all_that_wait_for_python_are_answered_in_their_order(tmp_path: Path, backend: Backend) -> None:
    backend.refusal = Denied(Reason.DENIED, "not here")

    async def work(tenants: Tenants, path: str) -> None:
        waiting = [client.connect(path) for _ in range(100)]
        for sock in waiting:
            sock.send(client.request(client.HOLD))
            sock.settimeout(0)
        answered: list[int] = []
        while len(answered) < len(waiting):
            await asyncio.sleep(0.001)
            for number, sock in enumerate(waiting):
                if number not in answered and _has_answer(sock):
                    answered.append(number)
        assert answered == sorted(answered)
        for sock in waiting:
            sock.close()

    run(tmp_path, backend, work)


def _has_answer(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_python_may_end_an_attachment_afterwards(tmp_path: Path, backend: Backend) -> None:
    async def work(tenants: Tenants, path: str) -> None:
        backend.refusal = Denied(Reason.DENIED, "not here")
        program = Program(path)
        program.join()
        assert program.tenant and program.tenant.status == client.OK
        await asyncio.sleep(0.2)
        assert program.tenant.sock.recv(1) == b"", "the connection has ended"
        assert backend.ends == [program.tenant.process_id]
        assert backend.refused_ones == ["not here"]

    run(tmp_path, backend, work)


def test_a_new_mode_is_for_programs_that_python_has_not_heard_of_too(tmp_path: Path, backend: Backend) -> None:
    async def work(tenants: Tenants, path: str) -> None:
        program = Program(path)
        program.join()
        assert program.tenant and backend.greetings == []
        control, report = program.tenant.map()
        tenants.set_mode("closed")
        assert ffi.cast("struct vg_control_header *", ffi.from_buffer(control)).mode == lib.VG_MODE_CLOSED
        control.close()
        report.close()
        program.tenant.close()

    run(tmp_path, backend, work)


def test_a_container_keeps_its_number_and_is_forgotten_when_it_has_ended() -> None:
    thread = AttachThread("n", 1, lambda uuid: None)
    numbers = []
    for last in range(1, 4):
        known = [(f"container {i}", f"/c{i}") for i in (last - 1, last)]
        thread.load(Rules(containers=known), {}, "open", {}, 0)
        numbers.append({account: number for number, account in thread._accounts.items()})
    assert [sorted(known) for known in numbers] == [[f"container {i - 1}", f"container {i}"] for i in (1, 2, 3)]
    assert [numbers[i][f"container {i + 1}"] for i in (0, 1)] == [numbers[i + 1][f"container {i + 1}"] for i in (0, 1)]
    assert thread.account(numbers[2]["container 3"]) == ("container 3", True)
    thread.stop()


def test_no_program_is_admitted_while_a_right_may_be_taken_away(tmp_path: Path, backend: Backend) -> None:
    async def work(tenants: Tenants, path: str) -> None:
        first = Program(path)
        first.join()
        with tenants.settle_attachments():
            assert len(backend.greetings) == 1, "known before anything changes"
            second = Program(path)
            second.join()
            assert second.tenant is None
        assert first.tenant
        first.tenant.close()

    run(tmp_path, backend, work)


def test_a_message_with_descriptors_leaves_none_here(tmp_path: Path, backend: Backend) -> None:
    async def work(tenants: Tenants, path: str) -> None:
        ours, theirs = socket.socketpair()
        sock = client.connect(path)
        socket.send_fds(sock, [client.request()], [theirs.fileno()] * 5)
        tenant = await asyncio.get_running_loop().run_in_executor(None, client.receive, sock)
        theirs.close()
        ours.settimeout(5)
        assert ours.recv(1) == b"", "every copy of the other end is closed"
        ours.close()
        tenant.close()

    run(tmp_path, backend, work)
