"""`vgpu ps`: the processes that are attached to a slice."""

from __future__ import annotations

import click

from vgpud.cli.common import filters
from vgpud.cli.common.completions import complete_slice
from vgpud.cli.common.options import Settings, pass_settings
from vgpud.cli.common.slice_names import with_slice
from vgpud.cli.common.watching import ListCommand


@click.command("ps", cls=ListCommand, short_help="List the processes that use a slice.")
@click.option(
    "--slice",
    "slice_name",
    default="",
    metavar="NAME",
    shell_complete=complete_slice,
    help="Only processes of this slice.",
)
@filters.user_option("Only processes of this user.")
@filters.state_option(filters.SLICE_STATES, "Only processes whose slice is in this state")
@filters.since_option("Only processes that attached since: 1h (ago), 2026-11-01 or 2026-11-01T08:00.")
@pass_settings
def ps(settings: Settings, slice_name: str, uid: int | None, states: tuple[str, ...], since: int | None) -> None:
    """List the processes that use a slice, with the four limits on each device."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view import slice_tables
    from vgpud.view import slices as views

    with Client(settings) as client:
        if slice_name:
            slices = [with_slice(client, slice_name, lambda name: client.send(calls.get_slice(name)))]
            slice_name = slices[0].name
        else:
            slices = client.all(calls.slices())
        processes = client.all(calls.processes(slice_name))
        simulated = views.simulated_uuids(client.all(calls.devices()))
    shown = {item.name for item in slices if not states or filters.slice_state(item) in states}
    processes = [p for p in processes if uid in (None, p.uid) and (not states or p.slice in shown)]
    rows = [views.process_view(p, simulated) for p in processes if filters.is_since(p.attach_time, since)]
    limits = [views.slice_view(s, simulated) for s in slices]
    emit(
        settings,
        {"processes": rows},
        [row["pid"] for row in rows],
        lambda: slice_tables.processes_grid(rows, limits, slice_tables.now_utc()),
    )
