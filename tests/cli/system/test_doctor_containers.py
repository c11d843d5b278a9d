"""`vgpu doctor` on containers: each way in which engines, front and daemon disagree is found and has a remedy."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpud
from vgpud import paths
from vgpud.cli.common.findings import Finding, Look
from vgpud.cli.common.options import Settings
from vgpud.cli.system import checks_containers, checks_engines
from vgpud.setup import dockerd, podman
from vgpud.setup.install import conf_text
from vgpud.setup.site import Site
from vgpud.v1alpha1 import vgpud_pb2 as pb


def by_check(findings: Iterator[Finding]) -> dict[str, Finding]:
    """The findings by name; every one that is not ok must have a remedy."""
    found = {}
    for finding in findings:
        assert finding.level == "ok" or finding.remedy, finding
        found[finding.check] = finding
    return found


def look(**node: Any) -> Look:
    return Look(Settings(), pb.Node(**node))


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/usr/lib/vgpu of a machine with docker, set up as it should be."""
    package = tmp_path / "package"
    installed = tmp_path / "lib" / vgpud.__version__
    for folder in (package, installed):
        folder.mkdir(parents=True)
        for name in ("libvgpu.so", "libvgpu-ml.so", "vgpu-runtime"):
            (folder / name).write_text(name)
            (folder / name).chmod(0o755)
    (installed / "vgpu-runtime.conf").write_text(conf_text(tmp_path / "runtime.sock", "sh"))
    (tmp_path / "lib/current").symlink_to(vgpud.__version__)
    monkeypatch.setattr(paths, "lib_dir", lambda: package)
    monkeypatch.setattr(checks_containers, "Site", lambda **_: Site(prefix=tmp_path / "lib"))
    monkeypatch.setattr(checks_containers, "engines_here", lambda: ["docker"])
    return tmp_path / "lib"


def levels(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: finding.level for name, finding in findings.items()}


# ---- the front ----


def test_a_front_as_it_should_be(lib: Path) -> None:
    found = by_check(checks_containers.front(look(runtime_socket=str(lib.parent / "runtime.sock"))))
    assert levels(found) == {"front": "ok", "low-level-runtime": "ok"}


def test_no_front(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(lib)
    found = by_check(checks_containers.front(look()))
    assert levels(found) == {"front": "warn"}
    assert "vgpu setup docker" in found["front"].remedy
    monkeypatch.setattr(checks_containers, "engines_here", list)
    assert by_check(checks_containers.front(look())) == {}


def test_a_front_of_another_version_or_build(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lib / "current/libvgpu.so").write_text("older")
    found = by_check(checks_containers.front(look()))["front"]
    assert (found.level, "libvgpu.so is not the package's" in found.text) == ("warn", True)
    monkeypatch.setattr(vgpud, "__version__", "99.1")
    found = by_check(checks_containers.front(look()))["front"]
    assert (found.level, "99.1" in found.text) == ("warn", True)
    (lib / "current/vgpu-runtime").unlink()
    found = by_check(checks_containers.front(look()))["front"]
    assert (found.level, "vgpu-runtime is missing" in found.text) == ("fail", True)


def test_a_front_that_asks_another_daemon(lib: Path) -> None:
    found = by_check(checks_containers.front(look(runtime_socket="/elsewhere/runtime.sock")))["front-conf"]
    assert (found.level, "no daemon answers" in found.text) == ("fail", True)
    assert "--socket /elsewhere/runtime.sock" in found.remedy


def test_a_front_that_another_daemon_serves(lib: Path, short_dir: Path) -> None:
    path = short_dir / "runtime.sock"
    (lib / "current/vgpu-runtime.conf").write_text(conf_text(path, "sh"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        found = by_check(checks_containers.front(look(runtime_socket="/elsewhere/runtime.sock")))["front-conf"]
    assert (found.level, f"another daemon, at {path}" in found.text) == ("warn", True)
    assert "--socket /elsewhere/runtime.sock" in found.remedy


@pytest.mark.parametrize(
    ("runtime", "message", "remedy"),
    [
        ("nvidia-container-runtime", "mounts the driver over the shim", "--runtime runc"),
        ("/no/such/runc", "no /no/such/runc", "install runc"),
        ("no-such-runtime", "no no-such-runtime in /usr/local/sbin", "install runc"),
    ],
)
def test_low_level_runtimes_that_cannot_be(lib: Path, runtime: str, message: str, remedy: str) -> None:
    (lib / "current/vgpu-runtime.conf").write_text(conf_text(lib, runtime))
    found = by_check(checks_containers.front(look()))["low-level-runtime"]
    assert found.level == "fail"
    assert message in found.text
    assert remedy in found.remedy


def test_noexec_mounts(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cache" not in by_check(checks_containers.cache(look()))
    monkeypatch.setattr(checks_containers, "_is_noexec", lambda path: True)
    assert "noexec" in by_check(checks_containers.front(look()))["front"].text
    found = by_check(checks_containers.cache(look()))["cache"]
    assert found.level == "fail"
    assert found.remedy.startswith("mount -o remount,exec /")


# ---- the daemon ----


def test_the_runtime_socket(tmp_path: Path) -> None:
    path = tmp_path / "runtime.sock"
    assert by_check(checks_containers.runtime_socket(look(runtime_socket=str(path))))["runtime-socket"].level == "fail"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        found = by_check(checks_containers.runtime_socket(look(runtime_socket=str(path))))
    assert levels(found) == {"runtime-socket": "ok"}
    found = by_check(checks_containers.runtime_socket(look(runtime_socket=str(path))))
    assert (found["runtime-socket"].level, "refused" in found["runtime-socket"].text) == ("fail", True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a pid namespace")
def test_a_daemon_in_a_pid_namespace_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "runtime.sock"
    program = "import socket,sys,time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(1)"
    program += "; sys.stdout.flush(); sys.stdin.read()"
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        if not server.stdout.readline():
            pytest.skip("no pid namespace can be made here")
        found = by_check(checks_containers.runtime_socket(look(runtime_socket=str(path))))
        server.communicate()
    assert levels(found) == {"runtime-socket": "ok", "daemon-pid-namespace": "fail"}
    assert "--pid=host" in found["daemon-pid-namespace"].remedy


def test_our_cdi_file(tmp_path: Path) -> None:
    def check_our_cdi() -> Finding:
        return by_check(checks_containers.our_cdi(look(cdi_dir=str(tmp_path))))["our-cdi"]

    path = tmp_path / "vgpu.dev-gpu.json"
    assert check_our_cdi().level == "fail"
    path.write_text("{")
    assert "is not a CDI file of vgpud" in check_our_cdi().text
    device = {"name": "0.5", "containerEdits": {"hooks": [{"hookName": "createRuntime", "path": "/gone/vgpu-runtime"}]}}
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "vgpu.dev/gpu", "devices": [device]}))
    assert "/gone/vgpu-runtime, which cannot be executed" in check_our_cdi().text
    path.write_text(path.read_text().replace("/gone/vgpu-runtime", "/bin/sh"))
    assert check_our_cdi().level == "ok"


NVIDIA = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "GPU-1", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}}],
    "containerEdits": {"mounts": [{"hostPath": "/bin/sh", "containerPath": "/bin/sh", "options": ["ro"]}]},
}


def test_nvidias_specification(lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lib.parent / "cdi"
    folder.mkdir()
    config = lib.parent / "vgpud.toml"
    config.write_text(f'nvidia_cdi_dirs = ["{folder}"]\n')
    monkeypatch.setattr(paths, "config_file", lambda: config)

    def check_nvidia_cdi(*uuids: str) -> dict[str, Finding]:
        there = look(simulated=False)
        there.device_uuids, there.device_indices = uuids, tuple(range(len(uuids)))
        return by_check(checks_containers.nvidia_cdi(there))

    assert "nvidia-ctk cdi generate" in check_nvidia_cdi("GPU-1")["nvidia-cdi"].remedy
    (folder / "nvidia.json").write_text(json.dumps(NVIDIA))
    assert check_nvidia_cdi("GPU-1")["nvidia-cdi"].level == "ok"
    missing = check_nvidia_cdi("GPU-1", "GPU-2")["nvidia-cdi"]
    assert (missing.level, "GPU-2" in missing.text) == ("fail", True)
    (folder / "nvidia.json").write_text(
        json.dumps(NVIDIA).replace('"hostPath": "/bin/sh"', '"hostPath": "/gone/libcuda"')
    )
    assert "/gone/libcuda, which does not exist" in check_nvidia_cdi("GPU-1")["nvidia-cdi"].text
    simulated = look(simulated=True)
    simulated.device_uuids, simulated.device_indices = ("GPU-2",), (0,)
    assert by_check(checks_containers.nvidia_cdi(simulated)) == {}


def test_the_kernel_looks_inside() -> None:
    assert levels(by_check(checks_containers.looking_inside(look()))) == {"kernel-openat2": "ok"}


def test_selinux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lib: Path) -> None:
    monkeypatch.setattr(checks_containers, "_SELINUX", tmp_path / "enforce")
    assert by_check(checks_containers.security_modules(look())) == {}
    (tmp_path / "enforce").write_text("1")
    assert "label=disable" in by_check(checks_containers.security_modules(look()))["selinux"].remedy


# ---- engines ----


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a dockerd that answers says of itself; its daemon.json is tmp_path/daemon.json."""
    info: dict[str, Any] = {"ServerVersion": "20.10", "Runtimes": {"runc": {"path": "runc"}}, "SecurityOptions": []}
    (tmp_path / "docker.sock").touch()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setattr(dockerd, "ask", lambda path: info)
    monkeypatch.setattr(dockerd, "all_dockerds", list)
    monkeypatch.setattr(dockerd, "DEFAULT_CONFIG", tmp_path / "daemon.json")
    return info


def test_docker_that_does_not_know_us(docker: dict[str, Any], tmp_path: Path) -> None:
    found = by_check(checks_engines.docker_engine(look()))
    assert levels(found) == {"docker": "ok", "docker-runtime": "warn"}
    assert "vgpu setup docker" in found["docker-runtime"].remedy
    (tmp_path / "daemon.json").write_text('{"runtimes": {"vgpu": {"path": "/usr/lib/vgpu/current/vgpu-runtime"}}}')
    found = by_check(checks_engines.docker_engine(look()))
    assert (found["docker-runtime"].level, "reload docker" in found["docker-runtime"].remedy) == ("fail", True)
    (tmp_path / "daemon.json").write_text('{"runtimes": {,}}')
    found = by_check(checks_engines.docker_engine(look()))
    assert "line 1, column 15" in found["docker-runtime"].text


def test_what_docker_has_registered(docker: dict[str, Any], lib: Path) -> None:
    def check_runtime(path: str) -> Finding:
        docker["Runtimes"]["vgpu"] = {"path": path}
        return by_check(checks_engines.docker_engine(look()))["docker-runtime"]

    front = lib / "current/vgpu-runtime"
    assert check_runtime(str(front)).level == "ok"
    assert "which is not vgpud's" in check_runtime("/usr/bin/runc").text
    assert "which does not exist" in check_runtime(str(lib / "gone/vgpu-runtime")).text
    if os.geteuid() != 0:
        front.chmod(0o644)
        assert "cannot be executed" in check_runtime(str(front)).text
        front.chmod(0o755)
    (lib / "0.0.1").mkdir()
    shutil.copy2(front, lib / "0.0.1/vgpu-runtime")
    older = check_runtime(str(lib / "0.0.1/vgpu-runtime"))
    assert (older.level, "0.0.1" in older.text) == ("warn", True)


def test_docker_with_mapped_users(docker: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    docker["SecurityOptions"] = ["name=seccomp,profile=default", "name=userns", "name=apparmor"]
    monkeypatch.setattr(paths, "cache_dir", lambda: Path("/usr/share"))
    found = by_check(checks_engines.docker_engine(look(runtime_dir="/usr")))
    assert (found["docker-users"].level, found["apparmor"].level) == ("ok", "ok")
    with tempfile.TemporaryDirectory() as closed:  # mode 0700
        found = by_check(checks_engines.docker_engine(look(runtime_dir=f"{closed}/run")))
        assert (found["docker-users"].level, found["docker-users"].remedy) == ("fail", f"chmod o+x {closed}")


def test_docker_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    monkeypatch.setattr(checks_engines, "find_program", lambda name: None)
    assert by_check(checks_engines.docker_engine(look())) == {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stale:
        stale.bind(str(tmp_path / "docker.sock"))
    found = by_check(checks_engines.docker_engine(look()))["docker"]
    assert (found.level, found.remedy) == ("warn", "systemctl start docker")


def test_podman(tmp_path: Path, lib: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_engines, "find_program", lambda name: "/bin/echo")
    file = tmp_path / "containers.conf"
    monkeypatch.setenv("CONTAINERS_CONF", str(file))
    found = by_check(checks_engines.podman_engine(look()))
    assert levels(found) == {"podman": "ok", "podman-runtime": "warn"}
    assert "vgpu setup podman" in found["podman-runtime"].remedy
    (lib / "podman.conf").write_text("")
    monkeypatch.setattr(podman, "drop_in", lambda site: lib / "podman.conf")
    assert by_check(checks_engines.podman_engine(look()))["podman-runtime"].remedy == "unset CONTAINERS_CONF"
    file.write_text(f'[engine.runtimes]\nvgpu = ["{lib}/current/vgpu-runtime"]\n')
    assert by_check(checks_engines.podman_engine(look()))["podman-runtime"].level == "ok"
