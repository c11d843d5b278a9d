"""Times of Slurm's programs, and what a comment says."""

from __future__ import annotations

import pytest

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS
from vgpud.slurm import comment


@pytest.mark.parametrize(
    ("text", "seconds"), [("UNLIMITED", 0), ("30:00", 1800), ("1:00:00", 3600), ("2-00:00:01", 172_801), ("soon", 0)]
)
def test_spans(text: str, seconds: int) -> None:
    assert comment.span_ns(text) == seconds * SECOND_NS


def test_a_span_beyond_all_time() -> None:
    assert comment.span_ns(f"{10**12}-00:00:00") == NEVER_NS - 1


@pytest.mark.parametrize(
    ("given_ns", "text"),
    [(1, "0-00:00:01"), (90 * SECOND_NS, "0-00:01:30"), (26 * 3600 * SECOND_NS + 1, "1-02:00:01")],
)
def test_a_span_as_text(given_ns: int, text: str) -> None:
    assert comment.span_text(given_ns) == text
    assert 0 <= comment.span_ns(text) - given_ns < SECOND_NS


def test_comments() -> None:
    found = comment.parse_comment("vgpu: model=vgg16 skew=0.75 duration=2h")
    assert found == {"model": "vgg16", "skew": "0.75", "duration": "2h"}
    assert comment.parse_comment("my vgpu model=x") == comment.parse_comment("") == {}


def test_numbers_of_comments() -> None:
    assert [comment.parse_duration_ns(text) for text in ("2h", "1.5m", "-1h", "2", "")] == [
        7200 * SECOND_NS,
        90 * SECOND_NS,
        0,
        0,
        0,
    ]
    assert [comment.parse_skew_ppm(text) for text in (".75", "1", "1.0", "0", "2", "much", ".5.0", "0.5.")] == [
        750_000,
        *(1_000_000, 1_000_000, 0),
        *[-1] * 4,
    ]


def test_numbers_beyond_all_bounds() -> None:
    assert comment.span_ns("9" * 5000 + ":00") == comment.parse_duration_ns("9" * 5000 + "s") == 0
