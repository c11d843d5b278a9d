"""Programs for a device, in the shapes of real ones: a loop of the driver's API through ctypes, without a toolkit.

They run wherever an unmodified program would: in a slice, in a container, or on the simulated device directly. The
kernels are those of the shipped model that take a known time (spin_100, spin_250); their PTX waits as long by the
device's clock.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from vgpud.errors import DriverError, ExitCode, VgpudError

_NS_PER_S = 1_000_000_000
_OUT_OF_MEMORY = 2
_SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_THREADS = 256  # of a block
_EVENT_FLAGS = 1 | 2  # wait without using a processor, without time stamps
#: steps that are launched before the first of them is waited for: the device has no gap between two
_AHEAD = 2

_PTX = """.version 6.0
.target sm_50
.address_size 64
.visible .entry spin_{us}()
{{
 .reg .pred %p; .reg .b64 %t<4>;
 mov.u64 %t0, %globaltimer;
AGAIN:
 mov.u64 %t1, %globaltimer;
 sub.u64 %t2, %t1, %t0;
 setp.lt.u64 %p, %t2, {ns};
 @%p bra AGAIN;
 ret;
}}
"""


@dataclass(frozen=True)
class Shape:
    """What a program does: `kernels` kernels of `kernel_us` in each step, after a copy of `copy_bytes` to the device.

    period_ns: steps begin at whole periods and are waited for one by one (0: the next follows at once); active_ns,
    idle_ns: it works and sleeps in turns (0: it always works). samples: what a step counts as.
    """

    kernels: int
    kernel_us: int
    memory_bytes: int
    copy_bytes: int = 0
    period_ns: int = 0
    active_ns: int = 0
    idle_ns: int = 0
    samples: int = 1

    @property
    def step_ns(self) -> int:
        """Device time of a step."""
        return self.kernels * self.kernel_us * 1000


SHAPES = {
    "saturating": Shape(kernels=20, kernel_us=250, memory_bytes=256 << 20),
    "bursty": Shape(kernels=20, kernel_us=250, memory_bytes=256 << 20, active_ns=300_000_000, idle_ns=700_000_000),
    "inference": Shape(kernels=20, kernel_us=100, memory_bytes=512 << 20, period_ns=20_000_000),
    "trainer": Shape(kernels=80, kernel_us=250, memory_bytes=1 << 30, copy_bytes=256 * 3072, samples=256),
}


@dataclass(frozen=True)
class Step:
    """A step that the device has completed; CLOCK_MONOTONIC. begin_ns: when it was launched, or was to be launched."""

    begin_ns: int
    end_ns: int


class Program:
    """A process's use of one device. Raises DriverError without a driver, VgpudError when a call fails."""

    def __init__(self, shape: Shape, library: str = "libcuda.so.1") -> None:
        self.shape = shape
        try:
            self._driver = ctypes.CDLL(library)
        except OSError as error:
            raise DriverError(f"no driver in this process ({error})") from error
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._function, self._memory, self._stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        name, blocks = ctypes.create_string_buffer(100), ctypes.c_int()
        self._call("cuDeviceGetName", name, len(name), device)
        self._call("cuDeviceGetAttribute", ctypes.byref(blocks), _SM_COUNT, device)
        self.device_name, self._blocks = name.value.decode(errors="replace"), blocks.value
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        text = _PTX.format(us=shape.kernel_us, ns=shape.kernel_us * 1000).encode()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, f"spin_{shape.kernel_us}".encode())
        self._call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(shape.memory_bytes))
        self._call("cuStreamCreate", ctypes.byref(self._stream), 0)
        self._batch = ctypes.create_string_buffer(max(1, shape.copy_bytes))
        self._events = deque(self._event() for _ in range(_AHEAD))

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code == 0:
            return
        if code == _OUT_OF_MEMORY:
            size = self.shape.memory_bytes
            text = f"{name} answers out of memory: {size >> 20} MiB are too much for the slice; use a smaller --memory"
            raise VgpudError(text, ExitCode.NO_CAPACITY)
        said = ctypes.c_char_p()
        self._driver.cuGetErrorString(code, ctypes.byref(said))
        raise DriverError(f"{name} answers {code} ({(said.value or b'no text').decode()})")

    def _event(self) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), _EVENT_FLAGS)
        return event

    def _launch(self, event: ctypes.c_void_p) -> None:
        if self.shape.copy_bytes:
            size = ctypes.c_size_t(self.shape.copy_bytes)
            self._call("cuMemcpyHtoDAsync_v2", self._memory, self._batch, size, self._stream)
        sizes = (self._blocks, 1, 1, _THREADS, 1, 1, 0)
        for _ in range(self.shape.kernels):
            self._call("cuLaunchKernel", self._function, *sizes, self._stream, None, None)
        self._call("cuEventRecord", event, self._stream)

    def steps(self, may_continue: Callable[[], bool]) -> Iterator[Step]:
        """Runs while `may_continue` says so; gives each step when the device has completed it."""
        shape = self.shape
        queued: deque[tuple[int, ctypes.c_void_p]] = deque()
        begun_ns = due_ns = time.monotonic_ns()
        while may_continue():
            if shape.idle_ns and time.monotonic_ns() - begun_ns > shape.active_ns:
                yield from self._wait_for_steps(queued, 0)
                time.sleep(shape.idle_ns / _NS_PER_S)
                begun_ns = time.monotonic_ns()
            elif shape.period_ns:
                now_ns = time.monotonic_ns()
                due_ns += shape.period_ns
                if due_ns > now_ns:
                    time.sleep((due_ns - now_ns) / _NS_PER_S)
            event = self._events.popleft()
            at_ns = due_ns if shape.period_ns else time.monotonic_ns()
            self._launch(event)
            queued.append((at_ns, event))
            yield from self._wait_for_steps(queued, 0 if shape.period_ns else _AHEAD - 1)
        yield from self._wait_for_steps(queued, 0)

    def _wait_for_steps(self, launches: deque[tuple[int, ctypes.c_void_p]], launches_max: int) -> Iterator[Step]:
        while len(launches) > launches_max:
            at_ns, event = launches.popleft()
            self._call("cuEventSynchronize", event)
            self._events.append(event)
            yield Step(at_ns, time.monotonic_ns())
