"""`vgpu reserve`: devices for one queue, or for none, for a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from vgpud.cli.common.completions import complete_device, complete_queue
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.times import Begin, Span
from vgpud.cli.common.watching import ListCommand

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb
    from vgpud.view.fit import Grid
    from vgpud.view.slices import View


@click.group("reserve", cls=LazyGroup, short_help="Reserve devices for a queue, or for maintenance.")
def reserve() -> None:
    """Reserve devices for a time: for the jobs and slices of one queue, or for none, which is a maintenance window."""


@reserve.command("create", short_help="Reserve devices for a time.")
@click.argument("name")
@click.option(
    "--device",
    "devices",
    multiple=True,
    required=True,
    metavar="GPU",
    shell_complete=complete_device,
    help="This device, by index or UUID; repeatable.",
)
@click.option("--begin", type=Begin(), metavar="TIME", help="2h (from now), 16:00, 2027-01-15T08:00 (default: now).")
@click.option("--for", "span_ns", type=Span(), metavar="TIME", help="How long: 4h, 2d.")
@click.option("--end", type=Begin(), metavar="TIME", help="... or its end, written as for --begin.")
@click.option(
    "--queue", default="", metavar="NAME", shell_complete=complete_queue, help="For this queue and those below."
)
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown to users.")
@pass_settings
def create(
    settings: Settings,
    name: str,
    devices: tuple[str, ...],
    begin: int | None,
    span_ns: int | None,
    end: int | None,
    queue: str,
    reason: str,
) -> None:
    """Reserve devices for a time, for --queue or else for maintenance. For admins.

    \b
    vgpu reserve create cabling --device 0 --device 1 --begin 2027-01-15T08:00 --for 4h --reason "new cables"
    vgpu reserve create course --device 3 --begin 13:00 --for 3h --queue course

    Before the reservation begins, jobs known to run into it are not started on its devices. Jobs of unknown duration
    are started, and are requeued when it begins; jobs that cannot be preempted continue. `vgpu run` and containers
    that run there continue, and new ones are not placed there: `vgpu ps` shows what still runs.
    """
    if (span_ns is None) == (end is None):
        raise click.UsageError("specify the end: either --for 4h or --end 16:00")
    import time

    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    end_ns = end if span_ns is None else (begin or time.time_ns()) + span_ns
    if begin is not None and end_ns is not None and end_ns <= begin:
        raise click.UsageError("--end is before --begin: swap them")
    reservation = pb.Reservation(name=name, device_uuids=devices, queue=queue, reason=reason)
    if begin is not None:
        reservation.begin_time.FromNanoseconds(begin)
    reservation.end_time.FromNanoseconds(end_ns or 0)
    with Client(settings) as client:
        _show(settings, client, [client.send(calls.create_reservation(reservation))])


@reserve.command("ls", cls=ListCommand, short_help="List reservations.")
@pass_settings
def ls(settings: Settings) -> None:
    """List the reservations that have not ended, ordered by begin."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        found = client.send(calls.reservations())
        _show(settings, client, found)


@reserve.command("rm", short_help="Remove reservations.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_settings
def rm(settings: Settings, names: tuple[str, ...]) -> None:
    """Remove reservations: their devices are for all queues again. For admins."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    with Client(settings) as client:
        for name in names:
            client.send(calls.delete_reservation(name))
            say(f"reservation {name} removed")


def _show(settings: Settings, client: Client, reservations: Sequence[pb.Reservation]) -> None:
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view.slice_tables import device_label

    labels = {device.uuid: device_label(device.index, device.simulated) for device in client.all(calls.devices())}
    rows: list[View] = [
        {
            "name": one.name,
            "node": one.node,
            "device_uuids": list(one.device_uuids),
            "begin_time": one.begin_time.ToJsonString(),
            "end_time": one.end_time.ToJsonString(),
            "queue": one.queue or None,
            "reason": one.reason or None,
        }
        for one in reservations
    ]
    emit(settings, {"reservations": rows}, [row["name"] for row in rows], lambda: _grid(rows, labels))


def _grid(rows: Sequence[View], labels: dict[str, str]) -> Grid:
    from vgpud.view.fit import Grid
    from vgpud.view.slice_tables import parse_time

    titles = ("RESERVATION", "DEVICES", "BEGIN", "END", "QUEUE", "REASON")
    grid = Grid(titles, first_to_go=("QUEUE",), own_line_columns=("REASON",))
    for row in rows:
        times = [parse_time(row[name]).astimezone().strftime("%Y-%m-%dT%H:%M") for name in ("begin_time", "end_time")]
        devices = ",".join(labels.get(uuid, uuid) for uuid in row["device_uuids"])
        grid.rows.append((row["name"], devices, *times, row["queue"] or "none", row["reason"] or "-"))
    return grid
