"""Reads untrusted directory trees (images, volumes, a runtime's view) without leaving them.

Every path is resolved by the kernel with openat2 and RESOLVE_IN_ROOT (openat2(2)): absolute symlinks and `..` begin and
end at the tree's own root, whatever the tree holds and however it changes in the meantime. Nothing is ever written or
executed, and only directories and regular files are opened for reading.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

from vgpud.oci.request import RequestError

_SYS_OPENAT2 = 437  # the same on every architecture since Linux 5.6
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_RESOLVE_IN_ROOT = 0x10
_RACES_MAX = 32
#: entries listed in all directories of one tree together: an image can name a directory of millions hundreds of times
NAMES_MAX = 1 << 20
#: errors that an image's own contents can cause, which are not vgpud's
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENAMETOOLONG, errno.EXDEV, errno.EINVAL)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t]
    return call


_syscall = _system_call()


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """A descriptor, close-on-exec. Raises OSError; RequestError without openat2 (Linux < 5.6, a filter)."""
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError as error:  # a lone surrogate, which JSON can contain
        raise OSError(errno.EINVAL, "no file has such a name", ascii(path)) from error
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a path cannot hold a NUL", path)
    for _ in range(_RACES_MAX):
        found = _syscall(_SYS_OPENAT2, directory, name, ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EPERM):
            text = "the daemon cannot read the container's root safely: openat2 is refused here"
            raise RequestError(f"{text} ({os.strerror(code)}); it needs Linux 5.6 and a seccomp profile that allows it")
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: something was renamed while `..` was resolved
            raise OSError(code, os.strerror(code), path)
    raise OSError(errno.EAGAIN, "the tree changes all the time", path)


@dataclass(frozen=True, slots=True)
class Found:
    """The file at a path of a tree: its resolved path (without symlinks, from the tree's root) and its status."""

    path: str
    status: os.stat_result

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)


class Root:
    """A directory tree; use it in a `with`. `beneath`: symlinks that leave it lead nowhere instead of to its root."""

    def __init__(self, descriptor: int, beneath: bool = False) -> None:
        self._descriptor = descriptor
        self._resolve = _RESOLVE_NO_MAGICLINKS | (_RESOLVE_BENEATH if beneath else _RESOLVE_IN_ROOT)
        self._listed = 0
        self._prefix = os.readlink(f"/proc/self/fd/{descriptor}").rstrip("/")

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Root:
        """A tree at a trusted path, such as /proc/<pid>/root. Raises OSError."""
        return cls(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def open_subtree(self, path: str, beneath: bool = False) -> Root:
        """The tree at a directory of this one. Raises OSError."""
        return Root(self._open(path, os.O_PATH | os.O_DIRECTORY), beneath)

    def __enter__(self) -> Root:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the descriptor; may be called twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self, path: str, flags: int) -> int:
        return openat2(self._descriptor, path.lstrip("/") or ".", flags, self._resolve)

    def _path_of(self, descriptor: int) -> str:
        whole = os.readlink(f"/proc/self/fd/{descriptor}")
        if whole != (self._prefix or "/") and not whole.startswith(self._prefix + "/"):
            raise OSError(errno.EXDEV, "outside of the tree", whole)
        return whole[len(self._prefix) :] or "/"

    @property
    def read_only(self) -> bool:
        """Whether nothing can be created here, not even a mount point."""
        return bool(os.fstatvfs(self._descriptor).f_flag & os.ST_RDONLY)

    def find(self, path: str) -> Found | None:
        """The file that the path leads to; None if it leads nowhere. Raises OSError for errors outside of the tree."""
        try:
            descriptor = self._open(path, os.O_PATH)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        try:
            return Found(self._path_of(descriptor), os.fstat(descriptor))
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        finally:
            os.close(descriptor)

    def open_folder(self, path: str) -> int:
        """A descriptor (O_PATH) of a directory, which the caller closes. Raises OSError."""
        return self._open(path, os.O_PATH | os.O_DIRECTORY)

    def locate(self, path: str) -> tuple[str, Found | None]:
        """(the path without symlinks as far as it exists and the rest as written, the file there)."""
        path, rest = os.path.normpath("/" + path.lstrip("/")), ""
        while True:
            found = self.find(path)
            if found is not None:
                return (found.path, found) if not rest else (found.path.rstrip("/") + rest, None)
            if path == "/":
                return path + rest.lstrip("/"), None
            path, name = os.path.split(path)
            rest = f"/{name}{rest}"

    def names(self, path: str) -> list[str]:
        """The entries of a directory, sorted; empty if there is none. Raises RequestError beyond NAMES_MAX."""
        try:
            descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise
        try:
            with os.scandir(descriptor) as entries:
                found = sorted(entry.name for entry in islice(entries, NAMES_MAX - self._listed + 1))
        finally:
            os.close(descriptor)
        self._listed += len(found)
        if self._listed > NAMES_MAX:
            text = f"too many files to look for drivers among, {NAMES_MAX} up to {path!a}"
            raise RequestError(f"{text}: remove large directories from LD_LIBRARY_PATH and ld.so.conf")
        return found

    def read(self, path: str, limit_bytes: int) -> bytes | None:
        """The first bytes of a regular file; None for anything else. Never waits: FIFOs and devices are not opened."""
        try:
            place = self._open(path, os.O_PATH)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        try:
            if not stat.S_ISREG(os.fstat(place).st_mode):
                return None
            with open(f"/proc/self/fd/{place}", "rb", buffering=0) as file:  # the very file that was examined
                return _read_all(file.fileno(), limit_bytes)
        except PermissionError:
            return None
        finally:
            os.close(place)


def _read_all(descriptor: int, limit_bytes: int) -> bytes:
    data = b""
    while len(data) < limit_bytes:
        more = os.read(descriptor, min(limit_bytes - len(data), 1 << 20))
        if not more:
            break
        data += more
    return data
