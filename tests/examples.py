"""How much random input the tests try: `quick` at each change, always the same; `nightly` all they were written for
(pytest --hypothesis-profile=nightly).
"""

from __future__ import annotations

from hypothesis import settings

QUICK = 25

settings.register_profile("quick", max_examples=QUICK, derandomize=True)
settings.register_profile("nightly")
settings.load_profile("quick")


def _all() -> bool:
    return settings().max_examples > QUICK


def examples(nightly: int) -> int:
    """max_examples of a test that needs more or fewer than others."""
    return nightly if _all() else min(nightly, QUICK)


def seeds(nightly: int, quick: int) -> range:
    """For a test that makes its input of seeds."""
    return range(nightly if _all() else quick)
