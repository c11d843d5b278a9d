"""Shared by all tests: a clean environment, what a machine must have for marked tests, and private systems."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

import vgpud.client.grpc_import  # noqa: F401  before any test imports grpc: it tells grpc how to behave around forks
from tests.turns import turn
from vgpud.cli.demo.private_system import OwnSystem

#: fixtures that several folders use
pytest_plugins = ["tests.daemon.node"]
ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "vgpud" / "lib"
#: folders whose tests use what a machine has once: engines, their networks and images, the CDI directories
ONE_AT_A_TIME = ("tests/containers/", "tests/oci/")
#: of a test that is marked alone
TRIES = 3
#: two devices, small enough that a test can fill them
SIM_CONFIG = {"devices": "2", "memory_bytes": "4G"}


def pytest_configure(config: pytest.Config) -> None:
    """What a user has set for himself says nothing to a test, and the tests' own programs must not meet his daemon."""
    for name in list(os.environ):
        if name.startswith("VGPU") or name in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
            del os.environ[name]
    # A shell's background job ignores Ctrl-C, and programs inherit that; ours are to be as a user starts them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not (LIB / "libvgpu.so").exists():
        raise pytest.UsageError("the libraries are not built: run `make test`, or python shim/build_shim.py")


def pytest_xdist_auto_num_workers() -> int:
    """With `-n auto`: two processors for each worker, as a simulated device and what runs on it need; none where that
    leaves one worker."""
    workers = len(os.sched_getaffinity(0)) // 2
    return workers if workers > 1 else 0


class _ByFile(LoadScopeScheduling):
    """A file's tests go to one worker, and those of some folders."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::")[0]
        return next((folder for folder in ONE_AT_A_TIME if path.startswith(folder)), path)

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # else it takes another's place, and has still to collect
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """A test that its worker has not survived has failed: xdist would give it to worker after worker, and hang."""
        units = self.assigned_work[node].values()
        left = [(unit, nodeid) for unit in units for nodeid, completed in unit.items() if not completed]
        if not left:
            return super().remove_node(node)
        unit, crashed = left[0]
        unit[crashed] = True
        super().remove_node(node)
        return crashed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _ByFile(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of the timeout, which is the test's own
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with turn(item.get_closest_marker("alone") is not None) if "PYTEST_XDIST_WORKER" in os.environ else nullcontext():
        return (yield)


def _real_device() -> bool:
    """True when the machine has a driver that finds a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips, with the reason, what this machine or this user cannot run, and gives what is measured several tries: a
    host that others use spoils it for seconds. A defect fails each of them; what needed another is in the summary."""
    for item in items:
        if item.get_closest_marker("alone"):
            item.add_marker(pytest.mark.flaky(reruns=TRIES - 1, reruns_delay=5))
            item.add_marker(pytest.mark.timeout(TRIES * float(item.config.getini("timeout"))))  # of all tries together
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs root"))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _real_device():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a real device"))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private directory with a short name: the path of a unix socket may have 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="vgpu-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_system(short_dir: Path) -> Iterator[Callable[..., OwnSystem]]:
    """Starts systems (simulated device and daemon, as a user has them) that are stopped at the end of the test."""
    started: list[OwnSystem] = []

    def make(sim: Mapping[str, str] = SIM_CONFIG, config: Sequence[str] = ()) -> OwnSystem:
        system = OwnSystem(short_dir / f"s{len(started)}", sim, config)
        system.__enter__()
        started.append(system)
        return system

    yield make
    for system in reversed(started):
        system.stop()


@pytest.fixture
def system(make_system: Callable[..., OwnSystem]) -> OwnSystem:
    """One private system: a daemon on two simulated devices."""
    return make_system()
