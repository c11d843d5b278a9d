"""Files and folders that only the daemon's user may read, whatever the umask and whatever mode they had before.

Used for everything that holds users' data. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from vgpud.errors import DeniedError
from vgpud.paths import cannot_make

FILE_MODE, FOLDER_MODE = 0o600, 0o700
_OTHERS = 0o077
_OTHERS_WRITE = 0o022


def opener(path: str, flags: int) -> int:
    """For open(): a new or an existing regular file is 0600. Raises OSError, also for a symbolic link."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        info = os.fstat(descriptor)
        if stat.S_ISREG(info.st_mode) and stat.S_IMODE(info.st_mode) != FILE_MODE:
            os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write(path: Path, text: str) -> None:
    """The whole text of a file. Raises OSError, UnicodeEncodeError."""
    with open(path, "w", encoding="utf-8", opener=opener) as file:
        file.write(text)


def replace(path: Path, text: str) -> None:
    """Puts the text in a file's place in one step: a full disk or a crash leaves the old one. Raises OSError.

    A symbolic link of that name is replaced, not followed.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    create_with(made, text)
    try:
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def create_with(path: Path, text: str) -> None:
    """A new file with this text, on the disk, or none. Raises OSError, FileExistsError also for a link of that name."""
    with open(path, "x", encoding="utf-8", opener=opener) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def create(path: Path) -> None:
    """Makes an empty file; one that exists is left as it is: closing a descriptor of it would drop SQLite's locks."""
    if not os.path.lexists(path):
        os.close(opener(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def make_state_dir(path: Path, runtime: Path) -> list[str]:
    """Creates the state directory, or makes an existing one and the files in it private.

    Returns a sentence for each change, and for each one that failed. `runtime`: users need a path to it, so a state
    directory that contains it keeps its mode. Raises DeniedError where the directory is another user's, or where
    another user may have put files into it; VgpudError where it cannot be created now.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    except OSError as error:
        raise cannot_make(path, error) from error
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise DeniedError(f"{path} is not a directory: remove it or choose another --state-dir")
    if info.st_uid != os.geteuid():
        own = os.geteuid()
        text = f"the state directory {path} belongs to uid {info.st_uid}, not to uid {own}, which vgpud runs as"
        raise DeniedError(f"{text}: run chown -R {own} {path} after looking at what is in it, or choose another one")
    if info.st_mode & _OTHERS_WRITE:
        _check_contents(path)
    found = [] if _leads_to(path, runtime) else _tighten(path, info, FOLDER_MODE)
    for entry, entry_info in _contents(path):
        if entry_info.st_uid == os.geteuid():
            mode = FOLDER_MODE if stat.S_ISDIR(entry_info.st_mode) else FILE_MODE
            found += _tighten(entry, entry_info, mode)
    return found


def _leads_to(path: Path, runtime: Path) -> bool:
    return path.resolve() in (runtime.resolve(), *runtime.resolve().parents)


def _contents(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Files of the directory and of its jobs, with the folders of the latter; nothing that is hidden in jobs: an
    engine's own files lie there."""
    for entry in sorted(path.iterdir()):
        info = entry.lstat()
        if stat.S_ISREG(info.st_mode):
            yield entry, info
        elif stat.S_ISDIR(info.st_mode) and "jobs" in (entry.name, entry.parent.name) and entry.name[:1] != ".":
            yield entry, info
            yield from _contents(entry)


def _check_contents(path: Path) -> None:
    """Others could write here: what they may have put in is not to be believed."""
    for entry in sorted(path.iterdir()):
        info = entry.lstat()
        linked = stat.S_ISLNK(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_nlink > 1)
        if info.st_uid != os.geteuid() or linked:
            what = "is a link" if linked else f"belongs to uid {info.st_uid}"
            text = f"other users can write to {path} (mode {path.stat().st_mode & 0o777:o}), and {entry} {what}"
            raise DeniedError(f"{text}: look at it, remove it, and run chmod 700 {path}")


def _tighten(path: Path, info: os.stat_result, mode: int) -> list[str]:
    if not info.st_mode & _OTHERS:
        return []
    was = stat.S_IMODE(info.st_mode)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_ino == info.st_ino:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return []  # of an attempt that ends meanwhile
    except OSError as error:
        if error.errno == errno.EROFS:
            return [f"{path} has mode {was:o} and others can read it: the file system is read-only, so it stays so"]
        raise DeniedError(f"cannot run chmod {mode:o} {path}: {error.strerror}; run it as root") from error
    return [f"{path} had mode {was:o}, so that others could look into it: it has {mode:o} now"]
