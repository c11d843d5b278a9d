"""Spans of time as text: 2h30m, 45s."""

from __future__ import annotations

import re

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPAN = re.compile(r"(?:(\d{1,9}(?:\.\d{1,9})?)([wdhms]))")
_NS = 1_000_000_000


def parse_span(text: str) -> int:
    """ns of a time: "2h30m", "45s", "1.5d"; a bare number is seconds. Raises ValueError, one line with the remedy."""
    clean = text.strip().lower()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", clean):
        clean += "s"
    parts = _SPAN.findall(clean)
    units = [unit for _, unit in parts]
    ordered = sorted(set(units), key=list(_UNITS_S).index)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != clean or units != ordered:
        raise ValueError(f"{text!r} is not a time: write for example 90s, 45m, 2h30m or 7d")
    total_ns = 0
    for number, unit in parts:
        whole, _, rest = number.partition(".")
        total_ns += (int(whole) * 10**9 + int(rest.ljust(9, "0") or 0)) * _UNITS_S[unit]
    return total_ns


def format_span(span_ns: int) -> str:
    """A time exactly, as parse_span() takes it: 2h30m, 45s."""
    seconds, rest_ns = divmod(span_ns, _NS)
    text = ""
    for unit in "dhm":
        count, seconds = divmod(seconds, _UNITS_S[unit])
        text += f"{count}{unit}" if count else ""
    if rest_ns:
        return f"{text}{seconds}.{rest_ns:09d}".rstrip("0") + "s"
    return f"{text}{seconds}s" if seconds or not text else text
