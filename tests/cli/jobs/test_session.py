"""`vgpu session`: what is sent, and which address is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from vgpud.cli.common import console_address
from vgpud.console.login import broker
from vgpud.v1alpha1 import vgpud_pb2 as pb


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


def test_start_of_another_program(vgpu: Any, daemon: Any) -> None:
    result = vgpu("session", "start", "-q", "--gpus", "1", "--preemptible", "--", "/opt/serve", "-p", host=daemon.host)
    assert (result.code, result.stdout, result.stderr) == (0, "1\n", "")
    sent = daemon.queue.requests[0].spec
    assert (sent.session, sent.name, sent.not_preemptible) == ("web", "serve", False)
    assert list(sent.command) == ["/opt/serve", "-p"]


@pytest.mark.parametrize("words", [("--gpus", "1"), ("jupyter",), ("--gpus", "0.5", "--gang", "2", "jupyter")])
def test_start_needs_a_size_and_a_program(vgpu: Any, daemon: Any, words: tuple[str, ...]) -> None:
    assert vgpu("session", "start", *words, host=daemon.host).code == 2


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
    add(daemon, 7)
    result = vgpu("session", "url", "7", host=daemon.host)
    assert (result.code, result.stdout) == (0, "http://127.0.0.1:20001/session/7/?token=t\n")


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
