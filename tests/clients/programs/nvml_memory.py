"""Allocates and frees, asks NVML after each, and prints as JSON what it said: [held, used, used_v2, in the list of
processes], in bytes and beyond what was used before.
"""

from __future__ import annotations

import json
import os

import pynvml
from cuda.bindings import driver
from nvml_view import use_memory

MIB = 1 << 20
ROUNDS = 50


def read_memory(handle) -> list[int]:
    rows = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid == os.getpid()]
    used_v2 = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used
    return [pynvml.nvmlDeviceGetMemoryInfo(handle).used, used_v2, *rows]


def memory_growth(handle, baseline: list[int]) -> list[int]:
    return [now - then for now, then in zip(read_memory(handle), baseline, strict=True)]


def main() -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceGetMemoryInfo(handle)
    use_memory()
    at_once = read_memory(handle)
    rows = []
    for turn in range(ROUNDS):
        size = (2 + 2 * turn) * MIB
        code, pointer = driver.cuMemAlloc(size)
        assert int(code) == 0
        rows.append([size, *memory_growth(handle, at_once)])
        assert int(driver.cuMemFree(pointer)[0]) == 0
        rows.append([0, *memory_growth(handle, at_once)])
    print(json.dumps({"first": at_once, "rows": rows}))


if __name__ == "__main__":
    main()
