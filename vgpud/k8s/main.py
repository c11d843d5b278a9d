"""The command `vgpud-k8s`: this node's DRA driver, or its device plugin."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
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
from vgpud.k8s.core.names import DRIVER
from vgpud.k8s.kubelet_api import registration_pb2, registration_pb2_grpc
from vgpud.k8s.shell.kubelet import registration_socket

log = logging.getLogger("vgpud.k8s")

KUBELET = Path("/var/lib/kubelet")
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
@click.option("--check", is_flag=True, help="Ask the running driver by kubelet's way whether it answers, and exit.")
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
    check: bool,
    verbose: bool,
) -> None:
    """The DRA driver of a Kubernetes node: publishes vgpud's GPUs, prepares the claims of pods.

    With --device-plugin it counts GPUs instead, for clusters without ResourceClaims. A node has one of the two.

    Exit codes: 0 stopped, 1 it could not go on, or --check had no answer, 2 usage, 5 no permission, 8 another driver
    runs on this node. A service manager should try again after 1 and 8.
    """
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, format="%(levelname)s %(message)s")
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    if check:
        running = plugin_answers(kubelet_dir) if device_plugin else answers(kubelet_dir / "plugins_registry")
        raise SystemExit(0 if running else 1)
    publish = published.Policy(slices_max, fixed_sizes, monitors, evict_on_fault)

    def made(channel: grpc.aio.Channel, ended: Ended) -> Server:
        if device_plugin:
            return _plugin(tenth_max_milli, node, kubelet_dir, kubeconfig, channel, ended)
        state = State(node, Policy(publish, priority_max))
        return _driver(state, kubelet_dir, kubeconfig, channel, ended)

    try:
        with only_one(kubelet_dir / "plugins"):
            asyncio.run(_serve(made, kubelet_dir, host or paths.default_host(os.environ)))
    except VgpudError as error:
        click.echo(f"vgpud-k8s: {error}", err=True)
        raise SystemExit(int(error.exit_code)) from error
    except ModuleNotFoundError as error:
        if not (missing := missing_part(error)):
            raise
        click.echo(f"vgpud-k8s: {missing}", err=True)
        raise SystemExit(int(ExitCode.USAGE)) from error


@contextlib.contextmanager
def only_one(plugins: Path) -> Any:
    """Two drivers on a node would take each other's socket. Raises VgpudError."""
    directory = plugins / DRIVER
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise DeniedError(f"{directory}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise ConflictError(f"another driver of {DRIVER} runs on this node: it has {directory}") from None
    try:
        yield
    finally:
        os.close(lock)


def answers(registry: Path) -> bool:
    """Whether the driver answers at the socket by which kubelet finds it, and its own socket is there."""
    with grpc.insecure_channel(f"unix://{registration_socket(registry)}") as channel:
        stub = registration_pb2_grpc.RegistrationStub(channel)
        try:
            info = stub.GetInfo(registration_pb2.InfoRequest(), timeout=5)
        except grpc.RpcError:
            return False
    return Path(info.endpoint).exists()


def plugin_answers(kubelet_dir: Path) -> bool:
    """Whether the device plugin answers at the socket that kubelet calls."""
    from vgpud.k8s.kubelet_api import device_plugin_pb2, device_plugin_pb2_grpc
    from vgpud.k8s.shell.device_plugin import plugin_sockets

    there = [path for path in plugin_sockets(kubelet_dir / "device-plugins") if path.exists()]
    for path in there:
        with grpc.insecure_channel(f"unix://{path}") as channel:
            try:
                empty = device_plugin_pb2.Empty()
                device_plugin_pb2_grpc.DevicePluginStub(channel).GetDevicePluginOptions(empty, timeout=5)
            except grpc.RpcError:
                continue
            return True
    return False


# --check, which runs often, needs no lightkube, and the driver no device plugin: they are imported where they are used


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
    state: State, kubelet_dir: Path, kubeconfig: Path | None, channel: grpc.aio.Channel, ended: Ended
) -> Server:
    from vgpud.k8s.driver import Driver

    registry, plugins = kubelet_dir / "plugins_registry", kubelet_dir / "plugins"
    return Driver(state, lambda: _connect(kubeconfig), channel, registry, plugins, ended)


def _plugin(
    max_milli: int,
    node: str,
    kubelet_dir: Path,
    kubeconfig: Path | None,
    channel: grpc.aio.Channel,
    ended: Ended,
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
    return DevicePlugin(PluginState(max_milli), channel, kubelet_dir, api, ended)


async def _serve(made: Callable[[grpc.aio.Channel, Ended], Server], kubelet_dir: Path, host: str) -> None:
    """Until it is told to stop. Raises VgpudError where it cannot begin, or go on."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reasons: list[str] = []

    def ended(why: str) -> None:
        log.error("%s", why)
        reasons.append(why)
        stopped.set()

    async with grpc.aio.insecure_channel(f"unix://{host}" if host.startswith("/") else host, _CHANNEL) as channel:
        server = made(channel, ended)
        try:
            await server.start()
        except OSError as error:
            raise DeniedError(f"{kubelet_dir}: {error.strerror}") from error
        await stopped.wait()
        await server.stop()
    if reasons:
        raise VgpudError(reasons[0])
