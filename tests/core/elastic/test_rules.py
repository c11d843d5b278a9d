"""Rules and heuristics by name: scaling efficiency, utility against cost, a fixed number."""

from __future__ import annotations

from fractions import Fraction

import pytest

from benchmarks.predict.scaling import Curve, optimum
from tests.core.elastic.world import Program
from vgpud.core.elastic import registry, utility
from vgpud.core.elastic.heuristics import Outlook, efficiency
from vgpud.core.elastic.measures import Point
from vgpud.core.elastic.search import Search
from vgpud.core.elastic.utility import Utility
from vgpud.core.named import InvalidSpec

MICRO = 10**6


@pytest.mark.parametrize(
    ("old", "new", "expected_efficiency"),
    [
        ((4, 400), (5, 480), Fraction(4, 5)),  # of the founding slides
        ((16, 2200), (32, 4000), Fraction(9, 11)),
        ((32, 4000), (64, 5000), Fraction(1, 4)),
        ((1, 100), (2, 200), Fraction(1)),
        ((1, 100), (5, 100), Fraction(0)),
        ((8, 800), (9, 700), Fraction(-1)),
    ],
)
def test_scaling_efficiency(old: tuple[int, int], new: tuple[int, int], expected_efficiency: Fraction) -> None:
    assert efficiency(Point(*old), Point(*new)) == expected_efficiency


def test_utility_against_cost_by_hand() -> None:
    """3600 samples are left: 1 h with one worker at 1/s, 40 min with two at 1.5/s. Cost 1 against 4/3."""
    cheap, dear = Point(1, MICRO), Point(2, 3 * MICRO // 2)
    for loss, worth_it in ((Fraction(99, 100), False), (Fraction(101, 100), True)):
        rule = Utility("u", utility.linear(Fraction(100), loss), 3600, Fraction(1))
        assert rule.passes(cheap, dear, Outlook()) is worth_it
    free = Utility("u", utility.linear(Fraction(100), Fraction(1, 100)), 3600, Fraction(0))
    assert free.passes(cheap, dear, Outlook())


def test_steps_of_utility() -> None:
    """Half an hour late is worth nothing: the second worker makes it just in time. Later even that does not help."""
    rule = Utility("u", utility.steps(((Fraction(100), Fraction(3, 4)),)), 3600, Fraction(1))
    one, two = Point(1, MICRO), Point(2, 3 * MICRO // 2)
    assert rule.passes(one, two, Outlook())
    assert not rule.passes(one, two, Outlook(elapsed_ns=600 * 10**9))
    assert rule.passes(one, two, Outlook(elapsed_ns=600 * 10**9, done=900))
    assert not rule.passes(one, two, Outlook(done=3600))  # nothing is left to be quicker at


def test_a_dear_hour_means_fewer_workers() -> None:
    curve = Curve("Amdahl", lambda k: 100 / (0.05 + 0.95 / k), 32)
    sizes = []
    for price in (1, 5, 20, 100):
        made = registry.make(f"utility(linear,1000,100,samples=10000000,price={price})")
        assert isinstance(made, Search)
        sizes.append(optimum(curve, made._rule))
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 5 > sizes[-1]


def test_a_job_settles_by_its_utility() -> None:
    heuristic = "utility(linear,1000,100,samples=10000000000000,price=20)"
    curve = [0, *(round(100_000 / (0.05 + 0.95 / k)) for k in range(1, 17))]
    assert Program(1, 16, heuristic).settle(curve) == 10
    assert Program(1, 16).settle(curve) == 16


def test_fixed_is_targeted_at_once() -> None:
    program = Program(1, 8, "fixed(4)")
    target = program.scaler.take_new_target(0)
    assert target and (target.members, target.why) == (4, "its user asked for 4 workers")
    over = Program(1, 8, "fixed(100)").scaler.take_new_target(0)
    assert over and over.members == 8


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_name_has_its_line(name: str) -> None:
    assert registry.NAMES[name] and "\n" not in registry.NAMES[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", registry.DEFAULT),
        ("efficiency", "efficiency"),
        (" efficiency(0.25) ", "efficiency(0.25)"),
        ("fixed(4)", "fixed(4)"),
        ("utility(linear,100,0.5,samples=5000000)", "utility(linear,100,0.5,samples=5000000)"),
        ("utility(steps,100,1,50,4,samples=5000000,price=2)", "utility(steps,100,1,50,4,samples=5000000,price=2)"),
    ],
)
def test_parameters_are_kept_in_the_name(text: str, name: str) -> None:
    assert registry.make(text).name == name and registry.check(text) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tea", "there is no heuristic 'tea': choose one of efficiency, utility, fixed"),
        ("efficiency(0.1", "no closing bracket"),
        ("efficiency(1)", "give one number below 1"),
        ("efficiency(0.1,0.2)", "give one number below 1"),
        ("efficiency(-0.1)", "does not take '-0.1'"),
        ("fixed", "one whole number of workers"),
        ("fixed(0)", "one whole number of workers"),
        ("fixed(2.5)", "one whole number of workers"),
        ("utility(linear,100,0.5)", "samples=5000000"),
        ("utility(linear,100,-0.5,samples=9)", "never rising with time"),
        ("utility(steps,50,1,100,4,samples=9)", "must not rise with time"),
        ("utility(steps,100,4,50,1,samples=9)", "must not rise with time"),
        ("utility(steps,100,samples=9)", "write utility(linear,100,0.5,samples=N)"),
        ("utility(100,0.5,samples=9)", "write utility(linear,100,0.5,samples=N)"),
    ],
)
def test_what_is_invalid_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        registry.make(text)
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert registry.check(text) == str(refused.value)
