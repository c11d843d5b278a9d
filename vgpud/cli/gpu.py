"""`vgpu gpu ls`: the devices of the node."""

from __future__ import annotations

import click

from vgpud.cli.options import LazyGroup, Settings, pass_settings


@click.group("gpu", cls=LazyGroup, short_help="List devices.")
def gpu() -> None:
    """Devices."""


@gpu.command("ls", short_help="List the devices and what is reserved on them.")
@pass_settings
def gpu_ls(settings: Settings) -> None:
    """List the devices: use, what slices have reserved as their minima, and what is free for others' minima."""
    from vgpud.cli import grids, views
    from vgpud.cli.client import Client
    from vgpud.cli.output import emit

    with Client(settings) as client:
        rows = [views.device_view(d) for d in client.devices()]
    emit(settings, {"devices": rows}, [row["uuid"] for row in rows], lambda: grids.devices_grid(rows))
