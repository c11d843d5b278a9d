"""The placement rules by name, as queues and commands write them."""

from __future__ import annotations

from vgpud.core.placement.base import Rule
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.fgd import PLAIN_MIX, Fgd, Mix
from vgpud.core.placement.tiresias import Tiresias
from vgpud.core.placement.worst_fit import WorstFit

#: name -> one line for those who choose
NAMES = {
    "best-fit": "the fullest node and device that fit, so that empty ones stay whole",
    "worst-fit": "the emptiest, so that jobs disturb one another least",
    "fgd": "where the least idle GPU becomes useless to the jobs that come most (fragmentation gradient descent)",
    "tiresias": "best fit; gangs with much skewed traffic (--skew) on as few nodes as have room",
}


def make(name: str, spread: bool = False, mix: Mix = PLAIN_MIX) -> Rule:
    """The rule of that name, for one cluster. Raises ValueError, one line that says what there is.

    `spread`: between nodes and devices that the rule holds equal, the emptiest and not the fullest. Best fit holds none
    equal, so that it becomes worst fit. `mix` (fgd.mix_of): the jobs that fragmentation is measured by.
    """
    ties: Rule = WorstFit() if spread else BestFit()
    if name == "best-fit":
        return ties
    if name == "worst-fit":
        return WorstFit()
    if name == "fgd":
        return Fgd(ties, mix)
    if name == "tiresias":
        return Tiresias(ties)
    raise ValueError(f"no placement {name!r}: write {', '.join(NAMES)}")
