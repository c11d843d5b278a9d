"""A directory of the node for a container, held fast: bound to a path of the daemon's own, which no user can change.

An engine is given a path and follows it later, when the user may have put a link there. So what was opened with the
user's rights is bound below the daemon's directory, the engine is given that place, and it is released when the
container has its own. Standard library only: container_client.py runs without the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat

#: mount(2)
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 1 << 12, 1 << 14, 1 << 18, 2


def hold(fd: int, place: str) -> None:
    """Binds what the descriptor is, with what is mounted below it, to a new path. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.mkdir(place, 0o700)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    # private: else what is released here would go in the place that it was bound from
    for source, flags in ((f"/proc/self/fd/{fd}", _MS_BIND | _MS_REC), (None, _MS_PRIVATE | _MS_REC)):
        if libc.mount(source and source.encode(), os.fsencode(place), None, ctypes.c_ulong(flags), None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), place)


def release(directory: str) -> None:
    """Ends all of them in a directory, and removes it. Nothing in them is touched: what is still bound stays."""
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            place = os.path.join(directory, name)
            libc.umount2(os.fsencode(place), _MNT_DETACH)
            with contextlib.suppress(OSError):
                os.unlink(place) if stat.S_ISREG(os.lstat(place).st_mode) else os.rmdir(place)
        os.rmdir(directory)
