"""The tunings that a user has kept: one file of JSON each, and the output of the runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from vgpud import paths
from vgpud.core.tune.record import Record, RecordError, read_record
from vgpud.errors import CliError, ExitCode
from vgpud.host import private_files

RECORD_BYTES_MAX = 4 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def check_name(name: str) -> str:
    """Raises CliError."""
    if not _NAME.fullmatch(name):
        raise CliError(f"{name!r} is not a name: use letters, digits, . _ and -, at most 63", ExitCode.USAGE)
    return name


def _file_of(name: str) -> Path:
    return paths.tunes_dir() / f"{check_name(name)}.json"


@contextlib.contextmanager
def open_log_folder(name: str) -> Iterator[Path]:
    """An empty folder for the output of its runs, for this process alone; what earlier ones have written is removed.
    Raises CliError."""
    folder = paths.tunes_dir() / f"{check_name(name)}.runs"
    paths.make_private_dir(folder.parent)
    try:
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CliError(f"cannot write {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        yield paths.make_private_dir(folder)
    except BlockingIOError as error:
        text = f"tuning {name} runs already: wait for its end, or give another --name"
        raise CliError(text, ExitCode.CONFLICT) from error
    finally:
        os.close(lock)


def save(record: Record) -> Path:
    """Replaces an earlier one of the name. Raises CliError."""
    path = _file_of(record.name)
    try:
        paths.make_private_dir(path.parent)
        private_files.replace(path, record.to_json())
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
    return path


def load(name: str) -> Record:
    """Raises CliError."""
    path = _file_of(name)
    try:
        with open(path, "rb") as file:
            text = file.read(RECORD_BYTES_MAX + 1)
        if len(text) > RECORD_BYTES_MAX:
            raise RecordError("it is too large")
        return read_record(text.decode())
    except FileNotFoundError as error:
        text_ = f"no tuning {name}: `vgpu tune ls` lists yours"
        raise CliError(text_, ExitCode.NOT_FOUND) from error
    except (OSError, UnicodeDecodeError, RecordError) as error:
        why = getattr(error, "strerror", None) or error
        raise CliError(f"cannot read {path}: {why}; `vgpu tune rm {name}` removes it") from error


def list_names() -> list[str]:
    """Of all that are kept, readable or not."""
    try:
        return sorted(path.stem for path in paths.tunes_dir().glob("*.json") if _NAME.fullmatch(path.stem))
    except OSError:
        return []


def load_all() -> tuple[list[Record], list[str]]:
    """The newest first; and a sentence for each that cannot be read."""
    records, problems = [], []
    for name in list_names():
        try:
            records.append(load(name))
        except CliError as error:
            problems.append(error.message)
    return sorted(records, key=lambda record: -record.unix_s), problems


def remove(name: str) -> None:
    """With the output of its runs. Raises CliError."""
    path = _file_of(name)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise CliError(f"no tuning {name}: `vgpu tune ls` lists yours", ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise CliError(f"cannot remove {path}: {error.strerror}") from error
    with contextlib.suppress(OSError):
        shutil.rmtree(path.with_suffix(".runs"))
    with contextlib.suppress(OSError):
        path.with_suffix(".lock").unlink()
