"""What `vgpu tune` costs if its candidates run in another order: the core alone, with the rates of the measured grids.

`vgpu tune` lets the candidates that are often best run first. Here they run in 1,000 random orders, and in the worst
one, with each better than those before. The cost is progress times fraction, as a part of the full grid's. Reads the
results of benchmarks.tune; without a device, in a second.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import harness, results
from vgpud.core.tune.halving import Halving, make_milestones
from vgpud.core.tune.model import Candidate, Work
from vgpud.core.tune.record import read_record

TRAINERS = ("tinygrad", "torch")
ORDERS = 1000
MILESTONES = make_milestones(1.0)


def cost_of(order: Sequence[Candidate], rates: Mapping[Candidate, float], work: Work) -> float:
    """As a part of the full grid's."""
    halving = Halving(order, work)
    spent = 0.0
    while start := halving.take_next():
        candidate, milestone = start
        while halving.reach(candidate, milestone, rates[candidate]):
            milestone += 1
        spent += candidate.gpus * MILESTONES[milestone]
    return spent / sum(one.gpus for one in order)


def measure(raw: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one trainer's result."""
    found: dict[str, float] = {}
    for aim in ("per_gpu", "deadline"):
        record = read_record(json.dumps(raw["records"][aim]))
        rates = {row.candidate: float(raw["grid"][row.candidate.describe()]) for row in record.rows}
        candidates, draw = list(rates), random.Random(1)
        costs = [cost_of(draw.sample(candidates, len(candidates)), rates, record.work) for _ in range(ORDERS)]
        worst = sorted(candidates, key=lambda one: record.work.rank(one, rates[one]), reverse=True)
        found |= {
            f"{aim}_own": cost_of(candidates, rates, record.work),
            f"{aim}_mean": statistics.mean(costs),
            f"{aim}_p95": statistics.quantiles(costs, n=20)[-1],
            f"{aim}_worst": cost_of(worst, rates, record.work),
        }
    return {name: round(value, 4) for name, value in found.items()}


def main() -> int:
    options = harness.parser(__doc__).parse_args()
    figures: dict[str, Any] = {}
    for trainer in TRAINERS:
        path = options.results / f"tune_{trainer}-sim.json"
        if not path.exists():
            print(f"{path} is not there: run benchmarks.tune {trainer} first")
            continue
        found = measure(json.loads(path.read_text())["raw"])
        figures |= {f"{trainer}_{name}": value for name, value in found.items()}
    if not figures:
        return 3
    for name, value in figures.items():
        print(f"  {name:32} {value:.3f}")
    path = results.write(
        "tune_orders",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={"orders": ORDERS, "milestones": list(MILESTONES)},
        goals={},
        figures=figures,
        raw={},
        folder=options.results,
    )
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
