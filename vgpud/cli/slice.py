"""`vgpu slice ...`: slices that stay until they are removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.asking import amount_options, build_spec
from vgpud.cli.completing import complete_slice
from vgpud.cli.options import LazyGroup, Settings, pass_settings
from vgpud.cli.quantities import IntParam
from vgpud.core.admit import PRIORITY_MAX, WEIGHT_MAX

if TYPE_CHECKING:
    from vgpud.cli.client import Client
    from vgpud.v1 import vgpud_pb2 as pb


UID_MAX = (1 << 32) - 2
PRIORITY_HELP = "Priority class: kept and shown, not used yet."


@click.group("slice", cls=LazyGroup, short_help="Create, list, show, change and remove slices.")
def slice_group() -> None:
    """Slices: the guaranteed and the greatest share of SM time and memory that a program is given."""


class Owner(IntParam):
    """A user's name or uid, or "any" (-1)."""

    name = "user"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        import pwd

        text = str(value)
        if text in ("any", "-1"):
            return -1
        if text.isascii() and text.isdigit() and int(text) <= UID_MAX:
            return int(text)
        try:
            return pwd.getpwnam(text).pw_uid
        except KeyError:
            self.fail(f"there is no user {text!r}: give a user name, a uid or any", param, ctx)


def _show(settings: Settings, client: Client, items: list[pb.Slice], many: bool) -> None:
    from vgpud.cli import grids, views
    from vgpud.cli.output import emit

    simulated = views.simulated_uuids(client.devices())
    rows = [views.slice_view(item, simulated) for item in items]
    data: dict[str, Any] = {"slices": rows} if many else {"slice": rows[0]}
    emit(settings, data, [row["name"] for row in rows], lambda: grids.slices_grid(rows, grids.now_utc()))


@slice_group.command("create", short_help="Create a slice that stays until it is removed.")
@click.argument("name")
@amount_options
@click.option(
    "--weight", type=click.IntRange(0, WEIGHT_MAX), default=0, help="Of borrowed time (default: by the minimum)."
)
@click.option("--priority", type=click.IntRange(0, PRIORITY_MAX), default=0, help=PRIORITY_HELP)
@click.option("--device", "devices", multiple=True, metavar="UUID", help="On this device; may be repeated.")
@click.option("--owner", type=Owner(), default=None, help="Who may join: user name, uid or any (default: you).")
@pass_settings
def create(
    settings: Settings,
    /,
    name: str,
    weight: int,
    priority: int,
    devices: tuple[str, ...],
    owner: int | None,
    **amounts: int | None,
) -> None:
    """Create slice NAME. Programs join it with `vgpu run --slice NAME -- COMMAND`."""
    if amounts["gpus"] is None:
        raise click.UsageError("say how much: for example --gpus 0.5")
    spec = build_spec(amounts, weight=weight, priority=priority, device_uuids=devices)
    from vgpud.cli.client import Client

    with Client(settings) as client:
        owner_uid = os.getuid() if owner is None else owner
        item = client.create_slice(name, spec, ephemeral=False, owner_uid=owner_uid)
        _show(settings, client, [item], many=False)


@slice_group.command("ls", short_help="List the slices.")
@pass_settings
def ls(settings: Settings) -> None:
    """List the slices: the four numbers on each device, what they got in the last second, and memory."""
    from vgpud.cli.client import Client

    with Client(settings) as client:
        _show(settings, client, client.slices(), many=True)


@slice_group.command("show", short_help="Show everything about a slice.")
@click.argument("name", shell_complete=complete_slice)
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show everything about slice NAME."""
    from vgpud.cli.client import Client

    with Client(settings) as client:
        item = client.get_slice(name)
        if settings.output != "table":
            _show(settings, client, [item], many=False)
            return
        from vgpud.cli import grids, views
        from vgpud.cli.output import print_grid

        view = views.slice_view(item, views.simulated_uuids(client.devices()))
        print_grid(settings, grids.slice_fields(view))


@slice_group.command("set", short_help="Change a slice while its programs run.")
@click.argument("name", shell_complete=complete_slice)
@amount_options
@click.option("--weight", type=click.IntRange(1, WEIGHT_MAX), default=None, help="Of borrowed time.")
@click.option("--priority", type=click.IntRange(1, PRIORITY_MAX), default=None, help=PRIORITY_HELP)
@pass_settings
def set_(settings: Settings, /, name: str, weight: int | None, priority: int | None, **amounts: int | None) -> None:
    """Change slice NAME while its programs run; what is not given stays as it is."""
    if all(value is None for value in (weight, priority, *amounts.values())):
        raise click.UsageError("say what to change: for example --max 0.8")
    spec = build_spec(amounts, weight=weight or 0, priority=priority or 0)
    from vgpud.cli.client import Client

    with Client(settings) as client:
        _show(settings, client, [client.update_slice(name, spec)], many=False)


@slice_group.command("rm", short_help="Remove slices.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_slice)
@click.option("--force", is_flag=True, help="Also while programs use it: they lose the slice.")
@pass_settings
def rm(settings: Settings, names: tuple[str, ...], force: bool) -> None:
    """Remove slices."""
    from vgpud.cli.client import Client
    from vgpud.cli.output import say

    with Client(settings) as client:
        for name in names:
            client.delete_slice(name, force)
            say(f"slice {name} removed")
