"""The daemon's pod (`daemon.mode: pod`), as the chart renders it, on a node where nothing of vgpud is yet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpud
from benchmarks import engine
from tests.daemon.node import wait_until
from tests.k8s.charts import render_objects
from tests.k8s.rendered_pod import RenderedPod
from vgpud import paths
from vgpud.setup.install import LIBRARIES, RUNTIME

SETTINGS = ("daemon.mode=pod", "daemon.runtimeClassName=", 'daemon.config=device = "sim"', "daemon.metricsPort=29419")
FRONT = Path("usr/lib/vgpu")

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(engine.why_not()), reason=engine.why_not() or "runc is there"),
]


@pytest.fixture
def node(short_dir: Path) -> Path:
    """The root directory of a clean node."""
    made = short_dir / "node"
    made.mkdir()
    return made


@pytest.fixture
def pod(short_dir: Path, node: Path) -> RenderedPod:
    objects = render_objects(*SETTINGS)
    (daemon,) = [o for o in objects if o["kind"] == "DaemonSet" and o["metadata"]["name"].endswith("-daemon")]
    configs = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    return RenderedPod(short_dir, daemon["spec"]["template"]["spec"], node, configs)


@pytest.fixture
def device(node: Path, pod: RenderedPod) -> Iterator[None]:
    """A simulated device where the daemon looks for it."""
    folder = node / "run" / "vgpud" / "sim"
    folder.mkdir(mode=0o755)
    command = [str(paths.sim_lib_dir() / "vgpu-simd"), "--dir", str(folder), "--foreground"]
    process = subprocess.Popen(command)
    wait_until((folder / "sock").exists, "the simulated device")
    yield
    process.kill()
    process.wait()


def start(pod: RenderedPod) -> None:
    done = pod.run_first()
    assert [one.returncode for one in done] == [0], done[-1].stderr


def test_it_starts_on_a_clean_node(pod: RenderedPod, node: Path, device: None) -> None:
    start(pod)
    conf = (node / FRONT / "current" / "vgpu-runtime.conf").read_text()
    assert "socket = /run/vgpud/runtime.sock\n" in conf
    with pod.running() as daemon:
        wait_until(lambda: daemon.passes("startupProbe"), f"the daemon; {daemon.log.read_text()}")
        assert daemon.passes("livenessProbe")
        assert (node / "run" / "vgpud" / "runtime.sock").is_socket()


def test_hooks_of_its_devices_are_the_nodes_files(pod: RenderedPod, node: Path, device: None) -> None:
    start(pod)
    files = node / "var" / "run" / "cdi"
    with pod.running() as daemon:
        wait_until(lambda: daemon.passes("startupProbe"), "the daemon")
        wait_until(lambda: list(files.glob("*.json")), f"a CDI file; {daemon.log.read_text()}")
    for file in files.glob("*.json"):
        edits = json.loads(file.read_text())["containerEdits"]
        assert {hook["path"] for hook in edits["hooks"]} == {f"/{FRONT}/current/{RUNTIME}"}


def test_it_starts_again_and_after_an_upgrade(pod: RenderedPod, node: Path) -> None:
    """The files of an older version stay: containers that were started by it are ended by it."""
    old = node / FRONT / "0.0.1"
    old.mkdir(parents=True)
    for name in (*LIBRARIES, RUNTIME):
        (old / name).write_text("old")
    (node / FRONT / "current").symlink_to("0.0.1")
    for _ in range(2):
        start(pod)
        assert (node / FRONT / "current").readlink() == Path(vgpud.__version__)
        assert (old / RUNTIME).read_text() == "old"
    (node / FRONT / "current" / RUNTIME).write_text("broken")  # a repair writes into the version's own folder
    start(pod)
    assert (node / FRONT / "current" / RUNTIME).read_bytes() == (paths.lib_dir() / RUNTIME).read_bytes()
