"""The attach sockets of a real daemon, spoken to by programs that lie, die, stay silent and come in crowds."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attach import client
from tests.daemon.node import PATIENCE_S, Node, settled_descriptors, wait_until
from vgpud._shim import ffi, lib
from vgpud.attach.server import NEW_SOCKET, Tenants
from vgpud.core.slices.attach_rules import Rules

GIB = 1 << 30
MIB = 1 << 20


def spawn(node: Node, *extra: str, name: str = "a") -> subprocess.Popen[str]:
    """A program in the slice, in a process of its own."""
    command = [sys.executable, "-I", "-S", str(Path(client.__file__)), node.socket(name), *extra]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout
    assert started.stdout.readline() == f"{client.OK}\n"
    return started


def kill(program: subprocess.Popen[str]) -> None:
    program.kill()
    program.wait()


def used_bytes(node: Node, name: str = "a") -> int:
    return node.get(name).devices[0].mem_used_bytes


def at(struct_name: str, field: str) -> int:
    """Where a field of the first device's page lies."""
    return client.PAGE + int(ffi.offsetof(f"struct {struct_name}", field))


def borrow(tenant: client.Tenant, size: int) -> mmap.mmap:
    """Asks for memory credit as the shim does, waits until it is granted and reports it as used."""
    control, report = tenant.map()
    granted_at = at("vg_control_device", "granted_bytes")
    struct.pack_into("<Q", report, at("vg_report_device", "want_bytes"), size)
    struct.pack_into("<I", report, at("vg_report_device", "want_seq"), 1)
    tenant.ring()
    wait_until(lambda: struct.unpack_from("<Q", control, granted_at)[0] >= size, "credit")
    struct.pack_into("<Q", report, at("vg_report_device", "used_bytes"), size)
    tenant.ring()
    return report


def test_layout_is_the_compilers() -> None:
    assert ffi.sizeof("struct vg_attach_request") == client.REQUEST.size
    assert ffi.sizeof("struct vg_attach_reply") == client.REPLY_BYTES
    assert lib.VG_ABI_VERSION == client.ABI_VERSION


def test_attach_gives_pages_and_numbers(node: Node) -> None:
    node.env = {"FAKE_DEVICES": "5"}
    node.start()
    uuids = [d.uuid for d in node.nodes.ListDevices(client_devices()).devices]
    node.create(milli=2500, spec={"device_uuids": [uuids[1], uuids[3], uuids[4]]})
    tenant = client.attach(node.socket())
    assert (tenant.status, tenant.slice_name, tenant.node, tenant.mode) == (client.OK, "a", "n1", lib.VG_MODE_COAST)
    assert [row[0].hex()[-2:] for row in tenant.devices] == ["01", "03", "04"]
    assert [row[1:3] for row in tenant.devices] == [(1000, 1000), (1000, 1000), (500, 500)]
    assert len(tenant.fds) == 2 + 3
    control, report = tenant.map()
    magic, abi, count = struct.unpack_from("<III", control)
    assert (magic, abi, count) == (client.MAGIC, client.ABI_VERSION, 3)
    assert len(report) == 4 * client.PAGE
    (shown,) = wait_until(node.processes, "the program in the list")
    assert (shown.pid, shown.program, shown.resumed, shown.uid) == (os.getpid(), "test", False, os.getuid())
    assert [d.device_index for d in shown.devices] == [1, 3, 4]
    tenant.close()


def client_devices() -> object:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    return pb.ListDevicesRequest()


def test_control_page_cannot_be_written(node: Node) -> None:
    node.start()
    node.create()
    tenant = client.attach(node.socket())
    control, report = tenant.fds[:2]
    with pytest.raises(PermissionError):
        mmap.mmap(control, client.PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(PermissionError):
        os.pwrite(control, b"x", 0)
    for fd in (control, report):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        with pytest.raises(PermissionError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    again = os.open(f"/proc/self/fd/{control}", os.O_RDWR)
    with pytest.raises(PermissionError):
        mmap.mmap(again, client.PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(again)
    tenant.close()


def test_descriptors_are_the_ones_listed(empty_node: Node) -> None:
    empty_node.create()
    tenant = client.attach(empty_node.socket())
    names = [os.readlink(f"/proc/self/fd/{fd}").split(" ")[0] for fd in tenant.fds]
    assert names == ["/memfd:vgpu-control", "/memfd:vgpu-report", "anon_inode:[eventfd]"]
    tenant.close()


WRONG = {
    "empty": (b"", None),
    "cut off": (client.request()[:100], client.BAD_MESSAGE),
    "one byte": (b"\0", client.BAD_MESSAGE),
    "too long": (client.request() + b"\0", client.BAD_MESSAGE),
    "huge": (b"x" * 60_000, client.BAD_MESSAGE),
    "magic": (client.request(magic=1), client.BAD_MESSAGE),
    "size": (client.request(bytes=1), client.BAD_MESSAGE),
    "newer": (client.request(abi_version=client.ABI_VERSION + 1), client.BAD_VERSION),
    "newer and longer": (client.request(abi_version=client.ABI_VERSION + 1) + b"\0" * 64, client.BAD_VERSION),
    "too old": (client.request(abi_version=lib.VG_ABI_VERSION_OLDEST - 1), client.BAD_VERSION),
    "devices": (client.request(client.RESUME, device_count=17), client.BAD_MESSAGE),
    "twice": (client.request(client.RESUME, held=((b"1" * 16, 1), (b"1" * 16, 1))), client.BAD_MESSAGE),
    "kind": (client.request(4), client.BAD_MESSAGE),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_message_is_answered_and_nothing_comes_of_it(shared: Node, name: str) -> None:
    message, status = WRONG[name]
    made = f"wrong-{list(WRONG).index(name)}"
    shared.create(made, 10, spec={"mem_min_bytes": 0, "mem_max_bytes": GIB})
    path = shared.socket(made)
    if status is None:
        client.connect(path).close()
    else:
        answer = client.attach(path, message)
        assert answer.status == status
        assert answer.text
        assert "\n" not in answer.text
        assert not answer.fds
        assert answer.sock.recv(1) == b"", "the daemon hangs up"
        assert ("attach.refused", made) in shared.event_kinds_and_slices()
    assert shared.get(made).processes == 0
    tenant = client.attach(path)
    assert tenant.status == client.OK
    tenant.close()


def test_garbage_does_not_harm(node: Node) -> None:
    node.start()
    node.create()
    choose = random.Random(7)
    for _ in range(300):
        raw = bytearray(client.request(client.RESUME))
        for _ in range(choose.randrange(1, 40)):
            raw[choose.randrange(len(raw))] = choose.randrange(256)
        sock = client.connect(node.socket())
        sock.send(bytes(raw[: choose.choice([len(raw), len(raw), choose.randrange(1, len(raw))])]))
        if choose.random() < 0.5:
            with contextlib.suppress(ConnectionResetError):  # where many wait, what has not our magic is closed unread
                client.receive(sock)
        sock.close()
    assert client.attach(node.socket()).status == client.OK
    refused = node.event_kinds().count("attach.refused")
    assert 0 < refused < 100, "the event log is not flooded"


def test_silent_peers_are_dropped_and_bounded(node: Node) -> None:
    node.start()
    node.create()
    silent = [client.connect(node.socket()) for _ in range(300)]
    wait_until(lambda: sum(map(hung_up, silent)) >= 300 - 256, "the bound on how many wait")
    wait_until(lambda: all(map(hung_up, silent)), "the deadline")
    assert client.attach(node.socket()).status == client.OK
    for sock in silent:
        sock.close()


#: a function that connects, prints a line, and lives until the input ends
CONNECT = """
import ctypes, os, socket, sys
def connect(path, count):
    socks = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    for s in socks:
        s.connect(path)
    print(flush=True)
    sys.stdin.read()
"""
STRANGER = (
    CONNECT
    + """
os.setgid(65534); os.setuid(65534)
connect(sys.argv[1], 1000)
"""
)


@pytest.mark.root
def test_a_stranger_cannot_keep_the_owner_out_with_silent_connections(node: Node) -> None:
    node.start()
    node.create(owner_uid=0)
    node.directory.chmod(0o755)
    command = [sys.executable, "-I", "-S", "-c", STRANGER, node.socket()]
    mine = [client.connect(node.socket()) for _ in range(8)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stranger:
        assert stranger.stdout and stranger.stdout.readline()
        for sock in mine:
            sock.send(client.request())
        kept = [client.receive(sock).status for sock in mine]
        stranger.communicate()
    assert kept == [client.OK] * len(mine), "a stranger's took the places of the owner's, which were silent as well"
    for sock in mine:
        sock.close()


IN_NAMESPACE = (
    CONNECT
    + """
os.setgid(4711); os.setuid(4711)
assert ctypes.CDLL(None).unshare(0x10000000) == 0  # CLONE_NEWUSER
print(flush=True)
sys.stdin.readline()
os.setuid(1)
connect(sys.argv[1], 300)
"""
)


@pytest.mark.root
def test_a_user_has_one_share_for_all_uids_of_a_namespace(node: Node) -> None:
    node.start()
    node.create(owner_uid=0)
    node.directory.chmod(0o755)
    command = [sys.executable, "-I", "-S", "-c", IN_NAMESPACE, node.socket()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        assert user.stdin and user.stdout
        if not user.stdout.readline():
            pytest.skip("users can make no user namespaces here")
        Path(f"/proc/{user.pid}/uid_map").write_text("0 4711 1\n1 165536 10\n")
        user.stdin.write(b"\n")
        user.stdin.flush()
        assert user.stdout.readline()
        wait_until(lambda: any("uid 4711 has" in text for text in node.messages("attach.refused")), "the event")
        user.communicate()


def hung_up(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False


def test_other_users_are_refused(node: Node) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    node.start()
    node.create(owner_uid=12345)
    node.create("b", 100)
    node.directory.chmod(0o755)
    script = "import os, sys; sys.path.insert(0, sys.argv[1]); import client; os.setuid(54321);"
    script += "t = client.attach(sys.argv[2]); print(t.status, t.text)"
    reasons = []
    for name in ("a", "b"):
        command = [sys.executable, "-I", "-S", "-c", script, str(Path(client.__file__).parent), node.socket(name)]
        reasons.append(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert reasons[0].startswith(f"{client.DENIED} ")
    assert "uid 12345" in reasons[0]
    assert "54321" in reasons[0]
    assert reasons[1].startswith(f"{client.OK} ")
    wait_until(lambda: "attach.refused" in node.event_kinds(), "the event")
    assert node.event_kinds().count("attach.refused") == 1


def test_query_is_no_tenant(node: Node) -> None:
    node.start()
    node.create(ephemeral=True)
    answer = client.attach(node.socket(), client.request(client.QUERY))
    assert (answer.status, answer.fds, answer.devices[0][1]) == (client.OK, [], 500)
    usage = ffi.from_buffer("struct vg_attach_usage *", answer.sock.recv(ffi.sizeof("struct vg_attach_usage") + 1))
    assert (usage.device_count, usage.process_count, usage.used_bytes[0]) == (1, 0, 0)
    assert answer.sock.recv(1) == b""
    assert node.processes() == []
    assert node.names() == ["a"]


def test_processes_per_slice_are_bounded(node: Node) -> None:
    node.settings["processes_per_slice_max"] = "3"
    node.start()
    node.create()
    tenants = [client.attach(node.socket()) for _ in range(4)]
    assert [t.status for t in tenants] == [client.OK] * 3 + [client.FULL]
    assert "3 programs" in tenants[3].text


def attach_many(node: Node, processes: int, threads: int) -> list[tuple[int, int]]:
    """(status, process_id) of programs that attach at the same moment, in forked processes of so many threads each."""
    read_fd, write_fd = os.pipe()

    def one() -> None:
        tenant = client.attach(node.socket())
        os.write(write_fd, struct.pack("<IQ", tenant.status, tenant.process_id))
        kept.append(tenant)

    kept: list[client.Tenant] = []
    children = []
    for _ in range(processes):
        children.append(os.fork())
        if children[-1] == 0:
            for _thread in range(threads):
                threading.Thread(target=one, daemon=True).start()
            signal.pause()
    answers = b""
    while len(answers) < processes * threads * 12:
        answers += os.read(read_fd, 12)
    try:
        return list(struct.iter_unpack("<IQ", answers))
    finally:
        admitted = [status for status, _ in struct.iter_unpack("<IQ", answers)].count(client.OK)
        wait_until(lambda: len(node.processes()) == admitted, "all programs in the list")
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        os.close(read_fd)
        os.close(write_fd)


def test_two_hundred_at_once(node: Node) -> None:
    node.start()
    node.create(owner_uid=os.getuid())
    answers = attach_many(node, 8, 25)
    assert [status for status, _process_id in answers] == [client.OK] * 200
    assert len({process_id for _status, process_id in answers}) == 200


def test_killed_program_frees_its_memory(node: Node) -> None:
    node.start()
    node.create(milli=500, spec={"mem_min_bytes": 0, "mem_max_bytes": 4 * GIB})
    ours = client.attach(node.socket())
    report = borrow(ours, GIB)
    assert wait_until(lambda: used_bytes(node) == GIB)
    program = spawn(node)
    wait_until(lambda: len(node.processes()) == 2, "both programs in the list")
    kill(program)
    wait_until(lambda: len(node.processes()) == 1, "the daemon's notice")  # how soon: benchmarks/daemon_control.py
    report.close()


@pytest.fixture
def pids_file(node: Node) -> Path:
    """A daemon with a slice; the pids in this file are those that the driver lists."""
    path = node.directory / "listed"
    node.env = {"FAKE_LISTED": str(path)}
    node.start()
    node.create()
    return path


def test_memory_is_free_when_the_driver_has_let_go(node: Node, pids_file: Path) -> None:
    program = spawn(node)
    wait_until(node.processes, "the program in the list")
    pids_file.write_text(str(program.pid))
    kill(program)
    time.sleep(0.3)
    assert len(node.processes()) == 1, "the driver still lists it"
    pids_file.unlink()
    wait_until(lambda: node.processes() == [], "the end of the process")


def test_program_without_a_slice_is_noticed(node: Node, pids_file: Path) -> None:
    """And it alone: what is looked at together is reported together."""
    ours = spawn(node)
    written = pids_file.with_name("written")
    written.write_text(f"{ours.pid} 4242")
    written.rename(pids_file)
    wait_until(lambda: "device.stranger" in node.event_kinds(), "the notice")
    assert [m for m in node.messages("device.stranger") if not m.startswith("pid 4242 ")] == []
    kill(ours)


def test_faults_of_the_device_are_events(node: Node) -> None:
    report = node.directory / "xid"
    node.env = {"FAKE_XID": str(report)}
    node.start()
    node.create()
    program = spawn(node)
    written = node.directory / "written"
    written.write_text("31")
    written.rename(report)
    wait_until(lambda: ("device.xid", "a") in node.event_kinds_and_slices(), "the notice")
    assert node.event_kinds().count("device.xid") == 1
    kill(program)


def test_descriptors_do_not_pile_up(node: Node) -> None:
    node.start()
    node.create()
    assert node.process
    table = f"/proc/{node.process.pid}/fd"

    def cycle() -> int:
        for message in (client.request(), client.request(magic=1), client.request(client.QUERY)):
            tenant = client.attach(node.socket(), message)
            tenant.close()
        client.connect(node.socket()).close()
        return len(os.listdir(table))

    cycle()
    settled_descriptors(Path(table))
    warm = max(cycle() for _ in range(5))
    for _ in range(100):
        cycle()
    wait_until(lambda: cycle() <= warm + 3, "the descriptors of those who left")


def test_forked_child_keeps_what_its_parent_had(node: Node) -> None:
    """It has the driver's files open, so the memory is not free before it ends as well."""
    node.start()
    node.create()
    program = spawn(node, "fork")
    wait_until(node.processes, "the program in the list")
    kill(program)
    time.sleep(0.3)
    assert len(node.processes()) == 1
    assert program.stdin
    program.stdin.close()
    wait_until(lambda: node.processes() == [], "the end of the child")


def test_exec_replaces_the_old_program(node: Node) -> None:
    """Same pid, old socket at end, memory gone with the old image: the new attach ends the old entry."""
    node.start()
    node.create()
    old = client.attach(node.socket())
    wait_until(node.processes, "the program in the list")
    old.close()
    time.sleep(0.2)
    assert len(node.processes()) == 1, "the process lives, and may hold memory"
    new = client.attach(node.socket())
    wait_until(lambda: [p.process_id for p in node.processes()] == [new.process_id])


def test_ephemeral_slice_ends_with_its_last_program(empty_node: Node) -> None:
    empty_node.create(ephemeral=True)
    programs = [spawn(empty_node), spawn(empty_node)]
    for program in programs:
        assert empty_node.names() == ["a"]
        program.send_signal(signal.SIGKILL)
        program.wait()
        wait_until(lambda: len(empty_node.processes()) < 2)
    wait_until(lambda: empty_node.names() == [], "the end of the slice")
    assert not Path(empty_node.socket()).exists()


def test_holder_keeps_the_slice(empty_node: Node) -> None:
    empty_node.create(ephemeral=True)
    holder = client.attach(empty_node.socket(), client.request(client.HOLD))
    assert (holder.status, holder.fds) == (client.OK, [])
    program = spawn(empty_node)
    kill(program)
    wait_until(lambda: empty_node.processes() == [])
    assert empty_node.names() == ["a"]
    holder.close()
    wait_until(lambda: empty_node.names() == [], "the end of the slice")


def test_unattached_ephemeral_slice_ends(node: Node) -> None:
    node.settings["grace_s"] = "1"
    node.start()
    node.create(ephemeral=True)
    wait_until(lambda: node.names() == [], "the end of the slice")


def test_deleted_slice_lets_its_programs_go(empty_node: Node) -> None:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    empty_node.create()
    tenant = client.attach(empty_node.socket())
    empty_node.slices.DeleteSlice(pb.DeleteSliceRequest(name="a", force=True))
    tenant.sock.settimeout(PATIENCE_S)
    assert tenant.sock.recv(1) == b""
    with pytest.raises(OSError, match=r"No such file|refused"):
        client.connect(empty_node.socket())


def test_socket_that_was_removed_comes_back(node: Node) -> None:
    node.start()
    node.create()
    Path(node.socket()).unlink()
    wait_until(Path(node.socket()).exists, "the attach socket")
    assert client.attach(node.socket()).status == client.OK
    public = node.runtime / "vgpud.sock"
    public.unlink()
    node.hang_up()
    wait_until(public.exists, "the API's socket")
    assert node.names() == ["a"]


def test_directories_in_the_place_of_sockets_do_not_keep_the_daemon_from_starting(node: Node) -> None:
    """docker makes them while no daemon runs, for containers that mount a socket and start by themselves."""
    node.start()
    node.create()
    assert node.stop() == 0
    for name in ("a", "unknown"):
        path = Path(node.socket(name))
        path.unlink(missing_ok=True)
        path.mkdir(parents=True)
        path.with_name(NEW_SOCKET).touch()  # a daemon was killed before it had put that into the other's place
    node.start()
    assert client.attach(node.socket()).status == client.OK
    assert [path.name for path in Path(node.socket()).parent.iterdir()] == ["attach.sock"]
    assert "slice.lost" not in node.event_kinds()


def test_chatter_after_the_greeting_is_not_heard(node: Node) -> None:
    node.start()
    node.create()
    tenant = client.attach(node.socket())
    tenant.sock.setblocking(False)
    with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
        while True:
            tenant.sock.send(b"x" * 1000)
    assert node.names() == ["a"]
    wait_until(lambda: len(node.processes()) == 1, "the program in the list")


def test_copies_of_the_shim_in_one_process_come_back_side_by_side(node: Node) -> None:
    """dlmopen loads a second one: it resumes without ending the first one's life, and ends only its own old one."""
    node.start()
    node.create()
    first = client.attach(node.socket(), client.request(client.RESUME, library_copy=1))
    second = client.attach(node.socket(), client.request(client.RESUME, library_copy=2))
    assert {p.process_id for p in node.processes()} == {first.process_id, second.process_id}
    again = client.attach(node.socket(), client.request(client.RESUME, library_copy=2))
    assert {p.process_id for p in node.processes()} == {first.process_id, again.process_id}


def test_resumed_credit_is_counted_and_bounded(node: Node) -> None:
    node.start()
    node.create(milli=500, spec={"mem_min_bytes": 2 * GIB, "mem_max_bytes": 2 * GIB})
    uuid = client.attach(node.socket(), client.request(client.QUERY)).devices[0][0]
    honest = client.attach(node.socket(), client.request(client.RESUME, held=((uuid, GIB),)))
    liar = client.attach(node.socket(), client.request(client.RESUME, "liar", held=((uuid, 1 << 60),)))
    assert (honest.status, liar.status) == (client.OK, client.OK)
    held = {p.program: p.devices[0].mem_held_bytes for p in node.processes()}
    assert held == {"liar": 2 * GIB} or sum(held.values()) <= 2 * GIB
    assert "memory.over_limit" in node.event_kinds()


def test_between_connections_to_many_slices_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any user may connect to the sockets of all slices, as often as they like."""
    rounds = 0
    accepted_in: list[int] = []
    slices = [f"s{number}" for number in range(20)]

    def peer(self: Tenants, sock: socket.socket, slice_name: str) -> None:
        accepted_in.append(rounds)

    async def main() -> None:
        nonlocal rounds
        backend: Any = SimpleNamespace(arbiter=None, rules=lambda: (Rules(), {}))
        tenants = Tenants(tmp_path / "slices", tmp_path / "shared", "n", "open", backend)
        for name in slices:
            tenants.open(name)
        peers = [client.connect(str(tmp_path / "slices" / name / "attach.sock")) for name in slices * 2]
        for sock in peers:
            sock.send(client.request(client.QUERY))
        while len(accepted_in) < len(peers):
            await asyncio.sleep(0)
            rounds += 1
        tenants.close_all()
        for sock in peers:
            sock.close()

    monkeypatch.setattr(Tenants, "_peer", peer)
    asyncio.run(asyncio.wait_for(main(), 30))
    assert len(set(accepted_in)) == len(accepted_in) == 2 * len(slices)
