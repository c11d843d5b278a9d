"""Plots of the sharing benchmark, out of what a results file keeps of its runs.

Share over time, latencies of inference beside training, throughput against the number of tenants; the ways of sharing
side by side. The first line of each is the device's name, and the simulated one's says that it is SIMULATED.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sharing.plain import WAYS

Run = Mapping[str, Any]
COLOURS = dict(zip(WAYS, ("#9a9a9a", "#2f6fb5", "#d95f02", "#7a5195"), strict=True))
#: the case of W1 that is plotted, where it was run: three lengths of kernels, three parts
CASE_OVER_TIME = ".5/.3 (2 ms)/.2 (40 ms)"

#: where all are above this, the axis begins here: what lies between them is a percent or two
NEARLY_FULL = 95
LATENCY_TICKS_MS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500, 1000)


def write_all(stem: Path, device: str, raw: Mapping[str, Sequence[Run]]) -> list[Path]:
    """Writes the plots that the runs at hand have data for, as PNG. Returns their paths, which begin with `stem`."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = []
    for name, draw in (("shares", _shares), ("latency", _latencies), ("tenants", _tenants)):
        figure = draw(raw)
        if figure:
            figure.suptitle(f"{device}: {figure.get_suptitle()}", fontsize=11)
            figure.tight_layout()
            found.append(stem.with_name(f"{stem.name}-{name}.png"))
            figure.savefig(found[-1])
    pyplot.close("all")
    return found


def _panels(count: int, title: str, width: float, height: float, sharey: bool = True) -> tuple[Any, Sequence[Any]]:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, count, figsize=(width * count, height), dpi=90, sharey=sharey, squeeze=False)
    figure.suptitle(title)
    return figure, list(axes[0])


def _shares(raw: Mapping[str, Sequence[Run]]) -> Any:
    """One panel for each way: every tenant's share of each second, dashed what it is to be."""
    runs = [run for run in raw.get("W1", ()) if run.get("seconds") and len(run["part"]) > 1]
    if not runs:
        return None
    case = next((run["case"] for run in runs if run["case"] == CASE_OVER_TIME), runs[0]["case"])
    by_way = {run["way"]: run for run in reversed(runs) if run["case"] == case}
    figure, panels = _panels(len(by_way), f"share in each second, {case}", 3.4, 3.6)
    for axes, way in zip(panels, (way for way in WAYS if way in by_way), strict=True):
        for name, seconds in sorted(by_way[way]["seconds"].items()):
            drawn = axes.plot(range(len(seconds)), [100 * share for share in seconds], label=name, linewidth=1.6)
            axes.axhline(100 * by_way[way]["part"][name], color=drawn[0].get_color(), linestyle="--", linewidth=0.8)
        axes.set(title=way, xlabel="seconds", ylim=(0, 105))
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set(ylabel="share of the device (%)")
    panels[0].legend(fontsize=8, frameon=False, ncols=3)
    return figure


def _latencies(raw: Mapping[str, Sequence[Run]]) -> Any:
    """One panel for each trainer: how many of the inference bursts were done within so many milliseconds."""
    runs = [run for run in raw.get("W4", ()) if run.get("cdf_us", {}).get("inference")]
    cases = list(dict.fromkeys(run["case"] for run in runs if len(run["part"]) > 1))
    if not cases:
        return None
    alone = [run for run in runs if len(run["part"]) == 1][:1]
    figure, panels = _panels(len(cases), "bursts of 4 ms of inference", 4.6, 3.8)
    for axes, case in zip(panels, cases, strict=True):
        for run in (*alone, *(run for run in runs if run["case"] == case)):
            by_itself = len(run["part"]) == 1
            points = run["cdf_us"]["inference"]
            percents = [100 * (index + 1) / len(points) for index in range(len(points))]
            style: dict[str, Any] = (
                {"color": "black", "linestyle": ":"} if by_itself else {"color": COLOURS[run["way"]]}
            )
            if run["way"] == WAYS[-1]:
                style["linestyle"] = "--"  # it may lie on another
            label = "alone, no hook" if by_itself else run["way"]
            axes.step([us / 1000 for us in points], percents, where="post", label=label, linewidth=1.6, **style)
        axes.set(title=case, xlabel="ms from when it was due to its end", xscale="log", ylim=(0, 101))
        ticks = [ms for ms in LATENCY_TICKS_MS if axes.get_xlim()[0] <= ms <= axes.get_xlim()[1]]
        axes.set_xticks(ticks, [f"{ms}" for ms in ticks])
        axes.set_xticks([], minor=True)
    panels[0].set(ylabel="bursts (%)")
    panels[0].legend(fontsize=8, frameon=False)
    return figure


def _tenants(raw: Mapping[str, Sequence[Run]]) -> Any:
    """Busy time of the device by number of tenants: saturating ones (W1), and launch-bound ones (W2)."""
    runs_by_type = {"saturating (W1)": raw.get("W1", ()), "launch-bound (W2)": raw.get("W2", ())}
    runs_by_type = {kind: [run for run in runs if run["shipped"]] for kind, runs in runs_by_type.items() if runs}
    if not runs_by_type:
        return None
    figure, panels = _panels(len(runs_by_type), "what all tenants have together", 4.6, 3.6, sharey=False)
    for axes, (kind, runs) in zip(panels, runs_by_type.items(), strict=True):
        lowest = 100.0
        for way in WAYS:
            points = _mean_sums(run for run in runs if run["way"] == way)
            if points:
                style = "o--" if way == WAYS[-1] else "o-"  # it may lie on another
                axes.plot(*zip(*points, strict=True), style, color=COLOURS[way], label=way)
                lowest = min(lowest, *(percent for _count, percent in points))
        if lowest < NEARLY_FULL:
            axes.set(title=kind, ylim=(0, 105))
        else:
            axes.set(title=f"{kind}, axis from {NEARLY_FULL} %", ylim=(NEARLY_FULL, 100.2))
        axes.set(xlabel="tenants")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0].set(ylabel="share of the device, sum (%)")
    panels[-1].legend(fontsize=8, frameon=False, loc="lower right")
    return figure


def _mean_sums(runs: Iterable[Run]) -> list[tuple[int, float]]:
    """(tenants, mean of the sums of their shares in percent), by number of tenants."""
    sums: dict[int, list[float]] = {}
    for run in runs:
        sums.setdefault(len(run["share"]), []).append(100 * sum(run["share"].values()))
    return sorted((count, statistics.mean(found)) for count, found in sums.items())
