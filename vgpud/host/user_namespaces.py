"""The user who is responsible for a process in a user namespace: there a user has up to 65536 uids, each of which looks
like a user."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

#: ioctl_ns(2)
_NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB702, 0xB704
#: the kernel nests no deeper
_DEPTH_MAX = 33


def account_uid(pid: int, uid: int, proc: Path = Path("/proc")) -> int:
    """The user that made the outermost user namespace below ours that the process is in; `uid` if it is in ours.

    `uid` as well where that cannot be known.
    """
    try:
        ours = (proc / "self/ns/user").stat()
        fd = os.open(proc / str(pid) / "ns/user", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return uid
    try:
        for _ in range(_DEPTH_MAX):
            if os.path.samestat(os.fstat(fd), ours):
                return uid
            (uid,) = struct.unpack("I", fcntl.ioctl(fd, _NS_GET_OWNER_UID, bytes(4)))
            parent = fcntl.ioctl(fd, _NS_GET_PARENT)
            os.close(fd)
            fd = parent
    except OSError:  # a namespace that is not below ours
        pass
    finally:
        os.close(fd)
    return uid
