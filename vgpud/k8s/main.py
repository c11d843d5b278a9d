"""The command `vgpud-k8s`: this node's DRA driver, or its device plugin."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import click
import grpc

from vgpud import __version__, paths
from vgpud.core.model import SLICES_MAX
from vgpud.errors import ConfigError, ConflictError, DeniedError, ExitCode, VgpudError, missing_part
from vgpud.k8s.core import published
from vgpud.k8s.core.machine import Policy, State
from vgpud.k8s.shell.health_files import HealthFiles
from vgpud.k8s.shell.kubelet import Paths
from vgpud.k8s.shell.node_lock import HELD, NodeLock

log = logging.getLogger("vgpud.k8s")

KUBELET = Path("/var/lib/kubelet")
#: of a pod's uid, in the names of its sockets, whose paths have 107 bytes
_INSTANCE_CHARS = 8
Ended = Callable[[str], None]
_CHANNEL: list[tuple[str, Any]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--node", envvar="NODE_NAME", default=socket.gethostname, help="Name of this node in Kubernetes ($NODE_NAME)."
)
@click.option("--kubelet-dir", type=click.Path(path_type=Path), default=KUBELET, show_default=True, help="Of kubelet.")
@click.option("--socket", "host", help="Socket of vgpud (default: as `vgpu` finds it).")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: the pod's service account.")
@click.option(
    "--slices-max",
    type=click.IntRange(1, SLICES_MAX),
    default=96,
    show_default=True,
    help=f"Claims on one GPU; a node has {SLICES_MAX} slices, so with many GPUs it is that by their number.",
)
@click.option(
    "--fixed-sizes/--no-fixed-sizes",
    default=True,
    help="Publish halves, quarters and tenths, too, where Kubernetes is 1.35 or later.",
)
@click.option("--monitors/--no-monitors", default=False, help="Publish a device per GPU for claims with adminAccess.")
@click.option("--evict-on-fault", is_flag=True, help="Evict pods from a GPU that has a fatal Xid or is lost.")
@click.option(
    "--priority-max", type=click.IntRange(0, 1000), default=0, show_default=True, help="Of claims' own config."
)
@click.option(
    "--device-plugin",
    is_flag=True,
    help="For clusters before 1.34: count tenths of GPUs (limits: {vgpu.dev/tenth: 5}) by kubelet's device plugin"
    " interface, and publish nothing to DRA.",
)
@click.option(
    "--tenth-max-milli",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    help="With --device-plugin: maximum of SM time on each GPU of a container, in thousandths; 0 = its tenths, 1000 ="
    " whatever is free.",
)
@click.option(
    "--pod-uid",
    envvar="POD_UID",
    default="",
    help="Of the driver's pod ($POD_UID): with it a second driver may run beside this one while it replaces it.",
)
@click.option(
    "--health-dir",
    type=click.Path(path_type=Path),
    help="Folder for the files `beat`, written each second (seconds since boot), and `ready`, for kubelet's probes.",
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.version_option(__version__)
def main(
    node: str,
    kubelet_dir: Path,
    host: str | None,
    kubeconfig: Path | None,
    slices_max: int,
    fixed_sizes: bool,
    monitors: bool,
    evict_on_fault: bool,
    priority_max: int,
    device_plugin: bool,
    tenth_max_milli: int,
    pod_uid: str,
    health_dir: Path | None,
    verbose: bool,
) -> None:
    """The DRA driver of a Kubernetes node: publishes vgpud's GPUs, prepares the claims of pods.

    With --device-plugin it counts GPUs instead, for clusters without ResourceClaims. A node has one of the two.

    Exit codes: 0 stopped, 1 it could not continue, 2 usage, 5 no permission, 8 another driver runs on this node. A
    service manager should try again after 1 and 8.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    publish = published.Policy(slices_max, fixed_sizes, monitors, evict_on_fault)

    try:
        lock, health = _lock(kubelet_dir / "plugins"), HealthFiles(health_dir)
        if (device_plugin or not pod_uid) and not lock.take():
            raise ConflictError(f"{HELD}: it has {lock.directory}")

        def make_server(channel: grpc.aio.Channel, on_failure: Ended) -> Server:
            if device_plugin:
                return _plugin(tenth_max_milli, node, kubelet_dir, kubeconfig, channel, health, on_failure)
            state = State(node, Policy(publish, priority_max))
            where = Paths(kubelet_dir / "plugins_registry", kubelet_dir / "plugins", pod_uid[:_INSTANCE_CHARS])
            return _driver(state, where, lock, kubeconfig, channel, health, on_failure)

        asyncio.run(_serve(make_server, kubelet_dir, host or paths.default_host(os.environ)))
    except VgpudError as error:
        click.echo(f"vgpud-k8s: {error}", err=True)
        raise SystemExit(int(error.exit_code)) from error
    except ModuleNotFoundError as error:
        if not (missing := missing_part(error)):
            raise
        click.echo(f"vgpud-k8s: {missing}", err=True)
        raise SystemExit(int(ExitCode.USAGE)) from error


def _lock(plugins: Path) -> NodeLock:
    """Raises DeniedError."""
    try:
        return NodeLock(plugins)
    except OSError as error:
        raise DeniedError(f"{error.filename}: {error.strerror}") from error


# the driver needs no device plugin, and the other way round: they are imported where they are used


class Server(Protocol):
    """A driver, or a device plugin."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def _connect(kubeconfig: Path | None) -> Any:
    """A client of the API server. Raises ConfigError."""
    from lightkube import AsyncClient, KubeConfig
    from lightkube.core import exceptions

    try:
        config = KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_service_account()
    except exceptions.ConfigError as error:
        raise ConfigError(f"no API server is known: {error}: name a --kubeconfig, or run it in a pod") from error
    return AsyncClient(config, trust_env=False)


def _driver(
    state: State,
    where: Paths,
    lock: NodeLock,
    kubeconfig: Path | None,
    channel: grpc.aio.Channel,
    health: HealthFiles,
    on_failure: Ended,
) -> Server:
    from vgpud.k8s.driver import Driver

    return Driver(state, lambda: _connect(kubeconfig), channel, where, lock, health, on_failure)


def _plugin(
    max_milli: int,
    node: str,
    kubelet_dir: Path,
    kubeconfig: Path | None,
    channel: grpc.aio.Channel,
    health: HealthFiles,
    on_failure: Ended,
) -> Server:
    """The device plugin. It does without an API server. max_milli: of each slice, see plugin.State."""
    from vgpud.k8s.core.plugin import State as PluginState
    from vgpud.k8s.plugin import DevicePlugin
    from vgpud.k8s.shell.api_server import ApiServer

    api = None
    try:
        api = ApiServer(lambda: _connect(kubeconfig), node)
    except ConfigError as error:
        log.info("ResourceSlices of this node are not looked for: %s", error)
    return DevicePlugin(PluginState(max_milli), channel, kubelet_dir, api, health, on_failure)


async def _serve(make_server: Callable[[grpc.aio.Channel, Ended], Server], kubelet_dir: Path, host: str) -> None:
    """Until a signal stops it. Raises VgpudError where it cannot begin, or continue."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reasons: list[str] = []

    def stop_on_failure(why: str) -> None:
        log.error("%s", why)
        reasons.append(why)
        stopped.set()

    async with grpc.aio.insecure_channel(f"unix://{host}" if host.startswith("/") else host, _CHANNEL) as channel:
        server = make_server(channel, stop_on_failure)
        try:
            await server.start()
        except OSError as error:
            raise DeniedError(f"{kubelet_dir}: {error.strerror}") from error
        await stopped.wait()
        await server.stop()
    if reasons:
        raise VgpudError(reasons[0])
