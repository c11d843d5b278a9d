"""The daemon's runtime directory, which is recreated when it is removed, and the lock of a directory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from vgpud import paths
from vgpud.errors import ConflictError, DeniedError

LOCK_NAME = "vgpud.lock"


class RuntimeDirectory:
    """Where the sockets lie, with the directories in it. Raises DeniedError when it cannot be made or is others'."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open = (paths.slices_dir(path), paths.shared_attach_dir(path), path / "containers")
        self.private = path / "private"
        self._make()
        info = path.stat()
        self._rights = info.st_uid, info.st_gid, info.st_mode & 0o7777

    def _make(self) -> None:
        paths.make_private_dir(self._path, 0o755)
        for directory in self._open:
            paths.make_private_dir(directory, 0o755)

    def make_private(self) -> Path:
        """The directory that the daemon alone may enter. Raises DeniedError."""
        return paths.make_private_dir(self.private)

    def repair(self) -> bool:
        """Takes the lock again when its file was removed; returns whether it was. Raises as at first."""
        if all(directory.is_dir() for directory in (*self._open, self.private)):
            return False
        whole = not self._path.is_dir()
        self._make()
        if whole:
            uid, gid, mode = self._rights
            try:
                os.chown(self._path, uid, gid)
                self._path.chmod(mode)
            except OSError as error:
                raise DeniedError(f"cannot give {self._path} its owner back: {error.strerror}") from error
        self.make_private()
        return True


class DirectoryLock:
    """Makes sure that this daemon is alone on a directory, until close() or its end."""

    def __init__(self, directory: Path, remedy: str) -> None:
        """`remedy`: the option that names another directory. Raises ConflictError, DeniedError, VgpudError."""
        self._directory, self._remedy = directory, remedy
        self._fd = -1
        self._take()

    def _take(self) -> None:
        path = self._directory / LOCK_NAME
        try:
            fd, folder_fd = _open_lock(path)
        except OSError as error:
            if error.errno in paths.PASSING:
                raise paths.cannot_make(path, error) from error
            text = f"cannot open {path}: {error.strerror}; run as its owner or choose another {self._remedy}"
            raise DeniedError(text) from error
        try:
            if fd == folder_fd or not os.fstat(folder_fd).st_mode & 0o077:  # any user can lock what they can open
                fcntl.flock(folder_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of a daemon that could make no file
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            pid = "unknown" if fd == folder_fd else os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            text = f"another vgpud (pid {pid}) uses {self._directory}: stop it or choose another {self._remedy}"
            raise ConflictError(text) from error
        finally:
            if folder_fd != fd:
                os.close(folder_fd)
        with contextlib.suppress(OSError):  # read-only, or no space for the number: the lock is held all the same
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        self.close()
        self._fd = fd

    def repair(self) -> bool:
        """Takes the lock again when its file was removed; whether it was. Raises as at first."""
        held = os.fstat(self._fd)
        locked = self._directory if stat.S_ISDIR(held.st_mode) else self._directory / LOCK_NAME
        try:
            if os.path.samestat(locked.lstat(), held):
                return False
        except FileNotFoundError:
            pass
        self._take()
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def _open_lock(path: Path) -> tuple[int, int]:
    """The file to lock and its folder, which are the same where no file can be made. Raises OSError."""
    folder_fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600), folder_fd
    except OSError as error:
        if error.errno not in paths.PASSING:
            os.close(folder_fd)
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), folder_fd
    except FileNotFoundError:
        return folder_fd, folder_fd
    except OSError:
        os.close(folder_fd)
        raise
