"""`vgpu version`: client, daemon and ABI."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import vgpud
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb


@click.command("version", cls=VgpuCommand, short_help="Show the versions of client, daemon and ABI.")
@click.option("--client", "client_only", is_flag=True, help="Do not ask the daemon.")
@pass_settings
def version(settings: Settings, client_only: bool) -> None:
    """Show the versions of client, daemon and ABI (of the attach messages and shared pages).

    Without a daemon the client's versions are shown all the same, with the exit code of a daemon that does not answer.
    """
    from vgpud.cli.common.output import emit, print_lines
    from vgpud.client.held_slice import ABI_VERSION
    from vgpud.errors import CliError
    from vgpud.project.addresses import list_addresses
    from vgpud.view.fit import Grid

    data: dict[str, object] = {"client_version": vgpud.__version__, "client_abi_version": ABI_VERSION}
    data["urls"] = list_addresses()
    rows = [("client", vgpud.__version__), ("client abi", str(ABI_VERSION))]
    missing: CliError | None = None
    if not client_only:
        try:
            node = _node(settings)
        except CliError as error:
            missing = error
        else:
            data |= {
                "daemon_version": node.version,
                "daemon_abi_version": node.abi_version,
                "driver_version": node.driver_version,
                "node": node.name,
                "simulated": node.simulated,
            }
            driver = f"SIMULATED {node.driver_version}" if node.simulated else node.driver_version
            rows += [
                ("daemon", node.version),
                ("daemon abi", str(node.abi_version)),
                ("driver", driver),
                ("node", node.name),
            ]
    emit(settings, data, [vgpud.__version__], lambda: Grid(("PART", "VERSION"), list(rows)))
    if settings.output == "table":
        print_lines(f"{title}: {url}" for title, url in list_addresses().items())
    if missing:
        raise missing


def _node(settings: Settings) -> pb.Node:
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        return client.send(calls.node())
