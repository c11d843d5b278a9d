"""Sizes as people write them, 0.5 and "20G", in the API's thousandths and bytes. Pure."""

from __future__ import annotations

import math

from vgpud.client.model import ServiceClass, SliceSpec
from vgpud.core.units import MILLI_PER_DEVICE, UnitError, format_gpus, format_value, parse_bytes, parse_gpus

#: by which sums and products of fractions miss a thousandth at most
_NOISE_MILLI = 1e-6


class SizeError(ValueError):
    """What was asked for cannot be; the text names the value and the fix."""


def read_gpus(name: str, value: object, *, zero: bool = False) -> int | None:
    """Thousandths of 0.5, "0.5" or 2; None stays None. `name` is that of the argument. Raises SizeError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SizeError(f"{name} is {format_value(value)}, not a number of GPUs: write for example 0.5")
    try:
        return parse_gpus(_thousandths(value) if isinstance(value, float) else str(value), zero=zero)
    except UnitError as error:
        raise SizeError(f"{name}: {error}") from None


def _thousandths(gpus: float) -> str:
    """1/3 is 0.333, of which three fit into one GPU; 0.1 + 0.2 and 0.3 - 0.1 are what they would be on paper."""
    milli = math.floor(gpus * MILLI_PER_DEVICE + _NOISE_MILLI) if math.isfinite(gpus) else 0
    return format_gpus(milli) if milli > 0 else str(gpus)


def read_bytes(name: str, value: object) -> int | None:
    """Bytes of "20G" or 1 << 30; None stays None. Raises SizeError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise SizeError(f'{name} is {format_value(value)}, not an amount of memory: write for example "20G"')
    try:
        return parse_bytes(str(value))
    except UnitError as error:
        raise SizeError(f"{name}: {error}") from None


def size(
    gpus: float | str | None = None,
    *,
    min: float | str | None = None,
    max: float | str | None = None,
    mem: int | str | None = None,
    mem_min: int | str | None = None,
    mem_max: int | str | None = None,
    service_class: ServiceClass = "",
    priority: int = 0,
    weight: int = 0,
    device_uuids: tuple[str, ...] = (),
    spread: int = 0,
    copy_min: float | str | None = None,
    copy_max: float | str | None = None,
) -> SliceSpec:
    """The size of a slice in the words of `vgpu run`: size(0.5, max=1, mem="20G"). Raises SizeError."""
    if mem is not None and (mem_min is not None or mem_max is not None):
        raise SizeError("mem sets both limits: give either mem, or mem_min and mem_max")
    mem_bytes = read_bytes("mem", mem)
    return SliceSpec(
        gpus_milli=read_gpus("gpus", gpus) or 0,
        min_milli=read_gpus("min", min, zero=True),
        max_milli=read_gpus("max", max),
        mem_min_bytes=read_bytes("mem_min", mem_min) if mem is None else mem_bytes,
        mem_max_bytes=read_bytes("mem_max", mem_max) if mem is None else mem_bytes,
        weight=weight,
        priority=priority,
        device_uuids=device_uuids,
        service_class=service_class,
        spread=spread,
        copy_min_milli=read_gpus("copy_min", copy_min, zero=True) or 0,
        copy_max_milli=read_gpus("copy_max", copy_max) or 0,
    )
