"""The placement rules by name, as queues and commands write them."""

from __future__ import annotations

from vgpud.core.placement.base import Rule
from vgpud.core.placement.best_fit import BestFit

NAMES = ("best-fit",)


def make(name: str) -> Rule:
    """The rule of that name. Raises ValueError, one line that says what there is."""
    if name == "best-fit":
        return BestFit()
    raise ValueError(f"no placement {name!r}: write {', '.join(NAMES)}")
