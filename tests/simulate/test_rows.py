"""Rows kept as columns behave as a list of tuples."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vgpud.simulate.engine import Span
from vgpud.simulate.rows import Rows

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.builds(Span, NUMBERS, NUMBERS, NUMBERS), min_size=1), st.integers(0, 50))
def test_rows_are_as_a_list(spans: list[Span], at: int) -> None:
    rows = Rows(Span._make, 3, spans[:-1])
    rows.append(spans[-1])
    assert list(rows) == spans and len(rows) == len(spans)
    assert rows[-1] == spans[-1] and rows[-1].job_id == spans[-1].job_id
    assert rows[at:] == spans[at:]
    rows[-1] = Span(1, 2, 3)
    assert list(rows) == [*spans[:-1], Span(1, 2, 3)]


def test_no_rows() -> None:
    assert not Rows(Span._make, 3) and list(Rows(Span._make, 3)) == []
