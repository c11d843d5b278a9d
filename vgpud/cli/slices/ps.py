"""`vgpu ps`: the processes that are attached to a slice."""

from __future__ import annotations

import click

from vgpud.cli.common.completions import complete_slice
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings


@click.command("ps", cls=VgpuCommand, short_help="List the processes that use a slice.")
@click.option(
    "--slice",
    "slice_name",
    default="",
    metavar="NAME",
    shell_complete=complete_slice,
    help="Only processes of this slice.",
)
@pass_settings
def ps(settings: Settings, slice_name: str) -> None:
    """List the processes that use a slice, with the four limits on each device."""
    from vgpud.cli.common import tables, views
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit

    with Client(settings) as client:
        slices = [client.get_slice(slice_name)] if slice_name else client.slices()
        processes = client.processes(slice_name)
        simulated = views.simulated_uuids(client.devices())
    rows = [views.process_view(p, simulated) for p in processes]
    limits = [views.slice_view(s, simulated) for s in slices]
    emit(
        settings,
        {"processes": rows},
        [row["pid"] for row in rows],
        lambda: tables.processes_grid(rows, limits, tables.now_utc()),
    )
