"""`vgpu history`: the recorded use of a device, slice, job, queue or user, as a plot or as a table."""

from __future__ import annotations

import csv
import sys
import time
from typing import TYPE_CHECKING

import click

from vgpud.cli.common.options import FORMATS, Settings, VgpuCommand, pass_settings
from vgpud.cli.common.times import Span, When
from vgpud.cli.common.users import User
from vgpud.v1alpha1.words import HISTORY_KIND

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

_NS = 1_000_000_000
#: the range without --since, and characters of a plot that goes into no terminal
_RANGE_NS, _CELLS = 3600 * _NS, 60


@click.command("history", cls=VgpuCommand, short_help="Plot what devices, slices, jobs and users have used.")
@click.argument("kind", type=click.Choice(HISTORY_KIND.words), metavar="KIND")
@click.argument("name", default="")
@click.option("--since", "since_ns", type=When(), metavar="MOMENT", help="Start: 7d (ago) or 2026-11-01 (default: 1h).")
@click.option("--until", "until_ns", type=When(), metavar="MOMENT", help="End (default: now).")
@click.option("--step", "step_ns", type=Span(), metavar="TIME", help="Least time between points, e.g. 1h.")
@click.option("-o", "--output", "format_", type=click.Choice((*FORMATS, "csv")), help="Output format.")
@pass_settings
def history(
    settings: Settings,
    kind: str,
    name: str,
    since_ns: int | None,
    until_ns: int | None,
    step_ns: int | None,
    format_: str | None,
) -> None:
    """Plot what a device, slice, job, queue, user or the node has used, also after its end. Users see devices and what
    is their own; admins see all.

    \b
    vgpu history node                     all devices together in the last hour
    vgpu history device 0 --since 1y      its utilisation and memory
    vgpu history slice train-a --since 7d
    vgpu history job 12 --since 1d -o csv

    Kept are points of 10 s for an hour, of 1 m for a week and of 15 m for a year. The top of a plot is the limit, or
    the highest value if that is more; a blank is a time without a record. -o json and csv have all points, at most
    2000, in thousandths of a GPU and in bytes.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import dump
    from vgpud.client import calls
    from vgpud.view import history as view

    settings.output = format_ or settings.output
    if not name and kind != "node":
        raise click.UsageError(f"which {kind}? Write its name or number behind the word {kind}")
    if kind == "user":
        name = str(User().convert(name, None, None))
    until_ns = until_ns or time.time_ns()
    since_ns = until_ns - _RANGE_NS if since_ns is None else since_ns
    if since_ns >= until_ns:
        raise click.UsageError("--since must be before --until: swap them")
    with Client(settings) as client:
        found = client.send(calls.history(kind, name, since_ns, until_ns, step_ns))
    if settings.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([view.CSV_HEAD] if settings.headers else [])
        writer.writerows(view.csv_rows(found))
    elif settings.output == "name":
        print(found.name)
    elif settings.output == "table":
        _plot(settings, kind, found, since_ns / _NS, until_ns / _NS)
    else:
        dump(settings, view.history_view(found, kind))


def _plot(settings: Settings, kind: str, course: pb.History, begin_s: float, end_s: float) -> None:
    from vgpud.cli.common.output import blocks_unknown, console, print_lines, width_of
    from vgpud.view.fit import INDENT_CELLS
    from vgpud.view.history import plot_lines
    from vgpud.view.text import plain

    width = width_of(sys.stdout)
    cells = _CELLS if width is None else max(1, min(_CELLS, width - INDENT_CELLS))
    lines = plot_lines(course, kind, begin_s, end_s, cells, blocks_unknown(console(settings)))
    print_lines((plain(line) for line in lines), " " * INDENT_CELLS)
