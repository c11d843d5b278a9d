"""The order against a sorted list: every question has the same answer, however jobs come, go and move."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.core import order
from vgpud.core.order import Entry, Order

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "remove", "rekey"]), st.integers(0, 30), st.integers(0, 9)),
    max_size=120,
)


@pytest.mark.parametrize("length", [2, 5, 256])
def test_every_answer_is_that_of_a_sorted_list(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "BLOCK", length)

    @settings(max_examples=examples(150), deadline=None)
    @given(OPERATIONS, st.integers(0, 31), st.integers(0, 30))
    def same(operations: list[tuple[str, int, int]], skip: int, key: int) -> None:
        tested = Order()
        plain: dict[int, tuple[Entry, int, int]] = {}
        for what, job_id, number in operations:
            if what == "add" and job_id not in plain:
                bit, weight = 1 << job_id % 5, number + 1
                tested.add(job_id, (number,), bit, weight)
                plain[job_id] = (((number,), job_id), bit, weight)
            elif what == "remove" and job_id in plain:
                tested.remove(job_id)
                del plain[job_id]
            elif what == "rekey":
                keys = {j: (-entry[0][0] * number,) for j, (entry, _, _) in plain.items()}
                tested.rekey(keys.items())
                plain = {j: ((keys[j], j), bit, weight) for j, (_, bit, weight) in plain.items()}
        entries = sorted(plain.values())
        assert list(tested) == [entry[1] for entry, _, _ in entries]
        assert len(tested) == len(plain) and tested.weight == sum(weight for _, _, weight in entries)
        point = ((key % 10,), key)
        left = [entry for entry, bit, _ in entries if not bit & skip]
        assert tested.next(None, skip) == (left[0] if left else None)
        assert tested.next(point, skip) == next((entry for entry in left if entry > point), None)
        assert tested.find_last(None) == (entries[-1][0] if entries else None)
        assert tested.find_last(point) == max((entry for entry, _, _ in entries if entry < point), default=None)
        assert tested.weight_after(point) == sum(weight for entry, _, weight in entries if entry > point)
        for rank, (entry, bit, _) in enumerate(entries):
            assert tested.rank(entry[1]) == rank and tested.bit(entry[1]) == bit and entry[1] in tested

    same()
