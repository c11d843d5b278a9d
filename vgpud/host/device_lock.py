"""One daemon for each device of a machine: a second one is refused with the name of the first.

The lock is an abstract unix socket whose name is the device's. The kernel binds a name once, for all users, and frees
it when the holder dies, however; there is no file that could be removed, replaced or kept. It also identifies the
holder: the peer credentials of a listener cannot be forged. Names belong to a network namespace, so those of all other
network namespaces that are visible in /proc are searched as well, after binding: of two daemons that start at the same
moment in two namespaces at least one sees the other.

Any user can hold the name of any device. That keeps a daemon out, but not without being named; see
docs/security/listeners.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pwd
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vgpud.core.model import Device
from vgpud.errors import ConflictError
from vgpud.host import processes

#: how long the name of a daemon that was killed a moment ago may still be taken, and how often it is tried
FREED_S, FREED_EVERY_S = 1.0, 0.02
#: a daemon that is starting, or a holder that is none, does not answer
ANSWER_S = 0.5
ANSWER_BYTES_MAX = 200
BACKLOG = 64
#: sock_diag(7): a unix socket's owner by its inode
_SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, _SHOW_UID, _DIAG_UID = 20, 1, 0x40, 7
_ANY_COOKIE = 0xFFFFFFFF
#: of our locks, as proc(5) shows it
_TYPE = f"{socket.SOCK_SEQPACKET:04x}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The holder of a device. 0, -1: the kernel does not report it. `serves`: the API socket that it reports, "" for
    none."""

    pid: int
    uid: int
    serves: str = ""

    def __str__(self) -> str:
        pid = (
            f"pid {self.pid} ({processes.program(self.pid)})" if self.pid else "a process that cannot be seen from here"
        )
        what = f"API socket {self.serves}" if self.serves else "which does not say that it is a vgpud"
        return f"{pid}, user {_user(self.uid)}, {what}"


def _user(uid: int) -> str:
    if uid < 0:
        return "unknown"
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def lock_name(uuid: str, sim_dir: str = "") -> str:
    """The abstract name, without its zero byte, of a device. Raises OSError when the simulator's directory is missing.

    Simulated devices of all simulators have the same UUIDs: their names contain the simulator's directory.
    """
    if not sim_dir:
        return f"vgpud/device/{uuid}"
    folder = Path(sim_dir).stat()
    return f"vgpud/simulator/{folder.st_dev:x}-{folder.st_ino:x}/{uuid}"


class DeviceLocks:
    """The devices that this daemon owns, until close() or its end. `serves`: its API socket, sent to processes that
    ask."""

    def __init__(self, serves: str) -> None:
        self.refusals: list[str] = []  # why devices were left out
        self._serves = serves.encode()[:ANSWER_BYTES_MAX]
        self._held: list[socket.socket] = []

    def take(self, devices: Iterable[Device], sim_dir: str = "") -> tuple[Device, ...]:
        """Takes the devices that no other daemon owns, and returns them. Raises ConflictError when there are none."""
        taken = []
        for device in devices:
            owner = self._take(lock_name(device.uuid, sim_dir))
            if owner is None:
                taken.append(device)
                continue
            text = f"device {device.index} ({device.uuid}) is owned by {owner}"
            self.refusals.append(f"{text}: stop that one, or leave the device out here ([devices] exclude)")
        if not taken:
            self.close()
            raise ConflictError(self.refusals[0] if self.refusals else "there is no device to own")
        return tuple(taken)

    def _take(self, name: str) -> Owner | None:
        """Binds the name; returns the owner if that is another process."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        deadline = time.monotonic() + FREED_S
        while True:
            try:
                sock.bind(b"\0" + name.encode())
                sock.listen(BACKLOG)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    sock.close()
                    raise
            found = _ask(name)
            if found or time.monotonic() > deadline:
                sock.close()
                return found or _by_inode(name, Path("/proc/self/net/unix")) or Owner(0, -1)
            time.sleep(FREED_EVERY_S)
        elsewhere = _in_other_namespaces(name)
        if elsewhere:
            sock.close()
            return elsewhere
        self._held.append(sock)
        return None

    def serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on processes that connect to a lock are sent the path of the API socket."""
        for sock in self._held:
            loop.add_reader(sock, self._tell, sock)

    def _tell(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = sock.accept()
            with connection:
                connection.setblocking(False)
                connection.send(self._serves)

    def close(self) -> None:
        """Others may have the devices."""
        for sock in self._held:
            sock.close()
        self._held.clear()


def owner(name: str) -> Owner | None:
    """The owner of a name now; None when it is free."""
    return _ask(name) or _by_inode(name, Path("/proc/self/net/unix")) or _in_other_namespaces(name)


def _ask(name: str) -> Owner | None:
    """The process that listens at a name; None when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(ANSWER_S)
        try:
            sock.connect(b"\0" + name.encode())
        except OSError:  # it is not bound, bound without a listener, or its backlog is full
            return None
        pid, uid = processes.credentials(sock)
        try:
            raw = sock.recv(ANSWER_BYTES_MAX)
        except OSError:
            raw = b""
    said = "".join(c if c.isprintable() else "?" for c in raw.decode("utf-8", "replace"))
    return Owner(pid, uid, said)


# ---- holders that do not listen, or live in another network namespace ----


def _in_other_namespaces(name: str) -> Owner | None:
    """The holder of the name in the network namespace of another visible process."""
    seen = {Path("/proc/self/net/unix").stat().st_ino}
    for pid in _pids():
        table = Path("/proc") / str(pid) / "net/unix"
        try:
            inode = table.stat().st_ino  # one for each namespace; its link (ns/net) may not be ours to read
        except OSError:
            continue  # it has ended
        if inode not in seen:
            seen.add(inode)
            found = _by_inode(name, table)
            if found:  # at least the owner of the namespace
                return found if found.pid else Owner(pid, processes.real_uid(pid))
    return None


def _pids() -> Iterator[int]:
    return (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _by_inode(name: str, table: Path) -> Owner | None:
    """The holder of the name by a table of unix sockets (proc(5)); None when there is none."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return None
    rows = [line.split() for line in lines if line.endswith(f" @{name}")]
    inodes = [row[6] for row in rows if row[4] == _TYPE]  # sockets of another type have names of their own
    if not inodes:
        return None
    held = f"socket:[{inodes[0]}]"
    for pid in _pids():
        try:
            with os.scandir(f"/proc/{pid}/fd") as descriptors:
                if any(os.readlink(descriptor.path) == held for descriptor in descriptors):
                    return Owner(pid, processes.real_uid(pid))
        except OSError:
            continue  # it has ended, or is another user's
    return Owner(0, _uid_of(int(inodes[0])))


def _uid_of(inode: int) -> int:
    """The user of a unix socket in our network namespace, by its inode; -1 when the kernel does not report it.

    Also of a socket that no process has open: a descriptor may be in transit in a message.
    """
    asked = struct.pack("=BBHIII2I", socket.AF_UNIX, 0, 0, _ANY_COOKIE, inode, _SHOW_UID, _ANY_COOKIE, _ANY_COOKIE)
    head = struct.pack("=IHHII", 16 + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as sock:  # NETLINK_SOCK_DIAG
            sock.settimeout(ANSWER_S)
            sock.send(head + asked)
            answer = sock.recv(4096)
    except OSError:
        return -1
    at = 16 + 16  # nlmsghdr, unix_diag_msg
    while at + 4 <= len(answer):
        size, kind = struct.unpack_from("=HH", answer, at)
        if kind == _DIAG_UID and size >= 8:
            return int(struct.unpack_from("=I", answer, at + 4)[0])
        at += max(4, (size + 3) & ~3)
    return -1
