"""The process that acts as one user: it connects to the API and opens files, and hands the descriptors over.

Forked by the broker at a user's log-in. The daemon sees its credentials at the socket, so whatever the web server does
over that connection has this user's rights and no others; a job's log is opened with them, too. It lives as long as the
user's sessions, since the daemon reads the resource limits of a job's submitter from the process that connected.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import socket
import stat

from vgpud.client import contexts
from vgpud.console.login import relay, wire
from vgpud.errors import VgpudError

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_CONNECT_S = 5.0
_PROC_SUPER_MAGIC = 0x9FA0
#: of a refusal, so that it fits into a message whatever the path is
ERROR_CHARS_MAX = 500
#: of a user, so that they fit into a message
CONTEXTS_MAX = 32


class UnknownUserError(Exception):
    """The host has no such user."""


def become(uid: int) -> None:
    """Gives up every right but this user's, for good. Raises UnknownUserError, OSError."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError as error:
        raise UnknownUserError(f"uid {uid} is no user of this host") from error
    if os.geteuid() == 0:
        os.setgroups(os.getgrouplist(entry.pw_name, entry.pw_gid))
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid):
        raise OSError(f"this process cannot act as uid {uid}")


def die_with_parent(parent_pid: int) -> None:
    """The kernel ends this process when its parent ends; at once, if it has ended. After become(), which resets it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def close_to_others() -> None:
    """No other process of this user may trace this one or use its descriptors. After become(), which may reset it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def start(uid: int, api_socket: str, inherited_fds: list[int]) -> tuple[int, socket.socket]:
    """Forks the agent of a user. Returns its pid, and the socket for requests. inherited_fds: to be closed."""
    ours, its = wire.pair()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid:
        its.close()
        return pid, ours
    status = 1
    try:
        ours.close()
        for fd in inherited_fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        is_other = os.geteuid() == 0  # the broker may be root's: its home is not this user's
        become(uid)
        if is_other:
            os.environ["HOME"] = pwd.getpwuid(uid).pw_dir
            for name in [name for name in os.environ if name.startswith("XDG_")]:
                del os.environ[name]
        die_with_parent(parent_pid)
        os.chdir("/")
        _serve(its, api_socket)
        status = 0
    finally:
        os._exit(status)


def _serve(sock: socket.socket, api_socket: str) -> None:
    while True:
        fd = -1
        try:
            request = wire.receive(sock)
            answer, fd = _answer(request, api_socket)
            wire.send(sock, answer, fd)
        except wire.GoneError:
            return
        except Exception as error:  # whatever the web server has sent: the user's next page needs this process
            text = getattr(error, "strerror", None) or str(error)
            wire.send(sock, {"error": text[:ERROR_CHARS_MAX]})
        finally:
            if fd >= 0:
                os.close(fd)


def _answer(request: wire.Message, api_socket: str) -> tuple[wire.Message, int]:
    """Raises whatever is wrong with the request."""
    if request["do"] == "contexts":
        return {"contexts": _list_contexts()}, -1
    if request["do"] == "connect" and request.get("context"):
        return {}, relay.open_relay(contexts.get(str(request["context"])))
    if request["do"] == "connect":
        return {}, _connect(api_socket)
    return {}, open_file(str(request["path"]))


def _list_contexts() -> list[wire.Message]:
    """Names, addresses and uids of the user's contexts; never a key. One that cannot be read is left out."""
    found = []
    for name in contexts.names()[:CONTEXTS_MAX]:
        with contextlib.suppress(VgpudError):
            context = contexts.get(name)
            found.append({"name": name, "host": context.host, "uid": context.uid})
    return found


def _connect(path: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_CONNECT_S)
        sock.connect(path)
        sock.setblocking(False)
        return sock.detach()


def open_file(path: str) -> int:
    """A regular file for reading; never waits for a FIFO's writer. Raises OSError.

    Not one of /proc: what is said there of this process, however it is named, is the broker's memory.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode) or _is_of_proc(fd):
        os.close(fd)
        raise OSError(f"{path} is not a regular file")
    return fd


def _is_of_proc(fd: int) -> bool:
    buffer = (ctypes.c_long * 64)()  # struct statfs, whose first field is the file system's type
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, buffer):
        raise OSError(ctypes.get_errno(), "its file system is not known")
    return buffer[0] == _PROC_SUPER_MAGIC
