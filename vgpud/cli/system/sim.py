"""`vgpu sim ...`: simulated devices, used only on request."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from vgpud import paths
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import Bytes, Gpus
from vgpud.cli.slices.run import RunningCommand
from vgpud.cli.system.sim_load import load
from vgpud.errors import CliError, ExitCode
from vgpud.simdevice.control import MODES

#: files of the server about itself, and the configuration that `start` writes
_LOG_NAME = "stderr"
_CONFIG_NAME = "sim.conf"
_STOP_S = 5.0


def _runtime_sim() -> Path:
    return paths.runtime_dir() / "sim"


def default_dir() -> Path:
    """The same directory as the daemon's: $VGPU_SIM_DIR, or `sim` in the runtime directory."""
    return Path(os.environ.get("VGPU_SIM_DIR") or _runtime_sim())


dir_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=default_dir,
    show_default="$VGPU_SIM_DIR, or sim in the runtime directory",
    help="Directory of the server.",
)


@click.group("sim", cls=LazyGroup, short_help="Simulated devices: start, stop, and run programs on them.")
def sim() -> None:
    """Simulated devices: their timing follows a model, and only a few kernels compute anything.

    \b
    vgpu sim start && vgpud serve --device sim      share a simulated device
    vgpu sim run -- python program.py               run a program on it, without a slice
    vgpu sim run --gpus 0.5 -- python program.py    run a program in a slice of a simulated device of its own
    """


sim.add_command(load)


def answers(folder: Path) -> bool:
    """Whether a server accepts programs in this directory."""
    from vgpud.simdevice import state_page

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.connect(str(folder / state_page.SOCKET_NAME))
    except OSError:
        return False
    return True


def _require(folder: Path) -> None:
    if folder == _runtime_sim():  # in /tmp any user can take the name, and then choose the process that `stop` ends
        paths.check_private_dir(folder.parent)
        paths.check_private_dir(folder)
    if not answers(folder):
        start = "vgpu sim start" if folder == default_dir() else f"vgpu sim start --dir {folder}"
        raise CliError(f"no simulated device runs in {folder}: start it with `{start}`", ExitCode.NOT_FOUND)


@sim.command("start", short_help="Start the server of simulated devices in the background.")
@dir_option
@click.option("--devices", type=click.IntRange(1, 16), default=1, help="Number of devices (default: 1).")
@click.option(
    "--memory", type=Bytes(), default=None, metavar="SIZE", help="Memory of each device (default: that of an H200)."
)
@click.option(
    "--host-memory",
    type=Bytes(),
    default=None,
    metavar="SIZE",
    help="Host memory for all devices together (default: half of the available memory).",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Configuration of `key = value` lines.",
)
@pass_settings
def start(
    settings: Settings, folder: Path, devices: int, memory: int | None, host_memory: int | None, config: Path | None
) -> None:
    """Start the server of simulated devices in the background and wait until it is ready."""
    if config and host_memory:
        text = "--host-memory cannot be combined with --config: set host_memory_bytes in that file"
        raise CliError(text, ExitCode.USAGE)
    server = paths.sim_lib_dir() / "vgpu-simd"
    if not server.exists():
        raise CliError(f"{server} does not exist: build it with `pip install .`")
    if answers(folder):
        raise CliError(
            f"a simulated device is already running in {folder}: use it, or stop it with `vgpu sim stop`",
            ExitCode.CONFLICT,
        )
    if folder == _runtime_sim():
        paths.make_private_dir(folder.parent, 0o755)
    paths.make_private_dir(folder, 0o755)
    if config is None:
        config = folder / _CONFIG_NAME
        lines = {"devices": devices, "memory_bytes": memory, "host_memory_bytes": host_memory}
        config.write_text("".join(f"{key} = {value}\n" for key, value in lines.items() if value))
    command = [str(server), "--dir", str(folder), "--config", str(config)]
    with (folder / _LOG_NAME).open("wb") as log:
        # it daemonizes itself; inherited descriptors that stayed open would keep pipes from ending
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, check=False)
    if done.returncode:
        said = (folder / _LOG_NAME).read_text(errors="replace").strip().removeprefix("vgpu-simd: ")
        code = ExitCode.USAGE if done.returncode == 2 else ExitCode.OTHER
        raise CliError(said or f"vgpu-simd ended with {done.returncode}", code)
    _wait(lambda: answers(folder), f"{server} is not ready")
    _show(settings, folder)


@sim.command("stop", short_help="Stop the server; programs on it lose their device.")
@dir_option
@click.option("--force", is_flag=True, help="Stop it even while a daemon offers its devices.")
@pass_settings
def stop(settings: Settings, folder: Path, force: bool) -> None:
    """Stop the server; programs on it lose their device.

    Refused while a daemon offers its devices, except with --force: that daemon then places nothing new on them until
    the server is started again.
    """
    from vgpud.cli.common.output import say
    from vgpud.host.device_lock import lock_name, owner
    from vgpud.simdevice import state_page

    _require(folder)
    page = state_page.read(folder / state_page.PAGE_NAME)
    pid = page.server_pid
    if pid <= 0:  # of a page that was damaged: such a number would mean a whole group of processes, or all
        raise CliError(f"the page of {folder} names no server: end vgpu-simd by hand", ExitCode.CONFLICT)
    for index, device in enumerate(page.devices):
        daemon = owner(lock_name(device.uuid, str(folder)))
        if daemon and not force:
            text = f"a vgpud ({daemon}) offers device {index} of {folder}: stop it first, or use --force"
            raise CliError(text, ExitCode.CONFLICT)
    try:
        os.kill(pid, signal.SIGTERM)
    except PermissionError as error:
        raise CliError(f"vgpu-simd (pid {pid}) is not yours to stop", ExitCode.DENIED) from error
    _wait(lambda: not answers(folder), f"vgpu-simd (pid {pid}) does not end")
    say(f"simulated device in {folder} stopped")


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _STOP_S
    while not condition():
        if time.monotonic() > deadline:
            raise CliError(f"{what} after {_STOP_S:g} s", ExitCode.TIMED_OUT)
        time.sleep(0.01)


@sim.command("status", short_help="Show the simulated devices.")
@dir_option
@pass_settings
def status(settings: Settings, folder: Path) -> None:
    """Show the simulated devices of the server."""
    _require(folder)
    _show(settings, folder)


def _show(settings: Settings, folder: Path) -> None:
    from dataclasses import asdict

    from vgpud.cli.common.output import emit
    from vgpud.core.units import format_bytes
    from vgpud.simdevice import state_page
    from vgpud.view.fit import Grid
    from vgpud.view.slice_tables import device_label, full_name

    page = state_page.read(folder / state_page.PAGE_NAME)
    devices = [{"index": i, "simulated": True, **asdict(d)} for i, d in enumerate(page.devices)]

    def grid() -> Grid:
        titles = ("DEVICE", "NAME", ">MEM-USED", ">MEM-TOTAL", ">PROCS", ">SERVER-PID", "UUID", "DIR")
        table = Grid(titles, first_to_go=("UUID", "SERVER-PID", "PROCS", "NAME"), own_line_columns=("DIR",))
        for i, d in enumerate(page.devices):
            label, name = device_label(i, True), full_name(d.name, True)
            used, total = format_bytes(d.used_bytes), format_bytes(d.memory_bytes)
            table.rows.append((label, name, used, total, str(d.processes), str(page.server_pid), d.uuid, str(folder)))
        return table

    data = {"dir": str(folder), "server_pid": page.server_pid, "devices": devices}
    emit(settings, data, [d.uuid for d in page.devices], grid)


@sim.command(
    "run",
    cls=RunningCommand,
    short_help="Run a command on simulated devices, without a slice or in one.",
    context_settings={"allow_interspersed_args": False},
)
@dir_option
@click.option("--gpus", type=Gpus(), metavar="F", help="SM time on a device and a vgpud started for COMMAND alone.")
@click.option(
    "--mem", type=Bytes(), metavar="SIZE", help="Memory of that slice (default: the same part as of SM time)."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@pass_settings
def run(settings: Settings, folder: Path, gpus: int | None, mem: int | None, command: tuple[str, ...]) -> int:
    """Run COMMAND directly on the simulated devices, without a slice, a hook or a daemon.

    With --gpus it runs in a slice of a device that is started for it. Programs that use CUDA's shared runtime, such as
    PyTorch, get libraries of vgpud's own in place of NVIDIA's.

    \b
    Variables of the simulated driver, also in a slice:
      VGPU_SIM_FAIL=NAME:N=CODE[,...]
          the N-th call (*: each) of NAME returns CODE. A sticky error of
          contexts (700, 719 ...) stays when a launch or a wait returns it
      VGPU_SIM_COUNT_CALLS=FILE
          at exit, write the number of calls of each entry point
      VGPU_SIM_STRICT=1
          report uses after release, handles of other contexts and leaks on
          standard error; =fail: the program then exits with 1
      VGPU_SIM_KERNELS=FILE
          cost of kernels, and which of them compute or fault
    """
    if not command:
        raise click.UsageError("specify a command: for example vgpu sim run -- python program.py")
    if mem and not gpus:
        raise click.UsageError("--mem is the memory of a slice: give its SM time as well, --gpus 0.5")
    if gpus:
        return _run_in_slice(gpus, mem, command)
    _require(folder)
    from vgpud.cli.common import child_process
    from vgpud.cli.common.cpu_torch import TorchWatch
    from vgpud.libraries.environment import preload_simulated
    from vgpud.simdevice.process import environment

    mask = child_process.block_signals()
    pid = child_process.start_child(command, environment(folder, preload_simulated(os.environ)), mask)
    return child_process.wait_child(pid, TorchWatch(pid).look)


def _run_in_slice(gpus_milli: int, mem_bytes: int | None, command: Sequence[str]) -> int:
    """Runs the command in a slice, on a device and by a daemon that are there for it alone."""
    from vgpud.cli.common import child_process
    from vgpud.cli.demo.private_system import OwnSystem
    from vgpud.core.units import format_gpus

    amounts = ["--gpus", format_gpus(gpus_milli), *(["--mem", str(mem_bytes)] if mem_bytes else [])]
    with tempfile.TemporaryDirectory(prefix="vgpu-") as made, OwnSystem(Path(made) / "own", {"devices": "1"}) as system:
        mask = child_process.block_signals()
        environment = {**os.environ, "VGPU_HOST": system.host, "VGPU_SIM_DIR": str(system.sim_dir)}
        # not -m: modules of the current directory would come before Python's own
        entry = "import sys; del sys.path[0]; from vgpud.cli.main import main; main()"
        words = [sys.executable, "-c", entry, "run", *amounts, "--", *command]
        return child_process.wait_child(child_process.start_child(words, environment, mask))


@sim.command("xid", short_help="Make NVML report a fault of a device, for tests.")
@dir_option
@click.argument("device", type=click.IntRange(0), metavar="DEVICE")
@click.argument("code", type=click.IntRange(1, 2**32 - 1), metavar="XID")
def xid(folder: Path, device: int, code: int) -> None:
    """Make NVML report fault XID of device number DEVICE; the device is not affected otherwise.

    A faulting kernel is reported without this: 31 for an illegal address, 43 for an assertion, 13 for most others.
    """
    from vgpud.simdevice.control import tell_xid

    _require(folder)
    tell_xid(folder, device, code)


@sim.command("mode", short_help="Make NVML report that a device cannot be shared, for tests.")
@dir_option
@click.argument("device", type=click.IntRange(0), metavar="DEVICE")
@click.argument("mode", type=click.Choice(MODES))
def mode(folder: Path, device: int, mode: str) -> None:
    """Make NVML report that device number DEVICE is shared, in exclusive-process mode, in MIG mode or under MPS.

    The device is not affected otherwise: programs use it as before.
    """
    from vgpud.simdevice.control import tell_mode

    _require(folder)
    tell_mode(folder, device, mode)


@sim.command("coverage", short_help="List the driver's entry points and whether they are simulated.")
@click.option("--missing", is_flag=True, help="Only entry points that are not simulated.")
@pass_settings
def coverage(settings: Settings, missing: bool) -> None:
    """List the driver's entry points and whether they are simulated; if not, they return CUDA_ERROR_NOT_SUPPORTED."""
    from vgpud.cli.common.output import emit, say
    from vgpud.simdevice import coverage as sim_coverage
    from vgpud.view.fit import Grid

    try:
        found = sim_coverage.coverage()
    except FileNotFoundError as error:
        raise CliError(f"{error.filename} does not exist: build it with `pip install .`") from error
    rows = {name: done for name, done in found.items() if not (missing and done)}
    emit(
        settings,
        {"implemented": sum(found.values()), "total": len(found), "entry_points": rows},
        rows,
        lambda: Grid(("SIMULATED", "ENTRY-POINT"), [("yes" if done else "no", name) for name, done in rows.items()]),
    )
    say(f"{sum(found.values())} of {len(found)} entry points are simulated")
