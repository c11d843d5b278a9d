"""What one process or user can take of the places for programs, and that closing gives it back at once."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.attach import client
from tests.attach.test_server import GIB, borrow, spawn, used_bytes
from tests.daemon.node import Node, settled_descriptors, wait_until
from vgpud._shim import lib
from vgpud.config import PROCESSES_MAX
from vgpud.core.slices.bounds import PER_PROCESS_MAX
from vgpud.host.user_namespaces import account_uid

MEMORY = {"mem_min_bytes": 0, "mem_max_bytes": GIB}


@contextmanager
def start_program(work: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs `work` with the attach client at hand."""
    head = f"import os, sys, signal; sys.path.insert(0, {str(Path(client.__file__).parent)!r}); import client\n"
    command = [sys.executable, "-I", "-S", "-c", head + work, *arguments]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield program
    finally:
        program.kill()
        program.wait()
        for pipe in (program.stdin, program.stdout):
            if pipe:
                pipe.close()


def test_the_arbiters_table_is_as_large_as_the_core_believes() -> None:
    assert lib.VG_PROCESSES_MAX == PROCESSES_MAX


def test_one_process_leaves_places_to_others(node: Node) -> None:
    node.start()
    for name in "ab":
        node.create(name, 5, spec=MEMORY)
    greedy = [client.attach(node.socket(name)) for name in "ab" for _ in range(PER_PROCESS_MAX)]
    assert [t.status for t in greedy].count(client.OK) == PER_PROCESS_MAX
    assert greedy[-1].status == client.FULL
    said = f"pid {os.getpid()} has {PER_PROCESS_MAX} connections to vgpud, the limit of a process is {PER_PROCESS_MAX}"
    assert greedy[-1].text == f"{said}: close some, or start further processes"
    wait_until(lambda: any(said in text for text in node.messages("attach.refused")), "the event")
    program = spawn(node)
    wait_until(lambda: len(node.processes()) == PER_PROCESS_MAX + 1, "the place of another program")
    program.kill()
    program.wait()


def test_one_user_leaves_places_to_others(node: Node) -> None:
    """Also where the slice is one that every user may use; who it is comes from the kernel."""
    if os.getuid():
        pytest.skip("only root can be another user")
    node.directory.chmod(0o755)
    node.settings |= {"processes_per_user_max": "4", "socket_mode": '"0666"'}
    node.start()
    node.create("a", 100, spec=MEMORY)
    node.create("b", 100, spec=MEMORY)
    as_user = (
        "client.become(sys.argv[2])\nfor name in 'aabbb':\n  t = client.attach(sys.argv[1].replace('/a/', f'/{name}/'))"
    )
    as_user += "\n  print(t.status, t.text, flush=True); globals().setdefault('kept', []).append(t)\nsignal.pause()"
    with start_program(as_user, node.socket(), "4711:4711") as greedy:
        assert greedy.stdout
        said = [greedy.stdout.readline().strip() for _ in range(5)]
        assert [line[0] for line in said] == ["0", "0", "0", "0", str(client.FULL)]
        assert "uid 4711 has 4 programs on device 0, and a user may have 4: end some or raise" in said[4]
        assert "processes_per_user_max" in said[4]
        assert client.attach(node.socket("b")).status == client.OK
        wait_until(lambda: len(node.processes()) == 5)


def test_a_closed_connection_frees_its_place_and_its_descriptors_at_once(node: Node) -> None:
    node.settings["processes_per_slice_max"] = "2"
    node.start()
    node.create()
    assert node.process
    table = Path(f"/proc/{node.process.pid}/fd")
    client.attach(node.socket()).close()
    before = settled_descriptors(table)  # pages for the next programs are prepared meanwhile
    work = (
        "t = [client.attach(sys.argv[1]) for _ in '12']\nprint([x.status for x in t], flush=True)\nsys.stdin.readline()"
    )
    work += "\n[x.close() for x in t]\nprint('closed', flush=True)\nsignal.pause()"
    with start_program(work, node.socket()) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "[0, 0]\n"
        refused = client.attach(node.socket())
        assert (refused.status, "2 programs" in refused.text) == (client.FULL, True)
        refused.close()
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "closed\n"
        wait_until(lambda: client.attach(node.socket()).status == client.OK, "a place")
        # the other process lives, so it is known still
        wait_until(lambda: len(node.processes()) == 3, "both of its connections and ours")
        # for each of its two connections a pidfd is left; our own takes a socket, a pidfd and a doorbell
        wait_until(lambda: len(list(table.iterdir())) <= before + 2 + 3, "the descriptors")
    wait_until(lambda: len(node.processes()) == 1, "the end of the other process")


def test_memory_stays_charged_until_the_process_has_ended(node: Node) -> None:
    """Closing the connection does not free what the driver has given out."""
    node.start()
    node.create(milli=500, spec=MEMORY)
    work = (
        "t = client.attach(sys.argv[1])\nprint(t.status, flush=True)\nimport struct, time\ncontrol, report = t.map()\n"
    )
    work += f"struct.pack_into('<Q', report, {_at('want_bytes')}, {GIB // 2})\n"
    work += f"struct.pack_into('<I', report, {_at('want_seq')}, 1)\nt.ring()\n"
    work += f"while struct.unpack_from('<Q', control, {_control_at('granted_bytes')})[0] == 0: time.sleep(.01)\n"
    work += f"struct.pack_into('<Q', report, {_at('used_bytes')}, {GIB // 2})\nt.ring()\ntime.sleep(.1)\n"
    work += "t.close()\nprint('closed', flush=True)\nsignal.pause()"
    with start_program(work, node.socket()) as other:
        assert other.stdout
        assert [other.stdout.readline() for _ in "12"] == ["0\n", "closed\n"]
        wait_until(lambda: used_bytes(node) == GIB // 2)
        wait_until(lambda: node.processes()[0].devices[0].mem_held_bytes == GIB // 2)
        ours = client.attach(node.socket())
        control, report = ours.map()
        report[_at("want_bytes") : _at("want_bytes") + 8] = GIB.to_bytes(8, "little")
        report[_at("want_seq") : _at("want_seq") + 4] = (1).to_bytes(4, "little")
        ours.ring()
        answered = _control_at("want_answered")
        wait_until(lambda: control[answered] == 1, "an answer")
        assert control[_control_at("granted_bytes")] == 0, "the whole slice is not free"
        assert used_bytes(node) == GIB // 2
        control.close()
        report.close()
    wait_until(lambda: used_bytes(node) == 0, "the memory")
    more: mmap.mmap = borrow(client.attach(node.socket()), GIB)
    more.close()


def _at(field: str) -> int:
    from tests.attach.test_server import at

    return at("vg_report_device", field)


def _control_at(field: str) -> int:
    from tests.attach.test_server import at

    return at("vg_control_device", field)


def test_silent_connections_of_one_user_keep_no_other_user_out(node: Node) -> None:
    """They are bounded for all slices together, and each is closed after two seconds."""
    node.start()
    for name in "abc":
        node.create(name, 5, spec=MEMORY)
    silent = []
    for _ in range(200):
        for name in "ab":
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(node.socket(name))
            silent.append(sock)
    assert node.process
    table = Path(f"/proc/{node.process.pid}/fd")
    assert len(list(table.iterdir())) < 2 * 256 + 150
    wait_until(lambda: any("sent nothing" in text for text in node.messages("attach.refused")), "the event")
    wait_until(lambda: _attaches(node), "a place for a program")
    for sock in silent:
        sock.close()


def test_who_sends_what_is_no_message_delays_no_other(node: Node) -> None:
    """Python answered each of them, and nothing was accepted while it did."""
    node.start()
    node.create("a", 100, spec=MEMORY)

    def send(count: int) -> list[bytes]:
        socks = []
        for _ in range(count):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            sock.connect(node.socket())
            sock.send(b"GET / HTTP/1.1")
            socks.append(sock)
        answers = []
        for sock in socks:
            sock.settimeout(60)
            try:
                answers.append(sock.recv(4096))
            except ConnectionResetError:  # closed unread
                answers.append(b"")
            sock.close()
        return answers

    assert send(1) != [b""], "a single one reads why"
    wait_until(lambda: b"" in send(400), "so many at once that not all do, as fast as they come")
    assert client.attach(node.socket()).status == client.OK
    wait_until(lambda: send(1) != [b""], "the reason again")


def test_a_daemon_with_few_descriptors_serves_as_many_as_it_says(node: Node) -> None:
    """What it prepares and connections that say nothing take none of the descriptors that are for programs."""
    node.start(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    node.create("a", 5, spec=MEMORY)
    programs = [client.attach(node.socket("a")) for _ in range(256 // 2 // 2 // 3)]  # of programs, of a user, each
    assert [program.status for program in programs] == [client.OK] * len(programs)
    silent = []
    for _ in range(100):
        silent.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        silent[-1].connect(node.socket("a"))
    wait_until(lambda: len(node.processes()) == len(programs), "all programs in the list")
    for sock in silent:
        sock.close()


def _attaches(node: Node) -> bool:
    try:
        return client.attach(node.socket("c")).status == client.OK
    except (ConnectionResetError, BrokenPipeError, AssertionError):  # closed unheard: this process has the silent ones
        return False


def test_a_user_namespace_is_its_makers(tmp_path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can be another user")
    made = subprocess.Popen(
        ["setpriv", "--reuid=4711", "--regid=4711", "--clear-groups", "unshare", "-Ur", "sleep", "60"],
        stderr=subprocess.PIPE,
    )
    try:
        uids = Path(f"/proc/{made.pid}/uid_map")
        ours = Path("/proc/self/uid_map").read_text()
        wait_until(lambda: made.poll() is not None or (uids.read_text() not in ("", ours)), "the namespace")
        if made.poll() is not None:
            pytest.skip("users can make no user namespaces here")
        assert account_uid(made.pid, 100_000) == 4711
        assert account_uid(os.getpid(), 5) == 5
    finally:
        made.send_signal(signal.SIGKILL)
        made.communicate()
