"""How many places a user finds in a table, whatever others have, and that the order decides nothing."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from vgpud.core.slices.bounds import ALL, OWN, RESERVED, which


@pytest.mark.parametrize(
    ("held", "who", "bound"),
    [
        ({}, "a", ""),
        ({"a": 511}, "a", ""),
        ({"a": 512}, "a", OWN),
        ({"a": 512}, "b", ""),
        ({"a": 512, "b": 319}, "b", ""),
        ({"a": 512, "b": 320}, "b", RESERVED),  # 480 + 288 beyond the first 32 of each: three quarters of the table
        ({"a": 512, "b": 320}, "c", ""),
        ({"a": 512, "b": 320, "c": 32}, "c", RESERVED),
        ({"a": 512, "b": 320, "c": 32, "d": 31}, "d", ""),
        ({"a": 512, "b": 512}, "c", ALL),
    ],
)
def test_which_bound(held: dict[str, int], who: str, bound: str) -> None:
    assert which(1024, 512, held, who) == bound


def test_a_site_may_give_all_to_one_user() -> None:
    assert which(1024, 1024, {"a": 1023}, "a") == ""


def test_costs_of_more_than_one_place() -> None:
    assert which(100, 50, {"a": 45}, "a", 5) == ""
    assert which(100, 50, {"a": 45}, "a", 6) == OWN
    assert which(100, 50, {"a": 50, "b": 48}, "c", 3) == ALL


def test_what_was_admitted_is_admitted_in_every_order() -> None:
    """After a restart programs come back in any order."""
    rng = random.Random(7)
    for _ in range(20):
        held: Counter[str] = Counter()
        for _ in range(400):
            who = rng.choice("aaaabbbccd")
            if not which(128, 64, held, who):
                held[who] += 1
        returning = list(held.elements())
        rng.shuffle(returning)
        back: Counter[str] = Counter()
        for who in returning:
            assert which(128, 64, back, who) == ""
            back[who] += 1
