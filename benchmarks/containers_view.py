"""Table and plot of the container benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.container_runs import Measured
from benchmarks.table import format_table

PLAIN_COLOUR, SHIM_COLOUR = "#9a9a9a", "#2f6fb5"
PAIR_COLOURS = ("#d95f02", "#2f6fb5")


def rates(measurement: Measured) -> str:
    """Samples per second of each container, short: `half 6,310, left 3,150`."""
    return ", ".join(f"{name} {sum(values):,.0f}" for name, values in measurement.rates.items())


def _shares(values: list[float]) -> str:
    return " + ".join(f"{share:.1%}" for share in values) or "-"


HEADER = ("mix", "container", "VGPU", "runc", "vgpu", "share", "runc sum", "vgpu sum", "loss", "per added")


def format_mixes(mixes: Mapping[str, Any], pair: Mapping[str, Any]) -> str:
    """A line for each container in samples per second, with the sum and the loss of its mix."""
    rows: list[Sequence[str]] = []
    for mix, found in mixes.items():
        for index, (name, shares) in enumerate(found["containers"].items()):
            added = found.get("loss_per_added_container")
            whole = [f"{found['plain']['sum']:,.0f}", f"{found['vgpu']['sum']:,.0f}", f"{found['loss']:+.2%}"]
            whole.append("" if added is None else f"{added:+.2%}")
            own = [
                f"{sum(found['plain']['samples_per_second'][name]):,.0f}",
                f"{sum(found['vgpu']['samples_per_second'][name]):,.0f}",
                _shares(found["vgpu"]["shares"].get(name, [])),
            ]
            rows.append(["" if index else mix, name, f"{sum(shares):g}", *own, *([""] * 4 if index else whole)])
    for phase, found in pair.items():
        for index, (name, values) in enumerate(found["samples_per_second"].items()):
            shares = found["shares"].get(name, [])
            rows.append(["" if index else phase, name, "", "", f"{sum(values):,.0f}", _shares(shares), *[""] * 4])
    return format_table(HEADER, rows)


def plot(path: Path, device: str, mixes: Mapping[str, Any], pair: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the PNG: left the sum of samples per second by mix, right the pair's shares second by second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.6), dpi=110, width_ratios=(3, 2))
    for place, found in enumerate(mixes.values()):
        devices = max(len(shares) for shares in found["containers"].values())
        for offset, kind, colour in ((-0.2, "plain", PLAIN_COLOUR), (0.2, "vgpu", SHIM_COLOUR)):
            bottom = 0.0
            for values in found[kind]["samples_per_second"].values():
                height = sum(values) / devices
                left.bar(place + offset, height, 0.36, bottom, color=colour, edgecolor="white", linewidth=1.2)
                bottom += height
        top = max(found["plain"]["sum"], found["vgpu"]["sum"]) / devices
        left.text(place, top, f"{-found['loss']:+.1%}", ha="center", va="bottom", fontsize=9)
    left.set_xticks(range(len(mixes)), [f"{mix}\ncontainers" if mix.isdigit() else mix for mix in mixes], fontsize=8.5)
    left.set(ylabel="samples per second and device, stacked by container")
    left.bar(0, 0, color=PLAIN_COLOUR, label="runc, no shim")
    left.bar(0, 0, color=SHIM_COLOUR, label="vgpu-runtime, in slices")
    left.margins(y=0.2)
    left.legend(fontsize=8.5, frameon=False, loc="upper left", ncols=2)
    _plot_pair(right, pair)
    figure.suptitle(f"{device}: what sharing costs CIFAR containers", fontsize=11)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)


def _plot_pair(axes: Any, pair: Mapping[str, Mapping[str, Any]]) -> None:
    """Shares in each second before and after `vgpu slice set`, a dashed line at what was promised."""
    begin = 0
    for phase, measured in pair.items():
        for index, (name, shares) in enumerate(measured["seconds"].items()):
            label = name if begin == 0 else None
            seconds = range(begin, begin + len(shares))
            axes.plot(seconds, [share * 100 for share in shares], color=PAIR_COLOURS[index], label=label, linewidth=1.8)
        width = max((len(shares) for shares in measured["seconds"].values()), default=1)
        axes.text(begin + width / 2, 103, phase, ha="center", fontsize=8.5)
        begin += width + 2
    for percent in (25, 75):
        axes.axhline(percent, color="black", linestyle="--", linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="share of SM time in each second (%)", ylim=(0, 112))
    if begin:
        axes.legend(fontsize=8.5, frameon=False, loc="center right")
