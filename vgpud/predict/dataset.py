"""The CSV of measured jobs: `collect` writes it, the daemon appends to it, and `vgpu predict train` reads it.

One row is one job that had a device to itself: its device, its features, which are known beforehand, and measurements.
An empty cell was not measured.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.errors import ExitCode, VgpudError
from vgpud.predict.features import FEATURES, VALUE_MAX, Features
from vgpud.userfiles.bounded import FileError, read_text

#: what a row says of its job besides features: strings
TEXTS = ("device", "family", "architecture")
#: what is measured, and the largest valid value, also as nine digits: shares of a device are 0 to 1
MEASURED = {"utilisation": 1.0, "sm_activity": 1.0, "memory_bytes": 2e15, "step_ns": 1e15}
#: and what is never 0
POSITIVE = ("memory_bytes", "step_ns")
#: the types of the model's operations, which a row need not say
INGREDIENTS, SEPARATOR = "ingredients", ";"
COLUMNS = (*TEXTS, *FEATURES, *MEASURED, INGREDIENTS)

FILE_BYTES_MAX = 64 << 20
ROWS_MAX = 100_000
TEXT_MAX = 100


class DataError(VgpudError):
    """A file of measured jobs is invalid."""

    exit_code = ExitCode.USAGE


class OtherColumns(DataError):
    """A valid file of another version, to which this version cannot append rows."""


@dataclass(frozen=True)
class Row:
    """One measured job. None: not measured."""

    device: str
    family: str  # mlp, cnn, rnn, transformer ...
    architecture: str  # within the family: resnet50
    features: Features
    utilisation: float | None = None  # of the device's time, 0..1: what nvidia-smi calls GPU-Util
    sm_activity: float | None = None  # of its SMs' time, 0..1
    memory_bytes: float | None = None  # most that the process held, its context included
    step_ns: float | None = None
    ingredients: tuple[str, ...] = ()  # types of operations; (): not known

    def fold(self, folds: int, seed: int) -> int:
        """Which fold it is in: a hash of what was known before, so that runs of one configuration stay together."""
        known = ",".join(f"{name}={self.features[name]:.9g}" for name in sorted(self.features))
        digest = hashlib.sha256(f"{seed}:{known}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % folds


def read(path: Path) -> list[Row]:
    """The rows of a file. Raises DataError, with the line."""
    return parse(contents(path), str(path))


def contents(path: Path) -> str:
    """The text of a file of bounded size. Raises DataError."""
    try:
        return read_text(path, FILE_BYTES_MAX, "utf-8-sig")
    except FileError as error:
        raise DataError(f"{error}; measured jobs are a CSV file") from error


def parse(text: str, name: str) -> list[Row]:
    """The rows of such a text. Raises DataError."""
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[Row] = []
    try:
        header = [column.strip() for column in next(reader, [])]
        _check(header, name)
        for values in reader:
            if not values:
                continue
            where = f"{name}:{reader.line_num}"
            if len(values) != len(header):
                raise DataError(f"{where}: {len(values)} values where the header has {len(header)} columns")
            if len(rows) == ROWS_MAX:
                raise DataError(f"{where}: more than {ROWS_MAX} rows: use a part of them")
            rows.append(_row(where, dict(zip(header, values, strict=True))))
    except csv.Error as error:
        raise DataError(f"{name}:{reader.line_num}: {error}") from error
    return rows


def _check(header: list[str], name: str) -> None:
    twice = next((column for column, count in Counter(header).items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{name}:1: column {twice!r} appears twice: remove one")
    missing = [column for column in COLUMNS if column not in header and column != INGREDIENTS]
    if missing:
        shown = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
        raise DataError(f"{name}: columns missing: {shown} (`vgpu docs predict` lists them all)")


def _row(where: str, cells: dict[str, str]) -> Row:
    texts = {name: cells[name].strip()[:TEXT_MAX] for name in TEXTS}
    empty = next((name for name in TEXTS if not texts[name]), None)
    if empty is not None:
        raise DataError(f"{where}: {empty} is empty: name the job's device, family and architecture")
    known: dict[str, float] = {}
    for name in FEATURES:
        value = _number(where, name, cells[name])
        if value is None:
            raise DataError(f"{where}: {name} is empty: only {', '.join(MEASURED)} may be")
        known[name] = value
    measured = {name: _number(where, name, cells[name], most) for name, most in MEASURED.items()}
    nothing = next((name for name in POSITIVE if (value := measured[name]) is not None and value < 1), None)
    if nothing is not None:
        found = cells[nothing].strip()[:40]
        raise DataError(f"{where}: {nothing} is {found}, which is impossible: leave it empty if it was not measured")
    ingredients = tuple(filter(None, (name.strip() for name in cells.get(INGREDIENTS, "").split(SEPARATOR))))
    return Row(**texts, features=Features(known), ingredients=ingredients, **measured)  # type: ignore[arg-type]  # fields


def _number(where: str, name: str, cell: str, maximum: float = VALUE_MAX) -> float | None:
    if not cell.strip():
        return None
    try:
        if "_" in cell or not cell.isascii():  # valid in Python only
            raise ValueError
        value = float(cell)
    except ValueError as error:
        raise DataError(f"{where}: {name} is {cell[:40]!r}, not a number") from error
    if not math.isfinite(value) or not 0 <= value <= maximum:
        raise DataError(f"{where}: {name} is {cell[:40].strip()}: it must be from 0 to {maximum:g}")
    return value


def lines(rows: list[Row], header: bool = True) -> str:
    """Rows as text of such a file."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows(list(_cells(row)) for row in rows)
    return out.getvalue()


def _cells(row: Row) -> Iterator[Any]:
    for name in TEXTS:
        yield _text(getattr(row, name))
    for name in (*FEATURES, *MEASURED):
        value = getattr(row, name) if name in MEASURED else row.features[name]
        yield "" if value is None else f"{value:.9g}"
    yield SEPARATOR.join(_text(name) for name in row.ingredients)


def _text(value: str) -> str:
    """A user's text as it can be read again, whatever was in it."""
    printable = "".join(letter if letter.isprintable() else " " for letter in value[:TEXT_MAX])
    return printable.strip() or "unnamed"


def append(path: Path, rows: list[Row], mode: int = 0o644) -> None:
    """Adds rows to a file, which is made with this mode if it is not there; writers of the same file take turns. Raises
    DataError.

    A file with other columns is left alone, and so is one that would grow beyond what can be read again.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with open(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = os.fstat(file.fileno()).st_size
            text = lines(rows, header=size == 0).encode()
            if size:
                _same_columns(path, os.pread(file.fileno(), 1 << 16, 0))
                if os.pread(file.fileno(), 1, size - 1) != b"\n":  # a writer died in its last row
                    text = b"\n" + text
            if size + len(text) > FILE_BYTES_MAX:
                raise DataError(f"{path} is full ({size >> 20} MiB): move it away, then a new one is started")
            file.write(text)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def _same_columns(path: Path, start: bytes) -> None:
    first = start.split(b"\n", 1)[0].decode("utf-8-sig", "replace").strip()
    if first != ",".join(COLUMNS):
        raise OtherColumns(f"{path} has other columns than this version writes: move it away, a new one is started")
