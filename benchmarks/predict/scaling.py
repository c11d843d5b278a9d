"""Scaling curves that are known, jobs on them in a loop with the autoscaler, and the optimum that it is to find."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from vgpud.core.elastic.autoscaler import Autoscaler
from vgpud.core.elastic.heuristics import Outlook, Rule
from vgpud.core.elastic.measures import Point
from vgpud.core.elastic.search import SPAWN
from vgpud.core.jobs.model import SECOND_NS, Elastic
from vgpud.simulate import scaling as straight

MICRO = 10**6


@dataclass(frozen=True)
class Curve:
    """samples/s with k workers, and the global batch."""

    name: str
    rate: Callable[[int], float]
    workers_max: int = 64
    batch: int = 128


def through(points: tuple[tuple[int, float], ...]) -> Callable[[int], float]:
    """The smooth curve of its kind through three points: k over rate is a parabola (Gunther's scalability law)."""
    (a, ra), (b, rb), (c, rc) = points
    ya, yb, yc = a / ra, b / rb, c / rc
    first, second = (yb - ya) / (b - a), ((yc - yb) / (c - b) - (yb - ya) / (b - a)) / (c - a)
    return lambda k: k / (ya + first * (k - a) + second * (k - a) * (k - b))


#: of the founding slides, smooth; and straight between the points, flat beyond them, as in the simulator
SLIDES = Curve("slides: 16 2200, 32 4000, 64 5000 img/s", through(((16, 2200), (32, 4000), (64, 5000))), 80, 1024)
CURVES = (
    SLIDES,
    Curve("the same, straight lines", lambda k: straight.SLIDES.rate(k) / 1000, 80, 1024),
    Curve("linear", lambda k: 100.0 * k, 16),
    Curve("Amdahl, 5 % serial", lambda k: 100 / (0.05 + 0.95 / k)),
    Curve("communication-bound, peak at 10", lambda k: 100 * k / (1 + 0.01 * k * k), 32),
    Curve("step at the node's boundary of 8", lambda k: 100.0 * k if k <= 8 else 55.0 * k + 2 * (k - 8), 32),
    Curve("plateau from 12", lambda k: 100.0 * min(k, 12), 32),
)


def optimum(curve: Curve, rule: Rule, workers_min: int = 1) -> int:
    """Of a rule, by a walk over all sizes of the true curve: the first from which no step is worth it.

    Steps are of one worker up to SPAWN: the search steps over what is narrower.
    """
    points = [Point(k, round(curve.rate(k) * MICRO)) for k in range(workers_min, curve.workers_max + 1)]
    here = 0
    while True:
        ahead = range(here + 1, min(here + SPAWN, len(points) - 1) + 1)
        worth = [there for there in ahead if rule.passes(points[here], points[there], Outlook())]
        if not worth:
            return points[here].workers
        here = worth[0]


@dataclass
class Run:
    """A job's life: how many workers it had in the end, how it came there and what it took."""

    members: int = 0
    path: list[int] = field(default_factory=list)
    settled_s: float = -1.0  # when its target last changed
    jct_s: float = 0.0
    gpu_s: float = 0.0
    idle_s: float = 0.0


def play(
    curve: Curve,
    samples: float,
    *,
    heuristic: str = "",
    workers_min: int = 1,
    change_s: float = 0.0,
    noise: float = 0.0,
    seed: int = 1,
    report_s: float = 1.0,
) -> Run:
    """One job alone, with capacity for any target. `noise`: standard deviation of a step's time, a part of it."""
    chance = random.Random(seed)
    scaler = Autoscaler(Elastic(least_members=workers_min, most_members=curve.workers_max, heuristic=heuristic))
    run, members, now_s, left = Run(), workers_min, 0.0, samples

    def change(to: int, idle_s: float) -> None:
        nonlocal members, now_s
        members = to
        now_s += idle_s
        run.idle_s += idle_s
        run.gpu_s += idle_s * members
        run.path.append(members)
        scaler.set_workers(tuple(range(members)), round(now_s * SECOND_NS))

    change(workers_min, 0.0)
    while left > 0:
        usual_s = curve.batch / curve.rate(members)
        steps = max(1, round(report_s / usual_s))
        spent_s = sum(usual_s * max(0.1, chance.gauss(1, noise)) for _ in range(steps)) if noise else usual_s * steps
        now_s += spent_s
        run.gpu_s += spent_s * members
        left -= steps * curve.batch
        (part, over), now_ns = divmod(steps * curve.batch, members), round(now_s * SECOND_NS)
        for worker in range(members):
            scaler.add_report(worker, part + (worker < over), round(spent_s * SECOND_NS), steps, now_ns)
        target = scaler.take_new_target(now_ns)
        if target is not None:
            run.settled_s = now_s
            if target.members != members:
                change(target.members, change_s)
    run.members, run.jct_s = members, now_s
    return run
