"""What goes over an attach socket: messages of shim/abi/vg_abi.h, checked and built, and the sealed pages with them.

Used by server.py and thread.py. Nothing here waits or knows a socket.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import vgpud._shim as _shim
from vgpud.core.model import Denied, Device, Reason, Slice

ffi, lib = _shim.ffi, _shim.lib

ABI_VERSION: int = lib.VG_ABI_VERSION
#: that the libraries of programs may speak: they are answered in their own
ABI_VERSIONS = range(lib.VG_ABI_VERSION_OLDEST, ABI_VERSION + 1)
REQUEST_BYTES: int = ffi.sizeof("struct vg_attach_request")
_PAGE: int = lib.VG_PAGE_BYTES
MODES = {"coast": lib.VG_MODE_COAST, "open": lib.VG_MODE_OPEN, "closed": lib.VG_MODE_CLOSED}
_STATUS = {
    Reason.NOT_FOUND: lib.VG_ATTACH_NO_SLICE,
    Reason.NO_CAPACITY: lib.VG_ATTACH_FULL,
    Reason.INVALID: lib.VG_ATTACH_BAD_MESSAGE,
}


class Refusal(Exception):
    """An attach message that is answered with a status and one line of text."""

    @classmethod
    def of(cls, core_refusal: Denied) -> Refusal:
        """The core's refusal as an attach status."""
        return cls(_STATUS.get(core_refusal.reason, lib.VG_ATTACH_DENIED), core_refusal.message)

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def uuid_bytes(text: str) -> bytes:
    """The driver's 16 bytes of "GPU-xxxxxxxx-..." or "MIG-xxxxxxxx-...". Raises ValueError."""
    return uuid.UUID(text[4:] if text.startswith(("GPU-", "MIG-")) else text).bytes


def uuid_text(raw: bytes, device_uuids: Iterable[str]) -> str:
    """The UUID of the known device with these bytes, which do not say what it is; else that of a GPU."""
    text = f"GPU-{uuid.UUID(bytes=raw)}"
    return next((uuid for uuid in device_uuids if uuid[4:] == text[4:]), text)


def clean_text(raw: bytes) -> str:
    """A C string from a stranger as something that can be printed."""
    decoded = raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in decoded)


def parse_request(raw: bytes) -> Any:
    """The message as a copied struct, every field checked. Raises Refusal."""
    if len(raw) >= 8:
        magic, version = struct.unpack_from("<II", raw)
        if magic == lib.VG_ABI_MAGIC and version not in ABI_VERSIONS:
            spoken = f"{ABI_VERSIONS[0]} to {ABI_VERSION}"
            text = f"attach: this program's libvgpu speaks ABI {version}, the daemon {spoken}: use libvgpu.so"
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


def held_of(request: Any) -> tuple[tuple[bytes, int], ...]:
    """What a resuming process claims to hold, by the bytes of a UUID. Raises Refusal when a device is named twice."""
    if request.resume != lib.VG_ATTACH_RESUME:
        return ()
    entries = [request.devices[i] for i in range(request.device_count)]
    held = {bytes(ffi.buffer(entry.uuid)): int(entry.held_bytes) for entry in entries}
    if len(held) != len(entries):
        raise Refusal(lib.VG_ATTACH_BAD_MESSAGE, "attach: devices[] names a device twice")
    return tuple(held.items())


def named_of(request: Any) -> tuple[bytes, ...]:
    """The bytes of the UUIDs by which a program names devices: a pending slice is bound to them."""
    return tuple(bytes(ffi.buffer(request.devices[i].uuid)) for i in range(request.device_count))


class Pages:
    """A process's control and report pages (one of each per device, after a header page) and its doorbells.

    The control memfd is mapped writable first and then sealed, so that it can never be mapped writable again.
    """

    def __init__(self, device_count: int, mode: int, abi_version: int = ABI_VERSION) -> None:
        """Raises OSError."""
        self._raw = ffi.new("struct vg_tenant_pages *")
        result = lib.vg_tenant_pages_make(self._raw, device_count, mode)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        self._raw.control.abi_version = abi_version

    @classmethod
    def from_news(cls, news: Any) -> Pages:
        """Those that the attach thread gave to a process (struct vg_attach_server_news)."""
        made = cls.__new__(cls)
        made._raw = ffi.new("struct vg_tenant_pages *", news.pages)
        return made

    @property
    def header(self) -> Any:
        return self._raw.control

    @property
    def fds(self) -> list[int]:
        """The memfds, until they were sent."""
        return [self._raw.control_fd, self._raw.report_fd]

    @property
    def bells(self) -> list[int]:
        return list(self._raw.bells[0 : self._raw.device_count])

    def of(self, index: int) -> tuple[Any, Any, Any]:
        """(header, control, report) of device `index`, as the arbiter takes them."""
        offset = (1 + index) * _PAGE
        control = ffi.cast("struct vg_control_device *", ffi.cast("char *", self._raw.control) + offset)
        report = ffi.cast("struct vg_report_device *", ffi.cast("char *", self._raw.report) + offset)
        return self._raw.control, control, report

    def close_sent(self) -> None:
        """The memfds have gone to the process: our mappings suffice."""
        lib.vg_tenant_pages_sent(self._raw)

    def close(self) -> None:
        """Unmaps everything; no arbiter may know the pages any more."""
        lib.vg_tenant_pages_free(self._raw)


def reply_bytes(node: str, mode: str, status: int, text: str = "", abi_version: int = ABI_VERSION) -> bytes:
    """A reply that refuses, with the reason."""
    reply = _reply(node, mode, status, text)
    reply.abi_version = abi_version
    return bytes(ffi.buffer(reply))


def slice_reply_bytes(
    node: str, mode: str, process_id: int, slice_: Slice, devices: Mapping[str, Device], abi_version: int
) -> bytes:
    """The reply that admits a process, with the numbers of its slice on each device."""
    reply = slice_reply(node, mode, process_id, slice_, devices)
    reply.abi_version = abi_version
    return bytes(ffi.buffer(reply))


def slice_reply(node: str, mode: str, process_id: int, slice_: Slice, devices: Mapping[str, Device]) -> Any:
    """The same as a struct vg_attach_reply, in our own version."""
    reply = _reply(node, mode, lib.VG_ATTACH_OK, "")
    reply.process_id = process_id
    reply.slice = slice_.name.encode()[: lib.VG_NAME_BYTES - 1]
    reply.device_count = len(slice_.shares)
    for entry, share in zip(reply.devices, slice_.shares, strict=False):
        device = devices[share.device_uuid]
        ffi.buffer(entry.uuid)[:] = uuid_bytes(share.device_uuid)
        entry.kind = lib.VG_DEVICE_MIG if device.profile else lib.VG_DEVICE_GPU
        entry.min_milli, entry.max_milli = share.min_milli, share.max_milli
        entry.mem_min_bytes, entry.mem_max_bytes = share.mem_min_bytes, share.mem_max_bytes
        entry.context_bytes, entry.granule_bytes = device.context_bytes, device.granule_bytes
    return reply


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
