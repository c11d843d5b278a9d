"""A service with the real daemon, its real balancer and the real console: one address for all, by the log-in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.services import test_service_sockets
from tests.cli.services.test_service_real import PROGRAM
from tests.cli.sessions.world import BUILT, OTHER_UID, Browser, Console, frame, read_frame, wait_until

pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]


@pytest.mark.root
def test_a_service_is_reached_and_shown(
    real: Any, console: Console, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(short_dir / "state"))
    program = short_dir / "program.py"
    program.write_text(PROGRAM)
    result = real("service", "start", "--gpus", "0.1", "--name", "web", "--", sys.executable, str(program), "one")
    assert result.code == 0, result
    owner = console.log_in()
    wait_until(lambda: owner.get("/service/web/")[0] == 200)
    assert owner.get("/service/web/")[1].endswith(b" one True"), "the replica was shown its own token"
    status, page = owner.get("/services")
    assert status == 200 and b"1</b> of 1 replica is healthy" in page
    other = console.log_in(OTHER_UID)
    assert other.get("/service/web/")[0] == 404
    _, head = owner.open_socket("/service/web/")
    assert head.startswith(b"HTTP/1.1 502 "), "its program answers, and knows no WebSockets"
    _, head = other.open_socket("/service/web/")
    assert head.startswith(b"HTTP/1.1 404 ")
    _, head = Browser(console.address).open_socket("/service/web/")
    assert head.startswith(b"HTTP/1.1 401 ")
    assert real("service", "stop", "web").code == 0
    wait_until(lambda: owner.get("/service/web/")[0] in (404, 503))


@pytest.mark.root
def test_a_web_socket_of_a_service(
    real: Any, console: Console, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the log-in, below the service's path, which its program does not see."""
    monkeypatch.setenv("XDG_STATE_HOME", str(short_dir / "state"))
    program = short_dir / "program.py"
    program.write_text(test_service_sockets.PROGRAM)
    health = ("--health-http", "/health", "--drain", "1s")
    result = real("service", "start", "--gpus", "0.1", "--name", "live", *health, "--", sys.executable, str(program))
    assert result.code == 0, result
    owner = console.log_in()
    wait_until(lambda: owner.get("/service/live/health")[0] == 200)
    sock, head = owner.open_socket("/service/live/")
    with sock:
        assert head.startswith(b"HTTP/1.1 101 ")
        sock.sendall(frame(b"echo"))
        assert read_frame(sock).endswith(b" echo")
        assert real("service", "stop", "live").code == 0
        assert read_frame(sock)[:2] == (1001).to_bytes(2, "big"), "the balancer's close frame"
