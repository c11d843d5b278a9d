"""Shared by all tests: a clean environment, what a machine must have for marked tests, and private systems."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import vgpud.client.grpc_import  # noqa: F401  before any test imports grpc: it sets how grpc behaves around forks
from tests.daemon.forked import ForkedSystem
from vgpud.cli.demo.private_system import OwnSystem

pytest_plugins = ["tests.collecting", "tests.examples", "tests.scheduling", "tests.times", "tests.daemon.node"]
ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "vgpud" / "lib"
#: of a test that is marked alone
TRIES = 3
#: what names something outside for tests: another Slurm, an interpreter with PyTorch's CUDA build, or that one is got
NAMED_FOR_TESTS = ("VGPU_TEST_SLURM", "VGPU_TORCH_PYTHON", "VGPU_TEST_TORCH", "VGPU_TEST_CODE_SERVER")
#: two devices, small enough that a test can fill them
SIM_CONFIG = {"devices": "2", "memory_bytes": "4G"}


def pytest_configure(config: pytest.Config) -> None:
    """A user's own settings do not apply to tests, and the tests' own programs must not meet the user's daemon."""
    for name in list(os.environ):
        is_ours = name.startswith("VGPU") and name not in NAMED_FOR_TESTS
        if is_ours or name in ("LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
            del os.environ[name]
    os.kill, os.killpg = _guard(os.kill), _guard(os.killpg)
    # A shell's background job ignores Ctrl-C, and programs inherit that; ours are to be as a user starts them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not (LIB / "libvgpu.so").exists():
        raise pytest.UsageError("the libraries are not built: run `make test`, or python shim/build_shim.py")


def _guard(send: Callable[[int, int], None]) -> Callable[[int, int], None]:
    """A pid that was not there is 0 in many a helper, and 0 means our own group: all tests, and what runs them."""

    def send_if_positive(pid: int, number: int) -> None:
        if pid <= 0:
            raise AssertionError(f"signal {number} for pid {pid}")
        send(pid, number)

    return send_if_positive


def pytest_xdist_auto_num_workers() -> int:
    """With `-n auto`: more workers than processors, as most tests wait for programs that they have started."""
    return 3 * len(os.sched_getaffinity(0))


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
def system_type() -> type[OwnSystem]:
    """What make_system starts. Where a start itself is tested, the daemon is executed as for users."""
    return ForkedSystem


@pytest.fixture
def make_system(short_dir: Path, system_type: type[OwnSystem]) -> Iterator[Callable[..., OwnSystem]]:
    """Starts systems (simulated device and daemon, as a user has them) that are stopped at the end of the test."""
    started: list[OwnSystem] = []

    def make(sim: Mapping[str, str] = SIM_CONFIG, config: Sequence[str] = ()) -> OwnSystem:
        system = system_type(short_dir / f"s{len(started)}", sim, config)
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
