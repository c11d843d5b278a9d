"""`vgpu gpu ls|drain|undrain`: the node's devices, and whether they are offered."""

from __future__ import annotations

import click

from vgpud.cli.common.completions import complete_device
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings


@click.group("gpu", cls=LazyGroup, short_help="List devices, take them out of use and back.")
def gpu() -> None:
    """List devices, take them out of use and back."""


@gpu.command("ls", short_help="List the devices and reservations on them.")
@pass_settings
def gpu_ls(settings: Settings) -> None:
    """List the devices: utilisation, the sum of slices' minima, the rest that is free for further minima, and whether
    slices are placed there: OFFERED says why not, or which other programs use the device."""
    from vgpud.cli.common import tables, views
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit

    with Client(settings) as client:
        rows = [views.device_view(d) for d in client.devices()]
    emit(settings, {"devices": rows}, [row["uuid"] for row in rows], lambda: tables.devices_grid(rows))


_GPU = click.argument("devices", nargs=-1, required=True, metavar="GPU...", shell_complete=complete_device)


@gpu.command("drain", short_help="Place nothing new on devices.")
@_GPU
@click.option("--reason", required=True, metavar="TEXT", help="Reason, which refused requests get to see.")
@pass_settings
def drain(settings: Settings, devices: tuple[str, ...], reason: str) -> None:
    """Place nothing new on each GPU (index or UUID) until it is undrained. Running programs continue. For admins."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say

    with Client(settings) as client:
        for device in devices:
            drained = client.drain_device(device, reason)
            say(f"device {drained.index} is drained: {drained.drained}")


@gpu.command("undrain", short_help="Offer drained devices again.")
@_GPU
@pass_settings
def undrain(settings: Settings, devices: tuple[str, ...]) -> None:
    """Offer drained GPUs (index or UUID) again, whether an admin or a fault drained them. For admins."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.cli.common.tables import not_offered

    with Client(settings) as client:
        for device in devices:
            now = client.undrain_device(device)
            said = "offered" if now.offered else f"not drained, but {not_offered(now.taken_by)}"
            say(f"device {now.index} is {said}")
