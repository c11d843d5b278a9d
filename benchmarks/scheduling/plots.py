"""Plots of the scheduling benchmark: how soon jobs are done under each policy, what a decision costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.scheduling.policies import FIFO, TIRESIAS, WITHOUT_DURATIONS
from benchmarks.scheduling.speed import exponent
from benchmarks.scheduling.traces import CLUSTER400, play

DRAWN = (FIFO, "fifo", TIRESIAS, WITHOUT_DURATIONS, "srsf")


def _subplots(count: int, title: str, *, share_y: bool = True) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, count, figsize=(5.2 * count, 4.2), dpi=95, sharey=share_y, squeeze=False)
    figure.suptitle(f"{title} (SIMULATED cluster)", fontsize=11)
    return figure, axes[0]


def _write(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    pyplot.close(figure)


def completion(path: Path, _raw: dict[str, Any]) -> None:
    """How many of the 400 jobs were done within so many hours."""
    figure, (axes,) = _subplots(1, f"{CLUSTER400.name} on {CLUSTER400.cluster}")
    figure.set_size_inches(8, 4.4)
    for policy in DRAWN:
        inorder = play(CLUSTER400, policy).jct_s
        parts = [100 * (index + 1) / len(inorder) for index in range(len(inorder))]
        axes.step([seconds / 3600 for seconds in inorder], parts, where="post", label=policy, linewidth=1.5)
    axes.set(xscale="log", ylim=(0, 101), xlabel="hours from submission to end", ylabel="jobs (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    _write(figure, path)


def decisions(path: Path, raw: dict[str, Any]) -> None:
    """Milliseconds of a decision by jobs that wait, a line for each size of cluster, a panel for each policy."""
    found = raw["decisions"]
    policies = list(dict.fromkeys(one["policy"] for one in found))
    figure, panels = _subplots(len(policies), "a decision of the queue")
    for axes, policy in zip(panels, policies, strict=True):
        for gpus in sorted({one["gpus"] for one in found}):
            points = [(one["jobs"], one["mean_ms"]) for one in found if (one["policy"], one["gpus"]) == (policy, gpus)]
            axes.plot(*zip(*points, strict=True), "o-", label=f"{gpus:,} GPUs", linewidth=1.5)
        axes.set(title=policy, xscale="log", yscale="log", xlabel="jobs that wait")
        axes.grid(alpha=0.3, which="both")
    panels[0].set(ylabel="mean (ms)")
    panels[0].legend(fontsize=8, frameon=False)
    _write(figure, path)


def scale(path: Path, raw: dict[str, Any]) -> None:
    """Seconds and memory of a whole trace by its number of jobs, with the exponent of the time."""
    runs = raw["runs"]
    jobs = [run["jobs"] for run in runs]
    figure, panels = _subplots(2, "a trace as a whole on 1,000 GPUs, fifo", share_y=False)
    for axes, (key, unit) in zip(panels, (("total_s", "seconds"), ("peak_gib", "GiB at most")), strict=True):
        values = [run[key] for run in runs]
        axes.plot(jobs, values, "o-", label=f"grows with jobs to the power of {exponent(jobs, values):.2f}")
        axes.set(xscale="log", yscale="log", xlabel="jobs", title=unit)
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8, frameon=False)
    _write(figure, path)
