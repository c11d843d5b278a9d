"""A stand-in for the shim on the attach socket: messages packed by hand, pages mapped, so that tests can also lie.

The layout is shim/abi/vg_abi.h's; test_server.py compares the sizes with the compiler's.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import sys
from dataclasses import dataclass, field

MAGIC, ABI_VERSION = 0x55504756, 4
FRESH, RESUME, QUERY, HOLD = range(4)
OK, BAD_MESSAGE, BAD_VERSION, DENIED, FULL, NO_SLICE = range(6)
DEVICES_MAX = 16
PAGE = 4096
#: vg_attach_request: magic, abi_version, bytes, resume, library_copy, device_count, program[64],
#: devices[16]{uuid, held}
REQUEST = struct.Struct("<6I64s" + "16sQ" * DEVICES_MAX)
#: vg_attach_reply up to devices[]: magic, abi, bytes, status, mode, device_count, process_id, slice, node, text
REPLY = struct.Struct("<6IQ64s64s256s")
#: vg_slice_device: uuid, min_milli, max_milli, mem_min, mem_max, context_bytes, granule_bytes
REPLY_DEVICE = struct.Struct("<16sIIQQQQ")
REPLY_BYTES = REPLY.size + DEVICES_MAX * REPLY_DEVICE.size


def request(kind: int = FRESH, program: str = "test", held: tuple[tuple[bytes, int], ...] = (), **lies: int) -> bytes:
    """An attach message; `lies` replace header fields: magic, abi_version, bytes, library_copy.."""
    entries: list[bytes | int] = []
    for index in range(DEVICES_MAX):
        entries += held[index] if index < len(held) else (b"", 0)
    head = {"magic": MAGIC, "abi_version": ABI_VERSION, "bytes": REQUEST.size, "kind": kind, "library_copy": 1}
    head = head | {"device_count": len(held)} | lies
    return REQUEST.pack(*head.values(), program.encode(), *entries)


@dataclass
class Tenant:
    """An attached (or refused) connection."""

    sock: socket.socket
    status: int
    mode: int
    process_id: int
    slice_name: str
    node: str
    text: str
    devices: list[tuple[bytes, int, int, int, int, int, int]]
    fds: list[int] = field(default_factory=list)

    def map(self) -> tuple[mmap.mmap, mmap.mmap]:
        """(control, report) as the shim maps them."""
        size = (1 + len(self.devices)) * PAGE
        control = mmap.mmap(self.fds[0], size, mmap.MAP_SHARED, mmap.PROT_READ)
        return control, mmap.mmap(self.fds[1], size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)

    def ring(self, device: int = 0) -> None:
        os.eventfd_write(self.fds[2 + device], 1)

    def close(self) -> None:
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        self.fds.clear()


def connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)
    sock.connect(path)
    return sock


def receive(sock: socket.socket) -> Tenant:
    raw, fds, _flags, _address = socket.recv_fds(sock, REPLY_BYTES + 1, 64)
    assert len(raw) == REPLY_BYTES, f"{len(raw)} bytes instead of a reply"
    _magic, _abi, _bytes, status, mode, count, process_id, *texts = REPLY.unpack_from(raw)
    slice_name, node, text = (t.split(b"\0", 1)[0].decode() for t in texts)
    rows = [REPLY_DEVICE.unpack_from(raw, REPLY.size + i * REPLY_DEVICE.size) for i in range(count)]
    return Tenant(sock, status, mode, process_id, slice_name, node, text, rows, list(fds))


def attach(path: str, message: bytes | None = None) -> Tenant:
    """Connects, sends the message (default: a plain attach) and returns the daemon's answer."""
    sock = connect(path)
    sock.send(request() if message is None else message)
    return receive(sock)


def become(who: str) -> None:
    """Turns into "UID:GID" once everything is imported: the interpreter may lie where that user cannot read."""
    uid, _, gid = who.partition(":")
    os.setgroups([])
    os.setgid(int(gid))
    os.setuid(int(uid))


def main() -> None:
    """`client.py SOCKET [fork]`: attaches, prints the status, sleeps; with `fork` its child keeps the socket open.

    As the user in the variable AS ("UID:GID"), if that is set.
    """
    if os.environ.get("AS"):
        become(os.environ["AS"])
    tenant = attach(sys.argv[1])
    if sys.argv[2:] == ["fork"] and os.fork() == 0:
        sys.stdin.read()  # until the test closes it
        os._exit(0)
    print(tenant.status, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
