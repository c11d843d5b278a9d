"""What sessions cost: how soon a notebook in a quarter of a device answers, whether it keeps a cell over restarts of
the daemon and the console, the throughput of a WebSocket through the console against the session's own port, and what
many idle sessions take.

A private system on a simulated device, the console in processes of its own. The notebook is JupyterLab, of the PATH or
of --jupyter; without it those rows are left out, and the exit code is 3.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.console import Console, cpu_s
from benchmarks.table import at_least, at_most, judge
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.core.jobs import session as sessions
from vgpud.core.model import SLICES_MAX
from vgpud.v1alpha1 import vgpud_pb2 as pb

GOAL_OPEN_S, GOAL_RATIO, GOAL_IDLE_PERCENT = 10.0, 0.9, 1.0
NOTHING_TO_RUN = 3
DEVICES = 8
#: of the WebSocket: a message as large as a picture in a notebook, and so many on the way at once
MESSAGE_BYTES, WINDOW = 64 * 1024, 16
PATIENCE_S = 120.0
NOTEBOOK = "kept.ipynb"
SERVER = """
import asyncio, os, websockets
async def echo(socket):
    async for message in socket: await socket.send(message)
async def main():
    port = int(os.environ["VGPU_SESSION_PORT"])
    async with websockets.serve(echo, "127.0.0.1", port, compression=None, max_size=None): await asyncio.Future()
asyncio.run(main())
"""


def wait_for(look: Callable[[], Any], what: str) -> Any:
    until_s = time.monotonic() + PATIENCE_S
    while not (found := look()):
        if time.monotonic() > until_s:
            raise TimeoutError(f"{what} has not come within {PATIENCE_S:.0f} s")
        time.sleep(0.05)
    return found


class Session:
    """One that was started by `vgpu session start`, as its user sees it through the console."""

    def __init__(self, own: OwnSystem, *words: str) -> None:
        self._own = own
        command = [sys.executable, "-m", "vgpud.cli.main", "session", "start", "-q", "--gpus", "0.25", *words]
        env = {**own.env, "HOME": str(own.folder), "JUPYTER_CONFIG_DIR": str(own.folder)}
        self.job_id = int(subprocess.run(command, env=env, capture_output=True, check=True, cwd=own.folder).stdout)
        self.base = sessions.base_path(self.job_id)

    def ask(self, console: Console, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
        headers = {"Cookie": console.cookie, "Content-Type": "application/json", "Sec-Fetch-Dest": "empty"}
        with contextlib.closing(connection):
            connection.request(method, self.base + path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def job(self) -> pb.Job:
        with Client(Settings(host=self._own.host)) as client:
            return client.send(calls.job(self.job_id))

    def stop(self) -> None:
        with Client(Settings(host=self._own.host)) as client:
            client.send(calls.cancel(self.job_id))
            wait_for(lambda: client.send(calls.job(self.job_id)).state in calls.ENDED, "the session's end")


# ---- a notebook ----


async def _run_cell(console: Console, session: Session, kernel_id: str, code: str) -> str:
    """What the cell prints."""
    import websockets

    url = f"ws://127.0.0.1:{console.port}{session.base}api/kernels/{kernel_id}/channels"
    headers = {"Cookie": console.cookie, "Origin": f"http://127.0.0.1:{console.port}"}
    header = {
        "msg_id": uuid.uuid4().hex,
        "session": "1",
        "username": "",
        "msg_type": "execute_request",
        "version": "5.3",
    }
    request = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell"}
    request["content"] = {"code": code, "silent": False}
    async with websockets.connect(url, additional_headers=headers, max_size=None) as socket:
        await socket.send(json.dumps(request))
        while True:
            said = json.loads(await asyncio.wait_for(socket.recv(), PATIENCE_S))
            if said["parent_header"].get("msg_id") == header["msg_id"] and said["msg_type"] == "stream":
                return str(said["content"]["text"])


def run_cell(console: Console, session: Session, kernel_id: str, code: str) -> str:
    return asyncio.run(_run_cell(console, session, kernel_id, code))


def open_notebook(own: OwnSystem, console: Console) -> tuple[Session, str, dict[str, float]]:
    """A session, its kernel, and the seconds from the command until its page answers, and until a cell has printed."""
    root = ["--allow-root"] if os.geteuid() == 0 else []
    began_s = time.monotonic()
    session = Session(own, "jupyter", *root)
    wait_for(lambda: session.ask(console, "GET", "lab")[0] == 200, "the notebook's page")
    page_s = time.monotonic() - began_s
    _, answer = session.ask(console, "POST", "api/kernels", {})
    kernel_id = str(json.loads(answer)["id"])
    printed = run_cell(console, session, kernel_id, "x = 6 * 7; print(x)")
    assert printed == "42\n", printed
    return session, kernel_id, {"page_s": round(page_s, 2), "cell_s": round(time.monotonic() - began_s, 2)}


def lost_cells(own: OwnSystem, console: Console, session: Session, kernel_id: str) -> tuple[Console, int]:
    """Restarts daemon and console. Returns the new console, and how much of a cell was lost: its output in the
    notebook, its variable in the kernel."""
    output = {"output_type": "stream", "name": "stdout", "text": ["42\n"]}
    cell = {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [output], "source": ["print(x)"]}
    content = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    session.ask(console, "PUT", f"api/contents/{NOTEBOOK}", {"type": "notebook", "format": "json", "content": content})
    console.stop()
    assert own.daemon
    own.daemon.stop()
    own.start_daemon()
    again = Console(own)
    wait_for(lambda: session.ask(again, "GET", "lab")[0] == 200, "the notebook's page after the restart")
    status, answer = session.ask(again, "GET", f"api/contents/{NOTEBOOK}")
    is_kept = status == 200 and json.loads(answer)["content"]["cells"][0]["outputs"][0]["text"] == "42\n"
    return again, (not is_kept) + (run_cell(again, session, kernel_id, "print(x)") != "42\n")


def notebook(own: OwnSystem, rounds: int) -> dict[str, Any]:
    times = []
    for number in range(rounds):
        console = Console(own)
        try:
            session, kernel_id, spent = open_notebook(own, console)
            times.append(spent)
            if number == rounds - 1:
                console, lost = lost_cells(own, console, session, kernel_id)
            session.stop()
        finally:
            console.stop()
    return {"times": times, "lost": lost}


# ---- a WebSocket ----


async def _echo_rate(url: str, headers: dict[str, str], seconds: float) -> float:
    """Bytes per second, there and back, with WINDOW messages on the way."""
    import websockets

    async with websockets.connect(url, additional_headers=headers, compression=None, max_size=None) as socket:
        message, echoed = os.urandom(MESSAGE_BYTES), 0
        for _ in range(WINDOW):
            await socket.send(message)
        began_s = time.monotonic()
        while time.monotonic() - began_s < seconds:
            assert len(await socket.recv()) == MESSAGE_BYTES
            echoed += MESSAGE_BYTES
            await socket.send(message)
        return echoed / (time.monotonic() - began_s)


def throughput(own: OwnSystem, rounds: int, seconds: float) -> dict[str, Any]:
    """Through the console and at the session's own port, in turn."""
    console = Console(own)
    try:
        session = Session(own, "--", sys.executable, "-c", SERVER)
        port = wait_for(lambda: session.job().session_port, "the session's port")
        wait_for(lambda: session.ask(console, "GET", "")[0] not in (502, 503), "the echo server")
        proxied = f"ws://127.0.0.1:{console.port}{session.base}"
        headers = {"Cookie": console.cookie, "Origin": f"http://127.0.0.1:{console.port}"}
        pairs = []
        for _ in range(rounds):
            direct = asyncio.run(_echo_rate(f"ws://127.0.0.1:{port}{session.base}", {}, seconds))
            before_s = sum(map(cpu_s, console.pids()))
            passed = asyncio.run(_echo_rate(proxied, headers, seconds))
            console_s = (sum(map(cpu_s, console.pids())) - before_s) / (passed * seconds / 1e9)
            pair = {"direct_bytes_per_s": round(direct), "console_bytes_per_s": round(passed)}
            pairs.append({**pair, "console_cpu_s_per_gbyte": round(console_s, 2)})
        session.stop()
        return {"pairs": pairs}
    finally:
        console.stop()


# ---- many that are idle ----


def _processor_s(own: OwnSystem, console: Console) -> float:
    """Of the daemon, the console and the supervisors of sessions."""
    assert own.daemon
    supervisors = []
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            words = (path / "cmdline").read_bytes().split(b"\0") if path.name.isdigit() else [b""]
            if words[0].endswith(b"vgpu-job") and str(own.folder).encode() in b" ".join(words):
                supervisors.append(int(path.name))
    return sum(map(cpu_s, [own.daemon.process.pid, *console.pids(), *supervisors]))


def idle(count: int, seconds: float) -> dict[str, Any]:
    """What so many idle sessions take, beyond an empty system; in percent of one processor."""
    with harness.system({"devices": str(DEVICES), "memory_bytes": "141G"}) as own:
        console = Console(own)
        try:
            empty = _measure_idle(own, console, seconds)
            with Client(Settings(host=own.host, timeout_s=120)) as client:
                for _ in range(count):
                    spec = pb.JobSpec(session="web", slice=pb.SliceSpec(gpus_milli=DEVICES * 1000 // count))
                    spec.command.extend(["sleep", "100000"])
                    spec.directory, spec.name = str(own.folder), "idle"
                    spec.idle_after.FromSeconds(86_400)
                    client.send(calls.submit(spec))

                most = min(count, SLICES_MAX * 3 // 4)  # members of jobs that may have slices on a node
                wait_for(lambda: _count_started(client) >= most, f"{most} sessions")
                time.sleep(10)
                spent = _measure_idle(own, console, seconds)
                return {"empty_percent": empty, "sessions_percent": spent, "running": _count_started(client)}
        finally:
            console.stop()
            _cancel_all(own)


def _count_started(client: Client) -> int:
    jobs = client.all(calls.jobs(False, "", None, ("running",), None))
    return sum(job.HasField("session_port") for job in jobs)


def _cancel_all(own: OwnSystem) -> None:
    """Jobs outlive their daemon."""
    with Client(Settings(host=own.host, timeout_s=120)) as client:
        for job in client.all(calls.jobs(False, "", None, (), None)):
            client.send(calls.cancel(job.job_id))
        wait_for(lambda: not client.all(calls.jobs(False, "", None, (), None)), "the end of all sessions")


def _measure_idle(own: OwnSystem, console: Console, seconds: float) -> float:
    before = _processor_s(own, console)
    time.sleep(seconds)
    return round(100 * (_processor_s(own, console) - before) / seconds, 3)


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--jupyter", type=Path, metavar="DIR", help="folder of the command jupyter (default: the PATH)")
    parser.add_argument("--sessions", type=int, default=200, help="idle sessions (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the idle measurement")
    parser.add_argument("--rounds", type=int, default=3, help="notebooks, and pairs of WebSockets")
    options = parser.parse_args()
    if options.jupyter:
        os.environ["PATH"] = f"{options.jupyter}:{os.environ['PATH']}"
    raw: dict[str, Any] = {}
    with harness.system(harness.one_device()) as own:
        if shutil.which("jupyter"):
            raw["notebook"] = notebook(own, options.rounds)
        raw["websocket"] = throughput(own, options.rounds, 5.0)
    raw["idle"] = idle(options.sessions, options.seconds)
    ratios = [pair["console_bytes_per_s"] / pair["direct_bytes_per_s"] for pair in raw["websocket"]["pairs"]]
    figures: dict[str, Any] = {
        "websocket_ratio": round(statistics.median(ratios), 3),
        "websocket_mbytes_per_s": round(
            statistics.median(p["console_bytes_per_s"] for p in raw["websocket"]["pairs"]) / 1e6, 1
        ),
        "websocket_cpu_s_per_gbyte": statistics.median(p["console_cpu_s_per_gbyte"] for p in raw["websocket"]["pairs"]),
        "idle_percent": round(raw["idle"]["sessions_percent"] - raw["idle"]["empty_percent"], 3),
        "idle_running": raw["idle"]["running"],
    }
    waiting = options.sessions - raw["idle"]["running"]
    print(f"sessions on a simulated device; {raw['idle']['running']} run idle, {waiting} wait")
    good = []
    if "notebook" in raw:
        times = raw["notebook"]["times"]
        figures |= {f"{key}_median": round(statistics.median(one[key] for one in times), 2) for key in times[0]}
        figures["lost_of_a_cell"] = raw["notebook"]["lost"]
        good += [
            judge("notebook's page after `vgpu session start`, s", figures["page_s_median"], at_most(GOAL_OPEN_S)),
            judge("its first cell has printed, s", figures["cell_s_median"], at_most(GOAL_OPEN_S)),
            judge("lost of a cell by restarts", figures["lost_of_a_cell"], at_most(0)),
        ]
    good += [
        judge("WebSocket echo, through the console over direct", figures["websocket_ratio"], at_least(GOAL_RATIO)),
        judge("idle sessions, % of a processor", figures["idle_percent"], at_most(GOAL_IDLE_PERCENT)),
    ]
    path = results.write(
        "sessions",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={n: getattr(options, n) for n in ("sessions", "seconds", "rounds")},
        goals={"open_s": GOAL_OPEN_S, "websocket_ratio": GOAL_RATIO, "idle_percent": GOAL_IDLE_PERCENT},
        figures=figures,
        raw=raw,
        folder=options.results,
    )
    print(path)
    if "notebook" not in raw:
        print("JupyterLab is not installed: the rows of the notebook were left out", file=sys.stderr)
        return NOTHING_TO_RUN
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
