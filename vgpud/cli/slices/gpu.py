"""`vgpu gpu ls|drain|undrain`: the node's devices, and whether they are offered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from vgpud.cli.common.completions import complete_device
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.times import Span
from vgpud.cli.common.watching import ListCommand
from vgpud.errors import CliError, ExitCode
from vgpud.view.spans import format_span

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client

#: interval at which a drained device is looked at
_LOOK_S = 1.0


@click.group("gpu", cls=LazyGroup, short_help="List devices, take them out of use and back.")
def gpu() -> None:
    """List devices, take them out of use and back."""


@gpu.command("ls", cls=ListCommand, short_help="List the devices and reservations on them.")
@pass_settings
def gpu_ls(settings: Settings) -> None:
    """List the devices: utilisation, the sum of slices' minima, and what is free for further minima. OFFERED says
    whether slices are placed there; if not, it says why, or which other programs use the device."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view import slice_tables, slices

    with Client(settings) as client:
        rows = [slices.device_view(d) for d in client.all(calls.devices())]
    emit(settings, {"devices": rows}, [row["uuid"] for row in rows], lambda: slice_tables.devices_grid(rows))


_GPU = click.argument("devices", nargs=-1, required=True, metavar="GPU...", shell_complete=complete_device)


@gpu.command("drain", short_help="Place nothing new on devices.")
@_GPU
@click.option("--reason", required=True, metavar="TEXT", help="Reason, shown with refused requests.")
@click.option("--wait", is_flag=True, help="List the programs that still run there, and wait until none does.")
@click.option(
    "--deadline", "deadline_ns", type=Span(), metavar="TIME", help="With --wait: wait at most this long, e.g. 2h."
)
@pass_settings
def drain(settings: Settings, devices: tuple[str, ...], reason: str, wait: bool, deadline_ns: int | None) -> None:
    """Place nothing new on each GPU (index or UUID) until it is undrained. Running programs continue. For admins.

    With --wait the command lists the slices that have programs on these devices, with owner, queue and job. It prints
    the list again when it has changed, and ends when no program is left. Ctrl-C ends the waiting; --deadline ends it
    with exit code 7. The devices stay drained.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    if deadline_ns is not None and not wait:
        raise click.UsageError("--deadline is for --wait: add it, or leave --deadline out")
    with Client(settings) as client:
        drained = [client.send(calls.drain_device(device, reason)) for device in devices]
        for device in drained:
            say(f"device {device.index} is drained: {device.drained}")
        if wait:
            _wait_for_programs(client, {device.uuid for device in drained}, deadline_ns)


def _wait_for_programs(client: Client, uuids: set[str], deadline_ns: int | None) -> None:
    """Until no slice on these devices has a program. A paused or evicted one has. Raises CliError at the deadline."""
    from vgpud.cli.common.output import say

    begun_s = time.monotonic()
    last_lines: list[str] = []
    while True:
        left = _still_there(client, uuids)
        if left != last_lines:
            for line in left:
                say(line)
            last_lines = left
        if not left:
            say("no program is left on these devices")
            return
        if deadline_ns is not None and time.monotonic() - begun_s >= deadline_ns / 1e9:
            text = f"programs are left on these devices after {format_span(deadline_ns)}"
            raise CliError(f"{text}: end them, or wait again; the devices stay drained", ExitCode.TIMED_OUT)
        time.sleep(_LOOK_S)


def _still_there(client: Client, uuids: set[str]) -> list[str]:
    """A sentence for each slice with programs there."""
    from vgpud.client import calls
    from vgpud.view import slice_tables, slices
    from vgpud.view.user_names import user_name

    lines = []
    for item in client.all(calls.slices()):
        on = sorted(device.device_index for device in item.devices if device.device_uuid in uuids)
        if not on or not item.processes:
            continue
        holder = slice_tables.holder_label(slices.slice_view(item, frozenset()))
        made_for = "" if holder == "-" else f" for {holder}"
        programs = f"{item.processes} program{'s' if item.processes > 1 else ''}"
        where = f"device{'s' if len(on) > 1 else ''} {', '.join(map(str, on))}"
        who = f"{user_name(slices.find_owner_uid(item))} in queue {item.queue or '-'}"
        lines.append(f"{programs} on {where}: slice {item.name} of {who}{made_for}")
    return lines


@gpu.command("undrain", short_help="Offer drained devices again.")
@_GPU
@pass_settings
def undrain(settings: Settings, devices: tuple[str, ...]) -> None:
    """Offer drained GPUs (index or UUID) again, whether an admin or a fault drained them. For admins."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls
    from vgpud.view.slice_tables import not_offered

    with Client(settings) as client:
        for device in devices:
            now = client.send(calls.undrain_device(device))
            said = "offered" if now.offered else f"not drained, but {not_offered(now.taken_by)}"
            say(f"device {now.index} is {said}")
