"""Prints, as JSON, what nvidia-ml-py, nvitop and gpustat say of the first device while this program uses it, and what
CUDA says of its memory. With `--work` it keeps the device busy before, until NVML says so, 20 seconds at most.
"""

from __future__ import annotations

import json
import os
import sys
import time

import pynvml
from nvml_view import use_memory


def work(handle) -> None:
    """Short kernels, as many as the device takes, until NVML reports it busy: how soon depends on the machine."""
    from cuda.bindings import driver

    text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry spin()\n{\n ret;\n}\n\0"
    module = driver.cuModuleLoadData(text)[1]
    code, kernel = driver.cuModuleGetFunction(module, b"spin")
    assert int(code) == 0
    end = time.monotonic() + 20
    while time.monotonic() < end and pynvml.nvmlDeviceGetUtilizationRates(handle).gpu < 75:
        for _ in range(200):
            assert int(driver.cuLaunchKernel(kernel, 132 * 64, 1, 1, 1024, 1, 1, 0, 0, 0, 0)[0]) == 0
    assert int(driver.cuCtxSynchronize()[0]) == 0


def cuda_memory() -> tuple[int, int, int]:
    """Free, total, and the device's total, in bytes."""
    from cuda.bindings import driver

    _, free, total = driver.cuMemGetInfo()
    return int(free), int(total), int(driver.cuDeviceTotalMem(0)[1])


def main() -> None:
    use_memory()
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    if "--work" in sys.argv:
        work(handle)
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    samples = pynvml.nvmlDeviceGetProcessUtilization(handle, 0) if "--work" in sys.argv else []
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    memory_v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    import gpustat  # not before: it puts functions of its own in the place of some of pynvml's
    import nvitop

    device = nvitop.Device(0)
    stat = gpustat.GPUStatCollection.new_query()[0]
    view = {
        "pid": os.getpid(),
        "cuda": cuda_memory(),
        "nvml": {"total": memory.total, "used": memory.used, "free": memory.free, "gpu": rates.gpu},
        "nvml_v2": {"total": memory_v2.total, "used": memory_v2.used + memory_v2.reserved, "free": memory_v2.free},
        "processes": [[p.pid, p.usedGpuMemory] for p in processes],
        "sampled": [[s.pid, s.smUtil] for s in samples],
        "nvitop": {
            "total": device.memory_total(),
            "used": device.memory_used(),
            "processes": [[pid, process.gpu_memory()] for pid, process in device.processes().items()],
        },
        "gpustat": {
            "total": stat.memory_total,
            "used": stat.memory_used,
            "processes": [[p["pid"], p["gpu_memory_usage"]] for p in stat.processes],
        },
    }
    print(json.dumps(view))


if __name__ == "__main__":
    main()
