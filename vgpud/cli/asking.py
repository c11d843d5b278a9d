"""The options that say how much of the GPUs a slice has, shared by `run`, `slice create` and `slice set`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.quantities import Bytes, Gpus

if TYPE_CHECKING:
    from vgpud.v1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])


def amount_options(function: F) -> F:
    """Adds --gpus, --min, --max, --mem, --mem-min and --mem-max."""
    options = [
        click.option("--gpus", type=Gpus(), metavar="F", help="SM time: 0.5 is half a device, 2.5 two and a half."),
        click.option("--min", "min_milli", type=Gpus(zero=True), metavar="F", help="Guaranteed SM time (default: F)."),
        click.option("--max", "max_milli", type=Gpus(), metavar="F", help="Greatest SM time (default: the site's, F)."),
        click.option("--mem", type=Bytes(), metavar="SIZE", help="Memory, guaranteed and greatest, of all devices."),
        click.option("--mem-min", type=Bytes(), metavar="SIZE", help="Guaranteed memory (default: F of the device)."),
        click.option("--mem-max", type=Bytes(), metavar="SIZE", help="Greatest memory (default: the guaranteed)."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def build_spec(amounts: dict[str, int | None], **more: Any) -> pb.SliceSpec:
    """The API's spec of the options given. Raises UsageError where two of them cannot be meant together."""
    from vgpud.v1 import vgpud_pb2 as pb

    low, high = amounts["min_milli"], amounts["max_milli"]
    if low is not None and high is not None and low > high:
        from vgpud.core.units import format_gpus

        what = f"--min {format_gpus(low)} is more than --max {format_gpus(high)}"
        raise click.UsageError(f"{what}: lower --min or raise --max")
    mem, mem_min, mem_max = amounts["mem"], amounts["mem_min"], amounts["mem_max"]
    if mem is not None and (mem_min is not None or mem_max is not None):
        raise click.UsageError("--mem sets both limits: give either --mem, or --mem-min and --mem-max")
    spec = pb.SliceSpec(gpus_milli=amounts["gpus"] or 0, **more)
    values = {"min_milli": low, "max_milli": high, "mem_min_bytes": mem, "mem_max_bytes": mem}
    if mem is None:
        values |= {"mem_min_bytes": mem_min, "mem_max_bytes": mem_max}
    for field, value in values.items():
        if value is not None:
            setattr(spec, field, value)
    return spec
