"""`vgpu setup`: what it writes, that it leaves the rest as it was, that it can be shown and undone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vgpud
from vgpud import paths

DOCKER = """{
\t"log-driver":   "json-file",
\t"log-opts": {"max-size": "10m", "max-file": "3"},
\t"runtimes": {
\t\t"other": { "path": "/usr/bin/other" }
\t}
}
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's libraries, of wood."""
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
    monkeypatch.setattr("vgpud.setup.install.containers_of", lambda lib: {})
    return root


@pytest.fixture
def setup(vgpu: Any, host: Path) -> Callable[..., Any]:
    """Calls `vgpu setup ENGINE ... --root HOST`."""
    return lambda *words: vgpu("setup", *words, "--root", str(host))


def everything(root: Path) -> dict[str, Any]:
    """Every file below root: contents and mode, or where a link leads."""
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        info = path.lstat()
        found[name] = os.readlink(path) if path.is_symlink() else info.st_mode
        if path.is_file() and not path.is_symlink():
            found[name] = (info.st_mode, path.read_bytes())
    return found


def test_docker_gets_one_entry_and_keeps_every_other_byte(setup: Any, host: Path) -> None:
    config = host / "etc/docker/daemon.json"
    config.write_text(DOCKER)
    config.chmod(0o600)
    before = everything(host)
    assert setup("docker").code == 0
    assert json.loads(config.read_text())["runtimes"]["vgpu"] == {"path": "/usr/lib/vgpu/current/vgpu-runtime"}
    front = '"path": "/usr/lib/vgpu/current/vgpu-runtime"'
    added = f'"other": {{ "path": "/usr/bin/other" }},\n\t\t"vgpu": {{\n\t\t\t{front}\n\t\t}}'
    assert config.read_text() == DOCKER.replace('"other": { "path": "/usr/bin/other" }', added)
    assert config.stat().st_mode & 0o777 == 0o600
    assert (host / "usr/lib/vgpu/current/vgpu-runtime").read_text() == "first vgpu-runtime"
    assert setup("docker", "--undo").code == 0
    (host / "usr/lib").rmdir()
    (host / "usr").rmdir()
    assert everything(host) == before


def test_a_dry_run_changes_nothing_and_shows_all(setup: Any, host: Path) -> None:
    (host / "etc/docker/daemon.json").write_text(DOCKER)
    before = everything(host)
    shown = setup("docker", "--dry-run")
    assert shown.code == 0
    assert everything(host) == before
    assert "--- /etc/docker/daemon.json\n+++ /etc/docker/daemon.json\n" in shown.stdout
    assert '+\t\t\t"path": "/usr/lib/vgpu/current/vgpu-runtime"\n' in shown.stdout
    assert f"# install /usr/lib/vgpu/{vgpud.__version__}: libvgpu.so" in shown.stdout


def test_twice_is_once(setup: Any, host: Path) -> None:
    setup("docker")
    before = everything(host)
    again = setup("docker")
    assert "nothing to do" in again.stderr
    assert everything(host) == before
    setup("docker", "--undo")
    assert "nothing to undo" in setup("docker", "--undo").stderr
    assert not (host / "etc/docker/daemon.json").exists()
