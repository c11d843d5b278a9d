"""Other sessions, with the real daemon and the real console: in an image, by a stand-in for the site's engine,
and RStudio Server, by a stand-in for `rserver`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.services.test_service_real import PROGRAM as SERVICE
from tests.cli.services.test_service_real import ask
from tests.cli.sessions.world import BUILT, PROGRAM, Console, frame, read_frame, start, wait_until
from tests.host.test_session_gate import install
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.host import listeners

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]


def test_in_an_image(real: Any, console: Console, system: OwnSystem) -> None:
    """The engine is to lead the session's ports from loopback, and only these; its program has them in its
    environment."""
    job_id = start(real, "--image", "r.io/lab:1", "--port", "tb", "--", sys.executable, str(PROGRAM))
    owner, session = console.log_in(), f"/session/{job_id}/"
    wait_until(lambda: owner.get(session)[0] == 200)
    shown = real("job", "show", job_id, "-o", "json").json["job"]
    assert (shown["session"], shown["image"]) == ("web", "r.io/lab:1")
    ports = [shown["session_port"], shown["named_ports"]["tb"]]
    words = (system.folder / "engine-words").read_text().split()
    published = [word for word in words if word.startswith("--publish")]
    assert published == [f"--publish=127.0.0.1:{port}:{port}" for port in ports]
    sock, head = owner.open_socket(f"{session}socket")
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ")
        sock.sendall(frame(b"echo"))
        assert read_frame(sock) == b"echo"
    assert real("session", "url", "--direct", job_id).stdout.startswith(
        f"http://127.0.0.1:{ports[0]}/session/{job_id}/"
    )
    assert real("session", "stop", job_id).code == 0
    assert real("job", "wait", job_id).code == 143


def test_replicas_of_a_service_in_an_image(
    real: Any, system: OwnSystem, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine leads each replica's port from loopback; the balancer is no container."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short_dir / "state"))
    program = short_dir / "program.py"
    program.write_text(SERVICE.replace('"127.0.0.1"', 'os.environ["VGPU_SERVICE_HOST"]'))
    words = ("--name", "web", "--replicas", "2", "--image", "r.io/web:1", "--", sys.executable, str(program), "one")
    result = real("service", "start", "--gpus", "0.1", *words)
    assert result.code == 0, result

    def show() -> dict[str, Any]:
        found: dict[str, Any] = real("service", "show", "web", "-o", "json").json["service"]
        return found

    wait_until(lambda: show()["healthy"] == 2)
    found = real("service", "url", "web", "-o", "json").json
    host, _, port = found["url"].removeprefix("http://").rpartition(":")
    status, text = ask(host, int(port), found["token"])
    assert (status, text.split()[1:]) == (200, ["one", "True"])
    ports = [one["port"] for one in show()["replicas"]]
    published = (system.folder / "engine-words").read_text()
    assert all(f"--publish=127.0.0.1:{port}:{port} " in published for port in ports)
    for port in ports:
        assert listeners.listener_uid(port) == os.geteuid(), "at all addresses of its network, as 0.0.0.0 asks for"
    assert real("service", "update", "web", "--image", "r.io/web:2").code == 0
    wait_until(lambda: [one["generation"] for one in show()["replicas"]] == [2, 2] and show()["healthy"] == 2)
    assert "r.io/web:2" in (system.folder / "engine-words").read_text()
    assert real("service", "stop", "web").code == 0


def test_rstudio(real: Any, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(shlex.quote(sys.executable)).parent}:{os.environ['PATH']}")
    job_id = start(real, "rstudio")
    owner, session = console.log_in(), f"/session/{job_id}/"
    wait_until(lambda: owner.get(session)[0] == 200)
    status, body = owner.get(f"{session}rpc?a=1")
    said = json.loads(body)
    assert (status, said["path"]) == (200, "/rpc?a=1") and not said["knows_token"]
    assert said["options"]["www-root-path"] == session and "vgpu=" not in said["headers"].get("cookie", "")
    token = real("job", "show", job_id, "-o", "json").json["job"]["environment"]["VGPU_SESSION_TOKEN"]
    assert token not in body.decode()
    real("session", "stop", job_id)
