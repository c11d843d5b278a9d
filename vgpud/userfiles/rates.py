"""Tables of speeds: which model of a job runs how fast on which model of GPU, in any unit that is the table's own.

CSV with the columns model, gpu, rate: a row for each pair that was measured. What begins with # is a comment. Gavel's
measurements come with the package (gavel.csv, made by tools/gavel_rates.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from vgpud.core.devices.rates import Speeds, model_key, relative, words
from vgpud.errors import ExitCode, VgpudError
from vgpud.userfiles.bounded import read_text

FILE_BYTES_MAX = 16 << 20
COLUMNS = ("model", "gpu", "rate")
#: tables that have a name instead of a path
SHIPPED = {"gavel": Path(__file__).with_name("gavel.csv")}

#: speeds of a job's model, by core.rates.model_key
Rates = dict[str, Speeds]


class RatesError(VgpudError):
    """An invalid table: its line, and the remedy."""

    exit_code = ExitCode.USAGE


def read_all(tables: Sequence[str]) -> Rates:
    """Names of shipped tables and paths. A model is taken from one table, since each has its own unit: from a file
    before a shipped one, from a later file before an earlier one. Raises RatesError, FileError."""
    found: Rates = {}
    for table in sorted(tables, key=lambda table: table not in SHIPPED):
        found |= read(SHIPPED.get(table) or Path(table))
    return found


def read(path: Path) -> Rates:
    """Raises RatesError, FileError."""
    rows = csv.reader(io.StringIO(read_text(path, FILE_BYTES_MAX), newline=""))
    found: dict[str, dict[str, float]] = {}
    known: set[tuple[str, tuple[str, ...]]] = set()
    has_columns = False
    try:
        for row in rows:
            cells = tuple(cell.strip() for cell in row)
            if not any(cells) or cells[0].startswith("#"):
                continue
            where = f"{path}:{rows.line_num}"
            if not has_columns:
                if cells != COLUMNS:
                    raise RatesError(f"{where}: the header is {','.join(cells)}; it must be {','.join(COLUMNS)}")
                has_columns = True
                continue
            model, gpu, rate = _row(where, cells)
            pair = model_key(model), words(gpu)
            if pair in known:
                raise RatesError(f"{where}: {model} on {gpu} is there twice: remove one")
            known.add(pair)
            found.setdefault(pair[0], {})[gpu] = rate
    except csv.Error as error:
        raise RatesError(f"{path}:{rows.line_num}: {error}") from error
    return {key: relative(rates) for key, rates in found.items()}


def _row(where: str, cells: Sequence[str]) -> tuple[str, str, float]:
    if len(cells) != len(COLUMNS) or not model_key(cells[0]) or not words(cells[1]):
        raise RatesError(f"{where}: write a model, a GPU and a rate, for example resnet50,V100,9.1")
    rate = _number(cells[2])
    if rate <= 0:
        raise RatesError(f"{where}: the rate is {cells[2]!r}: write a number above 0")
    return cells[0], cells[1], rate


def _number(text: str) -> float:
    """0 of what is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return 0
    return number if number < float("inf") else 0
