"""The rate of a run, from sums, rates and lines of output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.tune.progress import ENTRIES_MAX, PatternError, Progress, RatePattern

SUMS = r'"samples": (?P<samples>\d+), "seconds": (?P<seconds>[\d.]+)'


def progress_of(sums: list[tuple[float, float]]) -> Progress:
    made = Progress()
    for entry in sums:
        made.add_sum(*entry)
    return made


@given(st.floats(0.1, 1e5), st.floats(0.1, 10), st.integers(2, 50), st.floats(0, 1e4))
def test_a_steady_rate_is_found(rate: float, step_s: float, count: int, begin_s: float) -> None:
    made = progress_of([(begin_s + step_s * i, rate * step_s * i) for i in range(count)])
    assert made.rate() == pytest.approx(rate, rel=1e-6)
    assert made.elapsed_s == pytest.approx(step_s * (count - 1), rel=1e-6)


def test_slow_first_steps_are_left_out() -> None:
    made = progress_of([(0, 0), (4, 1), (5, 11), (6, 21), (8, 41)])
    assert made.rate() == 10


def test_one_entry_is_no_rate() -> None:
    assert Progress().rate() == progress_of([(3, 100)]).rate() == progress_of([(3, 100), (3, 200)]).rate() == 0


def test_a_count_that_begins_again_is_a_new_one() -> None:
    made = progress_of([(0, 0), (10, 1000), (11, 0), (12, 50), (13, 100)])
    assert (made.rate(), made.elapsed_s) == (50, 2)


def test_rates_that_a_program_prints_are_its_median() -> None:
    made, pattern = Progress(), RatePattern(r"([\d,.]+) img/s")
    for at_s, line in enumerate(("10 img/s", "loss 3", "1,000.5 img/s", "900 img/s", "1,100 img/s")):
        pattern.read(line, float(at_s), made)
    assert (made.rate(), made.elapsed_s) == (1000.5, 4)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("([0-9.]+) samples/s", "3,214.0 samples/s"),
        ("(?P<rate>[0-9.]+) samples/s", "at 12_345_678 samples/s"),
        (".*?([0-9]+) img/s", "rate 1,000 img/s"),
        ("rate: ([0-9.]+)", "rate: 3,214.0"),
        ("(?P<samples>[0-9]+) samples in (?P<seconds>[0-9]+)", "51,200 samples in 7 s"),
    ],
)
def test_a_part_of_a_number_is_refused(pattern: str, line: str) -> None:
    made = Progress()
    with pytest.raises(PatternError, match=r"takes only .* of a number with separators: write \[0-9\.,_\]\+"):
        RatePattern(pattern).read(line, 1.0, made)
    assert made.is_empty


@pytest.mark.parametrize(
    ("pattern", "line", "rate"),
    [
        ("([0-9.,]+) samples/s", "3,214.0 samples/s", 3214.0),
        ("^[0-9]+,([0-9.]+)$", "7,214.0", 214.0),  # columns: the pattern has their comma
        ("^([0-9.]+),", "31,400", 31.0),
        ("([0-9.]+) img/s", "step 5, 214 img/s", 214.0),
        ("([0-9.]+) img/s", "5,21 img/s", 21.0),
    ],
)
def test_whole_numbers_and_columns_are_read(pattern: str, line: str, rate: float) -> None:
    made = Progress()
    assert RatePattern(pattern).read(line, 1.0, made)
    assert made.rate() == rate


def test_samples_and_seconds_are_both_so_far() -> None:
    made, pattern = Progress(), RatePattern(SUMS)
    assert not pattern.read('{"event": "start"}', 0, made)
    for samples, seconds in ((256, 0.5), (512, 1.0), (1024, 2.0)):
        assert pattern.read(f'{{"samples": {samples}, "seconds": {seconds}}}', 7, made)
    assert made.rate() == 512


@pytest.mark.parametrize(
    "text", ["(", "no group", "(a)(b)", "(?P<samples>a)", "(?P<other>a)", "a" * 3 + "{99999999999}"]
)
def test_a_pattern_without_a_rate_is_refused(text: str) -> None:
    with pytest.raises(PatternError, match=r"\S"):
        RatePattern(text)


@pytest.mark.parametrize("line", ["rate - ", "rate nan", "rate -5", "rate 1e999", "x" * 100_000])
def test_lines_without_a_number_are_no_progress(line: str) -> None:
    made = Progress()
    assert not RatePattern(r"rate (\S*)").read(line, 1.0, made)
    assert made.is_empty


def test_a_program_that_prints_without_end_takes_little_memory() -> None:
    made = Progress()
    for number in range(3 * ENTRIES_MAX):
        made.add_sum(float(number), 2.0 * number)
        made.add_rate(float(number), 2.0)
    assert len(made.sums) <= ENTRIES_MAX and len(made.rates) <= ENTRIES_MAX
    assert made.rate() == 2 and made.elapsed_s == 3 * ENTRIES_MAX - 1


def test_next_to_nothing_is_no_rate() -> None:
    assert progress_of([(0, 0), (1e30, 1e-3)]).rate() == 0
