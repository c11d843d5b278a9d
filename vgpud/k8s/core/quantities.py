"""Kubernetes quantities ("140400Mi", "1k", "500m") <-> whole numbers. Exact, no floats.

The API server writes a quantity in its shortest form, so 1000 comes back as "1k". Format: apimachinery's
resource.Quantity, a decimal number with a binary or decimal suffix, or with an exponent.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from vgpud.core.units import format_value

_NUMBER = re.compile(
    r"([+-]?[0-9]{1,20}(?:\.[0-9]{0,20})?|[+-]?\.[0-9]{1,20})"  # its digits
    r"(|[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})"  # its suffix or exponent
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
MEBIBYTE = 1 << 20


class QuantityError(ValueError):
    """The text is no quantity, or no whole number; one line that names it."""


def parse_quantity(text: object) -> int:
    """The whole number that a quantity stands for. Raises QuantityError."""
    is_short = isinstance(text, int) and not isinstance(text, bool) and abs(text) < 1 << 63
    found = _NUMBER.fullmatch(str(text)) if is_short or isinstance(text, str) else None
    if found is None:
        said = repr(text[:40]) if isinstance(text, str) else format_value(text)
        raise QuantityError(f"{said} is not a quantity: write for example 500 or 70200Mi")
    number, suffix = Fraction(found.group(1)), found.group(2)
    if suffix in _BINARY:
        value = number * (1 << _BINARY[suffix])
    elif suffix in _DECIMAL:
        value = number * Fraction(10) ** _DECIMAL[suffix]
    else:
        value = number * Fraction(10) ** int(suffix[1:])
    if value.denominator != 1:
        raise QuantityError(f"{text} is not a whole number: sm is in thousandths of a GPU (500 is half of one)")
    return int(value)


def format_memory(size_bytes: int) -> str:
    """Whole mebibytes, as published: 8589934592 -> "8192Mi". The rest of a mebibyte is left out."""
    return f"{size_bytes // MEBIBYTE}Mi"


def memory_unit_bytes(granule_bytes: int) -> int:
    """The least memory that is both whole granules, as devices have it, and whole mebibytes, as it is published."""
    return math.lcm(granule_bytes, MEBIBYTE)
