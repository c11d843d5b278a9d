"""Reads a file of bounded size: a regular file, a pipe or a device."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from vgpud.errors import ExitCode, VgpudError


class FileError(VgpudError):
    """A file that cannot be read, in one line."""

    exit_code = ExitCode.USAGE


def size_text(size_bytes: int) -> str:
    """A size in MiB, or in KiB below 1 MiB."""
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def read_bytes(path: Path, bytes_max: int, regular: bool = False) -> bytes:
    """The whole file. Raises FileError, also for more than `bytes_max`, beyond which nothing is read. `regular`: also
    for what is no file, since a pipe may never say anything."""
    try:
        with open(path, "rb", opener=_not_waiting if regular else None) as file:
            info = os.fstat(file.fileno())
            if regular and not stat.S_ISREG(info.st_mode):
                raise FileError(f"{path} is not a regular file: write it to one")
            size = info.st_size
            data = b"" if size > bytes_max else file.read(bytes_max + 1)  # a pipe has no size
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if max(size, len(data)) > bytes_max:
        raise _too_large(path, bytes_max)
    return data


def _too_large(path: Path, bytes_max: int) -> FileError:
    return FileError(f"{path} has more than {size_text(bytes_max)}, which is the limit: is it the right file?")


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_text(path: Path, bytes_max: int, encoding: str = "utf-8", regular: bool = False) -> str:
    """The whole file as text. Raises FileError, also for bytes that are not UTF-8."""
    data = read_bytes(path, bytes_max, regular)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text (UTF-8) at byte {error.start}") from error


class _Limited(io.RawIOBase):
    """The bytes of a file up to a maximum; one more raises FileError."""

    def __init__(self, file: io.FileIO, path: Path, bytes_max: int) -> None:
        self._file, self._path, self._bytes_max = file, path, bytes_max
        self._count_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        self._count_bytes += len(data)
        if self._count_bytes > self._bytes_max:
            raise _too_large(self._path, self._bytes_max)
        buffer[: len(data)] = data
        return len(data)


@contextlib.contextmanager
def open_text(path: Path, bytes_max: int, encoding: str = "utf-8") -> Iterator[TextIO]:
    """The file as lines with their ends, of which only a part is in memory. Opening and reading raise FileError, also
    for more than `bytes_max` and for bytes that are not UTF-8."""
    try:
        file = io.FileIO(path)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    with file:
        try:
            if os.fstat(file.fileno()).st_size > bytes_max:
                raise _too_large(path, bytes_max)
            yield io.TextIOWrapper(io.BufferedReader(_Limited(file, path, bytes_max)), encoding, newline="")
        except UnicodeDecodeError as error:
            raise FileError(f"{path} is not text (UTF-8)") from error
        except OSError as error:
            raise FileError(f"cannot read {path}: {error.strerror or error}") from error
