"""`vgpu claim 0.5`: the YAML of a Kubernetes ResourceClaim for a part of a GPU, or several."""

from __future__ import annotations

from collections.abc import Mapping
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
@partial(spec_options, excluded_names=("gpus", "min_milli", "mem_swap", "idle_after_ns"))
@click.option("--name", default="", metavar="NAME", help="Name of the object (default: gpu-0-5 for 0.5).")
@click.option("--template", is_flag=True, help="A ResourceClaimTemplate: each pod gets a claim of its own.")
@click.option(
    "--device-memory", type=Bytes(), metavar="SIZE", help="Memory of one GPU in the cluster (default: as on this node)."
)
@click.option(
    "--for",
    "workload",
    type=click.Choice(("deployment", "notebook")),
    help="Print what uses it as well: a Deployment and its Service, or a Notebook of Kubeflow.",
)
@click.option("--image", metavar="IMAGE", help="With --for: the container's image.")
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="With --for deployment: where it listens (8888)."
)
@click.option("--replicas", type=click.IntRange(0), metavar="N", help="With --for deployment: number of pods (1).")
@pass_settings
def claim(
    settings: Settings,
    /,
    gpus: int,
    name: str,
    template: bool,
    device_memory: int | None,
    workload: str | None,
    image: str | None,
    port: int | None,
    replicas: int | None,
    **option_values: Any,
) -> None:
    """Print the YAML of a claim for GPUS (0.5, 2.5, ...) of guaranteed SM time and the same part of the memory.

    \b
    vgpu claim 0.5 --max 1 --mem 20G --template --name half | kubectl apply -f -
    vgpu claim 0.5 --mem 20G --for deployment --image my-server --port 8000 --name serve
    vgpu claim 0.25 --for notebook --image jupyter-image --name lab

    Options mean what they mean for `vgpu run`. Without --mem the memory of a GPU must be known: from the daemon on this
    node, or by --device-memory. `vgpu docs kubernetes` has whole pods, `vgpu docs kubernetes-workloads` notebooks and
    services.
    """
    spec = build_spec({"gpus": gpus, **option_values})
    from vgpud.k8s.core import workloads
    from vgpud.k8s.core.manifest import claim_object

    _check_workload(workload, {"--image": image, "--port": port, "--replicas": replicas})
    made_name = name or _default_name(gpus)
    if workload and not workloads.NAME.fullmatch(made_name):
        text = f"{made_name[:60]!r} is no name of a Service: write up to 52 small letters, digits and -, a letter first"
        raise CliError(text, ExitCode.USAGE)
    if workload == "notebook":
        refused = {"--template": template, "--device-memory": device_memory}
        refused |= {f"--{key.replace('_', '-')}": value for key, value in option_values.items()}
        _print([workloads.notebook_object(made_name, str(image), _find_limit(gpus, refused))])
        return
    made = claim_object(_make_request(spec, device_memory, settings), made_name, template or bool(workload))
    around = (
        workloads.deployment_objects(
            made_name, str(image), port or workloads.NOTEBOOK_PORT, 1 if replicas is None else replicas
        )
        if workload
        else []
    )
    _print([made, *around])


def _print(objects: list[dict[str, Any]]) -> None:
    import yaml

    print(yaml.safe_dump_all(objects, sort_keys=False), end="")


def _check_workload(workload: str | None, values: Mapping[str, object]) -> None:
    """Raises CliError for options that do not go together."""
    given = [option for option, value in values.items() if value is not None]
    if workload is None and given:
        raise CliError(f"{given[0]} is for what uses the claim: add --for deployment, or leave it out", ExitCode.USAGE)
    if workload == "notebook" and given != ["--image"] and len(given) > 1:
        raise CliError(
            f"{given[1]} is for --for deployment: a Notebook has one pod, and Kubeflow's port", ExitCode.USAGE
        )
    if workload and "--image" not in given:
        raise CliError(f"--for {workload} needs --image, the container's", ExitCode.USAGE)


def _find_limit(gpus: int, options: Mapping[str, object]) -> str:
    """The limit by which a Notebook gets its part of a GPU. Raises CliError."""
    from vgpud.core.units import format_gpus
    from vgpud.k8s.core import workloads

    why = "Kubeflow's Notebook has no field for claims, so it gets a fixed part by its limits"
    given = next((option for option, value in options.items() if value), None)
    if given:
        raise CliError(f"{why}, which has no {given}: leave it out, or use --for deployment", ExitCode.USAGE)
    found = workloads.limit_of(gpus)
    if found is None:
        text = f"{why}: 0.1, 0.25, 0.5 or 1, and {format_gpus(gpus)} is none. Use --for deployment for other sizes"
        raise CliError(text, ExitCode.USAGE)
    return found


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
