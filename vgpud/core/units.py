"""Quantities as users write them: fractions of GPUs <-> milli-GPU, sizes of memory <-> bytes. Exact, no floats.

Every refusal is a UnitError whose text is one line that names the value and the fix.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

MILLI_PER_DEVICE = 1000
#: no machine has more devices than the attach messages can name (VG_DEVICES_MAX)
GPUS_MAX = 16
#: of the API's numbers
INT64_MAX = (1 << 63) - 1

_SUFFIXES = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "ki": 1 << 10,
    "kib": 1 << 10,
    "kb": 10**3,
    "m": 1 << 20,
    "mi": 1 << 20,
    "mib": 1 << 20,
    "mb": 10**6,
    "g": 1 << 30,
    "gi": 1 << 30,
    "gib": 1 << 30,
    "gb": 10**9,
    "t": 1 << 40,
    "ti": 1 << 40,
    "tib": 1 << 40,
    "tb": 10**12,
}
_BYTES_MAX = 1 << 62
#: a number without a unit below this was meant in another unit: no slice has so few bytes
_BARE_MIN = 1 << 20
#: up to this it was meant in GiB, above in MiB, as Slurm counts
_GIB_MAX = 512
_DIGITS_MAX = 20
_SHOWN_MAX = 120
#: of TCP
PORT_MAX = 65_535


class UnitError(ValueError):
    """An invalid quantity; the text names the value and the fix."""


def _decimal(text: str) -> Fraction | None:
    """The exact value of digits with at most one point; None for anything else (signs, exponents, infinities)."""
    whole, point, part = text.partition(".")
    digits = whole + part
    if not digits or len(digits) > _DIGITS_MAX or not (digits.isascii() and digits.isdigit()) or (point and not part):
        return None
    return Fraction(int(digits), 10 ** len(part))


def parse_whole(text: str, max_value: int) -> int | None:
    """The whole number from 0 to `max_value` that these digits are; None for anything else.

    int() takes signs, blanks, underscores and the digits of all scripts as well, and fails in a way of its own at more
    than 4,300 digits: what users write is read by this.
    """
    if len(text) > _DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= max_value else None


def format_value(value: Any) -> str:
    """What a user gave instead of a quantity, in a message. It may be too long for a text, or nested too deeply."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"a value ({type(value).__name__}) that is too large to show"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def parse_gpus(text: str, *, zero: bool = False) -> int:
    """Milli-GPU of a fraction of GPUs: "0.5" -> 500, "2.5" -> 2500. `zero`: whether "0" is allowed (for minima)."""
    clean = text.strip()
    value = _decimal(clean)
    if value is None:
        raise UnitError(f"{format_value(text)} is not a number of GPUs: write for example 0.5, 1 or 2.5")
    milli = value * MILLI_PER_DEVICE
    if milli.denominator != 1:
        raise UnitError(
            f"{clean} GPUs is finer than one thousandth: write at most three decimals (0.001 is the smallest)"
        )
    if milli == 0 and not zero:
        raise UnitError(f"{clean} GPUs is too little: ask for 0.001 or more")
    if milli > GPUS_MAX * MILLI_PER_DEVICE:
        raise UnitError(f"{clean} GPUs is more than any node has: ask for {GPUS_MAX} or less")
    return int(milli)


def parse_bytes(text: str) -> int:
    """Bytes of a size: "8G", "8Gi" and "8GiB" are 8 x 2**30, "8GB" is 8 x 10**9; "1.5g" is allowed.

    A number without a unit is bytes. One that is too small for that is refused with what was probably meant.
    """
    clean = text.strip()
    number = clean.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    value = _decimal(number.strip())
    factor = _SUFFIXES.get(clean[len(number) :].lower())
    if value is None or factor is None:
        raise UnitError(f"{format_value(text)} is not an amount of memory: write for example 512M, 8G or 8GiB")
    size = value * factor
    if 0 < size < _BARE_MIN and clean == number:
        raise UnitError(f"{clean} has no unit, and would be bytes: write {clean}{'G' if size <= _GIB_MAX else 'M'}")
    if size.denominator != 1:
        raise UnitError(f"{clean} is not a whole number of bytes: write for example {int(size)}")
    if not 0 < size <= _BYTES_MAX:
        raise UnitError(f"{clean} is not a possible amount of memory: write for example 512M or 8G")
    return int(size)


def format_gpus(milli: int) -> str:
    """The shortest exact fraction: 500 -> "0.5", 2000 -> "2"."""
    sign = "-" if milli < 0 else ""
    whole, rest = divmod(abs(milli), MILLI_PER_DEVICE)
    return f"{sign}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")


def format_bytes(size_bytes: int) -> str:
    """Binary units with at most one decimal: 8589934592 -> "8GiB". For display: not always exact."""
    value, unit = abs(size_bytes), "B"
    for factor, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= factor:
            tenths = (value * 10 + factor // 2) // factor
            unit, text = name, f"{tenths // 10}" + (f".{tenths % 10}" if tenths % 10 else "")
            break
    else:
        text = str(value)
    return ("-" if size_bytes < 0 else "") + text + unit


def finite(value: Any) -> Any:
    """The same value, lists and tables of values, with None for what JSON cannot express: infinities and NaN."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
