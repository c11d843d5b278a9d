"""Fractional packing: Alibaba's openb pods on its 1,213 nodes until they ask for every GPU, by several placement rules.

The protocol of FGD's evaluation (Weng et al., ATC'23): the pod list in random order, pods of it drawn again when it is
at its end, each placed or refused for good and none ever ending. Allocation is what was placed, fragmentation what idle
GPU the popular pods cannot use (core/placement/fgd.py), both in percent of all GPUs, against the load that has arrived;
beside them the published curves. `as published` is FGD without RAM and the demand for GPU models in its score, `as
released` with the ties of its released code as well: the lowest node; `random ties` are the control: any node of the
best score. Another trace is named with --pods and --nodes (openb's columns); it has no published curve, and goals only
if it is a pod list of the same publication in which pods ask for GPU models.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.scheduling.openb_runs import CASES, DATA, LOADS, NODES, PODS, SEEDS, Run, measure
from benchmarks.table import Figure, Goal, at_least, at_most, format_figures, near

DEVICE = "no device: placement alone, on a SIMULATED cluster"
#: rule -> its name in the published curves, and its colour
PUBLISHED = {"best-fit": "05-BestFit", "fgd": "06-FGD", "random": "01-Random"}
COLOURS = {
    "fgd": "#d95f02",
    "fgd as published": "#e6ab02",
    "fgd as released": "#8c6d31",
    "best-fit": "#2f6fb5",
    "worst-fit": "#7a5195",
    "fgd, random ties": "#1b9e77",
    "fgd as published, random ties": "#66a61e",
    "random": "#9a9a9a",
}
FGD_SECONDS_MAX = 3.0
#: pod lists in which 10 to 33 % of the GPUs are asked for by model -> what FGD allocates of them, published, percent
PUBLISHED_WITH_MODELS = {
    "openb_pod_list_gpuspec10.csv": 94.66,
    "openb_pod_list_gpuspec20.csv": 94.66,
    "openb_pod_list_gpuspec25.csv": 93.91,
    "openb_pod_list_gpuspec33.csv": 87.84,
}
CHANCE_POINTS = 0.2
GOALS: dict[str, Goal] = {
    "fgd": at_least(95.2),
    "best-fit": near(92.9, 0.3),
    "fgd as published, random ties": near(90.2, 0.5),
}


def goals_of(pods: str) -> dict[str, Goal]:
    """What the cases are to allocate of the pod list of that name."""
    if pods == PODS.name:
        return GOALS
    published = PUBLISHED_WITH_MODELS.get(pods)
    return {} if published is None else {"fgd": at_least(round(published - CHANCE_POINTS, 2))}


def figures(runs: Sequence[Run], goals: Mapping[str, Goal] = GOALS) -> list[Figure]:
    """The row `openb` of the scheduling benchmark's table: what each rule has allocated at 100 %, and how fast."""
    found: list[Figure] = []
    for case in dict.fromkeys(made.case for made in runs):
        of = [made for made in runs if made.case == case]
        allocated = [made.allocated_percents[-1] for made in of]
        goal = goals.get(case)
        found.append(Figure("openb", case, "allocated at 100 % arrived, %", statistics.fmean(allocated), goal))
        found.append(Figure("openb", case, "the same, worst seed, %", min(allocated)))
        fragmented = statistics.fmean(made.fragmented_percents[-1] for made in of)
        found.append(Figure("openb", case, "fragmented at 100 % arrived, %", fragmented))
        slow = at_most(FGD_SECONDS_MAX) if goal and case == "fgd" else None
        found.append(Figure("openb", case, "a run, median, s", statistics.median(made.seconds for made in of), slow))
    return found


def row(raw: dict[str, Any]) -> list[Figure]:
    """The row of `make bench-scheduling`: the cases that have goals. Leaves its runs in `raw`, for plot_row()."""
    runs = measure(names=list(GOALS))
    raw["runs"] = [made.as_json() for made in runs]
    return figures(runs)


def plot_row(path: Path, raw: dict[str, Any]) -> None:
    """Draws what row() left."""
    plot(path, raw["runs"], with_published=True)


def read_published(rule: str) -> tuple[list[float], list[float]]:
    """(allocated, fragmented) of the published runs, means of their seeds, in percent of all GPUs at each of LOADS."""

    def mean(name: str) -> list[float]:
        with (DATA / name).open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["sc_policy"] == PUBLISHED[rule]]
        return [statistics.fmean(float(row[str(load)]) for row in rows) for load in LOADS]

    allocated, of_idle = mean("published_allo.csv"), mean("published_frag_ratio.csv")
    return allocated, [part * (100 - used) / 100 for part, used in zip(of_idle, allocated, strict=True)]


def plot(path: Path, runs: Sequence[Mapping[str, Any]], with_published: bool) -> None:
    """Allocated and fragmented GPUs against the arrived load: means of the seeds, dotted as published."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), dpi=100)
    for case in dict.fromkeys(made["case"] for made in runs):
        of = [made for made in runs if made["case"] == case]
        style = {"color": COLOURS[case], "linewidth": 1.6, "label": case}
        for axes, curve in ((left, "allocated_percent"), (right, "fragmented_percent")):
            by_load = zip(*(made[curve] for made in of), strict=True)
            axes.plot(LOADS, [statistics.fmean(values) for values in by_load], **style)
    for rule, name in PUBLISHED.items() if with_published else ():
        style = {"color": COLOURS[rule], "linestyle": ":", "linewidth": 1.8, "label": f"published: {name[3:]}"}
        for axes, values in zip((left, right), read_published(rule), strict=True):
            axes.plot(LOADS, values, **style)
    left.set(xlim=(70, 100), ylim=(70, 100), ylabel="allocated (% of all GPUs)")
    right.set(xlim=(0, 100), ylim=(0, None), ylabel="fragmented (% of all GPUs)")
    for axes in (left, right):
        axes.set_xlabel("arrived load (% of all GPUs)")
        axes.grid(alpha=0.3)
    left.legend(fontsize=8, frameon=False)
    figure.suptitle("openb: placing fractions of GPUs (SIMULATED cluster)", fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def main() -> int:
    """Runs, prints the table, keeps JSON, table and plot. Exit code 1 when a goal is missed."""
    parser = harness.parser(__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each rule (default: %(default)s)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all of them")
    parser.add_argument("--pods", type=Path, default=PODS, help="a pod list with openb's columns")
    parser.add_argument("--nodes", type=Path, default=NODES, help="a node list with openb's columns")
    args = parser.parse_args()
    if args.real:
        parser.error("--real: this benchmark uses no device")
    own = (args.pods, args.nodes) == (PODS, NODES)
    runs = measure(args.pods, args.nodes, args.cases, args.seeds, _say)
    found = figures(runs, goals_of(args.pods.name) if args.nodes == NODES else {})
    print(format_figures(found))
    _keep(args, runs, found, own)
    return 1 if any(figure.is_missed for figure in found) else 0


def _say(run: Run) -> None:
    print(f"  {run.case}, seed {run.seed}: {run.allocated_percents[-1]:.2f} % in {run.seconds:.2f} s", flush=True)


def _keep(args: argparse.Namespace, runs: Sequence[Run], table_figures: Sequence[Figure], own: bool) -> None:
    kept = [made.as_json() for made in runs]
    folder = args.results if own and set(args.cases) == set(CASES) and args.seeds >= SEEDS else harness.BUILD

    def draw(stem: Path) -> list[Path]:
        path = stem.with_suffix(".png")
        plot(path, kept, own)
        return [path]

    path = results.write_figures(
        "scheduling-openb",
        table_figures,
        results.Page("Placing fractions of GPUs"),
        is_simulated=True,
        device=DEVICE,
        parameters={"pods": args.pods.name, "nodes": args.nodes.name, "seeds": args.seeds, "cases": args.cases},
        raw={"runs": kept},
        folder=folder,
        draw=draw,
    )[0]
    print(f"kept in {path}")


if __name__ == "__main__":
    raise SystemExit(main())
