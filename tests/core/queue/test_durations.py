"""Durations in sentences: at most two units, rounded."""

from __future__ import annotations

import pytest

from vgpud.core.queue.reasons import duration

S = 1_000_000_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (90, "1 min 30 s"),
        (3_599, "1 h"),
        (7_199, "2 h"),  # was "1 h 59 min"
        (7_140, "1 h 59 min"),
        (86_399, "1 d"),
        (86_400 * 2 - 60, "2 d"),  # was "1 d 23 h"
        (86_400 + 5_000, "1 d 1 h"),
    ],
)
def test_the_second_unit_is_rounded(seconds: float, text: str) -> None:
    assert duration(int(seconds * S)) == text
