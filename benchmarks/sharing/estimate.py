"""How many runs each row has and how long they take, said before the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchmarks.launch_overhead import ROWS as LAUNCHES
from benchmarks.launch_overhead import THREADS as LAUNCH_THREADS
from benchmarks.sharing import (
    rows_adversaries,
    rows_coast,
    rows_gang,
    rows_got,
    rows_long,
    rows_lookahead,
    rows_shares,
    rows_solo,
    rows_trainers,
)
from benchmarks.sharing.bench import WARM_UP_S
from benchmarks.sharing.plain import Plain
from benchmarks.sharing.plan import Plan

#: a run's warm-up, start and end, beside its measured time
BESIDE_S = WARM_UP_S + 2
TRAINERS_START_S = 12.0
LAUNCHES_S = 4.0
#: W9's thousand processes, and the daemon's idle time
CROWD_S = 60.0

#: runs and the seconds of each, all in all
Runs = tuple[int, float]


def _each(count: int, seconds: float) -> Runs:
    return count, count * (seconds + BESIDE_S)


def _sum(parts: Iterable[Runs]) -> Runs:
    counts, seconds = zip(*parts, strict=True)
    return sum(counts), sum(seconds)


def _in_all_ways(
    plan: Plan, cases: int, solo_runs: int = 0, switches: Sequence[int | None] = (None,), is_paired: bool = False
) -> int:
    """Runs of a row: `solo_runs` with each switch cost, its cases without a hook and with; the plain ways with one."""
    return len(switches) * solo_runs + cases * (_seeds(plan, switches, is_paired) + len(Plain))


def _seeds(plan: Plan, switches: Sequence[int | None], is_paired: bool) -> int:
    """Runs of one case with all switch costs, without a hook (is_paired: with each seed) and with."""
    seeds = [plan.seeds_with(switch_us is None) for switch_us in switches]
    return sum(seeds) + (sum(seeds) if is_paired else len(seeds))


def _w1(plan: Plan) -> Runs:
    mixes = [*rows_shares.W1_DEFAULT.values(), *(rows_shares.W1_MORE.values() if plan.full else ())]
    alone = 1 + sum(tenant.processes > 1 for tenants in mixes for tenant in tenants)
    return _each(_in_all_ways(plan, len(mixes), alone, plan.switches_us(rows_shares.DEAR_SWITCH_US)), plan.seconds)


def _w2c(plan: Plan) -> Runs:
    count = len(rows_trainers.CASES) * _seeds(plan, plan.switches_us(), is_paired=True)
    return _each(count, plan.seconds + TRAINERS_START_S)


def _w3(plan: Plan) -> Runs:
    cases = {**rows_long.DEFAULT, **rows_long.MORE} if plan.full else rows_long.DEFAULT
    seconds = max(plan.seconds, rows_long.LEAST_S)
    return _sum(_each(plan.seeds + 1, seconds + tenant.warm_up_s - WARM_UP_S) for tenant, _bound in cases.values())


def _w5(plan: Plan) -> Runs:
    caps = 3 + (3 if plan.full else 1)
    return _each(caps * (plan.seeds + len(Plain)) + _in_all_ways(plan, 1, is_paired=True), plan.seconds)


def _w8(plan: Plan) -> Runs:
    pairs, seconds = (
        (rows_solo.FULL_PAIRS, rows_solo.FULL_PAIR_SECONDS) if plan.full else (rows_solo.PAIRS, rows_solo.PAIR_SECONDS)
    )
    launches = 0 if plan.real else len(LAUNCHES) * len(LAUNCH_THREADS) * rows_solo.LAUNCH_REPEATS
    return _sum([_each(len(rows_solo.LOADS) * pairs * 2, seconds), (launches, launches * LAUNCHES_S)])


def _w10(plan: Plan) -> Runs:
    cases = [
        _each(plan.seeds + (one.mode not in rows_adversaries.HOOKED_ONLY), rows_adversaries.seconds_of(plan, one))
        for one in rows_adversaries.CASES.values()
    ]
    late = _each(plan.seeds + 1, plan.seconds)
    return _sum([*cases, late, _each(plan.seeds + 1, rows_adversaries.resuming_seconds(plan))])


def _l1(plan: Plan) -> Runs:
    switches = 1 if plan.real else 2
    return _each(switches * len(rows_lookahead.LOOKAHEADS_NS) * plan.seeds, plan.seconds)


ROWS: dict[str, Callable[[Plan], Runs]] = {
    "W1": _w1,
    "W2": lambda plan: _each(_in_all_ways(plan, 3, 0, plan.switches_us(), is_paired=True), plan.seconds),
    "W2b": lambda plan: _each(_in_all_ways(plan, 2, 1), plan.seconds),
    "W2c": _w2c,
    "W3": _w3,
    "W4": lambda plan: _each(_in_all_ways(plan, 2, 3, plan.switches_us()), plan.seconds),
    "W5": _w5,
    "W6": lambda plan: _each(plan.seeds + 1, plan.seconds),
    "W7": lambda plan: _each(plan.seeds, plan.seconds),
    "W8": _w8,
    "W9": lambda plan: _sum([_each(plan.seeds, plan.seconds), (0, CROWD_S)]),
    "W10": _w10,
    "W11": lambda plan: _each(rows_got.runs_of(plan.seeds), max(plan.seconds, rows_got.LEAST_S)),
    "G1": lambda plan: _each(len(rows_gang.PROGRAMS) * (plan.seeds + 2), plan.seconds),
    "C1": lambda plan: _each(plan.seeds, max(plan.seconds, rows_coast.LEAST_S)),
    "L1": _l1,
}


def hours(plan: Plan, rows: Sequence[str]) -> float:
    """How long these rows take."""
    return sum(ROWS[row](plan)[1] for row in rows) / 3600


def text(plan: Plan, rows: Sequence[str]) -> str:
    """What is to be run, row by row, and what of it is kept already."""
    runs = {row: ROWS[row](plan) for row in rows}
    lines = [f"{row:<4} {count:>4} runs, about {seconds / 60:>4.0f} minutes" for row, (count, seconds) in runs.items()]
    count = sum(count for count, _seconds in runs.values())
    kept = f", of which {plan.store.count()} are kept already" if plan.store else ""
    return "\n".join([*lines, f"in all {count} runs, about {hours(plan, rows):.1f} hours{kept}"])
