"""The screen of `vgpu job top`: a line per queue, then the jobs, running ones first, as many as fit."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import blocks_unknown, console, dump, print_grid, say, to_rich
from vgpud.core.units import format_gpus
from vgpud.view import figures, job_tables, slice_tables
from vgpud.view.fit import Grid, Line, draw, wrap_text
from vgpud.view.slices import View
from vgpud.view.text import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Sample = dict[str, Any]
_ORDER = {"running": 0, "suspended": 1, "pending": 2, "held": 3}
_BAR_CELLS = 20
#: lines below those of the queues that are not jobs: a blank, the titles and the number of hidden jobs, the cursor's
_OTHER_LINES = 4
_JOB_LINES_LEAST = 1


def watch(settings: Settings, samples: Iterator[Sample | str], count: int | None) -> None:
    """Shows the samples as they come."""
    if settings.output == "table" and sys.stdout.isatty():
        _live(settings, samples, count)
        return
    for sample in samples:
        if isinstance(sample, str):
            say(sample)
        elif settings.output == "name":
            print(" ".join(str(job["job_id"]) for job in sample["jobs"]), flush=True)
        elif settings.output == "table":
            print_grid(settings, queues_grid(sample["queues"], ascii_only=True))
            print_grid(settings, job_tables.jobs_grid(_sort_jobs(sample["jobs"]), slice_tables.now_utc()))
            sys.stdout.flush()
        else:
            dump(settings, sample, line=True)


def _sort_jobs(jobs: Sequence[View]) -> list[View]:
    return sorted(jobs, key=lambda job: (_ORDER[job["state"]], job["position"] or 0, job["job_id"]))


def queues_grid(queues: Sequence[View], ascii_only: bool) -> Grid:
    """Each queue's use, relative to its limit, or to its guarantee if it has no limit."""
    titles = ("QUEUE", ">USED", "OF", "FULL", ">RUNNING", ">PENDING", "POLICY")
    grid = Grid(titles, first_to_go=("POLICY", "FULL", "PENDING", "OF"))
    for queue in queues:
        top = queue["limit_milli"] if queue["limit_milli"] is not None else queue["guarantee_milli"]
        full = min(1.0, queue["used_milli"] / top) if top else 0.0
        grid.rows.append(
            (
                queue["name"],
                format_gpus(queue["used_milli"]),
                format_gpus(top) if top else "-",
                figures.bar(full, _BAR_CELLS, ascii_only) if top else "",
                str(queue["running"]),
                str(queue["pending"]),
                queue["policy"],
            )
        )
    return grid


def frame(terminal: Console, sample: Sample, at: str, problem: str = "") -> RenderableType:
    """One screen."""
    from rich.console import Group
    from rich.text import Text

    jobs, width = _sort_jobs(sample["jobs"]), terminal.width
    counts = {state: sum(job["state"] == state for job in jobs) for state in _ORDER}
    states = ", ".join(f"{number} {state}" for state, number in counts.items() if number)
    first = f"{at}  {states or 'no jobs'}" + (f"  {plain(problem)}" if problem else "")
    parts = [Text(line) for line in wrap_text(first, width)]
    parts += to_rich(draw(queues_grid(sample["queues"], blocks_unknown(terminal)), True, width).lines)
    left = max(_JOB_LINES_LEAST, terminal.size.height - len(parts) - _OTHER_LINES)
    shown, lines = _fitting(jobs, width, left)
    parts += [Text(""), *to_rich(lines)]
    if len(jobs) > shown:
        parts.append(Text(f"and {len(jobs) - shown} more: `vgpu job ls`"))
    return Group(*parts)


def _fitting(jobs: Sequence[View], width: int, height: int) -> tuple[int, list[Line]]:
    """How many jobs have all their lines within this height, at least one; and these lines, the titles first."""
    count = min(len(jobs), height)
    while True:
        lines = draw(job_tables.jobs_grid(jobs[:count], slice_tables.now_utc()), True, width).lines
        if len(lines) <= height + 1 or count <= 1:
            return count, lines
        count = max(1, min(count - 1, count * height // len(lines)))


def _live(settings: Settings, samples: Iterator[Sample | str], count: int | None) -> None:
    from rich.live import Live

    out, at = console(settings), ""
    shown: Sample = {"queues": [], "jobs": []}
    with Live(console=out, screen=True, auto_refresh=False) as live:
        for sample in samples:
            problem = sample if isinstance(sample, str) else ""
            if not isinstance(sample, str):
                shown, at = sample, time.strftime("%H:%M:%S")
            view = frame(out, shown, at, problem)
            live.update(view, refresh=True)
    if count:
        out.print(view)  # the screen that it was drawn on is gone
