"""Outputs of a simulation: a document for programs, a table of jobs as CSV, plots."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import results
from vgpud.simulate.engine import Outcome, Sample

#: spans of time of a curve of utilisation
SPANS = 200


def write_jobs(path: Path, outcomes: Mapping[str, Outcome]) -> None:
    """A line for each job under each policy. With one policy the file is a trace again."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*results.COLUMNS, "policy"))
        for policy, outcome in outcomes.items():
            writer.writerows((*row, policy) for row in results.rows(outcome))


def write_plots(folder: Path, stem: str, title: str, outcomes: Mapping[str, Outcome]) -> list[Path]:
    """The distribution of completion times and the use of the cluster over time, as PNG; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for name, draw in (("jct", _completion), ("utilisation", _utilisation)):
        figure, axes = pyplot.subplots(figsize=(9, 4.6), dpi=100)
        draw(axes, outcomes)
        axes.set_title(title, fontsize=11)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, frameon=False)
        figure.tight_layout()
        found.append(folder / f"{stem}-{name}.png")
        figure.savefig(found[-1], metadata={"Software": None})  # the same figures: the same bytes
        pyplot.close(figure)
    return found


def _completion(axes: Any, outcomes: Mapping[str, Outcome]) -> None:
    for policy, outcome in outcomes.items():
        jct_ns = sorted(job.ended_ns - job.submitted_ns for _, job in outcome.jobs if job.state.ended)
        parts = [100 * (index + 1) / len(jct_ns) for index in range(len(jct_ns))]
        axes.step([max(results.seconds(ns), 1) for ns in jct_ns], parts, where="post", label=policy, linewidth=1.5)
    axes.set(xscale="log", ylim=(0, 101), xlabel="seconds from submission to end", ylabel="jobs (%)")


def _utilisation(axes: Any, outcomes: Mapping[str, Outcome]) -> None:
    for policy, outcome in outcomes.items():
        points = means(outcome.samples, SPANS)
        hours = [at_s / 3600 for at_s, _ in points]
        used = [100 * milli / outcome.capacity_milli for _, milli in points]
        axes.step(hours, used, where="post", label=policy, linewidth=1.2)
    axes.set(ylim=(0, 104), xlabel="hours", ylabel="GPU time assigned to jobs (%)")


def means(samples: Sequence[Sample], count: int) -> list[tuple[float, float]]:
    """(begin in seconds, mean of what is held) of so many equal spans of time."""
    end_ns = samples[-1].at_ns if samples else 0
    if not end_ns:
        return []
    sums = [0] * count
    for sample, after in itertools.pairwise(samples):
        begin_ns = sample.at_ns
        while begin_ns < after.at_ns:
            span = begin_ns * count // end_ns
            until_ns = min(after.at_ns, -(-(span + 1) * end_ns // count))
            sums[span] += sample.held_milli * (until_ns - begin_ns)
            begin_ns = until_ns
    return [(results.seconds(span * end_ns // count), total * count / end_ns) for span, total in enumerate(sums)]


def gpus(milli: int) -> str:
    """2500 as 2.5."""
    return f"{milli / MILLI_PER_DEVICE:g}"
