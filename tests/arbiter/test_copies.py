"""How slices divide the link between host and device: the model and the C code alike, and what both promise."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from models.arbiter.copies import LEAST_PART, MILLI, Copier, copy_demand, divide_link, part_of, want_of
from tests.arbiter.pair import load
from tests.examples import examples

LINK = 50_000_000  # bytes in a millisecond
many = settings(max_examples=examples(200), deadline=None)


@st.composite
def devices(draw: st.DrawFn) -> tuple[list[Copier], int]:
    """Slices whose minima fit, and the link."""
    link = draw(st.sampled_from((1, 1000, 200_000, LINK)) | st.integers(1, 1 << 40))
    left, copiers = MILLI, []
    for _ in range(draw(st.integers(1, 8))):
        low = draw(st.integers(0, left))
        left -= low
        high = draw(st.integers(max(low, 1), MILLI))
        demand = draw(st.just(link) | st.integers(0, link))
        copiers.append(Copier(low, high, draw(st.integers(1, 10_000)), demand))
    return copiers, link


@many
@given(devices())
def test_model_and_core_decide_alike(given_devices: tuple[list[Copier], int]) -> None:
    copiers, link = given_devices
    ffi, lib = load()
    same = ffi.new("struct vg_core_copier[]", [dataclasses.asdict(copier) for copier in copiers])
    divide_link(copiers, link)
    lib.vg_core_divide_link(same, len(copiers), link)
    for copier, made in zip(copiers, same, strict=True):
        assert (copier.granted_bytes_per_ms, copier.bytes_per_ms) == (made.granted_bytes_per_ms, made.bytes_per_ms)


@many
@given(st.integers(0, 1 << 50), st.booleans(), st.integers(0, 1 << 40), st.integers(1, 1 << 40))
def test_demands_are_alike(copied_bytes: int, has_delays: bool, last_bytes: int, link: int) -> None:
    _, lib = load()
    assert copy_demand(copied_bytes, has_delays, last_bytes, link) == lib.vg_core_copy_demand(
        copied_bytes, has_delays, last_bytes, link
    )


@many
@given(devices())
def test_promises(given_devices: tuple[list[Copier], int]) -> None:
    copiers, link = given_devices
    divide_link(copiers, link)
    granted = sum(copier.granted_bytes_per_ms for copier in copiers)
    asked = sum(want_of(copier, link) for copier in copiers)
    assert granted <= link
    assert granted >= min(asked, link) - len(copiers) ** 2, "work-conserving"
    for copier in copiers:
        least = min(part_of(link, copier.min_milli), want_of(copier, link))
        assert least <= copier.granted_bytes_per_ms <= want_of(copier, link)
        assert copier.bytes_per_ms <= part_of(link, copier.max_milli) + 1
        assert copier.bytes_per_ms >= min(part_of(link, copier.max_milli), link // LEAST_PART), "no starvation"


def run(copiers: list[Copier], wants: list[float], windows: int = 40) -> list[float]:
    """Parts of the link after some windows, in which each copies what it may of what it wants (in parts of the link).
    More than the link has is divided as the hardware does it, equally."""
    used = [0.0] * len(copiers)
    for _ in range(windows):
        for copier, parts, want in zip(copiers, used, wants, strict=True):
            before = copier.demand_bytes_per_ms
            copier.demand_bytes_per_ms = copy_demand(int(parts * LINK), want > parts + 0.001, before, LINK)
        divide_link(copiers, LINK)
        used = [min(copier.bytes_per_ms / LINK, want) for copier, want in zip(copiers, wants, strict=True)]
        over = sum(used)
        used = [parts / over for parts in used] if over > 1 else used
    return used


def test_slices_that_want_everything_have_their_parts() -> None:
    shares = run([Copier(300, MILLI, 1, 0), Copier(0, MILLI, 1, 0)], [1, 1])
    assert [round(share, 2) for share in shares] == [0.65, 0.35]
    shares = run([Copier(0, 300, 1, 0), Copier(0, MILLI, 1, 0)], [1, 1])
    assert [round(share, 2) for share in shares] == [0.3, 0.7]
    shares = run([Copier(0, 300, 1, 0), Copier(600, MILLI, 1, 0)], [1, 1])
    assert [round(share, 2) for share in shares] == [0.2, 0.8], "the minimum first, then equal parts of the rest"


def test_a_minimum_is_there_when_it_is_wanted() -> None:
    shares = run([Copier(300, MILLI, 1, 0), *(Copier(0, MILLI, 1, 0) for _ in range(5))], [0.3, *[1.0] * 5])
    assert abs(shares[0] - 0.3) < 0.02 and all(abs(share - 0.14) < 0.02 for share in shares[1:])


def test_a_page_that_claims_delays_and_copies_nothing_keeps_little_from_others() -> None:
    copiers = [Copier(0, MILLI, 1, copy_demand(0, True, 0, LINK)), Copier(0, MILLI, 1, LINK)]
    divide_link(copiers, LINK)
    assert copiers[1].granted_bytes_per_ms >= LINK * (LEAST_PART - 1) // LEAST_PART - 1
