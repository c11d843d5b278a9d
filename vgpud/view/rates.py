"""Rates as text: 5,210 or 0.52."""

from __future__ import annotations

_WHOLE_FROM = 100


def format_rate(rate: float) -> str:
    """Three digits at least, thousands separated."""
    return f"{rate:,.0f}" if rate >= _WHOLE_FROM else f"{rate:.3g}"
