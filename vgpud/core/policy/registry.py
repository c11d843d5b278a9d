"""Policies by the names that users write: make("2d-las(3250,7200,promote=8)"). One table, printed by --help as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.named import Arguments, Choice, InvalidSpec, make_of
from vgpud.core.policy.base import Policy
from vgpud.core.policy.fair import Fair
from vgpud.core.policy.fifo import Fifo
from vgpud.core.policy.finish_time import FinishTimeFairness
from vgpud.core.policy.gittins import Gittins
from vgpud.core.policy.las import ContinuousLas, Las
from vgpud.core.policy.learnt_gittins import LearntGittins
from vgpud.core.policy.priority import Priority
from vgpud.core.policy.remaining import ShortestRemaining

PolicyError = InvalidSpec


def _las(name: str, arguments: Arguments, *, by_width: bool) -> Policy:
    named, words = arguments.named_numbers, arguments.words
    if "every" in named:
        if arguments.numbers or set(named) > {"every"} or words > {"keep"} or named["every"] < LEAST_S:
            raise PolicyError(
                f"{name}: every=SECONDS, 1 or more, is 2D-LAS without levels: only keep may be added to it"
            )
        return ContinuousLas(name, by_width=by_width, every_s=named["every"], keep="keep" in words)
    if "keep" in words:
        raise PolicyError(f"{name}: keep needs every=SECONDS; with levels, running jobs are kept anyway")
    thresholds = tuple(arguments.numbers) or DEFAULT_THRESHOLDS
    if list(thresholds) != sorted(set(thresholds)) or thresholds[0] * SECOND_NS < 1:
        raise PolicyError(f"{name}: thresholds must rise, from above 0: write for example 3250,7200")
    return Las(
        name,
        by_width=by_width,
        thresholds=thresholds,
        narrow="narrow" in words,
        promote=named.get("promote", Fraction(0)),
        quantum_s=named.get("quantum", DEFAULT_QUANTUM_S),
    )


def _gittins(name: str, arguments: Arguments, *, by_width: bool) -> Policy:
    if arguments.numbers and max(arguments.numbers) * SECOND_NS < 1:
        raise PolicyError(f"{name}: none of the jobs in the table needed anything: write what they needed in seconds")
    if not arguments.numbers:
        return LearntGittins(name, by_width=by_width)
    return Gittins(name, by_width=by_width, table=arguments.numbers)


def _finish_time(name: str, arguments: Arguments) -> Policy:
    lease_s = arguments.named_numbers.get("lease", DEFAULT_LEASE_S)
    if lease_s < LEAST_S:
        raise PolicyError(f"{name}: leases are checked when they end: write 1 second or more, for example lease=1200")
    return FinishTimeFairness(name, lease_s=lease_s)


def _fair(name: str, arguments: Arguments) -> Policy:
    if not all(arguments.weights.values()):
        raise PolicyError(f"{name}: a weight of 0 is never served: write for example 1000=0.5")
    return Fair(
        name,
        memory_gib=arguments.named_numbers.get("memory", Fraction(0)),
        half_life_h=arguments.named_numbers.get("half-life", Fraction(0)),
        weights=arguments.weights,
    )


#: the order of queues that are created without one
NEW_QUEUE = "2d-gittins"
#: the defaults of Tiresias' simulator
DEFAULT_THRESHOLDS = (Fraction(3250), Fraction(7200))
DEFAULT_QUANTUM_S = Fraction(14400)
#: the default of Themis
DEFAULT_LEASE_S = Fraction(1200)
#: least period of repeated work: the daemon does nothing else meanwhile
LEAST_S = Fraction(1)

CHOICES: dict[str, Choice[Policy]] = {
    "fifo": Choice(
        "first in, first out; a job that fits overtakes, unless strict; no job is preempted",
        lambda name, arguments: Fifo(),
    ),
    "priority": Choice(
        "highest priority first, then first in, first out; with the word preempt it preempts lower ones",
        lambda name, arguments: Priority(name, preempts="preempt" in arguments.words),
        words=("preempt",),
    ),
    "srtf": Choice(
        "shortest remaining time first, by the durations that users give; jobs without one come last",
        lambda name, arguments: ShortestRemaining(name, by_width=False),
    ),
    "srsf": Choice(
        "shortest remaining service first: the same with GPUs x time",
        lambda name, arguments: ShortestRemaining(name, by_width=True),
    ),
    "las": Choice(
        "least attained service in time only: short jobs first, wide or narrow, without estimates",
        lambda name, arguments: _las(name, arguments, by_width=False),
        numbers="thresholds in seconds",
        parameter_names=("promote", "quantum", "every"),
        words=("narrow", "keep"),
    ),
    "2d-las": Choice(
        "least attained service, GPUs x time (Tiresias): short and narrow jobs first",
        lambda name, arguments: _las(name, arguments, by_width=True),
        numbers="thresholds in GPU-seconds",
        parameter_names=("promote", "quantum", "every"),
        words=("narrow", "keep"),
    ),
    "gittins": Choice(
        "the job that is likeliest to end soon, learnt from the times of earlier jobs, without estimates",
        lambda name, arguments: _gittins(name, arguments, by_width=False),
        numbers="seconds that jobs needed, instead of learning",
        table=True,
    ),
    "2d-gittins": Choice(
        "the same, learnt from GPUs x time (Tiresias): the order of new queues",
        lambda name, arguments: _gittins(name, arguments, by_width=True),
        numbers="GPU-seconds that jobs needed, instead of learning",
        table=True,
    ),
    "fair": Choice(
        "equal shares for users, by weight, of GPUs and of memory (DRF), now and over the last days (half-life)",
        _fair,
        parameter_names=("memory", "half-life"),
        weights=True,
    ),
    "ftf": Choice(
        "least finish-time fairness (Themis): first the job that is slowed down most compared with running alone",
        _finish_time,
        parameter_names=("lease",),
    ),
}

#: name -> its line, for --help
NAMES = {name: choice.line for name, choice in CHOICES.items()}


def make(text: str, read: Callable[[str], Sequence[Fraction]] | None = None) -> Policy:
    """The policy that is meant; PolicyError when none is. `read` gives the numbers of the file that file=PATH names."""
    return make_of("policy", CHOICES, text, read)
