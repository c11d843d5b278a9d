"""The course of a device, slice, job, queue or user, as data and as lines of text. Pure: times are arguments."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vgpud.core.units import format_bytes, format_gpus
from vgpud.view.figures import sparkline
from vgpud.view.fit import INDENT_CELLS
from vgpud.view.spans import format_span

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a point, in the order of CSV
COLUMNS = (
    "used_milli",
    "used_peak_milli",
    "min_milli",
    "max_milli",
    "waiting_milli",
    "mem_used_bytes",
    "mem_peak_bytes",
    "mem_max_bytes",
)
#: columns of CSV
CSV_HEAD = ("begin_time", *COLUMNS)


def history_view(history: pb.History, kind: str) -> dict[str, Any]:
    """As JSON has it; times in UTC."""
    points = [
        {"begin_time": _iso(p.begin_time.seconds)} | {name: getattr(p, name) for name in COLUMNS}
        for p in history.points
    ]
    return {
        "kind": kind,
        "name": history.name,
        "node": history.node,
        "step_s": history.step.seconds,
        "points": points,
    }


def _iso(at_s: int) -> str:
    return datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def fill_cells(
    history: pb.History, value: Callable[[pb.HistoryPoint], float], begin_s: float, end_s: float, cells: int
) -> list[float | None]:
    """The range in this many cells: the mean of each, None where nothing was recorded. A point that is longer than a
    cell fills all that it covers."""
    sums: list[list[float]] = [[] for _ in range(cells)]
    cell_s = (end_s - begin_s) / cells
    for point in history.points:
        first = int((point.begin_time.seconds - begin_s) / cell_s)
        last = int((point.begin_time.seconds + history.step.seconds - 1 - begin_s) / cell_s)
        for cell in range(max(0, first), min(cells - 1, max(first, last)) + 1):
            sums[cell].append(value(point))
    return [sum(values) / len(values) if values else None for values in sums]


def plot_lines(
    history: pb.History, kind: str, begin_s: float, end_s: float, cells: int, ascii_only: bool = False
) -> Iterator[str]:
    """A line of figures and a line of blocks for SM time, memory and, if there was any, the time waited."""
    begin, end = (
        datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc).astimezone() for at_s in (begin_s, end_s)
    )
    cell = format_span(round((end_s - begin_s) / cells) * 1_000_000_000)
    yield f"{kind} {history.name}: {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} {end:%Z}, a character is {cell}"
    if not history.points:
        yield "nothing was recorded in this time"
        return

    def draw(value: Callable[[pb.HistoryPoint], float], top: float) -> str:
        found = fill_cells(history, value, begin_s, end_s, cells)
        return (
            " " * INDENT_CELLS + sparkline([None if v is None else v / max(top, 1) for v in found], ascii_only).rstrip()
        )

    points, last = history.points, history.points[-1]
    used, memory = [p.used_milli for p in points], [p.mem_used_bytes for p in points]
    peak, top = max(p.used_peak_milli for p in points), max(p.max_milli for p in points)
    limits = f"; min {format_gpus(last.min_milli)}" + (f", max {format_gpus(last.max_milli)}" if last.max_milli else "")
    yield f"SM time: mean {_gpus(_mean(used))}, peak {_gpus(peak)}{limits} GPUs"
    yield draw(lambda p: p.used_milli, max(peak, top))
    most, limit = max(p.mem_peak_bytes for p in points), max(p.mem_max_bytes for p in points)
    of = f"; limit {format_bytes(last.mem_max_bytes)}" if last.mem_max_bytes else ""
    yield f"memory: mean {format_bytes(round(_mean(memory)))}, peak {format_bytes(most)}{of}"
    yield draw(lambda p: p.mem_used_bytes, max(most, limit))
    waits = [p.waiting_milli for p in points]
    if any(waits):
        yield f"waited at the gate: mean {_mean(waits) / 10:.0f} %, highest {max(waits) / 10:.0f} %"
        yield draw(lambda p: p.waiting_milli, max(1000, *waits))


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)


def _gpus(milli: float) -> str:
    return format_gpus(round(milli / 10) * 10)


def csv_rows(history: pb.History) -> Iterator[tuple[object, ...]]:
    """A row for each point, in the order of CSV_HEAD."""
    for point in history.points:
        yield (_iso(point.begin_time.seconds), *(getattr(point, name) for name in COLUMNS))
