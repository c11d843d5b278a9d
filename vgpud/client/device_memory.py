"""Device memory that processes share by a descriptor, through the driver's API: made by one, read by others.

The process that makes it can write until it is sealed; the others map it for reading only. No other library is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

from vgpud.client.failures import make_error
from vgpud.errors import ExitCode

_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ, _READ_WRITE = 1, 3  # CU_MEM_ACCESS_FLAGS_PROT_*
_REASONS = {
    2: "not enough device memory in this slice: raise its memory maximum, or free some",
    800: "it was made by another user's program: memory is shared within one user's slices",
}


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Prop(ctypes.Structure):
    """CUmemAllocationProp"""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("rest", ctypes.c_uint64 * 3),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Driver:
    """The driver on one device, in that device's primary context."""

    def __init__(self, device: int) -> None:
        self.device = device
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise make_error(f"no CUDA driver: {error}", ExitCode.NOT_FOUND) from error
        self.call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises ClientError for every answer but success."""
        code = getattr(self._library, name)(*arguments)
        if code:
            reason = _REASONS.get(code, "see the driver's list of errors")
            raise make_error(f"{name} failed on device {self.device} with CUDA error {code}: {reason}", ExitCode.OTHER)

    @contextlib.contextmanager
    def use_context(self) -> Iterator[None]:
        """The context is current in this thread inside."""
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def uuid(self) -> bytes:
        raw = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid_v2", raw, self.device)
        return bytes(raw)

    def close(self) -> None:
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)


class SharedMemory:
    """A range of device memory at `address`. Use make_memory() or import_memory()."""

    def __init__(self, driver: Driver, handle: int, size_bytes: int, flags: int) -> None:
        self._driver, self._handle, self.size_bytes = driver, ctypes.c_uint64(handle), size_bytes
        address = ctypes.c_uint64()
        with contextlib.ExitStack() as undo:
            undo.callback(driver.call, "cuMemRelease", self._handle)
            with driver.use_context():
                driver.call("cuMemAddressReserve", ctypes.byref(address), self._size, self._size_t(0), 0, 0)
                undo.callback(driver.call, "cuMemAddressFree", address, self._size)
                driver.call("cuMemMap", address, self._size, self._size_t(0), self._handle, ctypes.c_ulonglong(0))
                undo.callback(driver.call, "cuMemUnmap", address, self._size)
                self._address = address
                self._allow(flags)
            self._undo = undo.pop_all()
        self.address = int(address.value)

    _size_t = ctypes.c_size_t

    @property
    def _size(self) -> ctypes.c_size_t:
        return ctypes.c_size_t(self.size_bytes)

    def _allow(self, flags: int) -> None:
        access = _Access(_Location(_DEVICE, self._driver.device), flags)
        self._driver.call("cuMemSetAccess", self._address, self._size, ctypes.byref(access), self._size_t(1))

    def seal(self) -> None:
        """From now on this process can only read it, too."""
        with self._driver.use_context():
            self._allow(_READ)

    def write(self, offset_bytes: int, data: memoryview) -> None:
        """Copies bytes there; not after seal()."""
        source = (ctypes.c_ubyte * len(data)).from_buffer(data)
        with self._driver.use_context():
            to = ctypes.c_uint64(self.address + offset_bytes)
            self._driver.call("cuMemcpyHtoD_v2", to, ctypes.byref(source), self._size_t(len(data)))

    def export(self) -> int:
        """A descriptor with which other processes can import it. It holds the memory until it is closed."""
        fd = ctypes.c_int(-1)
        arguments = ctypes.byref(fd), self._handle, _DESCRIPTOR, ctypes.c_ulonglong(0)
        self._driver.call("cuMemExportToShareableHandle", *arguments)
        return fd.value

    def close(self) -> None:
        """It is not mapped here any more. The memory is free when no process has it."""
        with self._driver.use_context():
            self._undo.close()


def make_memory(driver: Driver, size_bytes: int) -> SharedMemory:
    """New memory of at least that size, charged to this process's slice. Raises ClientError."""
    prop = _Prop(_PINNED, _DESCRIPTOR, _Location(_DEVICE, driver.device))
    unit, handle = ctypes.c_size_t(), ctypes.c_uint64()
    driver.call("cuMemGetAllocationGranularity", ctypes.byref(unit), ctypes.byref(prop), 0)
    whole = -(-max(1, size_bytes) // unit.value) * unit.value
    driver.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(whole), ctypes.byref(prop), ctypes.c_ulonglong(0))
    return SharedMemory(driver, handle.value, whole, _READ_WRITE)


def import_memory(driver: Driver, fd: int, size_bytes: int) -> SharedMemory:
    """Memory that another process of this user has made, for reading; not charged. The descriptor stays the caller's.

    Raises ClientError.
    """
    handle = ctypes.c_uint64()
    driver.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fd), _DESCRIPTOR)
    return SharedMemory(driver, handle.value, size_bytes, _READ)
