"""Reads a file of bounded size: a regular file, a pipe or a device."""

from __future__ import annotations

import os
from pathlib import Path

from vgpud.errors import ExitCode, VgpudError


class FileError(VgpudError):
    """A file that cannot be read, in one line."""

    exit_code = ExitCode.USAGE


def size_text(size_bytes: int) -> str:
    """A size in MiB, or in KiB below 1 MiB."""
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


def read_bytes(path: Path, bytes_max: int) -> bytes:
    """The whole file. Raises FileError, also for more than `bytes_max`, beyond which nothing is read."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = b"" if size > bytes_max else file.read(bytes_max + 1)  # a pipe has no size
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if max(size, len(data)) > bytes_max:
        raise FileError(f"{path} has more than {size_text(bytes_max)}, which is the limit: is it the right file?")
    return data


def read_text(path: Path, bytes_max: int, encoding: str = "utf-8") -> str:
    """The whole file as text. Raises FileError, also for bytes that are not UTF-8."""
    data = read_bytes(path, bytes_max)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text (UTF-8) at byte {error.start}") from error
