"""The screen of `vgpu top`: a block per device, a line per slice. As many columns as fit, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vgpud.cli.common.history import History, Recent
from vgpud.cli.common.output import blocks_unknown
from vgpud.cli.slices.top_keys import HELP, Screen
from vgpud.core.units import format_bytes, format_gpus
from vgpud.view import figures, slice_tables
from vgpud.view.fit import Cell, Grid, shorten_text, wrap_text
from vgpud.view.slices import View, describe_absence
from vgpud.view.text import natural_key, plain
from vgpud.view.user_names import user_name

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

Sample = dict[str, list[View]]

NAME_CELLS = (10, 28)  # least and most
MINUTE_CELLS = (7, 60)
#: columns of this rank and above are shown only if name and minute have this much more than their minimum
EXTRA_RANK, EXTRA_CELLS = 10, 18
#: meanings of the regimes
REGIMES = {
    "idle": "no slice runs",
    "solo": "one slice alone, no other one has programs",
    "open": "all gates open, the hardware shares",
    "throttled": "some slices wait briefly, or are at their maximum",
    "arbitrated": "saturating slices take turns",
}
_REGIME_STYLES = {"throttled": "yellow", "arbitrated": "cyan"}
_OFF_MILLI = 30  # a share that deviates by more is coloured
MEMORY_CELLS = 10
NAME_LEAST = 9  # of a device's name: SIMULATED


@dataclass(frozen=True)
class Line:
    """A slice on a device, with its recent rates."""

    item: View
    share: View
    recent: Recent


@dataclass(frozen=True)
class Column:
    """A column's title, width and contents; `rank`: the smallest are shown first when not all fit."""

    title: str
    cells: int
    rank: int
    text: Callable[[Line], str]
    style: Callable[[Line], str] = lambda line: ""


def _percent(ratio: float | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio * 100:.1f}" if ratio < 9.995 else f"{ratio * 100:.0f}"


def _got_style(line: Line) -> str:
    if line.share["share_ratio"] * 1000 > line.share["max_milli"] + _OFF_MILLI:
        return "red"
    short = line.share["share_ratio"] * 1000 < line.share["entitlement_milli"] - _OFF_MILLI
    return "yellow" if short and line.recent.throttled_ratio else "green"


def _memory_style(line: Line) -> str:
    return "yellow" if line.share["mem_used_bytes"] * 20 > line.share["mem_max_bytes"] * 19 else ""


def _due(line: Line) -> str:
    """A slice without a program has no entitlement."""
    return _percent(line.share["entitlement_milli"] / 1000 if line.share["gate"] else None)


def _balance(line: Line) -> str:
    """With its sign: + is a deficit, - an overdraft."""
    if not line.share["gate"]:
        return "-"
    text = figures.short_time(line.share["lag_ns"])
    return f"+{text}" if line.share["lag_ns"] > 0 and text != "0" else text


def _drain(line: Line) -> str:
    count = line.share["drains"]
    return figures.short_time(line.share["drain_total_ns"] / count) if count else "-"


#: in the order of display; the slice's name stands before them, the last minute after GOT%
COLUMNS = (
    Column("USER", 8, 7, lambda line: shorten_text(user_name(line.item["owner_uid"]), 8)),
    Column("QUEUE", 10, 18, lambda line: shorten_text(line.item["queue"] or "-", 10)),
    Column("FOR", 12, 13, lambda line: shorten_text(slice_tables.holder_label(line.item), 12)),
    Column("LIMITS", 10, 12, lambda line: slice_tables.span(*slice_tables.four_numbers(line.share)[:2])),
    Column("DUE%", 5, 1, _due),
    Column("GOT%", 5, 0, lambda line: _percent(line.share["share_ratio"]), _got_style),
    Column("10s%", 5, 13, lambda line: _percent(line.share["share_10s_ratio"])),
    Column("60s%", 5, 14, lambda line: _percent(line.share["share_60s_ratio"])),
    Column("WAIT%", 5, 2, lambda line: _percent(line.recent.throttled_ratio)),
    Column("p50", 6, 9, lambda line: figures.wait_quantile(line.recent.wait_counts, 0.5)),
    Column("p99", 6, 3, lambda line: figures.wait_quantile(line.recent.wait_counts, 0.99)),
    Column("BALANCE", 7, 5, _balance),
    Column("BORR%", 5, 6, lambda line: _percent(line.recent.borrowed_ratio)),
    Column("DRAIN", 6, 15, _drain),
    Column("GATE", 7, 8, lambda line: shorten_text(describe_absence(line.item) or line.share["gate"] or "-", 7)),
    Column(
        "MEM%",
        5,
        4,
        lambda line: _percent(line.share["mem_used_bytes"] / max(1, line.share["mem_max_bytes"])),
        _memory_style,
    ),
    Column("MEMORY", 9, 16, lambda line: format_bytes(line.share["mem_used_bytes"])),
    Column("PROCS", 5, 17, lambda line: str(line.item["processes"])),
)
_MINUTE_AFTER = "GOT%"


def choose_columns(width: int) -> list[Column]:
    """The columns that fit beside a short name and a short minute, in the order of display."""
    left = width - NAME_CELLS[0] - MINUTE_CELLS[0] - 1
    shown = set()
    for column in sorted(COLUMNS, key=lambda column: column.rank):
        left -= column.cells + 1
        if left < (EXTRA_CELLS if column.rank >= EXTRA_RANK else 0):
            break
        shown.add(column.title)
    return [column for column in COLUMNS if column.title in shown]


def frame(
    terminal: Console,
    sample: Sample,
    history: History,
    at: str = "",
    problem: str = "",
    screen: Screen | None = None,
) -> RenderableType:
    """One view of the console's size. at: its time; problem: why it is old; screen: what the user chose to see."""
    from rich.console import Group
    from rich.text import Text

    screen = screen or Screen()
    parts = _help(terminal.width) if screen.help else _blocks(terminal, sample, history, screen)
    parts.append(Text(f"{at}  {screen.footer()}".strip(), style="dim"))
    if problem:
        parts[-1] = Text(f"{at}  {plain(problem)}".strip(), style="bold red")
    for part in parts:
        part.no_wrap, part.overflow = True, "crop"
    return Group(*parts)


def _help(width: int) -> list[Text]:
    """The keys, and the columns for which the terminal is too narrow."""
    from rich.text import Text

    lines = [Text.assemble((f"{key:<8}", "bold"), text) for key, text in HELP]
    shown = choose_columns(width)
    left_out = ", ".join(column.title for column in COLUMNS if column not in shown)
    if left_out:
        lines += map(Text, wrap_text(f"not shown in {width} columns: {left_out}", width, " " * 8))
    return [*lines, Text("")]


def _blocks(terminal: Console, sample: Sample, history: History, screen: Screen) -> list[Text]:
    """Each device with its slices, as many as have space."""
    from rich.text import Text

    ascii_only = blocks_unknown(terminal)
    columns = choose_columns(terminal.width)
    spare = terminal.width - 1 - sum(column.cells + 1 for column in columns)
    longest = max((len(plain(item["name"])) for item in sample["slices"]), default=0)
    name_cells = min(max(longest, NAME_CELLS[0]), NAME_CELLS[1], spare - MINUTE_CELLS[0])
    minute_cells = max(1, min(spare - name_cells, MINUTE_CELLS[1]))
    programs = _programs(sample) if screen.processes else {}
    parts: list[Text] = []
    blocks = [(device, lines_of(sample, device, history, screen)) for device in sample["devices"]]

    def find_program_lines(line: Line) -> list[Text]:
        return programs.get((line.item["name"], line.share["device_uuid"]), [])

    heights = [max(1, sum(1 + len(find_program_lines(line)) for line in lines)) for _, lines in blocks]
    line_counts = _divide_lines(heights, terminal.height - 1 - 4 * len(blocks))
    for (device, lines), height, line_count in zip(blocks, heights, line_counts, strict=True):
        parts += [_device_line(device, lines, terminal.width), _health_line(device, ascii_only)]
        none = "no slice passes the filter" if screen.filter else "no slices"
        parts.append(_titles(columns, name_cells, minute_cells) if lines else Text(none, style="dim"))
        left = line_count if height <= line_count else max(1, line_count - 1)
        shown = 0
        for line in lines:
            if left < 1:
                break
            key = (line.item["uid"], line.share["device_uuid"])
            minute = figures.sparkline(history.shares(key, minute_cells), ascii_only)
            rows = [_slice_line(line, columns, name_cells, minute), *find_program_lines(line)][:left]
            parts += rows
            left -= len(rows)
            shown += 1
        if hidden := lines[shown:]:
            idle = sum(not line.item["processes"] for line in hidden)
            parts.append(Text(f"and {len(hidden)} more, {idle} of them without a program", style="dim"))
        parts.append(Text(""))
    return parts


def _programs(sample: Sample) -> dict[tuple[str, str], list[Text]]:
    """A line for each process, by the slice's name and the device's UUID."""
    from rich.text import Text

    found: dict[tuple[str, str], list[Text]] = {}
    for process in sample.get("processes", []):
        for device in process["devices"]:
            user, memory = shorten_text(user_name(process["uid"]), 10), format_bytes(device["mem_used_bytes"])
            text = f"  {process['pid']:>9}  {user:<10}  {memory:>9}  {plain(process['program'])}"
            found.setdefault((process["slice"], device["device_uuid"]), []).append(Text(text, style="dim"))
    return found


def _health_line(device: View, ascii_only: bool) -> Text:
    """Memory as a bar, and what NVML reports of temperature, power and faults; what it does not report is left out."""
    from rich.text import Text

    used, total = device["mem_used_bytes"], device["mem_total_bytes"]
    share = used / total if total else 0.0
    filled = figures.bar(min(1.0, share), MEMORY_CELLS, ascii_only)
    text = Text(f"  memory [{filled:<{MEMORY_CELLS}}] {format_bytes(used)} of {format_bytes(total)}")
    if device["temperature_celsius"] is not None:
        text.append(f"  {device['temperature_celsius']} C")
    if device["power_milliwatts"] is not None:
        limit = device["power_limit_milliwatts"]
        text.append(f"  {device['power_milliwatts'] / 1000:.0f}{f' of {limit / 1000:.0f}' if limit else ''} W")
    if device["xids"]:
        text.append(f"  XIDs: {device['xids']}, last {device['last_xid']}", style="bold red")
    return text


def _divide_lines(heights: Sequence[int], line_count: int) -> list[int]:
    """Lines for each device: all it needs if everything fits; otherwise the larger ones share the rest equally."""
    given = [0] * len(heights)
    left = sorted(range(len(heights)), key=lambda i: heights[i])
    while left:
        first = left.pop(0)
        given[first] = min(heights[first], max(1, line_count // (len(left) + 1)))
        line_count -= given[first]
    return given


#: how each order of the keys compares slices: the largest first
_ORDERS: dict[str, Callable[[Line], float]] = {
    "name": lambda line: 0,
    "got": lambda line: line.share["share_ratio"],
    "wait": lambda line: line.recent.throttled_ratio or 0,
    "memory": lambda line: line.share["mem_used_bytes"],
}


def lines_of(sample: Sample, device: View, history: History, screen: Screen | None = None) -> list[Line]:
    """The slices on a device: those with programs first, by name, so that lines stay where they are, or as chosen."""
    screen = screen or Screen()
    found = [
        Line(item, share, history.recent((item["uid"], share["device_uuid"])))
        for item in sample["slices"]
        for share in item["devices"]
        if share["device_uuid"] == device["uuid"] and screen.shows(item["name"], user_name(item["owner_uid"]))
    ]
    order = _ORDERS[screen.sort]
    return sorted(found, key=lambda line: (not line.item["processes"], -order(line), natural_key(line.item["name"])))


def grid(sample: Sample, history: History) -> Grid:
    """The same as a table of all columns, for output that is not a terminal."""
    table = Grid(("SLICE", "DEVICE", *(f">{column.title}" for column in COLUMNS)))
    for device in sample["devices"]:
        label = slice_tables.device_label(device["index"], device["simulated"])
        for line in lines_of(sample, device, history):
            cells = (Cell(column.text(line), column.style(line)) for column in COLUMNS)
            table.rows.append((line.item["name"], label, *cells))
    return table


def _device_line(device: View, lines: Sequence[Line], width: int) -> Text:
    from rich.text import Text

    regime = next((line.share["regime"] for line in lines if line.share["regime"]), "" if lines else "idle")
    head = f"device {device['index']}  "
    name = plain(slice_tables.full_name(device["name"], device["simulated"]))
    pieces = [
        f"  busy {slice_tables.percent(device['utilization_ratio'])}",
        f"  reserved {format_gpus(device['reserved_milli'])}",
    ]
    words = f": {REGIMES[regime]}" if regime in REGIMES else ""
    left = width - len(head) - len(regime) - 2 - sum(map(len, pieces))
    if left < NAME_LEAST:
        left += len(pieces.pop())
    if len(name) > left:
        name = name[: max(NAME_LEAST, left) + 1].rpartition(" ")[0] or name[: max(NAME_LEAST, left)]
    text = Text(head + name, style="bold")
    left -= len(name)
    text.append(
        f"  {regime}{words if left >= len(words) else ''}", f"not bold {_REGIME_STYLES.get(regime, '')}".strip()
    )
    return text.append("".join(pieces), style="not bold")


def _titles(columns: Sequence[Column], name_cells: int, minute_cells: int) -> Text:
    from rich.text import Text

    text = f"{'SLICE':<{name_cells}}"
    for column in columns:
        text += f" {column.title:>{column.cells}}"
        if column.title == _MINUTE_AFTER:
            text += f" {'LAST MINUTE' if minute_cells > 10 else 'MINUTE':<{minute_cells}}"
    return Text(text, style="dim")


def _slice_line(line: Line, columns: Sequence[Column], name_cells: int, minute: str) -> Text:
    from rich.text import Text

    idle = "" if line.item["processes"] else "dim"
    text = Text(f"{plain(line.item['name'])[:name_cells]:<{name_cells}}", style=idle)
    for column in columns:
        text.append(f" {column.text(line):>{column.cells}}", style=idle or column.style(line))
        if column.title == _MINUTE_AFTER:
            text.append(f" {minute}", style=idle or _got_style(line))
    return text
