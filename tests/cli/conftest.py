"""The command line as a user calls it: in a process of its own (`run_vgpu`) or in this one (`vgpu`, quicker)."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import fake_server
from vgpud import paths

ROOT = Path(__file__).resolve().parents[2]


class Result:
    """What a command said."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


Vgpu = Callable[..., Result]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Any]:
    """A fake daemon with one simulated device."""
    with fake_server.FakeDaemon(tmp_path) as fake:
        yield fake


@pytest.fixture
def vgpu(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Vgpu:
    """Calls the command line in this process; `host=` names the daemon."""
    from vgpud.cli.main import invoke

    monkeypatch.delenv("VGPU_HOST", raising=False)

    def call(*args: str, host: str | None = None) -> Result:
        capfd.readouterr()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        code = invoke([*(["--host", host] if host else []), *args])
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # `run` leaves signals blocked: it is about to exit
        out, err = capfd.readouterr()
        return Result(code, out, err)

    return call


class Screen(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_a_terminal(vgpu: Vgpu, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Calls the command line at a terminal of this width: on_a_terminal(80, "ps", host=...) -> lines, no colours."""

    def call(width: int, *args: str, host: str | None = None) -> list[str]:
        screen = Screen()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", screen)
            patch.setattr(sys, "stderr", screen)
            vgpu(*args, host=host)
        text = re.sub("\x1b\\[[0-9;]*m", "", screen.getvalue())
        return re.split("\x1b\\[[0-9;?]*[A-Za-z]|[\r\n]+", text)

    return call


@pytest.fixture
def run_vgpu() -> Vgpu:
    """Calls the command line as a process of its own."""

    def call(*args: str, host: str | None = None, timeout_s: float = 60, **env: str) -> Result:
        command = [sys.executable, "-m", "vgpud.cli.main", *(["--host", host] if host else []), *args]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("VGPU_")} | env
        environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


# ---- vgpu setup ----


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fakes of the package's libraries."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name in ("libvgpu.so", "libvgpu-ml.so", "vgpu-runtime"):
        (folder / name).write_text(f"first {name}")
    monkeypatch.setattr(paths, "lib_dir", lambda: folder)
    return folder


@pytest.fixture
def host(tmp_path: Path, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root directory of a host where nothing runs."""
    root = tmp_path / "host"
    (root / "etc/docker").mkdir(parents=True)
    monkeypatch.setattr("vgpud.setup.dockerd.all_dockerds", list)
    monkeypatch.setattr("vgpud.setup.install.containers_of", lambda site: {})
    return root


@pytest.fixture
def setup(vgpu: Any, host: Path) -> Callable[..., Any]:
    """Calls `vgpu setup ENGINE ... --root HOST`."""
    return lambda *words: vgpu("setup", *words, "--root", str(host))


def _everything(root: Path) -> dict[str, Any]:
    """Every file below root: contents and mode, or where a link leads."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        info = path.lstat()
        found[name] = os.readlink(path) if path.is_symlink() else info.st_mode
        if path.is_file() and not path.is_symlink():
            found[name] = (info.st_mode, path.read_bytes())
    return found


@pytest.fixture
def everything() -> Callable[[Path], dict[str, Any]]:
    """everything(root): all that lies below it, to be compared."""
    return _everything
