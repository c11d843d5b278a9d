"""What workers of the real Ray run: a program of the driver's API on the device that Ray has given them."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from itertools import islice
from typing import Any

from vgpud.simdevice.load import Program, Shape

MIB = 1 << 20
#: kernels of a step, 5 ms of device time
KERNELS, KERNEL_US = 20, 250


def look_at_devices() -> dict[str, Any]:
    """What the program of this process sees of its devices; cuInit's code where CUDA does not start."""
    cuda, count, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
    code = cuda.cuInit(0)
    found = {"pid": os.getpid(), "code": code, "visible": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
    if code == 0:
        cuda.cuDeviceGetCount(ctypes.byref(count))
        cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    return {**found, "devices": count.value, "bytes": total.value}


def device_time(milliseconds: int) -> dict[str, Any]:
    """Computes for so much device time."""
    steps = milliseconds * 1000 // (KERNELS * KERNEL_US)
    began_ns = time.monotonic_ns()
    for _ in islice(Program(Shape(KERNELS, KERNEL_US, 64 * MIB)).steps(lambda: True), steps):
        pass
    return {**look_at_devices(), "seconds": (time.monotonic_ns() - began_ns) / 1e9}


class Tenant:
    """For an actor: computes without a break from begin() to end(). Ray's own thread stays free for calls."""

    MEMORY_BYTES = 64 * MIB  # that it has from the start

    def __init__(self) -> None:
        self._program = Program(Shape(KERNELS, KERNEL_US, self.MEMORY_BYTES))
        self._ended = threading.Event()
        self._done = 0

    def look_at_devices(self) -> dict[str, Any]:
        return look_at_devices()

    def begin(self) -> None:
        threading.Thread(target=self._compute, daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _compute(self) -> None:
        self._use_context()
        for _ in self._program.steps(lambda: not self._ended.is_set()):
            self._done += 1

    def steps(self) -> int:
        """Completed so far."""
        return self._done

    def most_memory(self) -> int:
        """Bytes that it can still allocate in pieces of 16 MiB, all of which it then has."""
        cuda, address, count = self._use_context(), ctypes.c_uint64(), 0
        while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(16 * MIB)) == 0:
            count += 1
        return count * 16 * MIB

    def _use_context(self) -> Any:
        """The driver, with the program's context current in this thread: Ray calls methods in any."""
        cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxSetCurrent(context)
        return cuda
