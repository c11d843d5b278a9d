"""Views of the demo: the live view, the table at the end, the plot of shares over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.cli.demo.demo_measure import Row, Wanted
from vgpud.core.units import format_bytes

if TYPE_CHECKING:
    from rich.console import RenderableType

BAR_CELLS = 40
COLOURS = ("#1b7837", "#762a83", "#2166ac")


@dataclass(frozen=True)
class Now:
    """A tenant's present values, for the live view."""

    wanted: Wanted
    share: float | None  # None: not known on this device yet
    rate: float
    memory_bytes: int
    limit_bytes: int


def share_bar(share: float, wanted: Wanted) -> str:
    """A bar of the whole device: filled up to share, `[` at the guaranteed minimum and `]` at the maximum."""
    cells = ["━" if (index + 0.5) / BAR_CELLS <= share else "·" for index in range(BAR_CELLS)]
    cells[min(BAR_CELLS - 1, round(wanted.minimum * BAR_CELLS))] = "["
    cells[max(0, round(wanted.maximum * BAR_CELLS) - 1)] = "]"
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
    for column in ("tenant", "share of the device in the last second", "", "samples/s", "memory"):
        table.add_column(column, justify="right" if column == "samples/s" else "left", no_wrap=True)
    for name, now in tenants.items():
        share = "  -  " if now.share is None else f"{now.share:6.1%}"
        memory = f"{format_bytes(now.memory_bytes)} of {format_bytes(now.limit_bytes)}"
        table.add_row(name, share_bar(now.share or 0.0, now.wanted), share, f"{now.rate:,.0f}", memory)
    progress = Table.grid(padding=(0, 1))
    progress.add_row(ProgressBar(total=max(total_s, 0.1), completed=min(done_s, total_s), width=BAR_CELLS), phase)
    return Group(Text(title, style="bold"), table, progress, Text(note, style="dim"))


def final_table(title: str, rows: Sequence[Row]) -> RenderableType:
    """The result, a line per phase and tenant; a share outside its limits is red."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("phase", "tenant"):
        table.add_column(column, no_wrap=True)
    for column in ("SM min..max", "wanted", "got", "samples/s", "of alone", "mem limit", "peak"):
        table.add_column(column, justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        style = "red" if row.is_off else ""
        low, high = row.wanted.least, row.wanted.most
        wanted = f"{low:.0%}" if low == high else f">={low:.0%}" if low > 0 else "-"
        first = index == 0 or rows[index - 1].phase != row.phase
        last = index + 1 == len(rows) or rows[index + 1].phase != row.phase
        table.add_row(
            row.phase if first else "",
            row.tenant,
            f"{row.wanted.minimum:g}..{row.wanted.maximum:g}",
            wanted,
            f"{row.got:.1%}",
            f"{row.rate:,.0f}",
            f"{row.rate / row.rate_alone:.0%}" if row.rate_alone > 0 else "-",
            format_bytes(row.memory_limit_bytes),
            format_bytes(row.memory_peak_bytes),
            style=style,
            end_section=last,
        )
    return table


def plot(
    path: Path,
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    phases: Sequence[tuple[str, float, float]],
    wanted: Sequence[tuple[float, float, float]],
) -> None:
    """Writes the PNG. phases: (name, begin_s, end_s); wanted: (begin_s, end_s, share), drawn as dashed lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(11, 5), dpi=110)
    for index, (name, points) in enumerate(series.items()):
        shown = [(at, share * 100) for at, share in points]
        axes.plot(*zip(*shown, strict=True), label=name, color=COLOURS[index % len(COLOURS)], linewidth=1.8)
    for begin_s, end_s, share in wanted:
        axes.plot((begin_s, end_s), (share * 100, share * 100), color="black", linestyle="--", linewidth=0.9)
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
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=len(series), fontsize=9, frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
