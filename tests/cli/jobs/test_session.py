"""`vgpu session`: what is sent, and which address is printed."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.common import console_address
from vgpud.console.login import broker
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on PATH with the programs of sessions."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("jupyter", "serve"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def test_start_queues_a_job_that_is_a_session(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    words = ("--gpus", ".25", "--mem", "20G", "--time-limit", "8h", "--no-env", "--env", "A=1", "--queue", "default")
    result = vgpu("session", "start", *words, "jupyter", "--debug", host=daemon.host)
    assert (result.code, result.stdout) == (0, "1\n")
    assert "session 1 (jupyter) is pending" in result.stderr and "`vgpu session url 1`" in result.stderr
    sent = daemon.queue.requests[0].spec
    assert (sent.session, sent.name, sent.not_preemptible, sent.members) == ("jupyter", "jupyter", True, 1)
    assert (sent.slice.gpus_milli, sent.slice.mem_max_bytes, sent.time_limit.seconds) == (250, 20 << 30, 28800)
    assert sent.command[0] == "sh" and list(sent.command[-2:]) == ["lab", "--debug"]
    assert sent.environment["A"] == "1" and "SECRET" not in sent.environment


def test_start_of_another_program(vgpu: Any, daemon: Any, programs: Path) -> None:
    words = ("-q", "--gpus", "1", "--preemptible", "-C", str(programs), "--", "./serve", "-p")
    result = vgpu("session", "start", *words, host=daemon.host)
    assert (result.code, result.stdout, result.stderr) == (0, "1\n", "")
    sent = daemon.queue.requests[0].spec
    assert (sent.session, sent.name, sent.not_preemptible) == ("web", "serve", False)
    assert list(sent.command) == ["./serve", "-p"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("code",), "vgpu: code is not installed (not on the session's PATH)"),
        (("jupiter",), "vgpu: jupiter is not installed (not on the session's PATH)"),
        (("--env", "PATH=/nowhere", "jupyter"), "vgpu: jupyter is not installed (not on the session's PATH)"),
        (("--", "./absent"), "vgpu: ./absent is no program that can be run"),
    ],
)
def test_what_is_not_installed_is_not_queued(vgpu: Any, daemon: Any, words: tuple[str, ...], text: str) -> None:
    result = vgpu("session", "start", "-q", "--gpus", ".25", *words, host=daemon.host)
    assert result.code == 4 and result.stderr.startswith(text), result
    assert not daemon.queue.requests
    assert vgpu("session", "start", "-q", "--gpus", ".25", "--image", "i:1", *words, host=daemon.host).code == 0


@pytest.mark.parametrize("words", [("--gpus", "1"), ("jupyter",), ("--gpus", "0.5", "--gang", "2", "jupyter")])
def test_start_needs_a_size_and_a_program(vgpu: Any, daemon: Any, words: tuple[str, ...]) -> None:
    assert vgpu("session", "start", *words, host=daemon.host).code == 2


def test_start_in_an_image(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing of this shell but what is named."""
    monkeypatch.setenv("SECRET", "x")
    words = ("--gpus", ".25", "--image", "site/lab:1", "--volume", "/srv/sets:/data:ro", "--registry-auth", "site")
    result = vgpu("session", "start", "-q", *words, "--env", "A=1", "--port", "tb", "jupyter", host=daemon.host)
    assert result.code == 0, result
    sent = daemon.queue.requests[0].spec
    assert (sent.session, sent.image, sent.registry) == ("jupyter", "site/lab:1", "site")
    assert (list(sent.volumes), list(sent.session_ports), list(sent.ports)) == (["/srv/sets:/data:ro"], ["tb"], [])
    assert dict(sent.environment) == {"A": "1"} and sent.command[-1] == "lab"


def test_start_of_rstudio(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Refused before it is queued where it is not installed; in an image it is the image's."""
    monkeypatch.setattr("vgpud.host.session_gate.USUAL_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = ("session", "start", "-q", "--gpus", ".25")
    result = vgpu(*words, "rstudio", host=daemon.host)
    assert result.code == 4 and result.stderr.startswith("vgpu: rserver is not installed"), result
    assert not daemon.queue.requests
    (tmp_path / "rserver").write_text("#!/bin/sh\n")
    (tmp_path / "rserver").chmod(0o755)
    for given in ((), ("--image", "site/r:1")):
        assert vgpu(*words, *given, "rstudio", "--www-thread-pool-size=4", host=daemon.host).code == 0
    for sent in (request.spec for request in daemon.queue.requests):
        assert sent.session == "rstudio" and sent.command[-1] == "--www-thread-pool-size=4"
        assert "RStudio Server behind a session's token" in sent.command[-2]


TOKEN = {"VGPU_SESSION_TOKEN": "t"}


def add(daemon: Any, job_id: int, state: str = "running", variables: Mapping[str, str] = TOKEN, **fields: Any) -> None:
    spec = pb.JobSpec(name="jupyter", queue="default", session="jupyter", slice=pb.SliceSpec(gpus_milli=250))
    spec.environment.update(variables)
    port = {"session_port": 20_001} if state == "running" else {}
    daemon.queue.add(job_id, state, spec=spec, **port, **fields)


@pytest.fixture
def no_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_address, "find_address", lambda *_: "")


@pytest.mark.usefixtures("no_console")
def test_the_direct_address(vgpu: Any, daemon: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        add(daemon, 7, uid=os.geteuid())
        daemon.queue.jobs[7].session_port = port
        daemon.queue.jobs[7].spec.session_ports.append("tb")
        daemon.queue.jobs[7].named_ports["tb"] = port
        result = vgpu("session", "url", "7", host=daemon.host)
        assert (result.code, result.stdout) == (0, f"http://127.0.0.1:{port}/session/7/?token=t\n")
        result = vgpu("session", "url", "7", "--port", "tb", host=daemon.host)
        assert (result.code, result.stdout) == (0, f"http://127.0.0.1:{port}/session/7-tb/?token=t\n")
        result = vgpu("session", "url", "7", "--port", "api", host=daemon.host)
        assert result.code == 4 and "has no port 'api': tb" in result.stderr
    result = vgpu("session", "url", "7", host=daemon.host)
    assert result.code == 8 and "does not listen at port" in result.stderr and not result.stdout


@pytest.mark.usefixtures("no_console")
def test_no_token_for_a_program_of_another_user(vgpu: Any, daemon: Any) -> None:
    """It has taken the port of a session: whoever opens the address would give it the session's token."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        add(daemon, 7, uid=os.geteuid() + 1)
        daemon.queue.jobs[7].session_port = server.getsockname()[1]
        result = vgpu("session", "url", "7", host=daemon.host)
        assert result.code == 5 and f"a program of uid {os.geteuid()} does" in result.stderr
        assert not result.stdout and "token=t" not in result.stderr


def test_a_terminal_has_no_address(vgpu: Any, daemon: Any) -> None:
    result = vgpu("session", "start", "--gpus", ".25", "shell", host=daemon.host)
    assert result.code == 0 and "`vgpu session open 1` joins it" in result.stderr
    sent = daemon.queue.requests[0].spec
    assert (sent.session, sent.terminal, sent.command[0]) == ("shell", True, "sh")
    result = vgpu("session", "url", "1", host=daemon.host)
    assert result.code == 2 and "is a terminal: `vgpu session open 1` joins it" in result.stderr


@pytest.mark.parametrize(
    ("fields", "words", "code", "sentence"),
    [
        ({"variables": {}, "uid": 12345}, (), 5, "uid 12345's: only they may open it"),
        ({"state": "failed", "reason": "exit code 1"}, (), 8, "`vgpu session logs 7` says why"),
        ({}, ("--port", "tb"), 4, "has no port 'tb'"),
    ],
)
def test_what_cannot_be_opened(
    vgpu: Any, daemon: Any, fields: dict[str, Any], words: tuple[str, ...], code: int, sentence: str
) -> None:
    add(daemon, 7, **fields)
    for command in ("open", "share"):
        given = (*words, *(("--for", "1h") if command == "share" else ()))
        if command == "share" and words:
            continue
        result = vgpu("session", command, "7", *given, host=daemon.host)
        assert result.code == code and sentence in result.stderr and not result.stdout


def test_a_port_that_is_in_use(vgpu: Any, daemon: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        add(daemon, 7)
        result = vgpu("session", "open", "7", "--listen", str(port), host=daemon.host)
    assert result.code == 8
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --listen" in result.stderr


def test_start_says_when_it_is_idle_and_which_ports_it_has(vgpu: Any, daemon: Any) -> None:
    words = ("--gpus", "1", "--idle-after", "30m", "--port", "tb", "--port", "api", "jupyter")
    assert vgpu("session", "start", "-q", *words, host=daemon.host).code == 0
    sent = daemon.queue.requests[0].spec
    assert (sent.idle_after.seconds, list(sent.session_ports)) == (1800, ["tb", "api"])


def test_the_list_says_how_long_a_session_was_not_used(vgpu: Any, daemon: Any) -> None:
    add(daemon, 7)
    add(daemon, 8)
    job = daemon.queue.jobs[8]
    job.spec.idle_after.FromSeconds(7200)
    job.use_time.GetCurrentTime()
    job.use_time.seconds -= 1805
    lines = vgpu("session", "ls", host=daemon.host).stdout.splitlines()
    assert "UNUSED" in lines[0] and "30m of 2h" in " ".join(lines) and " - " in lines[1]


@pytest.mark.usefixtures("no_console")
@pytest.mark.parametrize(
    ("fields", "code", "sentence"),
    [
        ({"state": "pending", "reason": "no device"}, 8, "session 7 (jupyter) is pending: no device"),
        ({"state": "failed", "reason": "exit code 1"}, 8, "session 7 (jupyter) has failed"),
        ({"variables": {}, "uid": 12345}, 5, "uid 12345's: only they may open it"),
    ],
)
def test_no_address(vgpu: Any, daemon: Any, fields: dict[str, Any], code: int, sentence: str) -> None:
    add(daemon, 7, **fields)
    result = vgpu("session", "url", "7", host=daemon.host)
    assert result.code == code and sentence in result.stderr and not result.stdout


def test_the_address_at_the_console(vgpu: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add(daemon, 7, "pending")
    known = {"socket": str(daemon.socket)}
    monkeypatch.setattr(broker, "address", lambda *_: ("https://n1:8377", known["socket"]))
    assert vgpu("session", "url", "7", host=daemon.host).stdout == "https://n1:8377/session/7/\n"
    known["socket"] = "/run/another"
    assert vgpu("session", "url", "7", host=daemon.host).code == 8, "another daemon's console does not have it"


def test_a_thousand_sessions_are_listed(vgpu: Any, daemon: Any) -> None:
    for job_id in range(1, 1001):
        add(daemon, job_id)
    assert vgpu("session", "ls", "-o", "name", host=daemon.host).stdout.split() == [str(n) for n in range(1, 1001)]


def test_sessions_are_listed_and_stopped(vgpu: Any, daemon: Any) -> None:
    assert "starts one" in vgpu("session", "ls", host=daemon.host).stderr
    add(daemon, 7)
    daemon.queue.add(8, "running")
    add(daemon, 9, uid=12345)
    assert vgpu("session", "ls", "-o", "name", host=daemon.host).stdout == "7\n"
    assert "`vgpu session url 7`" in vgpu("job", "show", "7", host=daemon.host).stdout
    refused = vgpu("session", "stop", "8", host=daemon.host)
    assert refused.code == 4 and "job 8 is not a session" in refused.stderr
    assert vgpu("session", "stop", "7", host=daemon.host).code == 0
    assert (daemon.queue.state(7), daemon.queue.state(8)) == ("cancelled", "running")
