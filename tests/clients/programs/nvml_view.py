"""Prints, as JSON, what NVML shows: devices, memory, processes; and what it refuses. For nvidia-ml-py."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

import pynvml


def cuda_uuids() -> list[str]:
    """The devices as CUDA shows them, in its order."""
    import uuid

    from cuda.bindings import driver

    assert int(driver.cuInit(0)[0]) == 0
    count = driver.cuDeviceGetCount()[1]
    return [f"GPU-{uuid.UUID(bytes=bytes(driver.cuDeviceGetUuid(i)[1].bytes))}" for i in range(count)]


def code(function, *arguments) -> int:
    """The NVML code of a call, 0 for success."""
    try:
        function(*arguments)
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def branch() -> list[object]:
    """The driver's branch, and the codes of an output that is too short and of an unknown version."""
    info = pynvml.c_nvmlSystemDriverBranchInfo_v1_t()
    function = pynvml._nvmlGetFunctionPointer("nvmlSystemGetDriverBranch")
    info.version = 7
    unknown = function(ctypes.byref(info), 80)
    info.version = pynvml.SystemDriverBranchInfo_v1
    short = function(ctypes.byref(info), 2)
    return [pynvml.nvmlSystemGetDriverBranch().branch, short, unknown]


def use_memory() -> None:
    """Makes this process one that uses its device: a context and 64 MiB."""
    from cuda.bindings import driver

    for answer in (driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(0)):
        assert int(answer[0]) == 0, answer
    assert int(driver.cuCtxSetCurrent(answer[1])[0]) == 0
    code_of_alloc, _pointer = driver.cuMemAlloc(64 << 20)
    assert int(code_of_alloc) == 0


def main() -> None:
    if "--use" in sys.argv:
        use_memory()
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    memory = [pynvml.nvmlDeviceGetMemoryInfo(h) for h in handles]
    view = {
        "pid": os.getpid(),
        "branch": branch(),
        "uuids": [pynvml.nvmlDeviceGetUUID(h) for h in handles],
        "indices": [pynvml.nvmlDeviceGetIndex(h) for h in handles],
        "minors": [pynvml.nvmlDeviceGetMinorNumber(h) for h in handles],
        "bus_ids": [pynvml.nvmlDeviceGetPciInfo(h).busId for h in handles],
        "totals": [m.total for m in memory],
        "used": [m.used for m in memory],
        "used_v2": [pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2).used for h in handles],
        "pids": [[p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)] for h in handles],
        "processes_used": [[p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)] for h in handles],
        "temperatures": [pynvml.nvmlDeviceGetTemperature(h, pynvml.NVML_TEMPERATURE_GPU) for h in handles],
        "beyond": code(pynvml.nvmlDeviceGetHandleByIndex, len(handles)),
        "set_mode": code(pynvml.nvmlDeviceSetComputeMode, handles[0], 0),
        "foreign": [code(pynvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in sys.argv[1:] if uuid.startswith("GPU-")],
    }
    if "--cuda" in sys.argv:
        view["cuda_uuids"] = cuda_uuids()
    pynvml.nvmlShutdown()
    print(json.dumps(view), flush=True)
    stay = next((a.removeprefix("--stay=") for a in sys.argv if a.startswith("--stay=")), None)
    while stay and not os.path.exists(stay):
        time.sleep(0.02)


if __name__ == "__main__":
    main()
