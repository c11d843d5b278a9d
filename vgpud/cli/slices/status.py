"""`vgpu status`: one screen with the node, its devices and its slices."""

from __future__ import annotations

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings


@click.command("status", cls=VgpuCommand, short_help="Show devices, slices and their use on one screen.")
@pass_settings
def status(settings: Settings) -> None:
    """Show the node, its devices, its slices and what they use on one screen."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import dump, print_grid, print_lines
    from vgpud.client import calls
    from vgpud.view import slice_tables
    from vgpud.view import slices as views

    with Client(settings) as client:
        node = views.node_view(client.send(calls.node()))
        devices = client.all(calls.devices())
        slices = client.all(calls.slices())
    simulated = views.simulated_uuids(devices)
    device_rows = [views.device_view(d) for d in devices]
    slice_rows = [views.slice_view(s, simulated) for s in slices]
    if settings.output in ("json", "yaml"):
        dump(settings, {"node": node, "devices": device_rows, "slices": slice_rows})
        return
    if settings.output == "name":
        for row in slice_rows:
            print(row["name"])
        return
    now = slice_tables.now_utc()
    kind = "SIMULATED devices, " if node["simulated"] else ""
    print_lines([f"node {node['node']}: {kind}vgpud {node['version']}, up {slice_tables.age(node['start_time'], now)}"])
    print()
    print_grid(settings, slice_tables.devices_grid(device_rows))
    print()
    if slice_rows:
        print_grid(settings, slice_tables.slices_grid(slice_rows, now))
    else:
        text = "no slices: create one with `vgpu slice create NAME --gpus 0.5`, or use `vgpu run --gpus 0.5 -- COMMAND`"
        print_lines([text])
