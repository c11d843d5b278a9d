"""What the console costs: the load of a page, CPU of the daemon and the console for each viewer, and the arbiter's.

A private system on simulated devices with slices and a queue of waiting jobs; the console in processes of its own,
viewers as connections that read the overview's events. For the arbiter two saturating programs run beside the viewers:
their shares, and how often the arbiter's thread was late, with viewers and without, alternately.
"""

from __future__ import annotations

import http.client
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem, Part
from vgpud.client import calls
from vgpud.console.login.broker import link, link_socket_path
from vgpud.v1alpha1 import vgpud_pb2 as pb

DEVICES, SLICES, JOBS = 8, 128, 10_000
VIEWERS = 50
ARRAY = 1000
LOADS = 30
GOAL_PAGE_MS = 200.0
GOAL_UPDATE_MS = 50.0
#: more than the difference between two runs without viewers is worth
GOAL_SHARE_POINTS = 1.0
MIN_MILLI = (250, 750)
KERNEL_US = 200


class Console:
    """`vgpu console serve` on a private system, and a session in it."""

    def __init__(self, own: OwnSystem) -> None:
        runtime = own.folder / "run"
        words = ["console", "serve", "--listen", "127.0.0.1:0", "--runtime-dir", str(runtime)]
        if os.geteuid() == 0:
            words += ["--user", "root"]
        command = [sys.executable, "-m", "vgpud.cli.main", *words]
        self.process = subprocess.Popen(command, env=own.env, stderr=subprocess.PIPE)
        assert self.process.stderr
        self.process.stderr.readline()
        found = urlsplit(link(link_socket_path(runtime), 30))
        assert found.port
        self.port = found.port
        answer, _ = self._ask("POST", "/login", found.query)
        self.cookie = str(answer.getheader("set-cookie")).partition(";")[0]

    def _ask(self, method: str, path: str, body: str = "", cookie: str = "") -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer, answer.read()

    def load_ms(self, path: str) -> tuple[float, int]:
        """How long a page takes, and its bytes."""
        began_ns = time.perf_counter_ns()
        answer, data = self._ask("GET", path, cookie=self.cookie)
        assert answer.status == 200, (path, answer.status, data[:300])
        return (time.perf_counter_ns() - began_ns) / 1e6, len(data)

    def pids(self) -> list[int]:
        """Of the broker, the web server and the agents."""
        found, left = [], [self.process.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            left += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def cpu_s(pid: int) -> float:
    """Processor time of a process, user and system."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


class Viewer(threading.Thread):
    """A window that shows the overview."""

    def __init__(self, console: Console, path: str) -> None:
        super().__init__(daemon=True)
        self._console, self._path = console, path
        self.updates = self.size_bytes = 0
        self.is_stopped = False

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._console.port, timeout=60)
        connection.request("GET", self._path, headers={"Cookie": self._console.cookie})
        answer = connection.getresponse()
        while not self.is_stopped:
            line = answer.readline()
            if not line:
                return
            self.size_bytes += len(line)
            self.updates += line == b"\n"
        connection.close()


@contextmanager
def viewers(console: Console, count: int, path: str = "/live/overview") -> Iterator[Sequence[Viewer]]:
    made = [Viewer(console, path) for _ in range(count)]
    for viewer in made:
        viewer.start()
    time.sleep(3)
    try:
        yield made
    finally:
        for viewer in made:
            viewer.is_stopped = True
        for viewer in made:
            viewer.join(30)


def fill(own: OwnSystem, slices: int, jobs: int) -> None:
    with Client(Settings(host=own.host, timeout_s=120)) as client:
        for number in range(slices):
            client.send(calls.create_slice(f"slice-{number}", pb.SliceSpec(gpus_milli=50), every_user=True))
        share = pb.SliceSpec(gpus_milli=1000 * DEVICES)
        for _ in range(jobs // ARRAY):
            spec = pb.JobSpec(
                slice=share, name="train", command=["true"], directory="/", array_indices=range(1, ARRAY + 1)
            )
            client.send(calls.submit(spec))


def update_ms(own: OwnSystem, console: Console, count: int, seconds: float) -> dict[str, float]:
    """CPU of daemon and console for each viewer and second, beyond what they take without viewers."""
    assert own.daemon
    daemon = own.daemon.process.pid

    def spent() -> tuple[float, float]:
        return cpu_s(daemon), sum(map(cpu_s, console.pids()))

    def measure() -> tuple[float, float]:
        before = spent()
        time.sleep(seconds)
        return tuple(1000 * (b - a) / seconds for a, b in zip(before, spent(), strict=True))  # type: ignore[return-value]

    alone = measure()
    with viewers(console, count) as made:
        updates = [viewer.updates for viewer in made]
        beside = measure()
        each = [viewer.updates - before for viewer, before in zip(made, updates, strict=True)]
    return {
        "viewers": count,
        "updates_per_viewer_and_second": round(statistics.mean(each) / seconds, 2),
        "daemon_ms_per_second": round(beside[0], 2),
        "console_ms_per_second": round(beside[1], 2),
        "daemon_alone_ms_per_second": round(alone[0], 2),
        "console_alone_ms_per_second": round(alone[1], 2),
        "ms_per_viewer_and_second": round((sum(beside) - sum(alone)) / count, 3),
        "all_ms_per_viewer_and_second": round(sum(beside) / count, 3),
    }


def pages(console: Console) -> dict[str, dict[str, float]]:
    found = {}
    for path in ("/", "/queue", "/slice/slice-0", "/quotas", "/events"):
        console.load_ms(path)
        taken = [console.load_ms(path) for _ in range(LOADS)]
        times = sorted(ms for ms, _ in taken)
        found[path] = {
            "p50_ms": round(times[len(times) // 2], 1),
            "max_ms": round(times[-1], 1),
            "bytes": taken[-1][1],
        }
    return found


def measure_crowd(options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pages and updates, with many slices and jobs."""
    with harness.system({"devices": str(DEVICES), "memory_bytes": "141G"}) as own:
        fill(own, options.slices, options.jobs)
        console = Console(own)
        try:
            loads = pages(console)
            updates = {str(n): update_ms(own, console, n, options.seconds) for n in (1, options.viewers)}
        finally:
            console.stop()
    return loads, updates


def late(own: OwnSystem) -> int:
    with Client(Settings(host=own.host)) as client:
        return sum(thread.late for thread in client.send(calls.node()).arbiters)


def shares(own: OwnSystem, parts: Sequence[Part], seconds: float) -> dict[str, float]:
    """What the device's own log says of two saturating programs: their shares of all its work, in percent."""

    def charged_ns() -> list[int]:
        with Client(Settings(host=own.host)) as client:
            found = {item.name: item.devices[0].charged_ns for item in client.all(calls.slices())}
        return [found[f"w{n}"] for n in range(len(parts))]

    before, late_before = charged_ns(), late(own)
    time.sleep(seconds)
    grown = [b - a for a, b in zip(before, charged_ns(), strict=True)]
    return {
        "share_percent": round(100 * grown[0] / max(1, sum(grown)), 2),
        "used_percent": round(100 * sum(grown) / (seconds * 1e9), 1),
        "late_per_second": round((late(own) - late_before) / seconds, 2),
    }


def arbiter(options: Any) -> dict[str, list[dict[str, float]]]:
    """Two saturating programs, with viewers and without, alternately."""
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    load = str(harness.build("tenants/load.c"))
    with harness.system(harness.one_device(), lengths_us=(KERNEL_US,)) as own:
        parts = [
            own.run(
                f"w{n}", ["--gpus", f"{milli / 1000:g}"], [load, "--kernel-us", str(KERNEL_US), "--seconds", "3000"]
            )
            for n, milli in enumerate(MIN_MILLI)
        ]
        console = Console(own)
        time.sleep(8)
        try:
            for _ in range(options.rounds):
                found["without"].append(shares(own, parts, options.seconds))
                with viewers(console, options.viewers):
                    found["with"].append(shares(own, parts, options.seconds))
        finally:
            console.stop()
    return found


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--slices", type=int, default=SLICES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--viewers", type=int, default=VIEWERS)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs beside the arbiter (default: %(default)s)")
    options = parser.parse_args()
    loads, updates = measure_crowd(options)
    beside = arbiter(options)
    share = {name: statistics.mean(one["share_percent"] for one in rows) for name, rows in beside.items()}
    lateness = {name: statistics.mean(one["late_per_second"] for one in rows) for name, rows in beside.items()}
    alone = [one["share_percent"] for one in beside["without"]]
    figures = {
        "overview_p50_ms": loads["/"]["p50_ms"],
        "update_ms_one_viewer": updates["1"]["ms_per_viewer_and_second"],
        "update_ms_many_viewers": updates[str(options.viewers)]["ms_per_viewer_and_second"],
        "share_moved_points": round(abs(share["with"] - share["without"]), 3),
        "share_spread_without_points": round(max(alone) - min(alone), 3),
        "late_per_second_without": round(lateness["without"], 2),
        "late_per_second_with": round(lateness["with"], 2),
    }
    print(f"the console, {options.slices} slices and {options.jobs} jobs, {options.viewers} viewers")
    good = [
        judge("page load of the overview, p50, ms", figures["overview_p50_ms"], at_most(GOAL_PAGE_MS)),
        *(
            judge(
                f"CPU of daemon and console per viewer and second, {n} viewers, ms",
                one["ms_per_viewer_and_second"],
                at_most(GOAL_UPDATE_MS),
            )
            for n, one in updates.items()
        ),
        judge(
            "share of a saturating program moved by viewers, points",
            figures["share_moved_points"],
            at_most(GOAL_SHARE_POINTS),
        ),
    ]
    path = results.write(
        "console",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={n: getattr(options, n) for n in ("slices", "jobs", "viewers", "seconds", "rounds")},
        goals={"overview_p50_ms": GOAL_PAGE_MS, "update_ms": GOAL_UPDATE_MS, "share_moved_points": GOAL_SHARE_POINTS},
        figures=figures,
        raw={"pages": loads, "updates": updates, "arbiter": beside},
        folder=options.results,
    )
    print(path)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
