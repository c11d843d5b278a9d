"""`vgpu run`: runs a command on a slice: its own, which ends with it, or an existing one (`--slice`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.completions import complete_slice
from vgpud.cli.common.exits import failures_are_125
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.slice_names import with_slice
from vgpud.cli.common.slice_options import build_spec, queue_option, spec_options
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: for a daemon that is being started
_START_S = 3.0
_CODES_OF_THE_COMMAND = (ExitCode.NOT_RUNNABLE, ExitCode.COMMAND_NOT_FOUND)


class RunningCommand(VgpuCommand):
    """A command that runs a program: failures before the program runs exit with 125, as docker's do."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with failures_are_125(_CODES_OF_THE_COMMAND):
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with failures_are_125(_CODES_OF_THE_COMMAND):
            return super().invoke(ctx)


@click.command(
    "run",
    cls=RunningCommand,
    short_help="Run a command on a slice of the GPUs.",
    context_settings={"allow_interspersed_args": False},
)
@spec_options
@click.option("--slice", "slice_name", metavar="NAME", shell_complete=complete_slice, help="Join this existing slice.")
@click.option("--name", default="", metavar="NAME", help="Name of the new slice (default: chosen by the daemon).")
@queue_option
@click.option("-q", "--quiet", is_flag=True, help="Do not print the slice's limits.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@pass_settings
def run(
    settings: Settings,
    /,
    slice_name: str | None,
    name: str,
    queue: str,
    quiet: bool,
    command: tuple[str, ...],
    **option_values: Any,
) -> int:
    """Run COMMAND, unchanged, on a slice of the GPUs.

    \b
    vgpu run --gpus 0.5 -- python train.py             half a device and half its memory
    vgpu run --gpus 0.3 --max 0.8 -- python train.py   30 % guaranteed, up to 80 % while others are idle
    vgpu run --gpus 0.2 --class latency -- ./serve     its 20 % served first, whenever it wants them
    vgpu run --gpus 1 --spread 2 -- python ddp.py      half of each of two devices
    vgpu run --slice team -- python train.py           join an existing slice

    The four limits on each device are printed on stderr. The slice ends with the command, or, if the command left
    processes behind, with the last of them.
    """
    if not command:
        raise click.UsageError("specify a command: for example vgpu run --gpus 0.5 -- python train.py")
    given = [key for key, value in option_values.items() if value is not None]
    if slice_name and (given or name or queue):
        raise click.UsageError("--slice joins a slice as it is: change it with `vgpu slice set`, or leave --slice out")
    if not slice_name and option_values["gpus"] is None:
        raise click.UsageError("specify a size: --gpus 0.5, or join a slice: --slice NAME")
    from vgpud.cli.common.child_process import block_signals
    from vgpud.cli.common.target import check_local

    check_local(settings, "vgpu run", "submit a job (`vgpu submit`), or log in there")
    mask = block_signals()  # before the client library starts threads
    spec = None if slice_name else build_spec(option_values)
    with _slice(settings, slice_name or name, spec, queue) as (node, item, simulated):
        return _run_in(settings, node, item, simulated, command, mask, quiet)


@contextmanager
def _slice(
    settings: Settings, name: str, spec: pb.SliceSpec | None, queue: str
) -> Iterator[tuple[pb.Node, pb.Slice, frozenset[str]]]:
    """The node, the slice (created from a spec, and then removed at the end), the simulated devices' UUIDs."""
    from vgpud.client import calls
    from vgpud.view import slices

    with _connect_client(settings) as (client, node):
        simulated = slices.simulated_uuids(client.all(calls.devices()))
        if spec is None:
            item = with_slice(client, name, lambda each: client.send(calls.get_slice(each)))
            _check_owner(item)
        else:
            item = client.send(calls.create_slice(name, spec, ephemeral=True, queue=queue))
    try:
        yield node, item, simulated
    finally:
        if spec is not None:
            _remove(settings, item)


@contextmanager
def _connect_client(settings: Settings) -> Iterator[tuple[Client, pb.Node]]:
    """A client and the node. A daemon that was started in the background a moment ago, `vgpud serve &`, is waited
    for."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    until_s = time.monotonic() + _START_S
    while True:
        with Client(settings) as client:
            try:
                node = client.send(calls.node())
            except CliError as error:
                if error.exit_code != ExitCode.UNREACHABLE or time.monotonic() >= until_s:
                    raise
            else:
                yield client, node
                return
        time.sleep(0.1)


def _check_owner(item: pb.Slice) -> None:
    """Raises early the refusal that the attach would get."""
    uid = os.getuid()
    if item.HasField("owner_uid") and item.owner_uid != uid and uid != 0:
        from vgpud.view.user_names import user_name

        owner = user_name(item.owner_uid)
        raise CliError(
            f"slice {item.name} belongs to {owner}: create your own, or have it created with --owner any",
            ExitCode.DENIED,
        )


def _remove(settings: Settings, item: pb.Slice) -> None:
    """Removes the command's slice. One still in use ends with its last process; without a daemon, by the next one."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    for wait_s in (0.05, 0.2, 0.5, 0):  # the daemon may not yet have noticed the end of the last process
        try:
            with Client(settings) as client:
                client.send(calls.delete_slice(item.name))
            return
        except CliError as error:
            if error.exit_code == ExitCode.NOT_FOUND:
                return
            if error.exit_code != ExitCode.CONFLICT:
                again = "a daemon that starts again removes it after its grace_s (60 s by default) without a program"
                ends = again if error.exit_code == ExitCode.UNREACHABLE else "it ends with its last process"
                say(f"slice {item.name} was not removed ({error.message}): {ends}")
                return
        time.sleep(wait_s)
    say(f"slice {item.name} is still in use: it ends with its last process")


def _run_in(
    settings: Settings,
    node: pb.Node,
    item: pb.Slice,
    simulated_device_uuids: frozenset[str],
    command: Sequence[str],
    mask: set[int],
    quiet: bool,
) -> int:
    from contextlib import nullcontext

    from vgpud.cli.common import child_process
    from vgpud.client.held_slice import RUN, Holder
    from vgpud.libraries import environment

    is_simulated = any(d.device_uuid in simulated_device_uuids for d in item.devices)
    variables = environment.for_slice(dict(os.environ), node, item, is_simulated)
    if not quiet:
        _announce(item, simulated_device_uuids)
    with Holder(item.attach_socket, RUN) if item.ephemeral else nullcontext():
        early = child_process.ended_early()
        if early:
            return early
        pid = child_process.start_child(command, variables, mask)
        sim_dir = variables.get("VGPU_SIM_DIR", "") if is_simulated else ""
        return child_process.wait_child(pid, _looker(pid, item, sim_dir))


def _looker(pid: int, item: pb.Slice, sim_dir: str) -> Callable[[], None]:
    """What says, once, that a program of the command uses a device outside the slice, or cannot use a simulated one."""
    from vgpud.cli.common.cpu_torch import TorchWatch
    from vgpud.cli.common.output import say
    from vgpud.cli.common.unhooked import Watch

    watch, is_reported = Watch(pid, sim_dir), False
    torch_watch = TorchWatch(pid) if sim_dir else None

    def look() -> None:
        nonlocal is_reported
        if torch_watch:
            torch_watch.look()
        found, program = (0, "") if is_reported else watch.look()
        if found:
            is_reported = True
            say(
                f"pid {found} ({program}) uses a device without the limits of slice {item.name}: the hook is not "
                "loaded; keep LD_PRELOAD in its environment, and see `vgpu doctor`"
            )

    return look


def _announce(item: pb.Slice, simulated_device_uuids: frozenset[str]) -> None:
    from vgpud.cli.common.output import say
    from vgpud.view import slice_tables, slices

    for device in slices.slice_view(item, simulated_device_uuids)["devices"]:
        low, high, mem_min, mem_max = slice_tables.four_numbers(device)
        label = slice_tables.device_label(device["device_index"], device["simulated"])
        say(f"slice {item.name} device {label}: SM time min {low} max {high}, memory min {mem_min} max {mem_max}")
