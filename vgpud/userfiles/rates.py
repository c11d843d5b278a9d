"""A site's table of speeds: which model of a job runs how fast on which model of GPU, in any unit that is its own.

CSV with the columns model, gpu, rate: a row for each pair that was measured.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from vgpud.errors import ExitCode, VgpudError
from vgpud.userfiles.bounded import read_text

FILE_BYTES_MAX = 16 << 20
COLUMNS = ("model", "gpu", "rate")
#: the speed on the GPU where a model is fastest
FASTEST_MILLI = 1000

#: model of a job -> (model of a GPU, thousandths of its highest speed), by the GPU's name
Rates = dict[str, tuple[tuple[str, int], ...]]


class RatesError(VgpudError):
    """An invalid table: its line, and the remedy."""

    exit_code = ExitCode.USAGE


def read(path: Path) -> Rates:
    """Raises RatesError, FileError."""
    rows = csv.reader(io.StringIO(read_text(path, FILE_BYTES_MAX), newline=""))
    found: dict[str, dict[str, float]] = {}
    for number, row in enumerate(rows, 1):
        words = tuple(word.strip() for word in row)
        if number == 1 and words != COLUMNS:
            raise RatesError(f"{path}:1: the columns are {', '.join(words) or 'none'}: write {','.join(COLUMNS)}")
        if number == 1 or not any(words):
            continue
        if len(words) != len(COLUMNS) or not words[0] or not words[1]:
            raise RatesError(f"{path}:{number}: write a model, a GPU and a rate, for example resnet50,V100,9.1")
        rate = _rate(words[2])
        if rate <= 0:
            raise RatesError(f"{path}:{number}: the rate is {words[2]!r}: write a number above 0")
        if words[1] in found.setdefault(words[0], {}):
            raise RatesError(f"{path}:{number}: {words[0]} on {words[1]} is there twice: remove one")
        found[words[0]][words[1]] = rate
    return {model: relative(rates) for model, rates in found.items()}


def relative(rates: dict[str, float]) -> tuple[tuple[str, int], ...]:
    """Rates of one model by GPU as thousandths of the highest, at least 1."""
    highest = max(rates.values())
    return tuple((gpu, max(1, round(FASTEST_MILLI * rate / highest))) for gpu, rate in sorted(rates.items()))


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        return 0
    return rate if rate < float("inf") else 0  # nor is what is no number below it
