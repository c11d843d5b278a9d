"""The placement rules by name, as queues and commands write them: "fgd", "colocate(120,2)"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from vgpud.core.colocate.pairs import Pairs
from vgpud.core.jobs.model import Node
from vgpud.core.named import Arguments, Choice, InvalidSpec, make_of
from vgpud.core.placement.base import Rule
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.colocate import DEFAULT_JOBS, DEFAULT_PERCENT, JOBS_MAX, PERCENT_MAX, Colocate
from vgpud.core.placement.fgd import PLAIN_MIX, Fgd, Mix
from vgpud.core.placement.model_demand import sum_model_demand
from vgpud.core.placement.throughput import DEFAULT_LOSS_PERCENT, Throughput
from vgpud.core.placement.tiresias import Tiresias
from vgpud.core.placement.worst_fit import WorstFit

#: made from the rule for ties, the mix, the pairs that slow each other down, and the cluster's nodes
Made = Callable[[Rule, Mix, Pairs, Sequence[Node]], Rule]


def _colocate(name: str, arguments: Arguments) -> Made:
    numbers = arguments.numbers + [Fraction(DEFAULT_PERCENT), Fraction(DEFAULT_JOBS)][len(arguments.numbers) :]
    if len(numbers) > 2 or any(number.denominator != 1 for number in numbers):
        raise InvalidSpec(f"{name}: it takes two whole numbers: write for example colocate(120,2)")
    percent, jobs = (int(number) for number in numbers)
    if not 1 <= percent <= PERCENT_MAX:
        raise InvalidSpec(f"{name}: {percent} % of a device is out of range: write 1 to {PERCENT_MAX}, for example 120")
    if not 1 <= jobs <= JOBS_MAX:
        raise InvalidSpec(f"{name}: {jobs} jobs on a device is out of range: write 1 to {JOBS_MAX}, for example 2")
    return lambda ties, mix, pairs, nodes: Colocate(ties, pairs, percent, jobs)


def _throughput(name: str, arguments: Arguments) -> Made:
    numbers = arguments.numbers or [Fraction(DEFAULT_LOSS_PERCENT)]
    if len(numbers) > 1 or not 0 <= numbers[0] <= 100:
        raise InvalidSpec(f"{name}: it takes one number from 0 to 100: write for example throughput(20)")
    return lambda ties, mix, pairs, nodes: Throughput(ties, numbers[0])


CHOICES: dict[str, Choice[Made]] = {
    "best-fit": Choice(
        "the fullest node and device that fit, so that empty ones stay whole",
        lambda name, arguments: lambda ties, mix, pairs, nodes: ties,
    ),
    "worst-fit": Choice(
        "the emptiest, so that jobs disturb one another least",
        lambda name, arguments: lambda ties, mix, pairs, nodes: WorstFit(),
    ),
    "fgd": Choice(
        "where the smallest amount of idle GPU becomes unusable for the most frequent jobs"
        " (fragmentation gradient descent)",
        lambda name, arguments: lambda ties, mix, pairs, nodes: Fgd(ties, mix, sum_model_demand(mix, nodes)),
    ),
    "tiresias": Choice(
        "best fit; gangs with strongly skewed traffic (--skew) on as few nodes as possible",
        lambda name, arguments: lambda ties, mix, pairs, nodes: Tiresias(ties),
    ),
    "throughput": Choice(
        "on the GPU model where the job is fastest; throughput(20): a slower one where it loses up to 20 %",
        _throughput,
        numbers="% of its speed that a job may lose",
    ),
    "colocate": Choice(
        "jobs share a device by what they use of it: colocate(120,2) is up to 120 % together, up to 2 jobs",
        _colocate,
        numbers="% of a device, jobs on it",
    ),
}

#: name -> its line, for --help
NAMES = {name: choice.line for name, choice in CHOICES.items()}


def make(
    text: str, spread: bool = False, mix: Mix = PLAIN_MIX, pairs: Pairs | None = None, nodes: Sequence[Node] = ()
) -> Rule:
    """The rule of that name, for one cluster. Raises InvalidSpec, a ValueError of one line that lists the rules.

    `spread`: among nodes and devices that the rule ranks equal, the emptiest instead of the fullest. Best fit ranks
    none equal, so that it becomes worst fit. `mix` (fgd.mix_of): the jobs by which fragmentation is measured. `pairs`:
    similarity classes that are not to share a device. `nodes`: those of the cluster, of which `fgd` knows how many GPUs
    there are of a model; none: it is as published.
    """
    ties: Rule = WorstFit() if spread else BestFit()
    return make_of("placement", CHOICES, text)(ties, mix, pairs or Pairs(), nodes)
