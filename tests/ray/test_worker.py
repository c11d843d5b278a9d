"""A worker's process in its slice, without Ray: a real daemon, a program that does what a Ray worker does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.daemon.node import wait_until
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.errors import ExitCode, VgpudError
from vgpud.ray.size import read
from vgpud.ray.slices import trial, visible

GIB = 1 << 30
#: as a worker: it learns its devices when a task comes, and only then calls CUDA. A line of JSON, then it waits
WORKER = """
import ctypes, json, os, sys
print(json.dumps({"pid": os.getpid(), "all": os.environ["CUDA_VISIBLE_DEVICES"]}), flush=True)
for line in sys.stdin:
    os.environ["CUDA_VISIBLE_DEVICES"] = line.strip()
    cuda, count, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
    code = cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    if not code:
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    print(json.dumps({"code": code, "devices": count.value, "bytes": total.value}), flush=True)
"""
NOT_PERMITTED = 800


class Worker:
    """A process that vgpud.ray.worker has become."""

    def __init__(self, system: OwnSystem, size: dict[str, Any], program: str = WORKER) -> None:
        command = [sys.executable, "-m", "vgpud.ray.worker", json.dumps(size), sys.executable, "-c", program]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=system.env, text=True, **pipes)  # type: ignore[call-overload]

    def line(self) -> dict[str, Any]:
        text = self.process.stdout.readline()
        assert text, self.process.communicate()[1]
        return dict(json.loads(text))

    def task(self, *uuids: str) -> dict[str, Any]:
        """What CUDA shows it when it is given these devices."""
        self.process.stdin.write(",".join(uuids) + "\n")
        self.process.stdin.flush()
        return self.line()


@pytest.fixture
def start(system: OwnSystem) -> Iterator[Callable[..., Worker]]:
    """Starts workers on the system's two devices of 4 GiB; they are killed at the end."""
    started: list[Worker] = []

    def start(program: str = WORKER, **size: Any) -> Worker:
        started.append(Worker(system, {"gpus": 0.5, **size}, program))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.communicate()


def uuids(system: OwnSystem) -> list[str]:
    with system.client() as client:
        return [device.uuid for device in client.all(calls.devices())]


def slices(system: OwnSystem) -> list[Any]:
    with system.client() as client:
        return client.all(calls.slices())


def test_its_slice_is_bound_when_it_has_its_device(system: OwnSystem, start: Callable[..., Worker]) -> None:
    worker = start(max=1, mem="1G")
    hello, devices = worker.line(), uuids(system)
    assert hello["pid"] == worker.process.pid, "Ray knows its worker by the process that it has started"
    assert hello["all"] == ",".join(devices), "of which Ray takes those of the task"
    (made,) = slices(system)
    assert made.name.startswith(f"ray-{worker.process.pid}-") and made.ephemeral and not made.devices
    assert worker.task(devices[1]) == {"code": 0, "devices": 1, "bytes": GIB}
    (made,) = slices(system)
    (share,) = made.devices
    assert (share.device_uuid, share.min_milli, share.max_milli, share.mem_max_bytes) == (devices[1], 500, 1000, GIB)
    worker.process.kill()
    wait_until(lambda: slices(system) == [], "the end of the slice")


def test_a_worker_that_never_uses_cuda_takes_nothing(system: OwnSystem, start: Callable[..., Worker]) -> None:
    workers = [start() for _ in range(3)]
    for worker in workers:
        worker.line()
    with system.client() as client:
        assert [device.reserved_milli for device in client.all(calls.devices())] == [0, 0]
    assert len(slices(system)) == 3
    workers[0].process.communicate()  # it ends with its standard input
    wait_until(lambda: len(slices(system)) == 2, "the end of the first one's slice")


def test_a_full_device_is_refused_and_the_other_is_not(system: OwnSystem, start: Callable[..., Worker]) -> None:
    system.vgpu("slice", "create", "other", "--gpus", "0.8", "--device", "0")
    worker, devices = start(), uuids(system)
    worker.line()
    assert worker.task(devices[0])["code"] == NOT_PERMITTED
    assert worker.task(devices[1])["code"] == 0
    _out, stderr_text = worker.process.communicate()  # closes its standard input
    assert (
        "cannot be bound: no device has min 0.5" in stderr_text and "device 0 has the most free: 0.2 GPU" in stderr_text
    )


def test_whole_devices(system: OwnSystem, start: Callable[..., Worker]) -> None:
    worker, devices = start(gpus=2), uuids(system)
    worker.line()
    assert worker.task(*devices) == {"code": 0, "devices": 2, "bytes": 4 * GIB}
    assert [part.min_milli for part in slices(system)[0].devices] == [1000, 1000]


def test_without_devices_of_ray_there_is_no_cuda(system: OwnSystem, start: Callable[..., Worker]) -> None:
    """As in a task with num_gpus=0 under a job's environment."""
    worker = start()
    worker.line()
    assert worker.task()["code"] == NOT_PERMITTED
    assert not slices(system)[0].devices


def test_its_children_end_the_slice_with_it(system: OwnSystem, start: Callable[..., Worker]) -> None:
    code = "import os, time; pid = os.fork(); pid and print('{\"child\": %d}' % pid, flush=True); time.sleep(60)"
    worker = start(code)
    child = worker.line()["child"]
    worker.process.kill()
    worker.process.wait()
    assert slices(system), "a process that it has forked may use the device"
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: slices(system) == [], "the end of the slice")


def test_a_restart_of_the_daemon(system: OwnSystem, start: Callable[..., Worker]) -> None:
    """Bound or still pending, it is there again."""
    bound, idle, devices = start(gpus=0.25), start(), uuids(system)
    bound.line(), idle.line()
    assert bound.task(devices[0])["code"] == 0
    assert system.daemon
    system.daemon.kill()
    assert idle.task(devices[1])["code"] == NOT_PERMITTED, "without a daemon nothing would limit it"
    system.start_daemon()
    wait_until(lambda: idle.task(devices[1])["code"] == 0, "the daemon again")
    placed = {made.spec.gpus_milli: [part.device_uuid for part in made.devices] for made in slices(system)}
    assert placed == {250: [devices[0]], 500: [devices[1]]}


def test_nvml_shows_the_device_before_cuda_starts(system: OwnSystem, start: Callable[..., Worker]) -> None:
    """As torch counts devices: by NVML and the UUIDs in CUDA_VISIBLE_DEVICES, before cuInit."""
    pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")
    code = """
import json, os, pynvml
print(json.dumps({}), flush=True)
os.environ["CUDA_VISIBLE_DEVICES"] = input()
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
seen = [(pynvml.nvmlDeviceGetUUID(h), pynvml.nvmlDeviceGetMemoryInfo(h).total) for h in handles]
print(json.dumps({"seen": seen}), flush=True)
"""
    worker, devices = start(code, mem="1G"), uuids(system)
    worker.line()
    assert worker.task(devices[1]) == {"seen": [[devices[1], GIB]]}
    worker.process.wait()


def test_sizes_are_tried_where_the_worker_would_run(system: OwnSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPU_HOST", system.host)
    trial(read({"gpus": 0.5}))
    assert slices(system) == []
    with pytest.raises(VgpudError, match="memory 8GiB is more than device 0 has"):
        trial(read({"gpus": 0.5, "mem": "8G"}))
    with pytest.raises(VgpudError, match="need 3 devices, this node has 2"):
        trial(read({"gpus": 3}))
    system.stop()
    with pytest.raises(VgpudError) as caught:
        trial(read({"gpus": 0.5}))
    assert caught.value.exit_code == ExitCode.UNREACHABLE


FIRST, SECOND = "GPU-11111111-0000-0000-0000-000000000000", "GPU-22222222-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("devices", "visible_devices"),
    [
        (None, f"{FIRST},{SECOND}"),
        ("1,0", f"{SECOND},{FIRST}"),
        (f" {SECOND} ", SECOND),
        ("gpu-2222", SECOND),
        ("", ""),
    ],
)
def test_a_raylets_own_devices(devices: str | None, visible_devices: str) -> None:
    assert visible(devices, (FIRST, SECOND)) == visible_devices


@pytest.mark.parametrize("devices", ["2", "GPU-", "GPU-333", "MIG-1", "-1"])
def test_a_raylet_with_devices_that_are_not_there(devices: str) -> None:
    with pytest.raises(VgpudError, match=f"CUDA_VISIBLE_DEVICES has '{devices}': this node's vgpud has {FIRST}"):
        visible(devices, (FIRST, SECOND))


def test_an_index_of_more_digits_than_python_reads() -> None:
    with pytest.raises(VgpudError, match="this node's vgpud has no devices") as caught:
        visible("9" * 5000, ())
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("arguments", [(), ("{}",), ("{}", "true"), ("nonsense", "true")])
def test_it_says_what_is_wrong_and_starts_nothing(arguments: Sequence[str]) -> None:
    command = [sys.executable, "-m", "vgpud.ray.worker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (ExitCode.USAGE, ExitCode.ENGINE) and done.stderr.count("\n") == 1
