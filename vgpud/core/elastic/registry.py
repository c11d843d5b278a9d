"""Heuristics by the names that users write: make("efficiency(0.1)"). One table, printed by --help as well."""

from __future__ import annotations

from fractions import Fraction

from vgpud.core.elastic import utility
from vgpud.core.elastic.heuristics import Efficiency, Fixed, Heuristic
from vgpud.core.elastic.search import Search
from vgpud.core.named import Arguments, Choice, InvalidSpec, make_of

DEFAULT = "efficiency(0.1)"
#: of the paper
DEFAULT_THRESHOLD = Fraction(1, 10)
DEFAULT_PRICE = Fraction(1)


def _efficiency(name: str, arguments: Arguments) -> Heuristic:
    threshold, *others = arguments.numbers or [DEFAULT_THRESHOLD]
    if others or threshold >= 1:
        raise InvalidSpec(f"{name}: give one number below 1, where 1 is perfect scaling: write for example {DEFAULT}")
    return Search(Efficiency(name, threshold))


def _make_fixed(name: str, arguments: Arguments) -> Heuristic:
    if len(arguments.numbers) != 1 or arguments.numbers[0].denominator != 1 or arguments.numbers[0] < 1:
        raise InvalidSpec(f"{name}: give one whole number of workers, 1 or more: write for example fixed(4)")
    return Fixed(name, int(arguments.numbers[0]))


def _utility(name: str, arguments: Arguments) -> Heuristic:
    numbers, words, named = arguments.numbers, arguments.words, arguments.named_numbers
    samples = named.get("samples", Fraction(0))
    if samples < 1:
        raise InvalidSpec(f"{name}: say how many samples there are to do in all: write for example samples=5000000")
    if words == {"linear"} and len(numbers) == 2:
        curve = utility.linear(*numbers)
    elif words == {"steps"} and numbers and len(numbers) % 2 == 0:
        levels = tuple(zip(numbers[::2], numbers[1::2], strict=True))
        worths, hours = numbers[::2], numbers[1::2]
        if worths != sorted(set(worths), reverse=True) or hours != sorted(set(hours)):
            raise InvalidSpec(
                f"{name}: utility must not rise with time: give worths that fall and hours that rise, 100,1,50,4"
            )
        curve = utility.steps(levels)
    else:
        raise InvalidSpec(
            f"{name}: write utility(linear,100,0.5,samples=N) for 0.5 less with each hour, or "
            "utility(steps,100,1,50,4,samples=N) for 100 within 1 hour, 50 within 4"
        )
    return Search(utility.Utility(name, curve, int(samples), named.get("price", DEFAULT_PRICE)))


CHOICES: dict[str, Choice[Heuristic]] = {
    "efficiency": Choice(
        "workers are added while each brings more than this part of what one brought before (default 0.1)",
        _efficiency,
        numbers="a part below 1",
    ),
    "utility": Choice(
        "workers are added while an earlier end is worth more than they cost (price of a worker's hour, default 1)",
        _utility,
        numbers="worth and loss per hour (linear), or worths and hours (steps), never rising with time",
        parameter_names=("samples", "price"),
        words=("linear", "steps"),
    ),
    "fixed": Choice(
        "this number of workers, as soon as capacity is free", _make_fixed, numbers="a whole number of workers"
    ),
}

#: name -> its line, for --help
NAMES = {name: choice.line for name, choice in CHOICES.items()}


def make(text: str) -> Heuristic:
    """The heuristic that is meant, the default for ""; InvalidSpec when none is."""
    return make_of("heuristic", CHOICES, text or DEFAULT)


def check(text: str) -> str:
    """Why it cannot be used, in one line; "" = it can."""
    try:
        make(text)
    except InvalidSpec as refusal:
        return str(refusal)
    return ""
