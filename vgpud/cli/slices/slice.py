"""`vgpu slice ...`: slices that stay until they are removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common import filters
from vgpud.cli.common.columns import check_columns, columns_option, with_columns
from vgpud.cli.common.completions import complete_slice
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.cli.common.slice_names import with_slice
from vgpud.cli.common.slice_options import build_spec, change_options, changed_fields, queue_option, spec_options
from vgpud.cli.common.users import ANY_USER, Owner
from vgpud.cli.common.watching import ListCommand

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb


@click.group(
    "slice",
    cls=LazyGroup,
    old_names={"restore": ("vgpud.cli.slices.slice:slice_group.resume", "vgpu slice resume")},
    short_help="Create, list, show, change and remove slices.",
)
def slice_group() -> None:
    """Slices: the guaranteed and the maximum share of SM time and memory for programs."""


def _show(settings: Settings, client: Client, items: list[pb.Slice], many: bool, columns: tuple[str, ...] = ()) -> None:
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view import slice_tables, slices

    simulated = slices.simulated_uuids(client.all(calls.devices()))
    rows = [slices.slice_view(item, simulated) for item in items]
    data: dict[str, Any] = {"slices": rows} if many else {"slice": rows[0]}
    names = [row["name"] for row in rows]
    emit(settings, data, names, lambda: with_columns(slice_tables.slices_grid(rows, slice_tables.now_utc()), columns))


@slice_group.command("create", short_help="Create a slice that stays until it is removed.")
@click.argument("name")
@spec_options
@click.option(
    "--device", "devices", multiple=True, metavar="GPU", help="Only on this device (UUID or index); may be repeated."
)
@queue_option
@click.option(
    "--owner",
    type=Owner(),
    default=None,
    help="User who may join: a user name, a uid, or the word `any` (default: you; others: admins only).",
)
@pass_settings
def create(
    settings: Settings,
    /,
    name: str,
    devices: tuple[str, ...],
    queue: str,
    owner: int | None,
    **option_values: Any,
) -> None:
    """Create slice NAME. Programs join it with `vgpu run --slice NAME -- COMMAND`.

    A slice gets its minimum whenever it wants to run, and borrows idle capacity up to its maximum. Slices with the
    highest priority borrow first, equal ones by weight. With class latency the guarantee is served first; over time the
    slice gets no more than its guarantee in this way. This class requires a minimum above 0. A slice over several
    shared devices takes turns, whatever its class.
    """
    from vgpud.client import calls

    if option_values["gpus"] is None:
        raise click.UsageError("specify a size: for example --gpus 0.5")
    if not name:  # the daemon would choose one, but the user's shell variable is unset
        raise click.UsageError("the name is empty: give the slice a name")
    spec = build_spec(option_values, device_uuids=devices)
    from vgpud.cli.common.client import Client

    with Client(settings) as client:
        every_user = owner == ANY_USER
        owner_uid = None if every_user else owner
        call = calls.create_slice(name, spec, owner_uid=owner_uid, every_user=every_user, queue=queue)
        item = client.send(call)
        _show(settings, client, [item], many=False)


@slice_group.command("ls", cls=ListCommand, short_help="List the slices.")
@filters.user_option("Only slices of this user.")
@filters.state_option(filters.SLICE_STATES, "Only slices in this state")
@filters.since_option("Only slices that were created since: 1h (ago), 2026-11-01 or 2026-11-01T08:00.")
@columns_option("slice,device,got,mem-used")
@pass_settings
def ls(
    settings: Settings, uid: int | None, states: tuple[str, ...], since: int | None, columns: tuple[str, ...]
) -> None:
    """List the slices: the four limits on each device, the share in the last second, and memory.

    A slice is active while it has a program, paused or evicted when it is suspended, otherwise idle.
    """
    check_columns(settings, columns)
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.view.slices import find_owner_uid

    with Client(settings) as client:
        found = [item for item in client.all(calls.slices()) if uid in (None, find_owner_uid(item))]
        found = [item for item in found if not states or filters.slice_state(item) in states]
        found = [item for item in found if filters.is_since(item.create_time, since)]
        _show(settings, client, found, many=True, columns=columns)
    if not found and settings.output == "table" and os.getuid():
        from vgpud.cli.common.output import say

        text = "no such slice is yours; those of containers that you started by docker are root's, unless the site lets"
        say(f"{text} them name you: `vgpu docs docker`")


@slice_group.command("show", short_help="Show everything about a slice.")
@click.argument("name", shell_complete=complete_slice)
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show everything about slice NAME: its limits, its usage, and how long its threads waited."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        item = with_slice(client, name, lambda full_name: client.send(calls.get_slice(full_name)))
        if settings.output != "table":
            _show(settings, client, [item], many=False)
            return
        from vgpud.cli.common.output import blocks_unknown, console, print_lines
        from vgpud.cli.slices import show
        from vgpud.view import slice_tables, slices

        view = slices.slice_view(item, slices.simulated_uuids(client.all(calls.devices())))
        print_lines(show.slice_lines(view, slice_tables.now_utc(), blocks_unknown(console(settings))), show.FURTHER)


@slice_group.command("set", short_help="Change a slice while its programs run.")
@click.argument("name", shell_complete=complete_slice)
@change_options
@pass_settings
def set_(settings: Settings, /, name: str, **option_values: Any) -> None:
    """Change slice NAME while its programs run; other values stay.

    \b
    vgpu slice set train --max 0.8 --priority 5
    vgpu slice set train --max default             as if --max had never been given

    "default" resets any value except --gpus.
    """
    fields = changed_fields(option_values)
    if not fields:
        raise click.UsageError("specify a change: for example --max 0.8")
    spec = build_spec(option_values, is_change=True)
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        item = with_slice(client, name, lambda full_name: client.send(calls.update_slice(full_name, spec, fields)))
        _show(settings, client, [item], many=False)


@slice_group.command("rm", short_help="Remove slices.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_slice)
@click.option("--force", is_flag=True, help="Remove it even while programs use it: they lose the slice.")
@pass_settings
def rm(settings: Settings, names: tuple[str, ...], force: bool) -> None:
    """Remove slices. Here each name must be complete."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    with Client(settings) as client:
        for name in names:
            client.send(calls.delete_slice(name, force))
            say(f"slice {name} removed")


_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_slice)
_DEADLINE = click.option(
    "--deadline",
    "deadline_s",
    type=Number(2, 600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Time limit for moving the memory; then the move is undone.",
)


@slice_group.command("pause", short_help="Make the programs of slices wait.")
@_NAMES
@pass_settings
def pause(settings: Settings, names: tuple[str, ...]) -> None:
    """Make the programs of slices wait at their next launch; their memory stays.

    The SM time that a paused slice is guaranteed is offered to others.
    """
    _suspend(settings, names, evict=False, deadline_s=2.0)


@slice_group.command("evict", short_help="Move the device memory of slices to the host.")
@_NAMES
@_DEADLINE
@pass_settings
def evict(settings: Settings, names: tuple[str, ...], deadline_s: float) -> None:
    """Pause slices and move their device memory to the host, by the driver's checkpoint (570 and later).

    For slices with one program, without managed memory or memory shared between processes; others are refused and
    continue as before. The slice's guarantee is offered to others.
    """
    _suspend(settings, names, evict=True, deadline_s=deadline_s)


@slice_group.command("resume", short_help="Resume suspended slices.")
@_NAMES
@_DEADLINE
@pass_settings
def resume(settings: Settings, names: tuple[str, ...], deadline_s: float) -> None:
    """Resume paused and evicted slices on their devices. Exit code 6: a device has too little free capacity."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    with Client(settings) as client:
        for name in names:
            item = with_slice(client, name, lambda each: client.send(calls.resume_slice(each, deadline_s)))
            say(f"slice {item.name} resumed")


def _suspend(settings: Settings, names: tuple[str, ...], *, evict: bool, deadline_s: float) -> None:
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    with Client(settings) as client:
        for name in names:
            item = with_slice(client, name, lambda each: client.send(calls.suspend_slice(each, evict, deadline_s)))
            say(f"slice {item.name} is {'evicted' if evict else 'paused'}")
