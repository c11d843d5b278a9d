"""When a change of shares counts as being in force: the arithmetic of W7 on made-up device logs."""

import math

import pytest

from benchmarks.sharing.bench import Observed
from benchmarks.sharing.rows_live import Change, in_force_ms, rest_errors_pp
from vgpud.simdevice.busy_log import SECOND_NS, Span

MS = 1_000_000
CYCLE_NS = 10 * MS


def swap_run(late_ms: int, missing_share: float = 0.0) -> Observed:
    """Shares .2/.8 in turns of 10 ms, from 1 s + late_ms on .8/.2; missing_share: what the riser lacks then."""
    first, second = [], []
    for begin_ns in range(0, 2 * SECOND_NS, CYCLE_NS):
        new = begin_ns >= SECOND_NS + late_ms * MS
        cut_ns = begin_ns + int(CYCLE_NS * (0.8 - missing_share if new else 0.2))
        first.append(Span(begin_ns, cut_ns, 1))
        second.append(Span(cut_ns, begin_ns + CYCLE_NS, 2))
    return Observed(0, 2 * SECOND_NS, {"first": first, "second": second}, {}, {}, {})


CHANGES = [Change(SECOND_NS, SECOND_NS + MS, {"first": 0.8, "second": 0.2})]


@pytest.mark.parametrize("late_ms", [0, 30, 200])
def test_a_change_is_in_force_from_where_both_have_their_new_parts(late_ms: int) -> None:
    (found,) = in_force_ms(swap_run(late_ms), CHANGES)
    assert found == pytest.approx(late_ms, abs=5)


def test_a_change_that_never_comes_or_is_not_exact_is_never_in_force() -> None:
    assert in_force_ms(swap_run(1000), CHANGES) == [math.inf]
    assert in_force_ms(swap_run(0, missing_share=0.05), CHANGES) == [math.inf]


def test_what_comes_before_the_next_change_is_judged_by_this_one() -> None:
    back = Change(SECOND_NS + 500 * MS, SECOND_NS + 501 * MS, {"first": 0.2, "second": 0.8})
    assert in_force_ms(swap_run(0), [*CHANGES, back]) == [pytest.approx(0, abs=5), math.inf]
    assert rest_errors_pp(swap_run(0), [*CHANGES, back]) == [pytest.approx(0, abs=0.1), pytest.approx(60, abs=0.1)]


def test_the_rest_of_the_second_shows_what_a_lucky_window_would_hide() -> None:
    assert rest_errors_pp(swap_run(0, missing_share=0.05), CHANGES) == [pytest.approx(5, abs=0.1)]
