"""`vgpu events [-f]`: the event log."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import click

from vgpud.cli.common import filters
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb


@click.command("events", cls=VgpuCommand, short_help="Show what happened to slices, processes and devices.")
@click.option("-f", "--follow", is_flag=True, help="Follow new events, until Ctrl-C.")
@click.option("-n", "--last", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N events.")
@click.option("--slice", "slice_name", default=None, metavar="NAME", help="Only events of this slice.")
@filters.user_option("Only events of this user's slices and jobs.")
@click.option(
    "--kind", default="", metavar="KIND", help="Only events of this kind: job.started; job means all job.* events."
)
@filters.since_option("Only events since: 1h (ago), 2026-11-01 or 2026-11-01T08:00.")
@pass_settings
def events(
    settings: Settings,
    follow: bool,
    last: int | None,
    slice_name: str | None,
    uid: int | None,
    kind: str,
    since: int | None,
) -> None:
    """Show events: slices created and changed, processes attached and ended, refusals."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view import slice_tables, slices

    def is_selected(event: pb.Event) -> bool:
        if slice_name not in (None, event.slice) or uid not in (None, slices.find_owner_uid(event)):
            return False
        return event.kind.startswith(f"{kind}.") or kind in ("", event.kind)

    with Client(settings) as client:
        label = slice_tables.node_label(client.send(calls.node())) if settings.output == "table" else ""
        past = client.all(calls.events())
        after = max((event.sequence for event in past), default=0)
        rows = [slices.event_view(e) for e in past if is_selected(e) and filters.is_since(e.create_time, since)]
        if last is not None:
            rows = rows[len(rows) - min(last, len(rows)) :]
        if not follow:
            emit(
                settings,
                {"events": rows},
                [row["sequence"] for row in rows],
                lambda: slice_tables.events_grid(rows, label),
            )
            return
        # A KeyboardInterrupt raised in one of grpc's callbacks can get lost; nothing here needs an orderly end.
        signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))
        for row in rows:
            _line(settings, row, label)
        for event in client.watch(calls.watch_events(after)):
            if is_selected(event):
                _line(settings, slices.event_view(event), label)


def _line(settings: Settings, row: dict[str, object], label: str) -> None:
    """One event of a stream: a line of text, a line of json or a yaml document."""
    from vgpud.cli.common.output import dump, print_lines
    from vgpud.view import slice_tables
    from vgpud.view.fit import INDENT_CELLS
    from vgpud.view.text import plain

    if settings.output in ("json", "yaml"):
        dump(settings, {"event": row}, line=True)
    elif settings.output == "name":
        print(row["sequence"], flush=True)
    else:
        print_lines(["  ".join(plain(cell) for cell in slice_tables.event_row(row, label)[1:])], " " * INDENT_CELLS)
        sys.stdout.flush()
