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
#: of the first curve, and of those that may cover it
_DASHES = ("solid", (0, (6, 2)), (0, (3, 2)), (0, (6, 2, 1, 2)))


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


def _style(index: int, count: int) -> dict[str, Any]:
    """Each curve is thinner than the one that it may cover, and dashed: what lies under it stays visible."""
    return {"linewidth": 1.4 + 0.9 * (count - 1 - index), "linestyle": _DASHES[1 + (index - 1) % 3 if index else 0]}


def _unit(longest_s: float) -> tuple[str, float]:
    """Name and length in seconds of the unit of an axis: as in the table, seconds below three hours, then hours."""
    return ("seconds", 1.0) if longest_s < results.HOURS_FROM_S else ("hours", 3600.0)


def _label_curve(axes: Any, policy: str, line: Any, at: tuple[float, float]) -> None:
    """The policy's name beside its own curve."""
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
    place = {"xytext": (6, -10), "textcoords": "offset points", "fontsize": 8, "zorder": 5}
    axes.annotate(policy, at, color=line.get_color(), bbox=box, **place)


def _completion(axes: Any, outcomes: Mapping[str, Outcome]) -> None:
    times_s = {
        policy: sorted(
            max(results.seconds(job.ended_ns - job.submitted_ns), 1) for _, job in o.jobs if job.state.is_final
        )
        for policy, o in outcomes.items()
    }
    unit, unit_s = _unit(max(jct_s[-1] for jct_s in times_s.values()))
    for index, (policy, jct_s) in enumerate(times_s.items()):
        parts = [100 * (number + 1) / len(jct_s) for number in range(len(jct_s))]
        scaled = [at_s / unit_s for at_s in jct_s]
        (line,) = axes.step(scaled, parts, where="post", label=policy, **_style(index, len(times_s)))
        chosen = len(jct_s) * (index + 1) // (len(times_s) + 1)  # each name at another height
        _label_curve(axes, policy, line, (scaled[chosen], parts[chosen]))
    from matplotlib.ticker import LogFormatter

    axes.set(xscale="log", ylim=(0, 101), xlabel=f"{unit} from submission to end", ylabel="jobs (%)")
    axes.xaxis.set_major_formatter(LogFormatter())  # 1000, not 10 to the power of 3
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.6)))


def _utilisation(axes: Any, outcomes: Mapping[str, Outcome]) -> None:
    curves = {policy: means(outcome.samples, SPANS) for policy, outcome in outcomes.items()}
    unit, unit_s = _unit(max((points[-1][0] for points in curves.values() if points), default=0.0))
    for index, (policy, points) in enumerate(curves.items()):
        times = [at_s / unit_s for at_s, _ in points]
        used = [100 * milli / outcomes[policy].capacity_milli for _, milli in points]
        (line,) = axes.step(times, used, where="post", label=policy, **_style(index, len(curves)))
        if points:
            chosen = len(points) * (index + 1) // (len(curves) + 1)
            _label_curve(axes, policy, line, (times[chosen], used[chosen]))
    axes.set(ylim=(0, 104), xlabel=unit, ylabel="GPU time assigned to jobs (%)")


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
