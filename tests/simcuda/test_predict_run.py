"""`vgpu predict run`: what a program takes of a device, counted on a private simulated one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.errors import VgpudError
from vgpud.predict import dry_device, interpreter
from vgpud.predict.dry_run import Counts, DryRun, TorchPeak
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
needs_build = pytest.mark.skipif(
    not (paths.sim_lib_dir() / "vgpu-simd").exists(), reason="the native part is not built: python shim/build_shim.py"
)

#: takes 300 MiB and, for a moment, 100 more; copies; fills once before the peak, twice after it; ends with its argument
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
call("cuInit", 0)
context, first, second = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
name, sms, free, total = ctypes.create_string_buffer(64), ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
major, minor = ctypes.c_int(), ctypes.c_int()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(first), ctypes.c_size_t(300 << 20))
call("cuMemsetD8_v2", first, 0, ctypes.c_size_t(1 << 20))
call("cuMemAlloc_v2", ctypes.byref(second), ctypes.c_size_t(100 << 20))
call("cuMemFree_v2", second)
data = ctypes.create_string_buffer(1 << 20)
call("cuMemcpyHtoD_v2", first, data, ctypes.c_size_t(1 << 20))
call("cuMemcpyDtoH_v2", data, first, ctypes.c_size_t(1 << 19))
call("cuMemcpyDtoD_v2", ctypes.c_uint64(first.value + (2 << 20)), first, ctypes.c_size_t(1 << 18))
for _ in range(2):
    call("cuMemsetD8_v2", first, 0, ctypes.c_size_t(1 << 20))
call("cuCtxSynchronize")
call("cuDeviceGetName", name, 64, 0)
call("cuDeviceGetAttribute", ctypes.byref(sms), 16, 0)
call("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), 0)
call("cuDeviceTotalMem_v2", ctypes.byref(total), 0)
print(name.value.decode(), sms.value, f"{major.value}.{minor.value}", total.value >> 20, sep=", ")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
"""
#: as much of PyTorch as is asked of it when a program ends, and its version as a file
FAKE_TORCH = """
class cuda:
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    max_memory_allocated = staticmethod(lambda device: 390 << 20)
    max_memory_reserved = staticmethod(lambda device: 398 << 20)
"""


def predict(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vgpud.cli.main", "predict", "run", *words]
    own = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **env}
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def put_torch(folder: Path, cuda: str | None) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/__init__.py").write_text(FAKE_TORCH)
    (folder / "torch/version.py").write_text(f"__version__ = '2.13.0'\ncuda = {cuda!r}\n")
    return folder


@needs_build
def test_what_a_program_takes_is_counted_exactly(program: Path) -> None:
    done = predict("--gpu", "a100-80g", "--steps", "4", "-o", "json", "--", sys.executable, program, "7")
    assert done.returncode == 7, done
    assert "SIMULATED NVIDIA A100-SXM4-80GB, 108, 8.0, 81920" in done.stderr, "its output is beside the figures"
    found = json.loads(done.stdout)
    assert (found["gpu"], found["exit_code"], found["simulated"], found["steps"]) == ("a100", 7, True, 4)
    assert found["given_out_bytes"] == 400 * MIB
    assert (found["peak_at_launch"], found["launches"]) == (1, 3)
    assert found["copied_bytes"] == {"to_device": MIB, "from_device": MIB // 2, "on_device": MIB // 4}
    assert found["memory_bytes"]["value"] == 1829 * MIB
    assert found["memory_bytes"]["low"] < found["memory_bytes"]["value"] < found["memory_bytes"]["high"]
    assert found["slice"]["mem_bytes"] == found["memory_bytes"]["high"]
    assert found["reserved_bytes"] is None, "it does not use PyTorch, whether that is installed or not"
    assert 0 < found["step_ns"]["low"] < found["step_ns"]["value"] < found["step_ns"]["high"]


@needs_build
@pytest.mark.parametrize(
    ("gpu", "device_line"),
    [
        ("h200", "NVIDIA H200, 132, 9.0, 143771"),
        ("h100", "NVIDIA H100 80GB HBM3, 132, 9.0, 81559"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB, 108, 8.0, 40960"),
        ("L40S", "NVIDIA L40S, 142, 8.9, 46068"),
        ("rtx-4090", "NVIDIA GeForce RTX 4090, 128, 8.9, 24564"),
        ("t4", "Tesla T4, 40, 7.5, 15360"),
    ],
)
def test_the_device_is_of_the_model(program: Path, gpu: str, device_line: str) -> None:
    done = predict("--gpu", gpu, "--", sys.executable, program)
    assert done.returncode == 0, done
    assert f"SIMULATED {device_line}" in done.stderr
    assert "the smallest slice that holds it: --gpus 0." in done.stderr
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("utilisation")]
    assert row[2] == "-" and row[4:6] == ["at", "most:"], "the program's own time is not in it"


@needs_build
def test_its_slice_holds_it_and_one_granule_less_does_not(program: Path, short_dir: Path) -> None:
    done = predict("--gpu", "h200", "-o", "json", "--", sys.executable, program)
    found = json.loads(done.stdout)
    context = found["context_bytes"]["value"]
    config = {"devices": "1", "context_bytes": str(context)}
    with OwnSystem(short_dir / "own", config) as system:
        for less, code in ((0, 0), (2 * MIB, 1)):
            size = str(found["memory_bytes"]["value"] - less)
            tenant = system.run(f"a{less}", ("--gpus", "0.5", "--mem", size), [sys.executable, str(program)])
            assert tenant.process.wait(60) == code, tenant.error_file.read_text()
            assert ("('cuMemAlloc_v2', 2)" in tenant.error_file.read_text()) == bool(less)


@needs_build
def test_a_job_is_submitted_with_what_its_run_takes(program: Path, short_dir: Path) -> None:
    program.write_text("import os; assert os.environ['OWN'] == 'yes'\n" + PROGRAM)
    with OwnSystem(short_dir / "own", {"devices": "1"}) as system:
        words = ("--predict-run", "--hold", "--env", "OWN=yes", "--", sys.executable, str(program))
        done = call(system, "submit", *words)
        assert done.returncode == 0, done.stderr
        assert "uses at most about" in done.stderr and "--mem" in done.stderr
        job = ask(system, "job", "show", done.stdout.strip())["job"]
        assert job["prediction"]["device"] == "h200"
        assert job["prediction"]["mem_bytes"]["low"] == (132 * 3 + 400) * MIB
        assert job["mem_max_bytes"] >= job["prediction"]["mem_bytes"]["high"]
        words = ("--predict-run", "--gpus", "1", "--env", "OWN=yes")
        failed = call(system, "submit", *words, "--", sys.executable, str(program), "5")
        assert failed.returncode == 1 and "COMMAND ended with 5 in its dry run: nothing was submitted" in failed.stderr


@needs_build
def test_pytorch_says_its_peak_and_its_version(program: Path, tmp_path: Path) -> None:
    """In a process of its own interpreter, whose own sitecustomize runs as before."""
    packages = put_torch(tmp_path / "packages", "13.0")
    (packages / "sitecustomize.py").write_text("import sys; print('as before', file=sys.stderr)\n")
    program.write_text("import torch\n" + PROGRAM)
    done = predict("--gpu", "a100-40g", "-o", "json", "--", sys.executable, program, PYTHONPATH=f"{ROOT}:{packages}")
    found = json.loads(done.stdout)
    assert "as before" in done.stderr
    assert found["torch"] == {"version": "2.13.0", "cuda": "13.0"}
    assert (found["allocated_bytes"], found["reserved_bytes"]) == (390 * MIB, 398 * MIB)
    assert found["memory_bytes"]["value"] == (398 + 1429) * MIB, "the context's size has what PyTorch has not"


@needs_build
def test_a_torch_without_cuda_is_said(tmp_path: Path) -> None:
    """PyPI's wheel for other systems and those of the index for CPUs look like any other to pip."""
    packages = put_torch(tmp_path / "packages", None)
    done = predict("--", sys.executable, "-c", "import torch", PYTHONPATH=f"{ROOT}:{packages}")
    assert done.returncode == 125 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("vgpu: COMMAND used no device: this torch (2.13.0) has no CUDA; install PyPI's")


@needs_build
def test_a_program_that_uses_no_device(tmp_path: Path) -> None:
    done = predict("--", "sh", "-c", "exit 3")
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert "COMMAND ended with 3 and used no device" in done.stderr


def test_a_device_that_cannot_be_simulated_is_refused() -> None:
    done = predict("--gpu", "k80", "--", "true")
    assert done.returncode == 125
    assert "name one of h200, h100, a100, a100-40g, l40s, rtx-4090, t4 with --gpu" in done.stderr


@pytest.mark.parametrize(
    ("first_line", "is_python"),
    [("#!/usr/bin/env python3", True), (f"#!{sys.executable}", True), ("#!/bin/sh", False), ("import torch", False)],
)
def test_the_interpreter_of_a_command(tmp_path: Path, first_line: str, is_python: bool) -> None:
    script = tmp_path / "torchrun"
    script.write_text(f"{first_line}\n")
    script.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin"}
    assert bool(interpreter.find_interpreter(["torchrun"], environment)) == is_python
    assert interpreter.find_interpreter(["nowhere"], environment) == ""


def dry_run(peaks: tuple[TorchPeak, ...] = (), steps: int = 0, **counts: int) -> DryRun:
    device = dry_device.find_device("a100-40g")
    names = Counts.__dataclass_fields__
    return DryRun(
        device, dry_device.find_context_size(device), Counts(**dict.fromkeys(names, 0) | counts), peaks, steps
    )


def test_memory_that_pytorch_does_not_have_counts_as_well() -> None:
    peak = TorchPeak(80 * MIB, 100 * MIB)
    context = 1429 * MIB
    assert dry_run((peak,), most_bytes=context + 108 * MIB).memory().value == context + 100 * MIB
    assert dry_run((peak,), most_bytes=context + 500 * MIB).memory().value == context + 500 * MIB
    assert dry_run((), most_bytes=context + 108 * MIB).memory().value == context + 108 * MIB


def test_what_a_convolution_works_in_is_likely_and_the_upper_end() -> None:
    peak = TorchPeak(80 * MIB, 100 * MIB, 10 * MIB, 4000 * MIB)
    found = dataclasses.replace(dry_run((peak,), most_bytes=1529 * MIB), has_convolutions=True).memory()
    assert (found.low, found.value, found.high) == (1489 * MIB, 1539 * MIB, 5549 * MIB)


def test_the_allocators_cache_may_be_absent_or_twice_as_large() -> None:
    """How large it is follows from the order of all sizes: a longer run or another version has another one."""
    found = dry_run((TorchPeak(80 * MIB, 100 * MIB),), most_bytes=1529 * MIB).memory()
    assert (found.low, found.value, found.high) == ((1409 + 80) * MIB, (1429 + 100) * MIB, (1449 + 120) * MIB)
    full = dry_run((TorchPeak(20 << 30, 39 << 30),), most_bytes=1429 * MIB + (39 << 30)).memory()
    assert full.high == 1449 * MIB + (39 << 30), "not more than the device has, if the dry run has not"


def test_convolutions_make_the_peak_at_least_that() -> None:
    plain, widened = (
        dataclasses.replace(dry_run(most_bytes=(1429 + 1000) * MIB), has_convolutions=convolves).memory()
        for convolves in (False, True)
    )
    assert (plain.low, plain.value) == (widened.low, widened.value)
    assert widened.high == int(plain.high * 1.65)
    huge = dataclasses.replace(dry_run(most_bytes=39 << 30), has_convolutions=True)
    assert huge.memory().high == 40960 * MIB, "where there is no more, cuDNN does with less"


@needs_build
def test_a_program_that_convolves_is_reported(program: Path) -> None:
    """As cuDNN of the simulated device reports it to the run."""
    touch = "import os; open(os.environ['VGPU_PREDICT_DIR'] + '/simcuda_convolution', 'w').close()\n"
    program.write_text(touch + PROGRAM)
    shown = predict("--gpu", "a100", "--", sys.executable, program)
    assert "at least this, since cuDNN's workspaces are not known" in shown.stderr


def test_times_are_of_kernels_or_of_launches_whichever_is_longer() -> None:
    long = dry_run(steps=10, launches=1000, kernels_ns=100_000_000).step_time()
    short = dry_run(steps=10, launches=1000, kernels_ns=1_000).step_time()
    assert long and long.low == 7_000_000 and long.value == 10_000_000
    assert short and short.low == short.value == 250_000
    assert dry_run(launches=1).step_time() is None
    assert dry_run(launches=1000, kernels_ns=100_000_000).utilisation().high == 1
    assert dry_run().utilisation().value == 0


def test_a_peak_that_no_slice_holds() -> None:
    assert dry_run(most_bytes=41 << 30).slice_milli() > 1000


def test_an_unknown_model_is_an_error_of_one_line() -> None:
    with pytest.raises(VgpudError, match=r"riva-128' is not possible: .* name one of h200, h100, a100, a100-40g"):
        dry_device.find_device("riva-128")


KERNELS = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
image = b".version 8.0\\n.target sm_50\\n.address_size 64\\n.visible .entry spin_10000() { ret; }\\n"
context, module, function = (ctypes.c_void_p() for _ in range(3))
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), image)
call("cuModuleGetFunction", ctypes.byref(function), module, b"spin_10000")
for _ in range(10):
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
call("cuCtxSynchronize")
"""


@needs_build
def test_a_faster_device_counts_the_same_time_and_takes_less(short_dir: Path) -> None:
    shown: list[Any] = []
    for number, speed in enumerate((1, 1000)):
        with SimulatedDevice(short_dir / f"d{number}", {"speed": speed}) as device:
            subprocess.run([sys.executable, "-c", KERNELS], env=device.environment(), check=True, timeout=60)
            shown.append(state_page.read(device.directory / state_page.PAGE_NAME).devices[0])
    assert [(device.launches, device.launch_ns) for device in shown] == [(10, 100_000_000)] * 2
    assert shown[0].busy_ns == 1000 * shown[1].busy_ns == 100_000_000
