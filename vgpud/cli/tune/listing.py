"""`vgpu tune ls`, `show` and `rm`: what is kept."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.view.fit import Cell, Grid
from vgpud.view.rates import format_rate

if TYPE_CHECKING:
    from vgpud.core.tune.model import Candidate
    from vgpud.core.tune.record import Record, Row


def record_view(record: Record) -> dict[str, Any]:
    """The fields of `-o json`, whose names are stable."""
    frontier = _find_frontier(record)
    return {
        "name": record.name,
        "command": list(record.command),
        "variables": dict(record.variables),
        "directory": record.directory,
        "gpu": record.device,
        "time": _time(record).isoformat(),
        "unit": record.unit,
        "run_s": record.run_s,
        "samples": record.work.samples or None,
        "steps": record.work.steps or None,
        "deadline_s": record.work.deadline_s or None,
        "gpu_seconds_used": record.gpu_seconds_used,
        "gpu_seconds_granted": record.gpu_seconds_granted,
        "candidates": [
            row.view(record.work, index == record.choice, row.candidate in frontier)
            for index, row in enumerate(record.rows)
        ],
    }


def _find_frontier(record: Record) -> set[Candidate]:
    from vgpud.core.tune.choice import find_frontier

    measured = [(row.candidate, row.rate) for row in record.rows if row.rate and not row.why_out]
    return {candidate for candidate, _ in find_frontier(measured, record.work)}


def _time(record: Record) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(record.unix_s, datetime.timezone.utc)


def _unit(record: Record) -> str:
    from vgpud.core.tune.record import LAUNCHES

    if record.unit != LAUNCHES:
        return record.unit
    return "launches x batch" if record.rows[0].candidate.value("batch") else record.unit


def describe_choice(record: Record) -> str:
    """One sentence without its end. There is a choice."""
    row = record.chosen_row
    assert row
    per_gpu = format_rate(row.rate / row.candidate.gpus)
    text = f"best: {row.candidate.describe()}, {format_rate(row.rate)} {_unit(record)}/s, {per_gpu} per GPU"
    if record.work.samples_of(row.candidate):
        from vgpud.view.spans import format_span

        text += f"; the whole work takes {format_span(_whole_ns(record, row))}"
        if record.work.deadline_s:
            text += f" of {format_span(round(record.work.deadline_s) * 10**9)}"
    return text


def _whole_ns(record: Record, row: Row) -> int:
    return max(1, round(record.work.duration_s(row.candidate, row.rate))) * 10**9


def describe_fastest(record: Record) -> str:
    """For a deadline that none meets."""
    from vgpud.view.spans import format_span

    known = [row for row in record.rows if row.rate and not row.why_out]
    row = min(known, key=lambda row: record.work.duration_s(row.candidate, row.rate))
    deadline = format_span(round(record.work.deadline_s) * 10**9)
    return f"the fastest, {row.candidate.describe()}, takes {format_span(_whole_ns(record, row))} instead of {deadline}"


def show_record(settings: Settings, record: Record) -> None:
    """In the chosen format; `name`: the choice's options."""
    from vgpud.cli.common.output import emit

    chosen = [record.chosen_row.candidate.describe()] if record.chosen_row else []
    emit(settings, {"tune": record_view(record)}, chosen, lambda: _grid(record))


def _grid(record: Record) -> Grid:
    from vgpud.core.tune.model import PLACEHOLDERS
    from vgpud.core.units import format_bytes, format_gpus
    from vgpud.view.spans import format_span

    names = [name for name in PLACEHOLDERS if record.rows[0].candidate.value(name) is not None]
    has_classes = len({row.candidate.service_class for row in record.rows}) > 1
    has_work = any(record.work.samples_of(row.candidate) for row in record.rows)
    unit = _unit(record).upper()
    titles = [">GPUS", *(["CLASS"] if has_classes else []), *(f">{name.upper()}" for name in names)]
    titles += [f">{unit}/S", ">PER GPU", *([">WORK"] if has_work else []), ">MEASURED", ">MEMORY", "NOTE"]
    frontier = _find_frontier(record)
    grid = Grid(titles, first_to_go=("MEMORY", "MEASURED"), own_line_columns=("NOTE",))
    for index, row in enumerate(record.rows):
        one, is_known = row.candidate, bool(row.rate and not row.why_out)
        cells = [format_gpus(one.gpus_milli), *([one.service_class] if has_classes else [])]
        cells += [str(one.value(name)) for name in names]
        cells += [format_rate(row.rate), format_rate(row.rate / one.gpus)] if is_known else ["-", "-"]
        if has_work:
            cells.append(format_span(_whole_ns(record, row)) if is_known else "-")
        cells += [f"{row.progress_s:.1f}s" if is_known else "-"]
        cells += [format_bytes(row.mem_peak_bytes) if row.mem_peak_bytes else "-"]
        note = "best" if index == record.choice else "frontier" if one in frontier else row.why_out
        grid.rows.append([*cells, Cell(note, "green" if index == record.choice else "")])
    return grid


@click.command("ls", cls=VgpuCommand, short_help="List what is kept.")
@pass_settings
def ls(settings: Settings) -> None:
    """List your tunings, the newest first."""
    from vgpud.cli.common import kept_tunes
    from vgpud.cli.common.output import emit, say
    from vgpud.core.units import format_gpus

    records, problems = kept_tunes.load_all()

    def grid() -> Grid:
        made = Grid(("NAME", "TIME", ">GPUS", "VALUES", "COMMAND"), names=("NAME",), own_line_columns=("COMMAND",))
        for record in records:
            row = record.chosen_row
            values = ", ".join(f"{name} {value}" for name, value in row.candidate.values) if row else "no choice"
            when = _time(record).astimezone().strftime("%Y-%m-%d %H:%M")
            size = format_gpus(row.candidate.gpus_milli) if row else "-"
            made.rows.append((record.name, when, size, values or "-", " ".join(record.command)))
        return made

    emit(settings, {"tunes": [record_view(one) for one in records]}, [one.name for one in records], grid)
    for problem in problems:
        say(problem)
    if not (records or problems) and settings.output == "table":
        say("nothing is kept: `vgpu tune -- COMMAND` finds how a command is run best")


@click.command("show", cls=VgpuCommand, short_help="Show a tuning.")
@click.argument("name", metavar="NAME")
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show tuning NAME: all candidates, those of the frontier, and the best."""
    from vgpud.cli.common import kept_tunes
    from vgpud.cli.common.output import print_lines, say

    record = kept_tunes.load(name)
    if settings.output == "table":
        print_lines([f"{record.name}  {' '.join(record.command)}  in {record.directory}, on {record.device}"], "  ")
    show_record(settings, record)
    if settings.output == "table":
        text = describe_choice(record) if record.chosen_row else f"no candidate meets it: {describe_fastest(record)}"
        say(text)


@click.command("rm", cls=VgpuCommand, short_help="Remove tunings.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_settings
def rm(settings: Settings, names: tuple[str, ...]) -> None:
    """Remove tunings, and the output of their runs."""
    from vgpud.cli.common import kept_tunes

    for name in names:
        kept_tunes.remove(name)
