"""How much random input the tests try: `quick` at each change, always the same; `nightly` all they were written for
(pytest --hypothesis-profile=nightly).
"""

from __future__ import annotations

from hypothesis import settings

QUICK = 25

settings.register_profile("quick", max_examples=QUICK, derandomize=True, deadline=None)
settings.register_profile("nightly", deadline=None)
settings.load_profile("quick")


def examples(nightly: int) -> int:
    """max_examples of a test that needs more or fewer than others."""
    return nightly if settings().max_examples > QUICK else min(nightly, QUICK)
