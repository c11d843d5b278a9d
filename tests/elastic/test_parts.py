"""How a batch is divided: nothing is lost, nothing is done twice, whichever workers are there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vgpud.elastic.parts import places, share

counts = st.integers(1, 100)


@given(st.integers(1, 10_000), counts)
def test_shares_are_the_whole_batch_in_order(batch: int, workers: int) -> None:
    at = 0
    for rank in range(workers):
        first, count = share(batch, workers, rank)
        assert first == at and count in (batch // workers, batch // workers + 1)
        at += count
    assert at == batch


@given(st.integers(0, 10_000), st.integers(0, 500), counts)
def test_every_sample_has_its_place(begin: int, count: int, size: int) -> None:
    found = places(range(begin, begin + count), size)
    assert [epoch * size + at for epoch, at in found] == list(range(begin, begin + count))
    assert all(0 <= at < size for _, at in found)
