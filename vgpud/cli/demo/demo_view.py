"""Views of the demo: the live view, the table at the end, the plot of shares over time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.cli.demo.demo_measure import Row, Wanted
from vgpud.core.units import format_bytes
from vgpud.view.figures import sparkline
from vgpud.view.fit import Cell, Grid

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR_CELLS = 32
#: a share from which on a point of a line is a place for its name
NAMED_FROM_PERCENT = 5.0
COLOURS = ("#1b7837", "#762a83", "#2166ac")


@dataclass(frozen=True)
class Now:
    """A tenant's present values, for the live view."""

    promise: Wanted
    share: float | None  # None: not known on this device yet
    rate: float
    memory_bytes: int
    limit_bytes: int


def share_bar(share: float, promise: Wanted) -> str:
    """A bar of the whole device: filled up to share, `[` at the guaranteed minimum and `]` at the maximum."""
    cells = ["━" if (index + 0.5) / BAR_CELLS <= share else "·" for index in range(BAR_CELLS)]
    cells[min(BAR_CELLS - 1, round(promise.minimum * BAR_CELLS))] = "["
    cells[max(0, round(promise.maximum * BAR_CELLS) - 1)] = "]"
    return "".join(cells)


def live_frame(
    title: str, phase: str, tenants: Mapping[str, Now], done_s: float, total_s: float, note: str
) -> RenderableType:
    """One frame of the live view."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("tenant", "share in the last second", "", "samples/s", "memory"):
        table.add_column(column, justify="right" if column == "samples/s" else "left", no_wrap=True)
    for name, now in tenants.items():
        share = "  -  " if now.share is None else f"{now.share:6.1%}"
        memory = f"{format_bytes(now.memory_bytes)} of {format_bytes(now.limit_bytes)}"
        table.add_row(name, share_bar(now.share or 0.0, now.promise), share, f"{now.rate:,.0f}", memory)
    progress = Table.grid(padding=(0, 1))
    progress.add_row(ProgressBar(total=max(total_s, 0.1), completed=min(done_s, total_s), width=BAR_CELLS), phase)
    return Group(Text(title, style="bold"), table, progress, Text(note, style="dim"))


#: below final_grid()
DENIED_NOTE = (
    "CPU-DENIED: processor time that other programs of this machine took from the demo; 100% is one processor."
)


def final_grid(rows: Sequence[Row]) -> Grid:
    """The result, a line per phase and tenant; a share outside its limits is red, or yellow: by the host's doing."""
    titles = (
        "PHASE",
        "TENANT",
        ">MIN..MAX",
        ">WANTED",
        ">GOT",
        ">CPU-DENIED",
        ">SAMPLES/S",
        ">OF-ALONE",
        ">MEM-LIMIT",
        ">PEAK",
    )
    grid = Grid(titles, first_to_go=("PEAK", "MEM-LIMIT", "OF-ALONE", "SAMPLES/S", "MIN..MAX"))
    for index, row in enumerate(rows):
        style = "yellow" if row.is_hosts_doing else "red" if row.is_off else ""
        low, high = row.target.min_share, row.target.max_share
        wanted = f"{low:.0%}" if low == high else f">={low:.0%}" if low > 0 else "-"
        first = index == 0 or rows[index - 1].phase != row.phase
        texts = (
            row.phase if first else "",
            row.tenant,
            f"{row.target.minimum:g}..{row.target.maximum:g}",
            wanted,
            f"{row.share:.1%}",
            "-" if row.denied_part is None else f"{row.denied_part:.0%}",
            f"{row.rate:,.0f}",
            f"{row.rate / row.rate_alone:.0%}" if row.rate_alone > 0 else "-",
            format_bytes(row.memory_limit_bytes),
            format_bytes(row.memory_peak_bytes),
        )
        grid.rows.append([Cell(text, style) for text in texts])
    return grid


def curves(series: Mapping[str, Sequence[tuple[float, float]]], width: int) -> str:
    """Each tenant's share over time as a line of text: the top of a character is the whole device."""
    cells = max(10, width - max(map(len, series)) - 2)
    lines = []
    for name, points in series.items():
        count = min(cells, len(points))
        ends = [len(points) * (cell + 1) // count for cell in range(count)]
        parts = [points[begin:end] for begin, end in itertools.pairwise([0, *ends])]
        shares = [sum(share for _, share in part) / len(part) if part else None for part in parts]
        lines.append(f"{name:>{max(map(len, series))}}  {sparkline(shares)}")
    return "\n".join(lines)


def plot(
    path: Path,
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    phases: Sequence[tuple[str, float, float]],
    guarantees: Sequence[tuple[float, float, float]],
) -> None:
    """Writes the PNG. phases: (name, begin_s, end_s); guarantees: (begin_s, end_s, share), dashed, over the lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=110)
    for index, (name, points) in enumerate(series.items()):
        shown = [(at, share * 100) for at, share in points]
        colour = COLOURS[index % len(COLOURS)]
        # a later line may cover an earlier one, which is wider, so that its edges stay visible
        width = 1.6 + 1.0 * (len(series) - 1 - index)
        axes.plot(*zip(*shown, strict=True), label=name, color=colour, linewidth=width, zorder=2 + index / 10)
        _label_line(axes, name.partition(" ")[0], shown, colour)
    for index, (begin_s, end_s, share) in enumerate(guarantees):
        label = "guaranteed" if index == 0 else None
        level = (share * 100, share * 100)
        axes.plot((begin_s, end_s), level, color="black", linestyle=(0, (2, 3)), linewidth=1.2, label=label, zorder=3)
    for index, (name, begin_s, end_s) in enumerate(phases):
        axes.axvspan(begin_s, end_s, color="#000000", alpha=0.05 if index % 2 else 0.09, linewidth=0)
        axes.text((begin_s + end_s) / 2, 108, name, ha="center", va="center", fontsize=8.5)
        if index and begin_s - phases[index - 1][2] > 8:
            middle_s = (begin_s + phases[index - 1][2]) / 2
            axes.text(middle_s, 50, "both\nstart", ha="center", va="center", fontsize=8.5, color="#777777")
    axes.set(xlabel="seconds", ylabel="share of the device's SM time (%)", ylim=(0, 114))
    axes.set_yticks(range(0, 101, 25))
    axes.set_xlim(left=0, right=max((end_s for _, _, end_s in phases), default=1))
    axes.grid(axis="y", alpha=0.3)
    axes.set_title(title, fontsize=11)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(series) + bool(guarantees), fontsize=9, frameon=False
    )
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _label_line(axes: Any, name: str, points: Sequence[tuple[float, float]], colour: str) -> None:
    """The tenant's name beside its own line, in the middle of the time in which it had a share."""
    busy = [point for point in points if point[1] > NAMED_FROM_PERCENT]
    if busy:
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
        place = {"xytext": (0, 9), "textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(name, busy[len(busy) // 2], color=colour, bbox=box, zorder=4, **place)
