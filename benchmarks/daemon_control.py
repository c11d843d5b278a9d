"""What the daemon costs beside the launches: attach, death, a call of the API, its start, its memory, its idle CPU.

The programs that attach here are bare connections that speak the attach protocol and map nothing, so these are the
daemon's figures alone; what a whole program costs to start is in preload_startup and clients.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import door_cost, harness, results
from benchmarks.table import at_most, judge
from vgpud.attach.messages import ABI_VERSION
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls

SLICE = "crowd"
#: struct vg_attach_request (shim/abi/vg_abi.h): magic, abi_version, bytes, resume, library_copy, device_count, program,
#: devices[]
REQUEST = struct.Struct("<6I64s384x")
MESSAGE = REQUEST.pack(0x55504756, ABI_VERSION, REQUEST.size, 0, 0, 0, b"bench")
STATUS_AT = 12
#: connections of one process: the daemon allows a few more
EACH = 25
GOAL_ATTACH_P99_MS = 50.0
#: all of the crowd: they are answered one after another by one thread
GOAL_CROWD_MS = 1000.0
GOAL_DEATH_MS = 100.0
GOAL_START_S = 1.0
GOAL_MEMORY_MIB = 200.0
GOAL_IDLE_PERCENT = 10.0
GOAL_SOCKET_RATIO = 1.5


def attach(path: str) -> tuple[socket.socket, list[int], float]:
    """A connection to the slice, its descriptors, and how long the answer took, in ms."""
    begin_ns = time.perf_counter_ns()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)
    sock.connect(path)
    sock.send(MESSAGE)
    raw, fds, _flags, _address = socket.recv_fds(sock, 4096, 64)
    took_ms = (time.perf_counter_ns() - begin_ns) / 1e6
    if struct.unpack_from("<I", raw, STATUS_AT)[0]:
        raise SystemExit(f"refused: {raw[280:].split(bytes(1), 1)[0].decode(errors='replace')}")
    return sock, fds, took_ms


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}


@contextmanager
def crowd(path: str, count: int, *, at_once: bool = False) -> Iterator[list[float]]:
    """So many programs that stay attached, EACH of them in one process; yields how long each attach took, in ms.

    One after another, or from threads that begin together, so that the daemon meets them as one crowd.
    """
    parts = []
    for begin in range(0, count, EACH):
        words = ["--peer", path, "--peers", str(min(EACH, count - begin)), *(["--at-once"] if at_once else [])]
        command = [sys.executable, "-m", "benchmarks.daemon_control", *words]
        parts.append(subprocess.Popen(command, cwd=results.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    took: list[float] = []
    try:
        for part in parts:
            assert part.stdout
            part.stdout.readline()  # it is ready
        for group in [parts] if at_once else [[part] for part in parts]:
            for part in group:
                assert part.stdin
                part.stdin.write(b"\n")
                part.stdin.flush()
            for part in group:
                assert part.stdout
                took += json.loads(part.stdout.readline())
        yield took
    finally:
        for part in parts:
            assert part.stdin
            assert part.stdout
            part.stdin.close()
            part.wait()
            part.stdout.close()


def be_crowd(path: str, count: int, at_once: bool) -> None:
    """One process of crowd(): attaches on request and stays until its input ends."""
    peers: list[tuple[socket.socket, list[int], float]] = []
    threads = [threading.Thread(target=lambda: peers.append(attach(path))) for _ in range(count)]
    print("ready", flush=True)
    sys.stdin.readline()
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()
    print(json.dumps([took for _, _, took in peers]), flush=True)
    sys.stdin.readline()


def death(own: OwnSystem, path: str, rounds: int) -> list[float]:
    """From kill -9 of an attached process until the daemon does not list it any more, in ms."""
    took: list[float] = []
    with own.client() as client:
        for _ in range(rounds):
            command = [sys.executable, "-m", "benchmarks.daemon_control", "--peer", path]
            peer = subprocess.Popen(command, cwd=results.ROOT, stdout=subprocess.PIPE)
            assert peer.stdout
            peer.stdout.readline()
            begin_ns = time.perf_counter_ns()
            peer.kill()
            while any(p.pid == peer.pid for p in client.all(calls.processes(SLICE))):
                pass
            took.append((time.perf_counter_ns() - begin_ns) / 1e6)
            peer.wait()
    return took


def measure_calls(own: OwnSystem, count: int) -> list[float]:
    """GetSlice over one connection, in ms."""
    took: list[float] = []
    with own.client() as client:
        for _ in range(count):
            begin_ns = time.perf_counter_ns()
            client.send(calls.get_slice(SLICE))
            took.append((time.perf_counter_ns() - begin_ns) / 1e6)
    return took


def pid_of(own: OwnSystem) -> int:
    assert own.daemon
    return own.daemon.process.pid


def memory_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def restart_seconds(own: OwnSystem, path: str, rounds: int) -> list[float]:
    """kill -9, then from the start of the next daemon until a program can attach."""
    took: list[float] = []
    for _ in range(rounds):
        assert own.daemon
        own.daemon.process.send_signal(signal.SIGKILL)
        own.daemon.process.wait()
        begin = time.perf_counter()

        def probe(begin: float = begin) -> None:
            while True:
                try:
                    sock, fds, _took = attach(path)
                    sock.close()
                    for fd in fds:
                        os.close(fd)
                    break
                except OSError:
                    time.sleep(0.002)
            took.append(time.perf_counter() - begin)

        prober = threading.Thread(target=probe)
        prober.start()
        own.start_daemon()  # not in the other thread: a part ends with the thread that started it
        prober.join()
    return took


def measure(own: OwnSystem, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
    own.vgpu("slice", "create", SLICE, "--gpus", "0.5")
    path = str(own.folder / "run" / "slices" / SLICE / "attach.sock")
    raw: dict[str, Any] = {}
    with crowd(path, size) as raw["attach_ms"]:
        crowded_mib = memory_mib(pid_of(own))
    with crowd(path, size, at_once=True) as raw["crowd_ms"]:
        pass
    raw["death_ms"], raw["call_ms"] = death(own, path, 20), measure_calls(own, 300)
    raw["restart_s"] = restart_seconds(own, path, 5)
    idle_mib, before = memory_mib(pid_of(own)), cpu_seconds(pid_of(own))
    time.sleep(10)
    figures: dict[str, Any] = {name: quantiles(values) for name, values in raw.items()}
    figures |= {"idle_mib": idle_mib, "crowded_mib": crowded_mib}
    figures["idle_percent_of_a_core"] = (cpu_seconds(pid_of(own)) - before) * 10
    raw["door_us"] = door_cost.measure()
    figures |= door_cost.figures(raw["door_us"])
    return figures, raw


def report(figures: dict[str, Any]) -> bool:
    rows = [
        ("attach, one after another, p99 ms", figures["attach_ms"]["p99"], GOAL_ATTACH_P99_MS),
        ("attach, a crowd at once, the last one, ms", figures["crowd_ms"]["max"], GOAL_CROWD_MS),
        ("kill -9 until not listed, max ms", figures["death_ms"]["max"], GOAL_DEATH_MS),
        ("restart until a program attaches, max s", figures["restart_s"]["max"], GOAL_START_S),
        ("memory with a crowd attached, MiB", figures["crowded_mib"], GOAL_MEMORY_MIB),
        ("CPU when idle, percent of a core", figures["idle_percent_of_a_core"], GOAL_IDLE_PERCENT),
        ("a call through the door over one without it", figures["door_ratio"], GOAL_SOCKET_RATIO),
    ]
    print(f"  GetSlice p50 {figures['call_ms']['p50']:.2f} ms, p99 {figures['call_ms']['p99']:.2f} ms")
    return not [name for name, value, goal in rows if not judge(name, value, at_most(goal))]


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--crowd", type=int, default=200, help="how many attach (default: %(default)s)")
    parser.add_argument("--peer", metavar="SOCKET", help="only attach and wait: used by this benchmark itself")
    parser.add_argument("--peers", type=int, default=0, help="so many, as part of a crowd")
    parser.add_argument("--at-once", action="store_true", help="in as many threads")
    arguments = parser.parse_args()
    if arguments.peers:
        be_crowd(arguments.peer, arguments.peers, arguments.at_once)
        return 0
    if arguments.peer:
        attach(arguments.peer)
        print("attached", flush=True)
        signal.pause()
    with harness.system(None if arguments.real else harness.one_device()) as own:
        figures, raw = measure(own, arguments.crowd)
        device = own.device_name()
    met = report(figures)
    goals = {
        "attach_p99_ms": GOAL_ATTACH_P99_MS,
        "crowd_ms": GOAL_CROWD_MS,
        "death_ms": GOAL_DEATH_MS,
        "restart_s": GOAL_START_S,
        "memory_mib": GOAL_MEMORY_MIB,
        "idle_percent_of_a_core": GOAL_IDLE_PERCENT,
        "door_ratio": GOAL_SOCKET_RATIO,
    }
    parameters = {"crowd": arguments.crowd}
    path = results.write(
        "daemon_control",
        is_simulated=not arguments.real,
        device=device,
        parameters=parameters,
        goals=goals,
        figures=figures,
        raw=raw,
        folder=arguments.results,
    )
    print(path)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
