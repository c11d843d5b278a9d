"""The options that define a slice, shared by `run`, `alloc`, `slice create` and `slice set`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.quantities import DEFAULT, Bytes, Gpus, LinkPart, OrDefault, Whole
from vgpud.cli.common.times import Span
from vgpud.core.model import CLASSES, LATENCY, PRIORITY_MAX, WEIGHT_MAX
from vgpud.core.units import GPUS_MAX

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: for commands that create a slice
queue_option = click.option(
    "--queue",
    default="",
    metavar="NAME",
    shell_complete=complete_queue,
    help="Queue whose quota it counts against (default: yours).",
)

F = TypeVar("F", bound=Callable[..., Any])
Given = Mapping[str, Any]

#: keyword of the command's function: (option, type, metavar, help)
_OPTIONS: dict[str, tuple[str, Any, str | None, str]] = {
    "gpus": ("--gpus", Gpus(), "F", "SM time: 0.5 is half a device, 2.5 two and a half."),
    "min_milli": ("--min", Gpus(zero=True), "F", "Guaranteed SM time (default: the SM time asked for)."),
    "max_milli": ("--max", Gpus(), "F", "Maximum SM time (default: the site's, usually the SM time asked for)."),
    "mem": ("--mem", Bytes(), "SIZE", "Total memory over all of the slice's devices; sets minimum and maximum."),
    "mem_min": ("--mem-min", Bytes(), "SIZE", "Guaranteed memory (default: the same part as of SM time)."),
    "mem_max": ("--mem-max", Bytes(), "SIZE", "Maximum memory (default: the guaranteed memory)."),
    "service_class": (
        "--class",
        click.Choice(CLASSES),
        None,
        "latency: its guarantee is served first (default: batch).",
    ),
    "priority": (
        "--priority",
        Whole(0, PRIORITY_MAX),
        f"0..{PRIORITY_MAX}",
        "Borrowed time goes to the highest first; guarantees are not affected (default: 0).",
    ),
    "weight": (
        "--weight",
        Whole(0, WEIGHT_MAX),
        f"0..{WEIGHT_MAX}",
        "Share of borrowed time among equal priorities (default: by the minimum).",
    ),
    "copy_min_milli": (
        "--copy-min",
        LinkPart(zero=True),
        "F",
        "Guaranteed part of each device's link to the host: 0.3 of it (default: 0).",
    ),
    "copy_max_milli": ("--copy-max", LinkPart(), "F", "Maximum part of that link (default: the whole link)."),
    "spread": (
        "--spread",
        Whole(1, GPUS_MAX),
        "N",
        "Divide equally over N devices (default: as few as possible).",
    ),
    "mem_swap": (
        "--mem-swap/--no-mem-swap",
        click.BOOL,
        None,
        "Its memory may be on the host while others' is on the device: they take turns (default: no).",
    ),
    "idle_after_ns": (
        "--idle-after",
        Span(zero=True),
        "TIME",
        "Without work for this time, give the memory back; the next call waits for it. 0: never (default: the site's).",
    ),
}
#: options -> fields of the API's spec
_FIELDS = {
    "gpus": ("gpus_milli",),
    "mem": ("mem_min_bytes", "mem_max_bytes"),
    "mem_min": ("mem_min_bytes",),
    "mem_max": ("mem_max_bytes",),
}


def spec_options(function: F, *, excluded_names: Collection[str] = ()) -> F:
    """Adds --gpus, --min, --max, --mem... and --class, --priority...; `excluded_names`: except these."""
    return _add(function, {name: row for name, row in _OPTIONS.items() if name not in excluded_names})


def change_options(function: F) -> F:
    """The same for an existing slice: each except --gpus and --mem-swap also takes "default"."""
    plain = ("gpus", "mem_swap")
    rows = {name: row if name in plain else (row[0], OrDefault(row[1]), *row[2:]) for name, row in _OPTIONS.items()}
    return _add(function, rows)


def _add(function: F, rows: dict[str, tuple[str, Any, str | None, str]]) -> F:
    for name, (option, kind, metavar, text) in reversed(rows.items()):
        function = click.option(option, name, type=kind, default=None, metavar=metavar, help=text)(function)
    return function


def build_spec(option_values: Given, *, is_change: bool = False, **spec_fields: Any) -> pb.SliceSpec:
    """The API's spec from these options. is_change: what is not given stays as it is, and has no default.

    Raises UsageError if two of them contradict each other.
    """
    from vgpud.v1alpha1 import vgpud_pb2 as pb
    from vgpud.v1alpha1.words import SERVICE_CLASS

    asked = {name: value for name, value in option_values.items() if value is not None}
    _check(asked)
    if not is_change:
        _check_minimum(asked)
    spec = pb.SliceSpec(**spec_fields)
    for name, value in asked.items():
        if value != DEFAULT:
            for field in list_fields(name):
                setattr(spec, field, SERVICE_CLASS.to_number(value) if field == "service_class" else value)
    return spec


def list_fields(name: str) -> tuple[str, ...]:
    """The fields of the API's spec that an option sets."""
    return _FIELDS.get(name, (name,))


def changed_fields(option_values: Given) -> list[str]:
    """The fields of the API's spec that these options change."""
    return [field for name, value in option_values.items() if value is not None for field in list_fields(name)]


def _check_minimum(option_values: Given) -> None:
    """A minimum above the size alone is more likely a mistake than a larger size."""
    low, gpus = option_values.get("min_milli", 0), option_values.get("gpus")
    if gpus is not None and "max_milli" not in option_values and low > gpus:
        from vgpud.core.units import format_gpus

        what = f"--min {format_gpus(low)} is more than --gpus {format_gpus(gpus)}, which is the maximum, too"
        raise click.UsageError(f"{what}: lower --min, or set --max")


def check_latency(option_values: Given) -> None:
    """Before a command does anything else; the daemon checks it again."""
    if option_values.get("service_class") != LATENCY:
        return
    for name, option in (("mem_swap", "--mem-swap"), ("idle_after_ns", "--idle-after")):
        if option_values.get(name, DEFAULT) not in (DEFAULT, 0, False):
            what = f"--class latency with {option}: what is served at once never leaves the device"
            raise click.UsageError(f"{what}: leave one of them out")


def _check(option_values: Given) -> None:
    check_latency(option_values)
    low, high = (option_values.get(name, DEFAULT) for name in ("min_milli", "max_milli"))
    if DEFAULT not in (low, high) and low > high:
        from vgpud.core.units import format_gpus

        what = f"--min {format_gpus(low)} is more than --max {format_gpus(high)}"
        raise click.UsageError(f"{what}: lower --min or raise --max")
    if "mem" in option_values and ("mem_min" in option_values or "mem_max" in option_values):
        raise click.UsageError("--mem sets both limits: give either --mem, or --mem-min and --mem-max")
