"""The peer of a unix socket, as the kernel reports it, and descriptors that identify one process for ever.

A pid is reused after its process has ended; a pidfd, or a pid with its start time, never means another process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
from pathlib import Path

_SO_PEERPIDFD = 77  # Linux 6.5; older kernels answer ENOPROTOOPT
_SO_PEERGROUPS = 59
_UIDS = (1 << 32) - 1
_GROUPS_MAX = 65536  # the kernel's NGROUPS_MAX
_libc = ctypes.CDLL(None, use_errno=True)
#: of the fields of /proc/PID/stat after the program's name: state (field 3), threads (20), start time (22), proc(5)
_STATE, _THREADS, _START = 0, 17, 19
#: /proc/PID/limits begins its lines with these, in a column of its own
_LIMIT_NAME_BYTES = 25
_LIMITS = {
    "Max cpu time": "cpu",
    "Max file size": "fsize",
    "Max data size": "data",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max resident set": "rss",
    "Max processes": "nproc",
    "Max open files": "nofile",
    "Max locked memory": "memlock",
    "Max address space": "as",
    "Max pending signals": "sigpending",
    "Max msgqueue size": "msgqueue",
    "Max nice priority": "nice",
    "Max realtime priority": "rtprio",
    "Max realtime timeout": "rttime",
}
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the kernel's PROC_PID_INIT_INO, the same everywhere


def login_uid(pid: int, proc: Path = Path("/proc")) -> int | None:
    """The user who logged in to the session that a process is of (pam_loginuid(8)), whoever it is now; None: it is of
    no session, or the kernel does not keep this."""
    try:
        uid = int((proc / str(pid) / "loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if uid == _UIDS else uid


def credentials(sock: socket.socket) -> tuple[int, int]:
    """(pid, uid) of the peer when it connected, as seen from here; pid 0 = it is in a pid namespace that we cannot
    see."""
    return all_credentials(sock)[:2]


def all_credentials(sock: socket.socket) -> tuple[int, int, int]:
    """(pid, uid, gid), as credentials()."""
    pid, uid, gid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def groups(sock: socket.socket) -> tuple[int, ...]:
    """The peer's further groups when it connected. Raises OSError."""
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 1024)
    except OSError as error:
        if error.errno != errno.ERANGE:
            raise
        raw = _many_groups(sock)
    return struct.unpack(f"{len(raw) // 4}I", raw)


def _many_groups(sock: socket.socket) -> bytes:
    """More than 256: Python's getsockopt takes no larger answer."""
    buffer = ctypes.create_string_buffer(4 * _GROUPS_MAX)
    size = ctypes.c_uint32(len(buffer))
    if _libc.getsockopt(sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, buffer, ctypes.byref(size)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw[: size.value]


def stand_in_uid(proc: Path = Path("/proc")) -> int:
    """The uid that stands for all users outside our user namespace; -1 where there are none.

    See user_namespaces(7).
    """
    known = [[int(word) for word in line.split()] for line in (proc / "self/uid_map").read_text().splitlines()]
    if sum(count for _inside, _outside, count in known) >= _UIDS:
        return -1
    return int((proc / "sys/kernel/overflowuid").read_text())


def peer_pidfd(sock: socket.socket, pid: int) -> int:
    """A descriptor of the peer itself; close it. Raises OSError when it has died."""
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid)


def has_ended(pidfd: int) -> bool:
    """Whether the process of a pidfd has ended (it may still be a zombie)."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def _stat(pid: int, proc: Path) -> list[str]:
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()  # the name in parentheses may hold anything


def start_time(pid: int, proc: Path = Path("/proc")) -> int:
    """Clock ticks since boot at which the process started, 0 when there is none."""
    fields = _stat(pid, proc)
    return int(fields[_START]) if len(fields) > _START else 0


def find_ancestor(pid: int, name: str, distance_max: int, proc: Path = Path("/proc")) -> int:
    """The nearest of a process and its ancestors, so many at most, whose program has this name; 0 = none."""
    for _ in range(distance_max + 1):
        fields = _stat(pid, proc)
        if not fields or pid <= 1:
            return 0
        if program(pid, proc) == name:
            return pid
        pid = int(fields[1])
    return 0


def runs(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether there is such a process and it has not ended: one whose first thread is a zombie still runs."""
    fields = _stat(pid, proc)
    return bool(fields) and (fields[_STATE] not in ("Z", "X", "x") or int(fields[_THREADS]) > 1)


def _status(pid: int, key: str, proc: Path) -> list[str]:
    """The words after a key of /proc/PID/status, none when it has ended. Only newlines end a line there: the program's
    name, which is on the first one and may be anything else, cannot begin another."""
    try:
        text = (proc / str(pid) / "status").read_text(errors="replace")
    except OSError:
        return []
    return next((line.split()[1:] for line in text.split("\n") if line.startswith(key + ":")), [])


def own_pid(pid: int, proc: Path = Path("/proc")) -> tuple[str, int]:
    """(pid namespace, pid there) of a process; the namespace is "" when it is ours. (`?`, 0) when we cannot know."""
    try:
        namespace = os.readlink(proc / str(pid) / "ns/pid")
        if namespace == os.readlink(proc / "self/ns/pid"):
            return "", pid
    except OSError:
        return "?", 0
    known = _status(pid, "NSpid", proc)
    return (namespace, int(known[-1]) if len(known) > 1 else 0) if known else ("?", 0)


def is_stopped(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process was stopped by a signal or a debugger: all of its threads, since they can be stopped singly."""
    try:
        threads = [_stat(int(entry.name), entry.parent) for entry in (proc / str(pid) / "task").iterdir()]
    except OSError:
        return False
    states = {fields[_STATE] for fields in threads if fields} - {"Z", "X"}  # the first one may have ended before
    return bool(states) and states <= {"T", "t"}


def resource_limits(pid: int, proc: Path = Path("/proc")) -> dict[str, tuple[int, int]]:
    """(soft, hard) of a process by setrlimit's names (nofile, memlock, ...); -1 is none. Raises OSError.

    From /proc, for prlimit(2) of another user's process needs CAP_SYS_RESOURCE, which a container has not.
    """
    limits = {}
    for line in (proc / str(pid) / "limits").read_text().splitlines()[1:]:
        name = _LIMITS.get(line[:_LIMIT_NAME_BYTES].strip())
        numbers = line[_LIMIT_NAME_BYTES:].split()[:2]
        if name and len(numbers) == 2:
            soft, hard = (-1 if number == "unlimited" else int(number) for number in numbers)
            limits[name] = (soft, hard)
    return limits


def real_uid(pid: int, proc: Path = Path("/proc")) -> int:
    """The user that started a process: not that of a setuid program's file. -1 when it has ended."""
    return int((_status(pid, "Uid", proc) or ["-1"])[0])


def program(pid: int, proc: Path = Path("/proc")) -> str:
    """The name of a process's program as the kernel has it, printable; "?" when it has ended."""
    try:
        name = (proc / str(pid) / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return "?"
    return "".join(c if c.isprintable() else "?" for c in name)


def shares_pids(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether pids mean the same to this process and to us. Raises OSError when it cannot be determined."""
    return os.readlink(proc / str(pid) / "ns/pid") == os.readlink(proc / "self/ns/pid")


def sees_all_pids(proc: Path = Path("/proc")) -> bool:
    """Whether we are in the host's pid namespace, whose pids the real driver reports."""
    return os.readlink(proc / "self/ns/pid") == _FIRST_PID_NAMESPACE


def open_process(pid: int, start_ticks: int) -> int:
    """A pidfd of the process with this pid and start time, -1 when it has ended (its pid may be another's by now)."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1
    if start_time(pid) == start_ticks and not has_ended(pidfd):
        return pidfd
    os.close(pidfd)
    return -1
