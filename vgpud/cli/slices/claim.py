"""`vgpu claim 0.5`: the YAML of a Kubernetes ResourceClaim for a part of a GPU, or several."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Bytes, Gpus
from vgpud.cli.common.slice_options import build_spec, spec_options
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb


@click.command("claim", cls=VgpuCommand, short_help="Print a Kubernetes ResourceClaim for a part of a GPU.")
@click.argument("gpus", type=Gpus())
@partial(spec_options, excluded_names=("gpus", "min_milli"))
@click.option("--name", default="", metavar="NAME", help="Name of the object (default: gpu-0-5 for 0.5).")
@click.option("--template", is_flag=True, help="A ResourceClaimTemplate: each pod gets a claim of its own.")
@click.option(
    "--device-memory", type=Bytes(), metavar="SIZE", help="Memory of one GPU in the cluster (default: as on this node)."
)
@pass_settings
def claim(
    settings: Settings, /, gpus: int, name: str, template: bool, device_memory: int | None, **option_values: Any
) -> None:
    """Print the YAML of a claim for GPUS (0.5, 2.5, ...) of guaranteed SM time and the same part of the memory.

    \b
    vgpu claim 0.5 --max 1 --mem 20G --template --name half | kubectl apply -f -

    Options mean what they mean for `vgpu run`. Without --mem the memory of a GPU must be known: from the daemon on this
    node, or by --device-memory. `vgpu docs kubernetes` has whole pods.
    """
    spec = build_spec({"gpus": gpus, **option_values})
    import yaml

    from vgpud.k8s.core.manifest import claim_object

    made = claim_object(_make_request(spec, device_memory, settings), name or _default_name(gpus), template)
    print(yaml.safe_dump(made, sort_keys=False), end="")


def _default_name(gpus_milli: int) -> str:
    from vgpud.core.units import format_gpus

    return f"gpu-{format_gpus(gpus_milli)}".replace(".", "-")


def _make_request(spec: pb.SliceSpec, device_memory: int | None, settings: Settings) -> Any:
    from vgpud.core.model import BATCH, Denied, SiteLimits, Spec
    from vgpud.core.slices.admission import parts_of
    from vgpud.core.units import MILLI_PER_DEVICE
    from vgpud.k8s.core.manifest import ClaimRequest
    from vgpud.v1alpha1.words import SERVICE_CLASS

    high = spec.max_milli if spec.HasField("max_milli") else None
    low_bytes = spec.mem_min_bytes if spec.HasField("mem_min_bytes") else None
    high_bytes = spec.mem_max_bytes if spec.HasField("mem_max_bytes") else None
    asked = Spec(
        gpus_milli=spec.gpus_milli,
        max_milli=high,
        mem_min_bytes=low_bytes,
        mem_max_bytes=high_bytes,
        weight=spec.weight,
        priority=spec.priority,
        service_class=SERVICE_CLASS.to_word(spec.service_class) or BATCH,
        spread=spec.spread,
    )
    parts = parts_of(asked, SiteLimits())
    if isinstance(parts, Denied):
        raise CliError(parts.message, ExitCode.USAGE)
    if low_bytes is None:
        whole = device_memory or _memory_here(settings)
        fair = whole * spec.gpus_milli // MILLI_PER_DEVICE
        low_bytes = fair if high_bytes is None else min(fair, high_bytes)
    return ClaimRequest(
        pieces=asked.pieces,
        max_milli=high or spec.gpus_milli,
        mem_min_bytes=low_bytes,
        mem_max_bytes=high_bytes if high_bytes is not None else low_bytes,
        service_class=asked.service_class,
        weight=spec.weight,
        priority=spec.priority,
    )


def _memory_here(settings: Settings) -> int:
    """The memory of a GPU of this node's daemon. Raises CliError when there is none, or of several sizes."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    remedy = "say how much by --mem, or how much a GPU has by --device-memory (140400M)"
    try:
        with Client(settings) as client:
            sizes = {device.mem_total_bytes for device in client.all(calls.devices()) if not device.profile}
    except CliError as error:
        raise CliError(
            f"the memory of a GPU is not known, since no daemon answers: {remedy}", ExitCode.USAGE
        ) from error
    if len(sizes) != 1:
        raise CliError(f"the GPUs of this node have different amounts of memory: {remedy}", ExitCode.USAGE)
    return int(sizes.pop())
