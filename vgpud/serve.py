"""The command `vgpud`. Refuses early, with one line and a documented exit code.

Order matters: configuration, driver and devices are checked before anything is created, so a daemon that cannot work
leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import gc
import grp
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import click

from vgpud import __version__, paths
from vgpud import config as configuration
from vgpud.certs.register import Register
from vgpud.config import Config
from vgpud.core.events import Log
from vgpud.core.model import ALL_DEVICES, Device
from vgpud.core.user_text import name_users
from vgpud.errors import ConfigError, ExitCode, VgpudError
from vgpud.host import descriptors, thread_priority
from vgpud.host.beat import write_beat
from vgpud.host.container_checks import check as in_container_check
from vgpud.host.device_lock import DeviceLocks
from vgpud.host.directories import DirectoryLock
from vgpud.host.users import LocalNames
from vgpud.project.addresses import describe_addresses

log = logging.getLogger("vgpud")

#: what the service manager gives us for the state database: its first start after an upgrade brings it to this version
OPENING_S = 900

_LEVELS = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


class _Formatter(logging.Formatter):
    """One line per record; with the journal's level prefix when the journal reads us."""

    def __init__(self) -> None:
        super().__init__("vgpud: %(message)s" if "JOURNAL_STREAM" in os.environ else "%(asctime)s vgpud: %(message)s")
        self._journal = "JOURNAL_STREAM" in os.environ
        self._users = LocalNames()

    def format(self, record: logging.LogRecord) -> str:
        if record.name.startswith("grpc"):  # requests that cannot be decoded: one line, our own code logs its faults
            record.exc_info = record.exc_text = None
        text = name_users(super().format(record), self._users.find)
        return f"<{_LEVELS.get(record.levelno, 6)}>{text}" if self._journal else text


def notify(message: str) -> None:
    """Notifies the service manager (sd_notify); nothing without one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.connect(target)
            sock.send(message.encode())
    except OSError as error:
        log.warning("sd_notify: %s", error)


def group_id(key: str, name: str) -> int:
    """The gid of the group that this key of the configuration names, -1 for "". Raises ConfigError."""
    if not name:
        return -1
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"{key} {name!r} does not exist: make it with `groupadd {name}` or leave {key} out"
        ) from error


def open_devices(config: Config) -> tuple[Any, tuple[Device, ...]]:
    """The device shell and the devices to share. Raises DriverError, DeviceRefusedError, ConfigError."""
    from vgpud.devices.nvml import Devices, probe_driver
    from vgpud.libraries.driver import DRIVER_SONAME, NVML_SONAME, find_driver, find_nvml

    sim_dir = ""
    # not ours: a shell that was set up for the simulated device must not lead the daemon to it
    env = {k: v for k, v in os.environ.items() if not k.startswith("VGPU_")}
    driver = config.driver or str(find_driver(env) or DRIVER_SONAME)
    nvml = config.nvml or str(find_nvml(env) or NVML_SONAME)
    if config.device == "sim":
        sim_dir = config.sim_dir or os.environ.get("VGPU_SIM_DIR", "") or str(config.runtime / "sim")
        driver, nvml = str(paths.sim_lib_dir() / "libcuda.so.1"), str(paths.sim_lib_dir() / "libnvidia-ml.so.1")
    moves = probe_driver(driver, sim_dir).choose_memory_moves(config.memory_moves)
    devices = Devices(driver, nvml, sim_dir, config.context_bytes, config.link_bytes_per_s, moves)
    inventory = devices.inventory(config.device if isinstance(config.device, tuple) else (), config.devices.exclude)
    _check_names(config, inventory)
    devices.refuse_unshareable(inventory)
    return devices, inventory


def _check_names(config: Config, inventory: tuple[Device, ...]) -> None:
    """A misspelt device would be given to users instead of to Kubernetes. Raises ConfigError."""
    names = frozenset({ALL_DEVICES}).union(*(d.names for d in inventory))
    have = ", ".join(f"{d.index} ({d.uuid})" for d in inventory)
    unknown = next((name for name in config.devices.kubernetes if name not in names), None)
    if unknown is not None:
        text = f"devices.kubernetes names {unknown!r}, vgpud has {have} here: name these, or"
        raise ConfigError(f'{text} "{ALL_DEVICES}"')


async def run(
    config: Config,
    config_path: Path | None,
    overrides: dict[str, Any],
    devices_and_inventory: Any,
    store: Any,
    device_locks: DeviceLocks,
    lock: DirectoryLock,
) -> None:
    """Serves until SIGTERM or SIGINT; SIGHUP reads the configuration again."""
    # What is imported stays: to look for garbage in it again and again would be a seventh of the start.
    gc.disable()
    from vgpud.daemon.daemon import Daemon

    gc.freeze()
    gc.enable()

    devices, inventory = devices_and_inventory
    daemon = Daemon(config, devices, inventory, store)
    for why in device_locks.refusals:
        daemon.events.note(Log("device.owned", why))
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    device_locks.serve(loop)

    def reload() -> None:
        try:
            waiting = daemon.reload(configuration.load(config_path, **overrides))
            log.info("configuration read again%s", f"; needs a restart: {', '.join(waiting)}" if waiting else "")
        except VgpudError as error:
            log.error("configuration not changed: %s", error)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)
    daemon.housekeeping.chores.insert(0, ("the runtime directory's lock", lock.repair))
    daemon.housekeeping.chores.append(("the watchdog", lambda: notify("WATCHDOG=1")))
    daemon.housekeeping.chores.append(("the beat", lambda: write_beat(config.runtime)))  # kubelet's probe looks at it
    try:
        gids = group_id("group", config.group), group_id("admin_group", config.admin_group)
        address = configuration.listen_address(config)
        if address:  # first: a port that is taken must not end a daemon that answers already
            await daemon.listen(*address)
        await daemon.start(*gids, configuration.metrics_address(config))
    except BaseException:
        await daemon.stop()
        raise
    for device in inventory:
        log.info("device %d: %s (%s)", device.index, device.name, device.uuid)
    log.info("serving on %s", paths.grpc_socket(config.runtime))
    notify(f"READY=1\nMAINPID={os.getpid()}")
    await stop.wait()
    notify("STOPPING=1")
    log.info("stopping; tenants continue in mode %s", config.mode)
    await daemon.stop()


def serve(config: Config, config_path: Path | None, overrides: dict[str, Any]) -> None:
    """Checks everything, then serves. Raises VgpudError."""
    os.umask(0o022)  # rights are chosen where things are made; a strict umask would close the slices to their users
    for key, name in (("group", config.group), ("admin_group", config.admin_group)):
        group_id(key, name)
    if config.listen:
        Register(config.tls).check(time.time_ns() / 1e9)
    devices, inventory = open_devices(config)
    owned = DeviceLocks(str(paths.grpc_socket(config.runtime)))
    inventory = owned.take(inventory, devices.sim_dir)
    devices.keep(inventory)
    from vgpud.daemon.policy import prepare_runtime
    from vgpud.host.private_files import make_state_dir
    from vgpud.store.database import Store

    runtime = prepare_runtime(config)
    locks = [DirectoryLock(runtime, "--runtime-dir")]
    try:
        state = config.state
        changed = make_state_dir(state, runtime)
        if not state.samefile(runtime):
            locks.append(DirectoryLock(state, "--state-dir"))
        descriptors.raise_limit()
        notify(f"EXTEND_TIMEOUT_USEC={OPENING_S * 1_000_000}\nSTATUS=Checking the state database")
        store = Store(state)
        notify("STATUS=")
        store.notes[:0] = changed
        thread_priority.raise_own()
        asyncio.run(run(config, config_path, overrides, (devices, inventory), store, owned, locks[0]))
    except OSError as error:
        raise VgpudError(f"cannot serve: {error}; see the daemon's configuration (metrics, runtime_dir)") from error
    finally:
        for lock in locks:
            lock.close()
        owned.close()


def _device_override(device: tuple[str, ...]) -> dict[str, Any]:
    if not device:
        return {}
    return {"device": device[0] if len(device) == 1 and device[0] in ("auto", "sim") else device}


class _Group(click.Group):
    """Turns our exceptions into one line and their exit code, and names the commands to whoever types another."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name):
            return super().resolve_command(ctx, args)
        known = ", ".join(self.list_commands(ctx))
        text = f"No such command {name!r}: the daemon's are {known} (`vgpud serve` starts it)"
        raise click.UsageError(f"{text}; users' are those of `vgpu`, such as `vgpu status`.", ctx)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except VgpudError as error:
            click.echo(f"vgpud: {error}", err=True)
            ctx.exit(int(error.exit_code))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=describe_addresses() or None)
@click.version_option(__version__, prog_name="vgpud")
def main() -> None:
    """The daemon that shares GPUs between programs, each held to its slice.

    Exit codes: 0 stopped, 1 a fault that may pass (no space on a disk), 2 usage or configuration, 3 no working driver,
    5 no permission, 8 another daemon is running or has all devices, 9 a device cannot be shared (MPS, exclusive mode,
    MIG). A service manager should try again after 1, 3, 8 and 9.
    """


_CONFIG = click.option("--config", "config_path", type=click.Path(path_type=Path), help="Configuration file (TOML).")


@main.command("serve")
@_CONFIG
@click.option("--runtime-dir", help="Directory of sockets and locks.")
@click.option("--state-dir", help="Directory of the state database.")
@click.option("--device", multiple=True, help='"auto", "sim" (simulated), a UUID or an index; repeat for several.')
@click.option("--sim-dir", help="Directory of the simulated device's server.")
@click.option("--metrics", help='Address of the Prometheus endpoint, or "off".')
@click.option("--listen", metavar="HOST:PORT", help="Also serve users of other machines, over TLS with certificates.")
@click.option("--tls-dir", help="Directory of the certificates (`vgpu cert init`).")
@click.option("--mode", type=click.Choice(configuration.MODES), help="What programs do while no daemon runs.")
@click.option("--node", help="Name of this node.")
@click.option(
    "--in-container",
    is_flag=True,
    help="Refuse to start in a container without the host's processes and folders.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def serve_command(
    config_path: Path | None, device: tuple[str, ...], in_container: bool, verbose: bool, **flags: str | None
) -> None:
    """Serve the API and the slices until SIGTERM."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    overrides: dict[str, Any] = dict(flags)
    overrides |= _device_override(device)
    config = configuration.load(config_path, **overrides)
    if in_container:
        in_container_check((config.runtime, config.state, paths.cache_dir()))
        overrides |= {} if config.front else {"front": str(paths.INSTALLED_FRONT)}
        config = configuration.load(config_path, **overrides)
    serve(config, config_path, overrides)


@main.command("check-config")
@_CONFIG
def check_config(config_path: Path | None) -> None:
    """Check a configuration file (default: the one that serve reads)."""
    configuration.load(config_path)
    click.echo(f"{config_path or paths.config_file()}: ok")


@main.command("check-devices")
@_CONFIG
@click.option("--driver", help="libcuda: a name or a path.")
@click.option("--nvml", help="libnvidia-ml: a name or a path.")
@click.option("--device", multiple=True, help="Only the device with this UUID or index; repeat for several.")
def check_devices(config_path: Path | None, device: tuple[str, ...], **flags: str | None) -> None:
    """Check whether the devices can be shared; changes nothing. `vgpu doctor` runs it."""
    config = configuration.load(config_path, **flags, **_device_override(device))
    devices, inventory = open_devices(config)
    for found in inventory:
        holder = devices.holder(found.uuid)
        said = f"held by {holder.what}, {holder.so}: run `{holder.remedy.format(found.index)}`" if holder else "ok"
        click.echo(f"device {found.index}: {found.name} ({found.uuid}): {said}")


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(f"vgpud {__version__}")


if __name__ == "__main__":
    sys.exit(main(standalone_mode=True) or ExitCode.OK)
