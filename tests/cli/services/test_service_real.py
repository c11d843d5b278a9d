"""`vgpu service` with the real daemon on a simulated device: from the start of a service to its end, and what goes
wrong in between. Nothing is lost, and each mistake is one clear line."""

from __future__ import annotations

import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.own_system import own_system
from vgpud import paths
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.console.login.client import User
from vgpud.console.services.form import service_of
from vgpud.console.services.start import make_balancer_job
from vgpud.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(300),
]
#: a program that answers with its job's number; /health with 200
PROGRAM = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def do_GET(self):
        mine = "Bearer " + os.environ["VGPU_SERVICE_TOKEN"]
        body = f"{os.environ['VGPU_JOB_ID']} {sys.argv[1]} {self.headers['authorization'] == mine}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["VGPU_SERVICE_PORT"])), Handler).serve_forever()
"""
SMALL = ("--gpus", "0.1")


def wait_until(look: Callable[[], Any]) -> Any:
    until_s = time.monotonic() + 120
    while not (found := look()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    with own_system() as made:
        yield made


class Site:
    """The command line, as the owner of services."""

    def __init__(self, system: OwnSystem, vgpu: Any, home: Path) -> None:
        self.system, self._vgpu, self.home = system, vgpu, home

    def __call__(self, *words: str) -> Any:
        return self._vgpu(*words, host=self.system.host)

    def start(self, name: str, *words: str, program: tuple[str, ...] = ()) -> None:
        command = program or (sys.executable, str(self.home / "program.py"), "one")
        result = self("service", "start", *SMALL, "--name", name, *words, "--", *command)
        assert result.code == 0 and result.stdout == f"{name}\n", result

    def show(self, name: str) -> dict[str, Any]:
        result = self("service", "show", name, "-o", "json")
        assert result.code == 0, result
        found: dict[str, Any] = result.json["service"]
        return found

    def wait_until_healthy(self, name: str, count: int, generation: int = 1) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            now = self.show(name)
            states = [(one["state"], one["generation"]) for one in now["replicas"]]
            return now if states == [("healthy", generation)] * count else None

        found: dict[str, Any] = wait_until(look)
        return found

    def url(self, name: str) -> tuple[str, int, str]:
        found = self("service", "url", name, "-o", "json").json
        host, _, port = found["url"].removeprefix("http://").rpartition(":")
        return host, int(port), found["token"]

    def ask(self, name: str, path: str = "/", token: str = "") -> tuple[int, str]:
        host, port, its_token = self.url(name)
        return ask(host, port, token or its_token, path)

    def jobs(self, kind: str, name: str) -> list[int]:
        with Client(Settings(host=self.system.host)) as client:
            found = client.all(calls.jobs())
            return [job.job_id for job in found if (job.spec.session, job.spec.name) == (kind, name)]

    def pids(self, job_id: int) -> list[int]:
        """The processes of a job, by its cgroup's or its environment's number."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = path.read_bytes().split(b"\0")
            except OSError:
                continue
            mine = f"VGPU_HOST={self.system.host}".encode() in variables
            if mine and f"VGPU_JOB_ID={job_id}".encode() in variables:
                found.append(int(path.parent.name))
        return found


def ask(host: str, port: int, token: str, path: str = "/") -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=120)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


@pytest.fixture
def site(system: OwnSystem, vgpu: Any, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """No job is left after the test."""
    short_dir.chmod(0o711)
    monkeypatch.chdir(short_dir)
    for name, value in system.env.items():
        if name.startswith("VGPU_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XDG_STATE_HOME", str(short_dir / "state"))
    (short_dir / "program.py").write_text(PROGRAM)
    made = Site(system, vgpu, short_dir)
    yield made
    for _ in range(2):  # a balancer may have started one more in between
        left = made("job", "ls", "-o", "name").stdout.split()
        if left:
            made("job", "cancel", *left)
            made("job", "wait", *left)


def test_replicas_take_turns_and_sleep(site: Site) -> None:
    """What `vgpu service` says of memory is what the replica's slice has; whether it moves is changed by itself."""
    size = ("--mem", "1GiB", "--mem-swap", "--idle-after", "10m", "--copy-max", "0.5")
    site.start("turns", *size, "--health-http", "/health")
    site.wait_until_healthy("turns", 1)

    def show_slice() -> tuple[Any, ...]:
        (job_id,) = site.jobs("replica", "turns")
        (name,) = site("job", "show", str(job_id), "-o", "json").json["job"]["slices"]
        made = site("slice", "show", name, "-o", "json").json["slice"]
        size_gib = made["devices"][0]["mem_max_bytes"] / 2**30
        return size_gib, made["mem_swap"], made["idle_after_ns"], made["copy_max_milli"]

    assert show_slice() == (1, True, 600 * 10**9, 500)
    part = site("service", "update", "turns", "--mem", "2GiB")
    assert part.code == ExitCode.USAGE and "give --gpus as well" in part.stderr
    urgent = site("service", "update", "turns", "--class", "latency")
    assert urgent.code == ExitCode.USAGE and "--class latency with --mem-swap" in urgent.stderr
    assert site("service", "update", "turns", "--no-mem-swap", "--idle-after", "5m").code == 0
    site.wait_until_healthy("turns", 1, generation=2)
    assert show_slice() == (1, False, 300 * 10**9, 500)
    assert site("service", "update", "turns", *SMALL, "--mem", "2GiB").code == 0
    site.wait_until_healthy("turns", 1, generation=3)
    assert show_slice() == (2, False, 300 * 10**9, 500)


def test_a_service_from_its_start_to_its_end(site: Site) -> None:
    site.start("web", "--replicas", "2", "--health-http", "/health")
    site.wait_until_healthy("web", 2)
    status, text = site.ask("web")
    job_id, word, is_shown_its_token = text.split()
    assert (status, word, is_shown_its_token) == (200, "one", "True")
    assert int(job_id) in site.jobs("replica", "web")
    assert site.ask("web", token="wrong")[0] == 401  # noqa: S106  a test's
    row = site("service", "ls", "--no-headers").stdout.split()
    assert row[0] == "web" and row[2] == "2/2" and row[3].startswith("http://127.0.0.1:")
    assert "2 of 2 replicas are healthy" in site("service", "show", "web").stdout
    assert site("session", "ls", "-o", "name").stdout == "", "replicas are no sessions"
    assert "web" in site("job", "show", job_id).stdout
    taken = site("service", "start", *SMALL, "--name", "web", "--", "true")
    assert taken.code == ExitCode.CONFLICT and "runs already" in taken.stderr

    scaled = site("service", "scale", "web", "1")
    assert scaled.code == 0 and "service web: replicas 2 -> 1; `vgpu service show web`" in scaled.stderr
    site.wait_until_healthy("web", 1)
    shown = site("service", "show", "web").stdout
    assert "1 of 1 replica is healthy" in shown and "UNDER-WAY" in shown
    before = site.url("web")
    assert site("service", "update", "web", "--", sys.executable, "program.py", "two").code == 0
    site.wait_until_healthy("web", 1, generation=2)
    assert site.ask("web")[1].split()[1] == "two"
    restarted = site("service", "restart", "web")
    assert restarted.code == 0 and "its replicas are replaced" in restarted.stderr
    site.wait_until_healthy("web", 1, generation=3)
    nothing = site("service", "update", "web")
    assert nothing.code == ExitCode.USAGE and "nothing is changed" in nothing.stderr

    assert site("service", "stop", "web").code == 0
    wait_until(lambda: not site.jobs("balancer", "web") and not site.jobs("replica", "web"))
    gone = site("service", "show", "web")
    assert gone.code == ExitCode.NOT_FOUND and "no service web runs" in gone.stderr
    assert "stopping" in site("service", "logs", "web", "--balancer").stdout
    site.start("web")
    assert site.url("web") == before, "its clients know its address and its token"


def test_mistakes_are_one_line_each_and_start_nothing(site: Site) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = site("service", "start", *SMALL, "--name", "web", "--port", port, "--", "true")
        assert result.code == ExitCode.CONFLICT
        assert result.stderr == (
            f"vgpu: cannot listen at 127.0.0.1 port {port}: address already in use; choose another one with --port\n"
        )
    for words, said in (
        (("--name", "Web"), "use up to 40 small letters"),
        (("--name", "web", "--port", "x"), "write PORT, or HOST:PORT"),
        (("--name", "web", "--health-http", "health"), "write it from / on"),
        (("--name", "web", "--health-http", "/h", "--health-cmd", "true"), "use one of the two"),
        (("--name", "web", "--replicas", "65"), "65"),
    ):
        result = site("service", "start", *SMALL, *words, "--", "true")
        assert result.code == ExitCode.USAGE and said in result.stderr and "Traceback" not in result.stderr, result
    assert "for example --gpus 0.5" in site("service", "start", "--name", "web", "--", "true").stderr
    for command in ("show", "url", "scale", "restart", "stop", "update"):
        more = ("2",) if command == "scale" else ()
        assert site("service", command, "nosuch", *more).code == ExitCode.NOT_FOUND
    assert site.jobs("balancer", "web") == []


@pytest.mark.slow
def test_replicas_that_are_killed_and_a_daemon_that_is_restarted_fail_no_request(site: Site) -> None:
    site.start("web", "--replicas", "2", "--health-http", "/health")
    now = site.wait_until_healthy("web", 2)
    address = site.url("web")
    answers: list[tuple[int, str]] = []
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            try:
                answers.append(ask(*address))
            except OSError as error:
                answers.append((0, str(error)))

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        first, second = (one["job_id"] for one in now["replicas"])
        for pid in site.pids(first):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: first not in [one["job_id"] for one in site.show("web")["replicas"]])
        site.wait_until_healthy("web", 2)
        assert site.system.daemon
        site.system.daemon.kill()
        for pid in site.pids(second):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(answers) > 0)
        count = len(answers)
        wait_until(lambda: len(answers) > count + 50)
        site.system.start_daemon()
        wait_until(lambda: second not in [one["job_id"] for one in site.show("web")["replicas"]])
        site.wait_until_healthy("web", 2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(answers) > 100 and {status for status, _ in answers} == {200}
    assert site("service", "stop", "web").code == 0
    wait_until(lambda: not site.jobs("balancer", "web"))


@pytest.mark.slow
def test_a_balancer_that_is_killed_begins_again_with_the_same_replicas(site: Site) -> None:
    site.start("web", "--replicas", "2")
    before = site.wait_until_healthy("web", 2)
    address = site.url("web")
    (balancer,) = site.jobs("balancer", "web")
    for pid in site.pids(balancer):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not site.pids(balancer))
    wait_until(lambda: site("service", "show", "web", "-o", "json").code == 0)
    after = site.wait_until_healthy("web", 2)
    assert [one["job_id"] for one in after["replicas"]] == [one["job_id"] for one in before["replicas"]]
    assert site.url("web") == address and site.ask("web")[0] == 200
    balancer_log = site("service", "logs", "web", "--balancer").stdout
    assert balancer_log.count("is taken over") == 2 and balancer_log.count("was submitted") == 2


@pytest.mark.slow
def test_a_port_that_was_taken_meanwhile_is_waited_for_and_said(site: Site) -> None:
    site.start("web")
    site.wait_until_healthy("web", 1)
    _, port, _ = site.url("web")
    (balancer,) = site.jobs("balancer", "web")
    for pid in site.pids(balancer):
        os.kill(pid, signal.SIGKILL)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wait_until(lambda: _binds(taken, port))
        taken.listen()
        text = f"cannot listen at 127.0.0.1 port {port}"
        wait_until(lambda: text in site("service", "show", "web").stdout)
        assert text in site("service", "ls").stdout
    wait_until(lambda: site("service", "url", "web").code == 0)
    assert site.ask("web")[0] == 200


def _binds(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def test_a_program_that_dies_at_once_and_a_check_that_hangs_are_shown_with_their_reason(site: Site) -> None:
    site.start("bad", program=("sh", "-c", "echo no model; exit 3"))
    shown = wait_until(lambda: (now := site.show("bad"))["failures"] >= 3 and now)
    assert shown["healthy"] == 0 and "has ended with exit code 3" in shown["last_end"]
    assert "exit code 3; the next one starts in" in wait_until(
        lambda: "next one" in (text := site("service", "show", "bad").stdout) and text
    )
    assert "no model" in site("service", "logs", "bad").stdout
    site.start("slow", "--health-cmd", "sleep 1000", "--health-deadline", "0.3s")
    text = "the command has not ended within 0.3 s, and was killed"
    wait_until(lambda: text in site("service", "show", "slow").stdout)
    assert {one["state"] for one in site.show("slow")["replicas"]} == {"starting"}


def test_an_owner_whose_files_were_removed_is_told_and_requests_are_answered(site: Site) -> None:
    site.start("web")
    site.wait_until_healthy("web", 1)
    address = site.url("web")
    shutil.rmtree(site.home / "state")
    result = site("service", "scale", "web", "2")
    assert result.code != 0 and "cannot write" in result.stderr
    assert ask(*address)[0] == 200
    (replica,) = site.jobs("replica", "web")
    for pid in site.pids(replica):
        os.kill(pid, signal.SIGKILL)
    shown = wait_until(lambda: (now := site.show("web"))["failures"] >= 2 and now)
    assert shown["last_end"], "its log cannot be written, so it does not start: that is said"
    assert site("service", "stop", "web").code == 0
    wait_until(lambda: not site.jobs("balancer", "web"))


def test_a_service_that_sleeps_lends_its_gpus_and_the_first_request_is_answered(site: Site) -> None:
    engine = (sys.executable, "-m", "benchmarks.services.engine", "serve", "stub", "--gpu-memory-utilization", "0.5")
    script = " ".join(("exec", *engine, "--port", "$VGPU_SERVICE_PORT"))
    site.start("chat", "--scale-to-zero", "1s", "--health-http", "/health", program=("sh", "-c", script))
    wait_until(lambda: site.show("chat")["asleep"])
    assert "the next request wakes it" in site("service", "show", "chat").stdout
    (replica,) = site.jobs("replica", "chat")
    wait_until(lambda: "evicted" in site("slice", "ls").stdout)
    pids = site.pids(replica)
    address = site.url("chat")
    started = site("submit", "-q", "--gpus", "1", "--", "sleep", "1000")
    assert started.code == 0
    job_id = started.stdout.strip()
    wait_until(lambda: json.loads(site("job", "show", job_id, "-o", "json").stdout)["job"]["state"] == "running")
    answers: list[tuple[int, str]] = []
    asking = threading.Thread(target=lambda: answers.append(ask(*address, "/v1/models")))
    asking.start()
    wait_until(lambda: site.show("chat")["waiting"] == 1)
    assert not answers, "the device is another job's: it waits"
    assert site("job", "cancel", job_id).code == 0
    asking.join(120)
    assert answers and answers[0][0] == 200 and json.loads(answers[0][1])["data"][0]["id"] == "stub"
    assert site.pids(replica) == pids, "it continues where it was"


def test_a_service_that_the_consoles_form_has_started(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its balancer makes its folder, in the user's home directory, and finds what is wanted in its environment."""
    home = site.home / "home"
    home.mkdir()
    entry = pwd.getpwuid(os.geteuid())
    own = SimpleNamespace(pw_dir=str(home), pw_name=entry.pw_name, pw_shell="/bin/sh")
    monkeypatch.setattr(pwd, "getpwuid", lambda _: own)
    monkeypatch.setenv("XDG_STATE_HOME", str(home / ".local/state"))
    user = User(os.geteuid(), entry.pw_name, "", "", "")
    form = {"command": f"{sys.executable} {site.home}/program.py one", "gpus": "0.1", "name": "web", "replicas": "2"}
    with Client(Settings(host=site.system.host)) as client:
        (balancer,) = client.send(calls.submit(make_balancer_job(service_of(form, user, ()), user), ""))
    wait_until(lambda: site("service", "show", "web").code == 0)
    site.wait_until_healthy("web", 2)
    assert site.ask("web")[0] == 200
    assert site("service", "scale", "web", "1").code == 0
    for pid in site.pids(balancer):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not site.pids(balancer))
    wait_until(lambda: site("service", "show", "web").code == 0)
    assert site.show("web")["wanted"] == 1, "started again it has what was changed"
    assert site("service", "stop", "web").code == 0
    wait_until(lambda: not site.jobs("balancer", "web"))
    assert "stopping" in site("service", "logs", "web", "--balancer").stdout


def test_vllm_is_started_so_that_it_listens(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = site.home / "bin"
    programs.mkdir()
    (programs / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} -m benchmarks.services.engine "$@"\n')
    (programs / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    result = site("service", "start", *SMALL, "-q", "--", "vllm", "serve", "org/Model-7B")
    assert result.code == 0 and result.stdout == "model-7b\n"
    site.wait_until_healthy("model-7b", 1)
    status, text = site.ask("model-7b", "/v1/models")
    assert status == 200 and json.loads(text)["data"][0]["id"] == "org/Model-7B"
    (replica,) = site.jobs("replica", "model-7b")
    with Client(Settings(host=site.system.host)) as client:
        port = client.send(calls.job(replica)).session_port
    assert ask("127.0.0.1", port, "other", "/v1/models")[0] == 401, "its port has its own token"
