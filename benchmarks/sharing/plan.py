"""How thoroughly the rows are run, and what is kept of every run for the results file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.sharing.bench import Bench, Meanwhile, Observed, Tenant
from benchmarks.sharing.measure import Histogram, merged
from benchmarks.sharing.plain import Plain

#: the device's change of context (SIM_SWITCH_NS) x 0.5 and x 3
OTHER_SWITCHES_US = (10, 60)


@dataclass
class Plan:
    """seconds: measured time of a run; seeds: runs of each case (for paired rows: pairs); full: every case there is."""

    seconds: float
    seeds: int
    full: bool
    raw: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def switches_us(self, *more: int) -> tuple[int | None, ...]:
        """Switch costs to run a row with: the shipped one (None), in a full run also others."""
        return (None, *OTHER_SWITCHES_US, *more) if self.full else (None,)

    def both(self, bench: Bench, row: str, case: str, tenants: Sequence[Tenant]) -> list[tuple[Observed, Observed]]:
        """Pairs of runs, without a hook and under our arbiter, one after the other: one pair a seed."""
        return [
            (self.once(bench, row, case, tenants, False, seed), self.once(bench, row, case, tenants, True, seed))
            for seed in range(1, self.seeds + 1)
        ]

    def all_ways(
        self, bench: Bench, row: str, case: str, tenants: Sequence[Tenant], free: bool = True
    ) -> list[list[Observed]]:
        """Runs without a hook (free), under our arbiter, in each plain way; the n-th of each one after the other."""
        ways: list[tuple[bool, Plain | None]] = [(False, None)] if free else []
        ways += [(True, None), *((False, way) for way in Plain)]
        runs: list[list[Observed]] = [[] for _ in ways]
        for seed in range(1, self.seeds + 1):
            for mine, (hooked, plain) in zip(runs, ways, strict=True):
                mine.append(self.once(bench, row, case, tenants, hooked, seed, plain=plain))
        return runs

    def once(
        self,
        bench: Bench,
        row: str,
        case: str,
        tenants: Sequence[Tenant],
        hooked: bool,
        seed: int = 1,
        meanwhile: Meanwhile | None = None,
        plain: Plain | None = None,
    ) -> Observed:
        """One run."""
        found = bench.observe(tenants, hooked=hooked, seed=seed, meanwhile=meanwhile, plain=plain)
        kept: dict[str, Any] = {"case": case, "hooked": hooked, "seed": seed, "plain": plain and plain.value}
        kept["share"] = {name: round(got, 5) for name, got in found.shares().items()}
        kept["completed"] = {name: round(count) for name, count in found.completed.items()}
        kept["seconds"] = {name: [round(one, 4) for one in found.windows(name)[::10]] for name in found.spans}
        kept["latency_us"] = {name: quantiles_us(merged(some)) for name, some in found.latencies.items()}
        self.raw.setdefault(row, []).append(kept)
        return found


def quantiles_us(latencies: Histogram) -> dict[str, float]:
    """Quantiles of the bursts that were waited for; empty where none were."""
    if not latencies.count:
        return {}
    return {f"p{q:g}": latencies.percentile_ns(q / 100) / 1000 for q in (50, 90, 99, 99.9)}


def at_switch(case: str, switch_us: int | None) -> str:
    """The name of a case that ran with another switch cost than the shipped one."""
    return case if switch_us is None else f"{case}, switch {switch_us} us"
