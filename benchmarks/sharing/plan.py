"""How thoroughly the rows are run, and what is kept of every run for the results file."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.sharing.bench import Bench, Meanwhile, Observed, Program, observed_of_json, open_bench
from benchmarks.sharing.kept import Kept
from benchmarks.sharing.measure import Histogram, merge_histograms
from benchmarks.sharing.plain import ARBITER, NO_HOOK, Plain

#: the device's change of context (SIM_SWITCH_NS) x 0.5 and x 3
OTHER_SWITCHES_US = (10, 60)
QUANTILES = (50, 90, 99, 99.9)
#: evenly, so that a curve needs no others than their values
CDF_QUANTILES = range(2, 101, 2)
#: of the processors' time, that the host may take of a run before it is made again; how often it is made at most
STOLEN_MAX = 0.01
TRIES = 3


class TimeIsUp(Exception):
    """The part of the table that was asked for is over, and runs are left for the next one (--hours, --resume)."""


def run_undisturbed(make: Callable[[], Observed]) -> Observed:
    """A run of which a virtual machine's host took next to nothing, or of TRIES the one of which it took least.

    Chosen by that alone, whatever the run found; `machine` says how many tries there were.
    """
    tries = [make()]
    while tries[-1].machine["stolen"] > STOLEN_MAX and len(tries) < TRIES:
        tries.append(make())
    best = min(tries, key=lambda run: run.machine["stolen"])
    return replace(best, machine={**best.machine, "tries": len(tries)})


@dataclass
class Plan:
    """seconds: measured time of a run; seeds: runs of each case (for paired rows: pairs); full: every case there is.

    real: on the real device, which keeps no log of its use: shares come from completed work. store: where finished
    runs are kept and taken from, if anywhere. until_s: no run begins after this time of time.monotonic().
    """

    seconds: float
    seeds: int
    full: bool
    real: bool = False
    store: Kept | None = None
    until_s: float = math.inf
    raw: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _times: Counter[str] = field(default_factory=Counter)

    def bench(
        self,
        kernels_us: Sequence[int],
        switch_us: int | None = None,
        seconds: float | None = None,
        config: Sequence[str] = (),
    ) -> AbstractContextManager[Bench]:
        """A device to run rows on, simulated with kernels of these lengths; runs of so many seconds.

        config: lines of the daemon's configuration.
        """
        return open_bench(seconds or self.seconds, kernels_us, switch_us, self.real, config=config)

    def switches_us(self, *others_us: int) -> tuple[int | None, ...]:
        """Switch costs to run a row with: the shipped one (None), in a full run of the simulated device also others."""
        return (None, *OTHER_SWITCHES_US, *others_us) if self.full and not self.real else (None,)

    def seeds_with(self, is_shipped: bool) -> int:
        """Runs of a case. With another switch cost than the shipped one it runs once: that shows what depends on it."""
        return self.seeds if is_shipped else 1

    def both(
        self, bench: Bench, row: str, case: str, tenants: Sequence[Program], is_paired: bool = False
    ) -> list[tuple[Observed, Observed]]:
        """Runs without a hook and under our arbiter, one pair a seed (seeds_with()).

        Without a hook it runs once, with the first seed: that is what ours is compared with. is_paired: with every
        seed, as each run of ours is judged by the one without a hook just before it.
        """
        free, ours = self._ways(bench, row, case, tenants, [(False, None), (True, None)], is_paired)
        return list(zip(free if is_paired else free * len(ours), ours, strict=True))

    def all_ways(
        self,
        bench: Bench,
        row: str,
        case: str,
        tenants: Sequence[Program],
        free: bool = True,
        is_paired: bool = False,
    ) -> list[list[Observed]]:
        """By way: runs without a hook (free; see both() for paired), under our arbiter, in each plain way.

        The plain ways run once, with the first seed, and not where the device's switch cost is another: no run there.
        """
        pair: list[tuple[bool, Plain | None]] = [(False, None), (True, None)]
        ways = [*(pair if free else pair[1:]), *((False, way) for way in Plain if bench.is_shipped)]
        return self._ways(bench, row, case, tenants, ways, is_paired)

    def _ways(
        self,
        bench: Bench,
        row: str,
        case: str,
        tenants: Sequence[Program],
        ways: Sequence[tuple[bool, Plain | None]],
        is_paired: bool,
    ) -> list[list[Observed]]:
        """Seed by seed the ways, each (hooked, plain), one after the other."""
        runs: list[list[Observed]] = [[] for _ in ways]
        for seed in range(1, self.seeds_with(bench.is_shipped) + 1):
            for mine, (hooked, plain) in zip(runs, ways, strict=True):
                if seed == 1 or hooked or (is_paired and plain is None):
                    mine.append(self.run_once(bench, row, case, tenants, hooked, seed, plain=plain))
        return runs

    def run_once(
        self,
        bench: Bench,
        row: str,
        case: str,
        tenants: Sequence[Program],
        is_hooked: bool,
        seed: int = 1,
        side_task: Meanwhile | None = None,
        plain: Plain | None = None,
    ) -> Observed:
        """One run."""
        found = observed_of_json(
            self.keep(
                (row, case, way_of(is_hooked, plain), seed),
                lambda: run_undisturbed(
                    lambda: bench.observe(tenants, is_hooked=is_hooked, seed=seed, side_task=side_task, plain=plain)
                ).as_json(),
            )
        )
        kept: dict[str, Any] = {
            "case": case,
            "way": way_of(is_hooked, plain),
            "seed": seed,
            "shipped": bench.is_shipped,
        }
        kept["machine"] = {name: round(part, 3) for name, part in found.machine.items()}
        kept["part"] = {tenant.name: tenant.minimum for tenant in tenants}
        kept["share"] = {name: round(got, 5) for name, got in found.shares().items()}
        kept["completed"] = {name: round(count) for name, count in found.completed.items()}
        latencies = {name: merge_histograms(several) for name, several in found.latencies.items()}
        kept["latency_us"] = {name: quantiles_us(one, QUANTILES) for name, one in latencies.items() if one.count}
        if seed == 1 and bench.is_shipped:  # what the plots are made of; for all runs it would be megabytes
            kept["seconds"] = {name: [round(one, 4) for one in found.windows(name)[::10]] for name in found.spans}
            kept["stolen"] = [round(one, 3) for one in found.stolen()[::10]]  # in each of these seconds
            cdf = {name: quantiles_us(one, CDF_QUANTILES) for name, one in latencies.items() if one.count}
            kept["cdf_us"] = {name: list(found.values()) for name, found in cdf.items()}
        self.raw.setdefault(row, []).append(kept)
        return found

    def stolen(self, row: str, case: str) -> float | None:
        """Of the processors' time, what the host took of a case's runs under our arbiter, at most; None: no run."""
        mine = [run for run in self.raw.get(row, ()) if run["case"] == case and run.get("way") == ARBITER]
        return max((run["machine"]["stolen"] for run in mine if run.get("machine")), default=None)

    def keep(self, name: Sequence[str | int], measure: Callable[[], Any]) -> Any:
        """What measure() finds, as JSON, or what it found before the table was interrupted.

        name: row, case and whatever else identifies the run; runs of one name are distinguished by their order.
        Raises TimeIsUp when it would begin after until_s.
        """
        key = json.dumps(list(name))
        self._times[key] += 1
        numbered = f"{key} {self._times[key]}"
        found = self.store.get(numbered) if self.store else None
        if found is None:
            if time.monotonic() >= self.until_s:
                raise TimeIsUp
            found = measure()
            if self.store:
                self.store.put(numbered, found)
        return found


def way_of(is_hooked: bool, plain: Plain | None) -> str:
    """The column of the table that a run belongs to."""
    return plain.value if plain else ARBITER if is_hooked else NO_HOOK


def quantiles_us(latencies: Histogram, quantiles: Iterable[float]) -> dict[str, float]:
    """Quantiles of the bursts that were waited for."""
    return {f"p{q:g}": latencies.percentile_ns(q / 100) / 1000 for q in quantiles}


def at_switch(case: str, switch_us: int | None) -> str:
    """The name of a case that ran with another switch cost than the shipped one."""
    return case if switch_us is None else f"{case}, switch {switch_us} us"
