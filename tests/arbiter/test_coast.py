"""The timetable that shims follow without a daemon: as said, for each slice by itself, and as examples."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from models.arbiter.model import GANG_LEADER, MS, SliceParams
from tests.arbiter.pair import Pair
from tests.arbiter.timetable import PERIOD_US, Spans, make_timetable


def attach_slices(*rows: tuple[int, SliceParams]) -> Pair:
    pair = Pair()
    for s in [pair.set(ident, params) for ident, params in rows]:
        s.attached = True
    pair.step(MS)
    return pair


def coast(pair: Pair) -> Spans:
    """The core's spans, of those slices that have one."""
    slots = pair.ffi.new("struct vg_coast_slot[128]")
    pair.lib.vg_core_coast(pair.core, slots)
    rows = [pair.core.slices[i] for i in range(pair.core.slice_count)]
    spans = {row.id: (slots[i].begin_us, slots[i].end_us) for i, row in enumerate(rows) if row.present}
    return {ident: span for ident, span in spans.items() if span != (0, 0)}


@st.composite
def some_params(draw: st.DrawFn) -> SliceParams:
    maximum = draw(st.integers(1, 1000))
    minimum = draw(st.integers(0, maximum))
    return SliceParams(minimum, maximum, weight=draw(st.integers(0, 5)), gang=draw(st.integers(0, 3)))


@settings(deadline=None)  # the first one compiles the core
@given(st.dictionaries(st.integers(1, 1000), some_params(), min_size=1, max_size=12), st.data())
def test_the_table_is_what_each_slice_by_itself_would_get(rows: dict[int, SliceParams], data: st.DataObject) -> None:
    pair = attach_slices(*rows.items())
    assert coast(pair) == make_timetable(rows)
    gone = data.draw(st.sampled_from(sorted(rows)))
    pair.remove(gone)
    assert coast(pair) == make_timetable({ident: params for ident, params in rows.items() if ident != gone})


def test_minima_are_given_and_never_more_than_maxima() -> None:
    pair = attach_slices((1, SliceParams(250, 250)), (2, SliceParams(500, 1000)))
    assert coast(pair) == {1: (0, 5000), 2: (5000, 20000)}


def test_gangs_come_first_then_the_order_of_ids() -> None:
    pair = attach_slices(
        (4, SliceParams(250, 250)), (2, SliceParams(250, 250)), (3, SliceParams(500, 500, gang=GANG_LEADER))
    )
    assert coast(pair) == {3: (0, 10000), 2: (10000, 15000), 4: (15000, 20000)}


def test_there_is_a_little_for_every_slice_and_never_more_than_the_whole() -> None:
    spans = coast(attach_slices((1, SliceParams(1000, 1000)), (2, SliceParams(0, 1000)), (3, SliceParams(0, 0))))
    assert len(spans) == 3 and all(b > a for a, b in spans.values()) and spans[3][1] <= PERIOD_US
    assert all(b <= c for (_, b), (c, _) in pairwise(spans[ident] for ident in (1, 2, 3)))


def test_only_who_is_attached_and_not_paused_has_a_part() -> None:
    pair = attach_slices((1, SliceParams(500, 1000)), (3, SliceParams(500, 1000, paused=True)))
    pair.set(2, SliceParams(500, 1000))
    assert coast(pair) == {1: (0, PERIOD_US)}
