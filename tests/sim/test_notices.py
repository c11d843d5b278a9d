"""What the simulated device reports, once, to a program that does not know it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from .conftest import MakeDevice

CUDART = Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "lib"
#: launches a kernel of this name four times from two threads, and through a graph
LAUNCHES = """
import ctypes, sys, threading
driver = ctypes.CDLL("libcuda.so.1")
check = lambda result: result and sys.exit(f"CUDA error {result}")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(driver.cuInit(0))
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(driver.cuCtxSetCurrent(context))
ptx = f".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry {sys.argv[1]}()\\n{{\\nret;\\n}}\\n".encode()
check(driver.cuModuleLoadData(ctypes.byref(module), ptx))
check(driver.cuModuleGetFunction(ctypes.byref(function), module, sys.argv[1].encode()))

def launch():
    check(driver.cuCtxSetCurrent(context))
    for _ in range(2):
        check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))

threads = [threading.Thread(target=launch) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
check(driver.cuCtxSynchronize())
"""
#: asks for a private table, twice, as NVIDIA's runtime does first of all
TABLES = """
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*get)(const void **, const void *) = dlsym(driver, "cuGetExportTable");
  const void *table;
  printf("%d %d\\n", get(&table, "0123456789abcdef"), get(&table, "0123456789abcdef"));
  return 0;
}
"""
#: what the CUDA runtime answers, twice
RUNTIME = """
import ctypes, sys
runtime, count = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
print([runtime.cudaGetDeviceCount(ctypes.byref(count)) for _ in range(2)])
"""


def stderr_lines(device: MakeDevice, program: str, *words: str) -> list[str]:
    """The lines on stderr of a Python program on the device."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=device().environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_a_program_is_notified_once_that_its_kernels_compute_nothing(device: MakeDevice) -> None:
    (line,) = stderr_lines(device, LAUNCHES, "train_step")
    assert line.startswith("vgpu: SIMULATED device: kernel train_step takes time and computes nothing"), line


@pytest.mark.parametrize("kernel", ["spin_100", "fill_f32"])
def test_kernels_that_are_made_for_the_device_say_nothing(device: MakeDevice, kernel: str) -> None:
    assert stderr_lines(device, LAUNCHES, kernel) == []


def test_a_program_of_the_cuda_runtime_is_notified_once_why_it_finds_no_device(device: MakeDevice) -> None:
    found = next(iter(sorted(CUDART.glob("libcudart.so.13*"))), None)
    if found is None:
        pytest.skip("no CUDA 13 runtime here")
    (line,) = stderr_lines(device, RUNTIME, str(found))
    assert line.startswith(f"vgpu: SIMULATED device: {found} is NVIDIA's CUDA runtime, which starts on NVIDIA's driver")
    assert "leave its LD_PRELOAD as it is" in line


def test_a_program_with_the_runtime_inside_is_notified_once_what_works(device: MakeDevice, tmp_path: Path) -> None:
    """nvcc links the runtime into programs by default: no library of ours can take its place."""
    program = tmp_path / "program"
    subprocess.run(["gcc", "-x", "c", "-o", program, "-", "-ldl"], input=TABLES, text=True, check=True)
    done = subprocess.run([program], env=device().environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "801 801\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"vgpu: SIMULATED device: {program} has NVIDIA's CUDA runtime inside")
    assert all(words in line for words in ("`nvcc -cudart shared`", "PyTorch", "a real GPU"))
