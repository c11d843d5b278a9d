"""`vgpu setup` with engines that run: from one that knows nothing to half a GPU in a container, and back again."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem, PartError
from vgpud.setup import containerd as containerd_file

from .conftest import need, unavailable
from .helpers import HALF, at, half_a_gpu_is_seen, until, until_free, view

Setup = Callable[..., subprocess.CompletedProcess[str]]
DAEMON_JSON = '{"live-restore": true,\n\n "log-level": "info"}\n'


@pytest.fixture
def lib(engines_dir: Path) -> Iterator[Path]:
    """Stands for /usr/lib/vgpu."""
    path = engines_dir / "lib"
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def setup(lib: Path, shared_system: OwnSystem) -> Setup:
    """setup(engine, ..., version=): `vgpu setup` with our own places; version: of another package."""

    def call(name: str, *words: str, version: str = "") -> subprocess.CompletedProcess[str]:
        places = ["--prefix", str(lib), "--socket", str(shared_system.folder / "run/runtime.sock")]
        program = "import vgpud\n" + (f"vgpud.__version__ = '{version}'\n" if version else "")
        program += "from vgpud.cli.main import main\nmain()"
        command = [
            sys.executable,
            "-c",
            program,
            "setup",
            name,
            *places,
            "--runtime",
            engine.find("runc") or "",
            *words,
        ]
        env = {k: v for k, v in os.environ.items() if k != "CONTAINERS_CONF"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)

    return call


@pytest.fixture(scope="module")
def dockerd(engines_dir: Path, image_tar: Path) -> Iterator[engine.Docker]:
    """A dockerd that knows nothing of us."""
    need("dockerd", "docker")
    made = engine.Docker(engines_dir / "sdocker", {})
    try:
        made.__enter__()
        made.import_base(image_tar)
    except PartError as error:
        made.stop()
        unavailable(str(error))
    yield made
    made.stop()


@pytest.fixture
def config(dockerd: engine.Docker, system: OwnSystem) -> Iterator[Path]:
    """Its daemon.json, as a user wrote it."""
    path = dockerd.folder / "daemon.json"
    path.write_text(DAEMON_JSON)
    yield path
    dockerd.remove_all()


def runtimes(dockerd: engine.Docker) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(dockerd.cli("info", "-f", "{{json .Runtimes}}").stdout)
    return found


def test_docker(setup: Setup, dockerd: engine.Docker, config: Path, lib: Path, programs: Path) -> None:
    assert "vgpu" not in runtimes(dockerd)
    shown = setup("docker", "--config", str(config), "--dry-run")
    assert (shown.returncode, config.read_text(), lib.exists()) == (0, DAEMON_JSON, False), shown.stderr
    assert f'"path": "{lib}/current/vgpu-runtime"' in shown.stdout

    done = setup("docker", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert runtimes(dockerd)["vgpu"]["path"] == f"{lib}/current/vgpu-runtime"
    half_a_gpu_is_seen(view(dockerd.run(*HALF, *at(programs), engine.BASE, "/programs/view")))
    assert "nothing to do" in setup("docker", "--config", str(config)).stderr

    undone = setup("docker", "--config", str(config), "--undo")
    assert undone.returncode == 0, undone.stderr
    assert ("vgpu" in runtimes(dockerd), config.read_text(), lib.exists()) == (False, DAEMON_JSON, False)
    assert not list(config.parent.glob("*before-vgpu*"))


def test_docker_as_default(setup: Setup, dockerd: engine.Docker, config: Path, lib: Path, programs: Path) -> None:
    assert setup("docker", "--config", str(config), "--set-as-default").returncode == 0
    words = ["run", "--rm", "--network=none", *HALF, *at(programs), engine.BASE, "/programs/view"]
    half_a_gpu_is_seen(view(dockerd.cli(*words, check=False)))
    assert setup("docker", "--config", str(config), "--undo").returncode == 0
    assert dockerd.cli("info", "-f", "{{.DefaultRuntime}}").stdout.strip() == "runc"
    assert config.read_text() == DAEMON_JSON


def test_a_running_container_outlives_upgrade_and_undo(
    setup: Setup, dockerd: engine.Docker, config: Path, lib: Path, programs: Path, system: OwnSystem
) -> None:
    """Its engine calls the front again to stop it: that stays as long as there is such a container, and is said."""
    assert setup("docker", "--config", str(config)).returncode == 0
    container = dockerd.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    assert setup("docker", "--config", str(config), version="99.1").returncode == 0
    assert os.readlink(lib / "current") == "99.1"
    undone = setup("docker", "--config", str(config), "--undo", version="99.1")
    assert f"{lib}/99.1 stays: container {container[:12]} was started by it" in undone.stderr
    assert sorted(os.listdir(lib)) == ["99.1", "current"]
    assert "vgpu" not in runtimes(dockerd)

    half_a_gpu_is_seen(view(dockerd.cli("exec", container, "/programs/view")))
    dockerd.cli("stop", "-t", "0", container)
    until_free(system)
    until("the engine's own end of it", lambda: not_watched(dockerd))
    assert setup("docker", "--config", str(config), "--undo").returncode == 0
    assert not lib.exists()


def not_watched(dockerd: engine.Docker) -> bool:
    """Whether no shim of this dockerd is left."""
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return not any("containerd-shim" in line and str(dockerd.folder) in line for line in lines)


def test_what_dockerd_does_not_take_over_is_put_back(setup: Setup, dockerd: engine.Docker, config: Path) -> None:
    """A mistake in the file, which dockerd has not read yet: it says nothing but in its log."""
    mistaken = DAEMON_JSON.replace("}", ', "no-such-option": true}')
    config.write_text(mistaken)
    refused = setup("docker", "--config", str(config))
    assert (refused.returncode, config.read_text()) == (1, mistaken)
    assert f"did not accept {config}" in refused.stderr
    assert "vgpu" not in runtimes(dockerd)


def test_runtimes_on_dockerds_command_line(setup: Setup, dockerd: engine.Docker, config: Path, lib: Path) -> None:
    """With them in the file as well dockerd would not start again."""
    assert dockerd.daemon
    command = [*dockerd.daemon.process.args, "--add-runtime", "other=/usr/bin/runc"]  # type: ignore[misc]
    dockerd.stop_daemon()
    process = subprocess.Popen(command, env=dockerd.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("dockerd", lambda: dockerd.cli("version", check=False).returncode == 0)
        refused = setup("docker", "--config", str(config))
        assert (refused.returncode, config.read_text()) == (1, DAEMON_JSON)
        assert re.search(r"dockerd \(pid \d+\) has --add-runtime, so .* must not have runtimes as well", refused.stderr)
        assert not lib.exists()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        dockerd.start()
        dockerd.reload()


def test_podman(setup: Setup, engines_dir: Path, image_tar: Path, programs: Path, system: OwnSystem, lib: Path) -> None:
    """/etc/containers of a namespace of our own: there podman reads drop-ins."""
    own = engines_dir / "sp"  # podman refuses longer paths
    own.mkdir()
    need("podman", "conmon")
    etc = own / "etc"
    shutil.copytree("/etc/containers", etc)
    podman = engine.Podman(own / "p", {})
    (own / "p/containers.conf").rename(etc / "containers.conf")
    del podman.env["CONTAINERS_CONF"]
    mount = 'mount --bind "$0" /etc/containers && exec "$@"'

    def run_there(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["unshare", "-m", "--propagation", "slave", "sh", "-c", mount, str(etc), *words]
        return subprocess.run(command, env=podman.env, capture_output=True, text=True, timeout=120, check=False)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        roots = ["--root", str(own / "p/root"), "--runroot", str(own / "p/runroot")]
        return run_there(engine.find("podman") or "podman", *roots, *words)

    drop_in = etc / "containers.conf.d/vgpu.conf"
    try:
        if run("import", str(image_tar), engine.BASE).returncode:
            unavailable("podman cannot import an image in a mount namespace")
        words = (
            "--runtime",
            "vgpu",
            "run",
            "--rm",
            "--network=none",
            *HALF,
            *at(programs),
            engine.BASE,
            "/programs/view",
        )
        assert "vgpu" in run(*words).stderr
        done = setup("podman", "--config", str(drop_in))
        assert done.returncode == 0, done.stderr
        half_a_gpu_is_seen(view(run(*words)))
        refused = run("--runtime", "vgpu", "run", "--rm", "--network=none", "-e", "VGPU=abc", engine.BASE, "true")
        assert "VGPU: 'abc' is not a number of GPUs" in refused.stderr
        assert run("--runtime", "runc", "run", "--rm", "--network=none", engine.BASE, "true").returncode == 0
        container = run("--runtime", "vgpu", "run", "-d", "--network=none", engine.BASE, "sleep", "600").stdout.strip()
        undone = setup("podman", "--config", str(drop_in), "--undo")
        assert f"stays: container {container[:12]} was started by it" in undone.stderr
        setup("podman", "--config", str(drop_in))
        assert run("rm", "-f", "-t", "0", container).returncode == 0
        assert setup("podman", "--config", str(drop_in), "--undo").returncode == 0
        assert (drop_in.exists(), lib.exists()) == (False, False)
        assert run(*words).returncode != 0
    finally:
        podman.stop()


def test_containerd(
    setup: Setup, containerd_engine: engine.Containerd, tmp_path: Path, programs: Path, system: OwnSystem, lib: Path
) -> None:
    """What containerd itself makes of the file, and `ctr run` with the front that the file names."""
    file = tmp_path / "config.toml"
    containerd = engine.find("containerd") or "containerd"

    def dump_config() -> str:
        command = [containerd, "--config", str(file), "config", "dump"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    file.write_text('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "pause"\n')
    before, text = dump_config(), file.read_text()
    assert "runtimes.runc]" in before
    done = setup("containerd", "--config", str(file))
    assert done.returncode == 0, done.stderr
    after = dump_config()
    assert "runtimes.runc]" in after
    assert f'BinaryName = "{lib}/current/vgpu-runtime"' in after
    named = containerd_file.find_runtime_path(file)
    assert named is not None
    mount = f"type=bind,src={programs},dst=/programs,options=rbind:ro"
    request = ("--env", "VGPU=0.5", "--env", "VGPU_MEM=1g", "--mount", mount)
    image = f"docker.io/{engine.BASE}:latest"
    half_a_gpu_is_seen(view(containerd_engine.run(Path(named), *request, image, "setup", "/programs/view")))
    until_free(system)
    assert setup("containerd", "--config", str(file), "--undo").returncode == 0
    assert (file.read_text(), dump_config(), lib.exists()) == (text, before, False)
