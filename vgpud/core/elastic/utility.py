"""Utility against cost, where the user says what an early end is worth (MLSys'20): a step is worth it if dU > dC.

C = t_k * b_remaining * k * price: what the workers cost until the end. U falls with the expected total time. Utility
and price are in one currency of the user's choice, times in hours.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from vgpud.core.elastic.heuristics import Outlook
from vgpud.core.elastic.measures import Point

HOUR_S = 3600
HOUR_NS = HOUR_S * 10**9
MICRO = 10**6

Curve = Callable[[Fraction], Fraction]


def linear(worth: Fraction, loss: Fraction) -> Curve:
    """So much less with each hour."""
    return lambda hours: worth - loss * hours


def steps(levels: tuple[tuple[Fraction, Fraction], ...]) -> Curve:
    """(worth, hours): so much if done within these; nothing after the last."""
    return lambda hours: next((worth for worth, within in levels if hours <= within), Fraction(0))


class Utility:
    """`samples`: all that there is to do; `price`: of a worker for an hour."""

    def __init__(self, name: str, curve: Curve, samples: int, price: Fraction) -> None:
        self.name = name
        self.samples = samples
        self._curve = curve
        self._price = price

    def _worth(self, point: Point, outlook: Outlook) -> tuple[Fraction, Fraction, Fraction]:
        """(U, C, hours left) of doing the rest with this many workers."""
        left = max(1, self.samples - outlook.done)  # a program that continues beyond its total declared too little
        hours = Fraction(left * MICRO, point.rate * HOUR_S)
        return self._curve(Fraction(outlook.elapsed_ns, HOUR_NS) + hours), hours * point.workers * self._price, hours

    def passes(self, old: Point, new: Point, outlook: Outlook) -> bool:
        utility, cost, _ = self._worth(old, outlook)
        new_utility, new_cost, _ = self._worth(new, outlook)
        return new_utility - utility > new_cost - cost

    def reason(self, old: Point, new: Point, outlook: Outlook) -> str:
        utility, cost, hours = self._worth(old, outlook)
        new_utility, new_cost, new_hours = self._worth(new, outlook)
        return (
            f"from {old.workers} to {new.workers} workers its rest takes {float(new_hours):.2f} instead of "
            f"{float(hours):.2f} h: worth {float(new_utility - utility):+.2f}, costs {float(new_cost - cost):+.2f}"
        )
