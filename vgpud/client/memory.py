"""Memory pressure: a program in a slice learns what its slice has to give back, and by when.

A slice may use more memory than it is guaranteed as long as no other slice needs it. When another slice asks for its
guarantee, or an admin lowers the maximum, programs that watch are asked; nothing is taken from them. The daemon's hook
in this process (libvgpu.so) brings the request: no connection and no other library is needed.

    with watch_memory_pressure(empty_torch_cache):
        train()
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from vgpud.client.failures import ClientError, make_error
from vgpud.errors import ExitCode

#: libvgpu.so is preloaded, or stands in for the driver's library (in containers)
_LIBRARIES = (None, "libcuda.so.1")
_REQUESTS_MAX = 16
_UUID_BYTES = 16


class _Raw(ctypes.Structure):
    """struct vg_reclaim_request of shim/ledger/reclaim_watch.h"""

    _fields_ = (
        ("uuid", ctypes.c_ubyte * _UUID_BYTES),
        ("remaining_bytes", ctypes.c_uint64),
        ("deadline_ns", ctypes.c_uint64),
        ("ordinal", ctypes.c_uint32),
        ("serial", ctypes.c_uint32),
    )


@dataclass(frozen=True)
class MemoryRequest:
    """What all programs of the slice together have to give back of one device's memory."""

    #: ordinal of the device, as this program sees it
    device: int
    device_uuid: str
    #: what has not come back yet
    remaining_bytes: int
    #: by the clock of time.monotonic()
    deadline_s: float
    #: another number for each request, and when more is asked for
    serial: int

    @property
    def remaining_s(self) -> float:
        """Until the deadline, 0 at least."""
        return max(0.0, self.deadline_s - time.monotonic())


def _hook() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            library.vg_shim_reclaim_watch  # noqa: B018 - raises AttributeError if it is not the hook
        except (OSError, AttributeError):
            continue
        return library
    text = "this program is in no slice: start it with `vgpu run`, or in a container or job with a slice"
    raise make_error(text, ExitCode.CONFLICT)


def _uuid_text(raw: bytes) -> str:
    digits = raw.hex()
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class MemoryWatch:
    """A watch over what this program's slice is asked to give back. fileno() is readable when there is news.

    Close it when it is not needed any more, or use it in a `with`. It begins to work when the program has called
    cuInit. A forked child makes its own. Raises ClientError outside of slices.
    """

    def __init__(self) -> None:
        self._library = _hook()
        self._fd: int = self._library.vg_shim_reclaim_watch()
        if self._fd < 0:
            raise make_error(f"memory pressure cannot be watched: {os.strerror(-self._fd)}", ExitCode.CONFLICT)
        self._pid = os.getpid()
        self._seen: dict[int, int] = {}

    def __enter__(self) -> MemoryWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        """Watches no longer."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and os.getpid() == self._pid:
            self._library.vg_shim_reclaim_unwatch(fd)

    def open_requests(self) -> list[MemoryRequest]:
        """All that the slice is asked for now, one for each device at most."""
        raw = (_Raw * _REQUESTS_MAX)()
        count = self._library.vg_shim_reclaim_read(raw, _REQUESTS_MAX)
        return [
            MemoryRequest(r.ordinal, _uuid_text(bytes(r.uuid)), r.remaining_bytes, r.deadline_ns / 1e9, r.serial)
            for r in raw[:count]
        ]

    def take_requests(self) -> list[MemoryRequest]:
        """Those that are new since the last call. Does not wait: wait until fileno() is readable."""
        with contextlib.suppress(OSError):
            os.read(self._fd, 8)
        news = [request for request in self.open_requests() if self._seen.get(request.device) != request.serial]
        self._seen.update({request.device: request.serial for request in news})
        return news


class MemoryWatcher:
    """Calls `callback` with each request, in a thread of its own. If it raises an exception, that is printed.

    Use it in a `with`, or call close().
    """

    def __init__(self, callback: Callable[[MemoryRequest], object]) -> None:
        self._callback = callback
        self._watch = MemoryWatch()
        self._wake_read, self._wake_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="vgpud memory", daemon=True)
        self._thread.start()

    def __enter__(self) -> MemoryWatcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the thread, after a call of the callback that has begun."""
        if self._wake_write < 0:
            return
        os.close(self._wake_write)
        self._wake_write = -1
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._watch.fileno(), select.POLLIN)
        poll.register(self._wake_read, select.POLLIN | select.POLLHUP)
        try:
            while all(fd != self._wake_read for fd, _ in poll.poll()):
                for request in self._watch.take_requests():
                    self._call(request)
        finally:
            self._watch.close()
            os.close(self._wake_read)

    def _call(self, request: MemoryRequest) -> None:
        try:
            self._callback(request)
        except Exception:
            print("vgpud.client: the callback for memory pressure failed:", file=sys.stderr)
            traceback.print_exc()


def watch_memory_pressure(callback: Callable[[MemoryRequest], object]) -> MemoryWatcher:
    """Calls `callback` when the slice is asked to give memory back. Raises ClientError outside of slices."""
    return MemoryWatcher(callback)


async def memory_requests() -> AsyncGenerator[MemoryRequest, None]:
    """The requests to this program's slice, as they come. Raises ClientError outside of slices."""
    loop = asyncio.get_running_loop()
    news = asyncio.Event()
    with MemoryWatch() as watch:
        loop.add_reader(watch.fileno(), news.set)
        try:
            while True:
                await news.wait()
                news.clear()
                for request in watch.take_requests():
                    yield request
        finally:
            loop.remove_reader(watch.fileno())


__all__ = ["ClientError", "MemoryRequest", "MemoryWatch", "MemoryWatcher", "memory_requests", "watch_memory_pressure"]
