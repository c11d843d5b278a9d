"""`vgpu setup podman|containerd|systemd`: one entry each, like what the site has, and gone again without a trace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.setup import install
from vgpud.setup.site import Site

# ---- podman ----


def test_podman_gets_a_drop_in(everything: Any, setup: Any, host: Path) -> None:
    (host / "etc/containers/containers.conf.d").mkdir(parents=True)
    (host / "etc/containers/containers.conf").write_text('[engine]\nruntime_supports_json = ["runc", "mine"]\n')
    before = everything(host)
    assert setup("podman").code == 0
    drop_in = host / "etc/containers/containers.conf.d/vgpu.conf"
    assert 'runtime_supports_json = ["runc", "mine", "vgpu"]' in drop_in.read_text()
    assert '[engine.runtimes]\nvgpu = ["/usr/lib/vgpu/current/vgpu-runtime"]\n' in drop_in.read_text()
    assert "nothing to do" in setup("podman").stderr
    assert "podman uses it" in setup("docker", "--undo").stderr
    setup("podman", "--undo")
    (host / "usr/lib").rmdir()
    (host / "usr").rmdir()
    assert everything(host) == before


def test_podman_of_a_user_lies_in_the_home_directory(
    vgpu: Any, libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert Site().for_user  # or the machine itself would be changed
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(install, "containers_of", lambda site: {})
    assert vgpu("setup", "podman", "--socket", "/run/user/1000/vgpud/runtime.sock").code == 0
    assert (home / ".local/lib/vgpu/current/vgpu-runtime").is_file()
    assert (
        str(home / ".local/lib/vgpu/current") in (home / ".config/containers/containers.conf.d/vgpu.conf").read_text()
    )
    assert vgpu("setup", "podman", "--undo").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "elsewhere"))
    assert vgpu("setup", "podman", "--dry-run", "-o", "name").stdout.endswith(
        "/elsewhere/containers/containers.conf.d/vgpu.conf\n"
    )
    assert not [path for path in home.rglob("*") if path.is_file()]


# ---- containerd ----

CRI = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.'
CONTAINERD = f"""version = 2

[plugins]
  {CRI}runc]  # the site's own
    runtime_type = "io.containerd.runc.v2"
    pod_annotations = ["a/*"]
    {CRI}runc.options]
      SystemdCgroup = true
"""


@pytest.fixture
def containerd_toml(host: Path) -> Path:
    (host / "etc/containerd").mkdir()
    return host / "etc/containerd/config.toml"


def test_containerds_entry_is_like_the_sites_runc(setup: Any, containerd_toml: Path) -> None:
    containerd_toml.write_text(CONTAINERD)
    assert setup("containerd").code == 0
    text = containerd_toml.read_text()
    assert text.startswith(CONTAINERD)
    assert 'pod_annotations = ["a/*", "dev.vgpu/*"]' in text
    assert f'{CRI}vgpu.options]\nSystemdCgroup = true\nBinaryName = "/usr/lib/vgpu/current/vgpu-runtime"\n' in text
    again = setup("containerd")
    assert "nothing to do" in again.stderr
    assert "restart containerd" in setup("containerd", "--undo").stderr
    assert containerd_toml.read_text() == CONTAINERD


def test_containerds_built_in_runc_is_kept(setup: Any, containerd_toml: Path) -> None:
    """The first entry in the file replaces it, and every pod without a RuntimeClass would fail."""
    setup("containerd")
    assert f'{CRI}runc]\nruntime_type = "io.containerd.runc.v2"\n' in containerd_toml.read_text()
    setup("containerd", "--undo")
    assert not containerd_toml.exists()


def test_version_3_of_containerds_file(setup: Any, containerd_toml: Path) -> None:
    containerd_toml.write_text("version = 3\n")
    setup("containerd")
    assert '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.vgpu]' in containerd_toml.read_text()
    setup("containerd", "--undo")
    assert containerd_toml.read_text() == "version = 3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('disabled_plugins = ["cri"]\n', "is of version 1, but 2 or 3 is needed"),
        ("version = 2\n[plugins\n", "is not TOML"),
        (f"version = 2\noom_score = {'9' * 5000}\n", "is not TOML"),
        (
            'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\nruntimes = {runc = {}}\n',
            "is written inline",
        ),
    ],
)
def test_files_of_containerd_that_cannot_be_changed(setup: Any, containerd_toml: Path, text: str, message: str) -> None:
    containerd_toml.write_text(text)
    result = setup("containerd")
    assert (result.code, containerd_toml.read_text()) == (1, text)
    assert message in result.stderr


# ---- systemd ----


def test_the_unit_starts_the_vgpud_that_is_installed(
    setup: Any, host: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vgpud.setup.systemd.sys.executable", "/opt/v/bin/python")
    monkeypatch.setattr("vgpud.setup.systemd.shutil.which", lambda name: "/opt/v/bin/vgpud")
    assert "no vgpud on the host below" in setup("systemd").stderr
    (host / "opt/v/bin").mkdir(parents=True)
    (host / "opt/v/bin/vgpud").write_text("")
    assert "`vgpu submit` cannot start jobs there" in setup("systemd").stderr
    supervisor = host / str(paths.lib_dir() / "vgpu-job").lstrip("/")
    supervisor.parent.mkdir(parents=True)
    supervisor.write_text("")
    assert setup("systemd").code == 0
    unit = host / "etc/systemd/system/vgpud.service"
    job = unit.with_name("vgpu-job@.service")
    assert f"ExecStart={paths.lib_dir()}/vgpu-job --here\n" in job.read_text()
    assert "ListenStream=/run/vgpud/job.sock\n" in unit.with_name("vgpu-job.socket").read_text()
    assert "ExecStart=/opt/v/bin/vgpud serve\n" in unit.read_text()
    assert "/usr/local/bin" not in unit.read_text()
    console = unit.with_name("vgpud-console.service")
    assert "ExecStart=/opt/v/bin/vgpu console serve\n" in console.read_text()
    assert "nothing to do" in setup("systemd").stderr
    assert setup("systemd", "--undo").code == 0
    assert not unit.exists() and not job.exists() and not console.exists()


def test_a_path_that_systemd_would_misread(setup: Any, host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.setup.systemd.sys.executable", "/opt/my vgpu/python")
    monkeypatch.setattr("vgpud.setup.systemd.shutil.which", lambda name: "/opt/my vgpu/vgpud")
    (host / "opt/my vgpu").mkdir(parents=True)
    (host / "opt/my vgpu/vgpud").write_text("")
    assert "without blanks" in setup("systemd").stderr


def test_the_units_are_valid(tmp_path: Path) -> None:
    from vgpud.setup.systemd import unit_text

    names = ("vgpud.service", "vgpud-console.service", "vgpu-job@.service", "vgpu-job.socket")
    for program in ("vgpud", "vgpu"):
        (tmp_path / program).symlink_to("/bin/true")
    for name in names:
        (tmp_path / name).write_text(unit_text(name, tmp_path / "vgpud"))
    for name in ("vgpud.service", "vgpud-console.service", "vgpu-job@1.service", "vgpu-job.socket"):
        try:
            words = ["systemd-analyze", "verify", tmp_path / name]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("no systemd-analyze here")
        said = [line for line in done.stderr.splitlines() if "vgpu" in line]
        assert (done.returncode, said) == (0, []), name
