"""What goes over an attach socket: messages of shim/abi/vg_abi.h, checked and built, and the sealed pages with them.

Used by server.py alone. Nothing here waits or knows a socket.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import vgpud._shim as _shim
from vgpud.core.model import Denied, Device, Reason, Slice

ffi, lib = _shim.ffi, _shim.lib

ABI_VERSION: int = lib.VG_ABI_VERSION
REQUEST_BYTES: int = ffi.sizeof("struct vg_attach_request")
_PAGE: int = lib.VG_PAGE_BYTES
_F_SEAL_FUTURE_WRITE = 0x10  # not in the fcntl module before Python 3.13
_REPORT_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_CONTROL_SEALS = _REPORT_SEALS | _F_SEAL_FUTURE_WRITE
MODES = {"coast": lib.VG_MODE_COAST, "open": lib.VG_MODE_OPEN, "closed": lib.VG_MODE_CLOSED}
_STATUS = {
    Reason.NOT_FOUND: lib.VG_ATTACH_NO_SLICE,
    Reason.NO_CAPACITY: lib.VG_ATTACH_FULL,
    Reason.INVALID: lib.VG_ATTACH_BAD_MESSAGE,
}


class Refusal(Exception):
    """An attach message that is answered with a status and one line of text."""

    @classmethod
    def of(cls, denied: Denied) -> Refusal:
        """The core's refusal as an attach status."""
        return cls(_STATUS.get(denied.reason, lib.VG_ATTACH_DENIED), denied.message)

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def uuid_bytes(text: str) -> bytes:
    """The driver's 16 bytes of "GPU-xxxxxxxx-...". Raises ValueError."""
    return uuid.UUID(text.removeprefix("GPU-")).bytes


def uuid_text(raw: bytes) -> str:
    return f"GPU-{uuid.UUID(bytes=raw)}"


def clean_text(raw: bytes) -> str:
    """A C string from a stranger as something that can be printed."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in decoded)


def parse_request(raw: bytes) -> Any:
    """The message as a copied struct, every field checked. Raises Refusal."""
    if len(raw) >= 8:
        magic, version = struct.unpack_from("<II", raw)
        if magic == lib.VG_ABI_MAGIC and version != lib.VG_ABI_VERSION:
            text = (
                f"attach: this program's libvgpu speaks ABI {version}, the daemon {lib.VG_ABI_VERSION}: use libvgpu.so"
            )
            raise Refusal(lib.VG_ATTACH_BAD_VERSION, text + " and vgpud of one release")
    if len(raw) != REQUEST_BYTES:
        raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, f"attach: message of {len(raw)} bytes, {REQUEST_BYTES} are needed")
    request = ffi.new("struct vg_attach_request *")
    ffi.buffer(request)[:] = raw
    for name, value, wanted in (("magic", request.magic, lib.VG_ABI_MAGIC), ("bytes", request.bytes, REQUEST_BYTES)):
        if value != wanted:
            raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, f"attach: {name} is {value:#x}, {wanted:#x} is needed")
    if request.resume > lib.VG_ATTACH_HOLD:
        raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, f"attach: resume is {request.resume}, {lib.VG_ATTACH_HOLD} at most")
    if request.device_count > lib.VG_DEVICES_MAX:
        text = f"attach: device_count is {request.device_count}, {lib.VG_DEVICES_MAX} at most"
        raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, text)
    return request


def held_of(request: Any) -> tuple[tuple[str, int], ...]:
    """What a resuming process claims to hold, by UUID. Raises Refusal when a device is named twice."""
    if request.resume != lib.VG_ATTACH_RESUME:
        return ()
    entries = [request.devices[i] for i in range(request.device_count)]
    held = {uuid_text(bytes(ffi.buffer(entry.uuid))): int(entry.held_bytes) for entry in entries}
    if len(held) != len(entries):
        raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, "attach: devices[] names a device twice")
    return tuple(held.items())


class Pages:
    """A process's control and report pages (one of each per device, after a header page) and its doorbells.

    The control memfd is mapped writable first and then sealed, so that it can never be mapped writable again.
    """

    def __init__(self, device_count: int, mode: int) -> None:
        self.fds: list[int] = []
        self.bells: list[int] = []
        self._maps: list[mmap.mmap] = []
        try:
            self._control = self._memory("vgpu-control", device_count, mmap.PROT_READ | mmap.PROT_WRITE, _CONTROL_SEALS)
            self._report = self._memory("vgpu-report", device_count, mmap.PROT_READ, _REPORT_SEALS)
            for _ in range(device_count):
                self.bells.append(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
        except OSError:
            self.close()
            raise
        self.header = ffi.cast("struct vg_control_header *", self._control)
        self.header.magic, self.header.abi_version = lib.VG_ABI_MAGIC, lib.VG_ABI_VERSION
        self.header.device_count, self.header.mode = device_count, mode

    def _memory(self, name: str, device_count: int, protection: int, seals: int) -> Any:
        size = (1 + device_count) * _PAGE
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.fds.append(fd)
        os.ftruncate(fd, size)
        self._maps.append(mmap.mmap(fd, size, mmap.MAP_SHARED, protection))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return ffi.cast("char *", ffi.from_buffer(self._maps[-1]))  # good for as long as the map is open

    def of(self, index: int) -> tuple[Any, Any, Any]:
        """(header, control, report) of device `index`, as the arbiter takes them."""
        offset = (1 + index) * _PAGE
        control = ffi.cast("struct vg_control_device *", self._control + offset)
        return self.header, control, ffi.cast("struct vg_report_device *", self._report + offset)

    def close_sent(self) -> None:
        """The memfds have gone to the process: our mappings suffice."""
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()

    def close(self) -> None:
        """Unmaps everything; no arbiter may know the pages any more."""
        self.close_sent()
        for bell in self.bells:
            os.close(bell)
        self.bells.clear()
        self.header = self._control = self._report = None
        for memory in self._maps:
            memory.close()
        self._maps.clear()


def reply_bytes(node: str, mode: str, status: int, text: str = "") -> bytes:
    """A reply that refuses, with the reason."""
    return bytes(ffi.buffer(_reply(node, mode, status, text)))


def slice_reply_bytes(node: str, mode: str, process_id: int, given: Slice, devices: Mapping[str, Device]) -> bytes:
    """The reply that admits a process, with the numbers of its slice on each device."""
    reply = _reply(node, mode, lib.VG_ATTACH_OK, "")
    reply.process_id = process_id
    reply.slice = given.name.encode()[: lib.VG_NAME_BYTES - 1]
    reply.device_count = len(given.shares)
    for entry, share in zip(reply.devices, given.shares, strict=False):
        device = devices[share.device_uuid]
        ffi.buffer(entry.uuid)[:] = uuid_bytes(share.device_uuid)
        entry.min_milli, entry.max_milli = share.min_milli, share.max_milli
        entry.mem_min_bytes, entry.mem_max_bytes = share.mem_min_bytes, share.mem_max_bytes
        entry.context_bytes, entry.granule_bytes = device.context_bytes, device.granule_bytes
    return bytes(ffi.buffer(reply))


def usage_bytes(
    used: Sequence[int],
    busy_milli: Sequence[int],
    rows: Mapping[tuple[int, int, int], Sequence[tuple[int, int]]],
) -> bytes:
    """Usage of a slice by device, and (bytes, of these in the ledger) of each of its lives by (host pid, pid in the
    asker's namespace, device), as many as fit."""
    usage = ffi.new("struct vg_attach_usage *")
    usage.magic, usage.bytes = lib.VG_ABI_MAGIC, ffi.sizeof(usage[0])
    usage.device_count = len(used)
    usage.used_bytes[0 : len(used)] = used
    usage.busy_milli[0 : len(busy_milli)] = busy_milli
    shown = sorted(rows.items())[: lib.VG_USAGE_PROCESSES_MAX]
    usage.process_count = len(shown)
    for entry, ((host_pid, pid, device), lives) in zip(usage.processes, shown, strict=False):
        entry.host_pid, entry.pid, entry.device, entry.copies = host_pid, pid, device, len(lives)
        entry.used_bytes, entry.ledger_bytes = (sum(numbers) for numbers in zip(*lives, strict=True))
    return bytes(ffi.buffer(usage))


def _reply(node: str, mode: str, status: int, text: str) -> Any:
    reply = ffi.new("struct vg_attach_reply *")
    reply.magic, reply.abi_version = lib.VG_ABI_MAGIC, lib.VG_ABI_VERSION
    reply.bytes, reply.status, reply.mode = ffi.sizeof(reply[0]), status, MODES[mode]
    reply.node = node.encode()[: lib.VG_NAME_BYTES - 1]
    reply.text = text.encode()[: lib.VG_TEXT_BYTES - 1]
    return reply
