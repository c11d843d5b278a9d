"""Texts for people: durations and device time."""

from __future__ import annotations

import pytest

from vgpud.view.text import duration, natural_key


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.4, "0s"),
        (59.4, "59s"),
        (59.7, "1m"),
        (89, "1m"),
        (90, "2m"),
        (3_540, "59m"),
        (3_580, "1h"),
        (7_140, "2h"),  # 1 h 59 min was "1h"
        (84_500, "23h"),
        (86_000, "1d"),
        (86_400 * 2 - 60, "2d"),
    ],
)
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_longer_duration_never_reads_as_a_shorter_one() -> None:
    sizes = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    said = [duration(seconds / 2) for seconds in range(400_000)]
    values = [int(text[:-1]) * sizes[text[-1]] for text in said]
    assert values == sorted(values)
    off = max(abs(value - seconds / 2) / (seconds / 2) for seconds, value in enumerate(values) if seconds > 3)
    assert off <= 0.34, "three halves are shown as two"


def test_numbers_in_names_count_as_numbers() -> None:
    names = ["j-10", "b", "j-2", "run-1a", "j-1", "1", "j-2-10", "j-2-9", "run-01a", ""]
    assert sorted(names, key=natural_key) == [
        "",
        "1",
        "b",
        "j-1",
        "j-2",
        "j-2-9",
        "j-2-10",
        "j-10",
        "run-01a",
        "run-1a",
    ]
