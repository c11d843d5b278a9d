"""The size of a worker's slice as it stands in a runtime environment: read, checked, and written in one form. Pure.

Ray starts a process of its own for each different environment. So whatever means the same is written the same, and
what differs in anything differs in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.client.sizes import SizeError, read_bytes, read_gpus
from vgpud.core.model import BATCH, Denied, SiteLimits, Spec
from vgpud.core.slices.admission import parts_of
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus, format_value

#: name of the field in a runtime environment, and of the plugin
FIELD = "vgpu"
KEYS = ("gpus", "min", "max", "mem", "mem_min", "mem_max", "service_class", "priority", "weight", "queue")
#: of a number: Ray keeps an environment as JSON, and no size needs more
_BITS_MAX = 63


@dataclass(frozen=True, slots=True)
class Size:
    """A slice for a worker process; `spec` names no devices, since Ray chooses them."""

    spec: Spec
    queue: str = ""  # "": the default one of the workers' user

    @property
    def num_gpus(self) -> float:
        """What Ray is to count for it."""
        whole, rest = divmod(self.spec.gpus_milli, MILLI_PER_DEVICE)
        return self.spec.gpus_milli / MILLI_PER_DEVICE if rest else whole

    def as_field(self) -> dict[str, Any]:
        """As it stands in a runtime environment: the one form of all that mean this."""
        spec = self.spec
        found = {
            "gpus": format_gpus(spec.gpus_milli),
            "min": _gpus_or_none(spec.min_milli),
            "max": _gpus_or_none(spec.max_milli),
            "mem_min": spec.mem_min_bytes,
            "mem_max": spec.mem_max_bytes,
            "service_class": spec.service_class if spec.service_class != BATCH else None,
            "priority": spec.priority or None,
            "weight": spec.weight or None,
            "queue": self.queue or None,
        }
        return {name: value for name, value in found.items() if value is not None}


def _gpus_or_none(milli: int | None) -> str | None:
    return None if milli is None else format_gpus(milli)


def read(field_value: Any) -> Size:
    """The size in a runtime environment, written by as_field() or by hand. Raises SizeError."""
    if not isinstance(field_value, Mapping):
        raise SizeError(
            f'{FIELD} is {format_value(field_value)}, not a table: write for example {{"gpus": 0.5, "mem": "20G"}}'
        )
    unknown = next((name for name in field_value if name not in KEYS), None)
    if unknown is not None:
        raise SizeError(f"{FIELD} has no key {format_value(unknown)}: write {', '.join(KEYS)}")
    asked = {name: value for name, value in field_value.items() if value is not None}
    for name, value in asked.items():
        if isinstance(value, int) and value.bit_length() > _BITS_MAX:
            raise SizeError(f"{name} is a number of {value.bit_length()} bits: no size has more than {_BITS_MAX}")
    if "gpus" not in asked:
        raise SizeError(f'{FIELD} has no gpus: write for example {{"gpus": 0.5}}')
    if "mem" in asked and ("mem_min" in asked or "mem_max" in asked):
        raise SizeError("mem sets both limits: give either mem, or mem_min and mem_max")
    mem = read_bytes("mem", asked.get("mem"))
    spec = Spec(
        gpus_milli=read_gpus("gpus", asked.get("gpus")) or 0,
        min_milli=read_gpus("min", asked.get("min"), zero=True),
        max_milli=read_gpus("max", asked.get("max")),
        mem_min_bytes=read_bytes("mem_min", asked.get("mem_min")) if mem is None else mem,
        mem_max_bytes=read_bytes("mem_max", asked.get("mem_max")) if mem is None else mem,
        weight=_read_integer(asked, "weight"),
        priority=_read_integer(asked, "priority"),
        service_class=_text(asked, "service_class") or BATCH,
    )
    _check(spec)
    return Size(spec, _text(asked, "queue"))


def _check(spec: Spec) -> None:
    gpus = format_gpus(spec.gpus_milli)
    whole = spec.gpus_milli // MILLI_PER_DEVICE
    if whole and spec.gpus_milli % MILLI_PER_DEVICE:
        raise SizeError(
            f"gpus {gpus}: Ray gives out parts of one GPU or whole ones: ask for {whole} or {whole + 1}, or for"
            f" {whole + 1} bundles of a placement group, {whole} of them of a whole GPU"
        )
    if spec.max_milli is not None and spec.max_milli < spec.gpus_milli:
        raise SizeError(f"max {format_gpus(spec.max_milli)} is below gpus {gpus}: raise max or ask for fewer gpus")
    if spec.min_milli is not None and spec.min_milli > spec.gpus_milli:
        least = format_gpus(spec.min_milli)
        raise SizeError(f"min {least} is above gpus {gpus}, which is all that Ray counts: lower min or raise gpus")
    parts = parts_of(spec, SiteLimits())
    if isinstance(parts, Denied):
        raise SizeError(parts.message)


def _read_integer(size_values: Mapping[str, Any], name: str) -> int:
    value = size_values.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SizeError(f"{name} is {format_value(value)}, not a whole number")
    return value


def _text(size_values: Mapping[str, Any], name: str) -> str:
    value = size_values.get(name, "")
    if not isinstance(value, str):
        raise SizeError(f"{name} is {format_value(value)}, not a word")
    return value
