"""How much random input the tests try: `quick` at each change, always the same; `nightly` all they were written for
(pytest --hypothesis-profile=nightly).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from hypothesis import settings

QUICK = 25

settings.register_profile("quick", max_examples=QUICK, derandomize=True, deadline=None)
settings.register_profile("nightly", deadline=None)
settings.load_profile("quick")


def is_nightly() -> bool:
    """Also when a test module is imported: hypothesis chooses the profile before anything is collected."""
    return settings().max_examples > QUICK


def examples(nightly_count: int) -> int:
    """max_examples of a test that needs more or fewer than others."""
    return nightly_count if is_nightly() else min(nightly_count, QUICK)


def combine_axes(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Cases of a test with several parameters: every value of each at least once, and `nightly` all combinations."""
    if is_nightly():
        return list(product(*axes))
    return [tuple(axis[n % len(axis)] for axis in axes) for n in range(max(map(len, axes)))]
