"""The arithmetic of tenths: what a set of ids is worth, and which ids go together best."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.k8s.core.model import Gpu
from vgpud.k8s.core.tenths import PER_GPU, AllocationError, choose_preferred_ids, device_id, granted, list_devices

MIB = 1 << 20


def gpus(count: int = 2, memory_bytes: int = 81_558 * MIB) -> list[Gpu]:
    return [Gpu(f"GPU-{n}", n, "H100", memory_bytes, 2 * MIB) for n in range(count)]


def ids(**tenths: Collection[int]) -> list[str]:
    """ids(a=range(3), b=[1]): three tenths of GPU-0, one of GPU-1."""
    return [device_id(f"GPU-{'abcd'.index(letter)}", n) for letter, numbers in tenths.items() for n in numbers]


def counts(device_ids: Collection[str]) -> list[int]:
    on = [one.rpartition("-tenth-")[0] for one in device_ids]
    return sorted((on.count(uuid) for uuid in set(on)), reverse=True)


# ---- sizes ----


def test_memory_is_in_proportion_in_whole_granules_and_ten_tenths_fit() -> None:
    (one,) = granted(ids(a=[3]), gpus(), 0)
    assert (one.uuid, one.min_milli, one.max_milli) == ("GPU-0", 100, 100)
    assert one.mem_min_bytes == one.mem_max_bytes == 8154 * MIB
    (whole,) = granted(ids(b=range(10)), gpus(), 0)
    assert (whole.uuid, whole.min_milli, whole.mem_min_bytes) == ("GPU-1", 1000, 81_558 * MIB)


@pytest.mark.parametrize(("site_max_milli", "max_milli"), [(0, 300), (200, 300), (1000, 1000)])
def test_the_site_may_allow_more_time_than_tenths(site_max_milli: int, max_milli: int) -> None:
    (one,) = granted(ids(a=range(3)), gpus(), site_max_milli)
    assert (one.min_milli, one.max_milli) == (300, max_milli)


def test_several_gpus_are_whole_ones_and_one_part() -> None:
    shares = granted(ids(c=range(5), a=range(10), b=range(10)), gpus(3), 0)
    assert [(share.uuid, share.min_milli) for share in shares] == [("GPU-0", 1000), ("GPU-1", 1000), ("GPU-2", 500)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ids(a=range(4), b=range(3)), "0.7 GPUs are free on this node only as 0.4 + 0.3 of 2 GPUs: use fewer tenths"),
        (ids(a=range(9), b=range(9)), "1.8 GPUs are free on this node only as 0.9 + 0.9"),
        (ids(d=[0]), "has no device 'GPU-3-tenth-0'"),
        (["GPU-0-tenth-11"], "has no device 'GPU-0-tenth-11'"),
        (["nvidia0"], "has no device 'nvidia0'"),
        ([], "no device was named"),
    ],
)
def test_what_cannot_be_given_away_says_why(wrong: list[str], message: str) -> None:
    with pytest.raises(AllocationError) as caught:
        granted(wrong, gpus(), 0)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 200_000).map(lambda size: size * 2 * MIB), st.lists(st.integers(1, 10), max_size=10))
def test_the_sum_of_all_slices_never_exceeds_the_gpu(memory_bytes: int, sizes: list[int]) -> None:
    taken = [size for n, size in enumerate(sizes) if sum(sizes[: n + 1]) <= PER_GPU]
    first, total = 0, 0
    for size in taken:
        (share,) = granted(ids(a=range(first, first + size)), gpus(1, memory_bytes), 0)
        assert share.mem_min_bytes % (2 * MIB) == 0
        first, total = first + size, total + share.mem_min_bytes
    assert total <= memory_bytes


def test_a_drained_faulty_or_taken_gpu_is_not_healthy() -> None:
    for more in ({"drained": "x"}, {"fault": "x"}, {"taken_by": "x"}):
        found = [Gpu("GPU-0", 0, "H100", 1 << 30, 2 * MIB, **more), *gpus()[1:]]
        assert [healthy for _, healthy in list_devices(found)] == [False] * 10 + [True] * 10


# ---- preferred ids ----


def test_the_fullest_gpu_where_it_fits() -> None:
    assert choose_preferred_ids(ids(a=range(10), b=range(4), c=range(6)), (), 4) == tuple(ids(b=range(4)))
    assert choose_preferred_ids(ids(a=range(10), b=range(4), c=range(6)), (), 5) == tuple(ids(c=range(5)))


def test_ids_that_an_init_container_had_come_first_and_the_rest_from_their_gpu() -> None:
    assert choose_preferred_ids(ids(a=range(2, 6), b=range(10)), ids(b=[7]), 3) == tuple(ids(b=[7, 0, 1]))


def test_more_than_a_gpu_is_whole_ones_and_a_part_elsewhere() -> None:
    free = ids(a=range(10), b=range(10), c=range(7), d=range(6))
    assert counts(choose_preferred_ids(free, (), 25)) == [10, 10, 5]
    assert set(ids(d=range(5))) <= set(choose_preferred_ids(free, (), 25))
    assert counts(choose_preferred_ids(ids(a=range(10), b=range(10)), (), 15)) == [10, 5]


def test_the_gpu_with_the_part_is_chosen_so_that_the_others_can_be_whole() -> None:
    must = [*ids(a=[0, 1, 2]), *ids(b=[0, 1])]
    assert counts(choose_preferred_ids(ids(a=range(10), b=range(5), c=range(10)), must, 13)) == [10, 3]
    granted(choose_preferred_ids(ids(a=range(10), b=range(5), c=range(10)), must, 13), gpus(3), 0)


def test_what_does_not_fit_on_one_gpu_is_on_as_few_as_possible() -> None:
    assert counts(choose_preferred_ids(ids(a=range(3), b=range(4), c=range(2)), (), 7)) == [4, 3]


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_preferred_ids_are_available_and_as_many_as_asked_for_and_fit_whenever_any_do(data: st.DataObject) -> None:
    everything = ids(a=range(10), b=range(10), c=range(10))
    free = data.draw(st.lists(st.sampled_from(everything), unique=True, min_size=1))
    must = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=4))
    size = data.draw(st.integers(max(len(must), 1), len(free)))
    chosen = choose_preferred_ids(free, set(must), size)
    assert len(set(chosen)) == len(chosen) == size and set(must) <= set(chosen) <= set(free)
    fits = _fits(free, must, size)
    if fits:
        granted(chosen, gpus(3), 0)
    else:
        with pytest.raises(AllocationError):
            granted(chosen, gpus(3), 0)


def _fits(free: list[str], must: list[str], size: int) -> bool:
    """By trying all ways: which GPU has the part, and which are whole."""
    whole, rest = divmod(size, PER_GPU)
    uuids = ["GPU-0", "GPU-1", "GPU-2"]
    has = {uuid: sum(one.startswith(uuid) for one in free) for uuid in uuids}
    bound = {uuid: sum(one.startswith(uuid) for one in must) for uuid in uuids}
    for mask in range(8):
        full = [uuid for n, uuid in enumerate(uuids) if mask >> n & 1]
        if len(full) != whole or any(has[uuid] < PER_GPU for uuid in full):
            continue
        for part in [uuid for uuid in uuids if uuid not in full] if rest else [""]:
            others = [uuid for uuid in uuids if uuid not in full and uuid != part]
            if any(bound[uuid] for uuid in others):
                continue
            if not rest or bound[part] <= rest <= has[part]:
                return True
    return False
