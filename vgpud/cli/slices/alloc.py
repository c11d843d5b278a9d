"""`vgpu alloc 0.35`: a slice, and its CDI device, which gives it to one container (`--device NAME`)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Gpus
from vgpud.cli.common.slice_options import build_spec, queue_option, spec_options
from vgpud.errors import CliError

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb


def _numbers(device: pb.SliceDevice) -> str:
    """A slice's share of one device, minimum to maximum."""
    from vgpud.view.slice_tables import four_numbers, span

    slices = {name: getattr(device, name) for name in ("min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes")}
    low, high, mem_low, mem_high = four_numbers(slices)
    return f"device {device.device_index}: SM time {span(low, high)}, memory {span(mem_low, mem_high)}"


@click.command("alloc", cls=VgpuCommand, short_help="Create a one-time CDI device of any size for one container.")
@click.argument("gpus", type=Gpus())
@partial(spec_options, excluded_names=("gpus",))
@click.option("--name", default="", metavar="NAME", help="Name of the slice (default: chosen by the daemon).")
@queue_option
@pass_settings
def alloc(settings: Settings, /, gpus: int, name: str, queue: str, **option_values: Any) -> None:
    """Create a one-time CDI device of GPUS (0.35, 1.5, ...) and print its name.

    For engines without the runtime `vgpu`, and for sizes that the usual devices (vgpu.dev/gpu=0.5) do not have. The
    slice ends with the container that used it, or unused after the site's grace_s; `vgpu slice rm` ends it earlier.

    \b
    podman run --device $(vgpu alloc 0.35) IMAGE
    """
    spec = build_spec({"gpus": gpus, **option_values})
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import dump, say
    from vgpud.client import calls
    from vgpud.view import slices

    with Client(settings) as client:
        item = client.send(calls.create_slice(name, spec, ephemeral=True, cdi_device=True, queue=queue))
        if not item.cdi_device:
            client.send(calls.delete_slice(item.name, force=True))
            raise CliError(f"the daemon at {client.target} creates no CDI devices: update vgpud and restart it")
        if settings.output in ("table", "name"):
            print(item.cdi_device)
            if settings.output == "table":
                numbers = "; ".join(_numbers(d) for d in item.devices)
                say(f"slice {item.name} ({numbers}); use it once: podman run --device {item.cdi_device} IMAGE")
            return
        view = slices.slice_view(item, slices.simulated_uuids(client.all(calls.devices())))
        dump(settings, {"device": item.cdi_device, "slice": view})
