"""A program that opens the simulated driver itself: makes a context, then reads a line for each call and prints what
came of it. "alloc MIB": the code; "info": the code, free and total; "nvml": total, used and free; "end"."""

from __future__ import annotations

import ctypes
import sys

import pynvml


def main() -> None:
    driver = ctypes.CDLL(sys.argv[1])
    pynvml.nvmlLib = ctypes.CDLL(sys.argv[2])
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    context = ctypes.c_void_p()
    print(
        driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or driver.cuCtxSetCurrent(context)
    )
    sys.stdout.flush()
    for line in sys.stdin:
        verb, *arguments = line.split()
        if verb == "end":
            return
        if verb == "alloc":
            memory = ctypes.c_uint64()
            print(driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(arguments[0]) << 20)))
        if verb == "info":
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            print(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), free.value, total.value)
        if verb == "nvml":
            shown = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
            print(shown.total, shown.used, shown.free)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
