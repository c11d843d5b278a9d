"""VS Code's own server as a session, in a real browser, by the console's address. It is that of npm's `code-server`,
which has it whole (lib/vscode); `code serve-web` starts the same program with the same options, after a download."""

from __future__ import annotations

import http.client
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.sessions.test_session_in_browser import log_in, read_page, wait_for
from tests.cli.sessions.world import BUILT, Console, start, wait_until
from tests.console.browser import Browser, needs_chromium

#: the folder that `npm install code-server` was called in
FOLDER = "VGPU_TEST_CODE_SERVER"
_VSCODE = "lib/vscode/out/server-main.js"


def find_server() -> Path | None:
    """VS Code's server: by the variable, or by a `code-server` on the PATH."""
    folder, program = os.environ.get(FOLDER), shutil.which("code-server")
    places = [Path(folder) / "node_modules/code-server" / _VSCODE] if folder else []
    places += [parent / _VSCODE for parent in Path(program).resolve().parents] if program else []
    return next((place for place in places if place.exists()), None)


SERVER, NODE = find_server(), shutil.which("node")
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.skipif(
        not (SERVER and NODE),
        reason=f"VS Code's server is not installed: npm install code-server, and {FOLDER}=that folder",
    ),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def test_an_editor_in_a_session(real: Any, console: Console, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_chromium()
    (short_dir / "hello-from-the-node.txt").write_text("a line of this file\n")
    programs = short_dir / "bin"
    programs.mkdir()
    (programs / "code").write_text(f'#!/bin/sh\n[ "$1" = serve-web ] && shift\nexec "{NODE}" "{SERVER}" "$@"\n')
    (programs / "code").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(short_dir))
    data = str(short_dir / "data")
    job_id = start(real, "code", "--accept-server-license-terms", "--server-data-dir", data, "--telemetry-level", "off")
    base, owner = f"/session/{job_id}/", console.log_in()
    wait_until(lambda: owner.get(base)[0] == 200)
    port = real("job", "show", job_id, "-o", "json").json["job"]["session_port"]
    assert ask_directly(port, base) == 403, "its own port asks for the token"
    with Browser(console.url) as browser:
        log_in(browser, console)
        browser.driver.get(f"{console.url}{base}?folder={short_dir}")
        wait_for(lambda: "hello-from-the-node.txt" in read_page(browser))
    assert real("session", "stop", job_id).code == 0


def ask_directly(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status
