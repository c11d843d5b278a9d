"""The options of `vgpu submit` for elastic jobs: bounds of GPUs, or of workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.quantities import AnyParam, Gpus, Whole
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])
#: as in vgpud.core.queue.check and vgpud.api.elastic_messages
MEMBERS_MAX, BATCH_MAX = 1024, 1 << 40
#: options of one member's share, which the queue decides for elastic jobs
_SHARES = {"min_milli": "--min", "max_milli": "--max", "spread": "--spread", "gang": "--gang"}


class GpuBounds(AnyParam):
    """A fraction of GPUs, or minimum and maximum on one device; becomes milli-GPU, one number or two."""

    name = "gpus"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | tuple[int, int]:
        if isinstance(value, (int, tuple)):
            return value
        first, dots, last = str(value).partition("..")
        least = Gpus().convert(first.strip(), param, ctx)
        if not dots:
            return least
        most = Gpus().convert(last.strip(), param, ctx)
        if least > most:
            self.fail(f"{str(value)!r} is a reversed range: write the minimum first, as in 0.25..1", param, ctx)
        if most > MILLI_PER_DEVICE:
            self.fail(f"{str(value)!r} is more than one device: write at most 1, or use --workers 1-8", param, ctx)
        return (least, most) if least < most else least


#: the value of --gpus by which `vgpu submit` takes what `vgpu tune` has found
AUTO = "auto"


class GpuBoundsOrAuto(GpuBounds):
    """The same, or the word auto, which becomes AUTO."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return AUTO if value == AUTO else super().convert(value, param, ctx)


class Workers(AnyParam):
    """Minimum and maximum of workers, such as 1-8; one number is both."""

    name = "workers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", str(value).strip())
        if not found:
            self.fail(f"{str(value)!r} is not a number of workers: write for example 1-8", param, ctx)
        least, most = int(found[1]), int(found[2] or found[1])
        if not 1 <= least <= most <= MEMBERS_MAX:
            self.fail(
                f"{str(value)!r} is not a valid range: write the minimum first, from 1 to {MEMBERS_MAX}", param, ctx
            )
        return least, most


_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    (
        "--gpus",
        GpuBoundsOrAuto(),
        "F|F..F|auto",
        "SM time: 0.5 is half a device; 0.25..1: resized between these while the job runs; auto: as `vgpu tune` found.",
    ),
    (
        "--workers",
        Workers(),
        "1-8",
        "As many processes as pay off and fit, each with --gpus.",
    ),
    ("--heuristic", None, "RULE", "Rule for how many workers pay off (default: 'efficiency(0.1)')."),
    ("--utility", None, "RULE", "The same, from the value of the result: 'linear,100,0.5,samples=5000000'."),
    ("--batch", Whole(1, BATCH_MAX), "N", "Global batch of all workers together, or of the model to --predict."),
    ("--batch-max", Whole(1, BATCH_MAX), "N", "The batch grows with the workers, up to this (default: fixed)."),
)


def elastic_options(function: F) -> F:
    """Adds --gpus, --workers and the options that refine them."""
    for name, kind, metavar, text in reversed(_OPTIONS):
        function = click.option(name, type=kind, default=None, metavar=metavar, help=text)(function)
    return function


def check(option_values: Mapping[str, Any]) -> None:
    """Raises UsageError if two of the options contradict each other."""
    gpus, workers = option_values["gpus"], option_values["workers"]
    if isinstance(gpus, tuple):
        bounds = f"--gpus {format_gpus(gpus[0])}..{format_gpus(gpus[1])}"
        if workers:
            raise click.UsageError(f"{bounds} and --workers resize the job in two ways: use one of them")
        for name, option in _SHARES.items():
            if option_values[name] is not None:
                raise click.UsageError(f"{bounds} already sets the share: leave {option} out")
    if workers and option_values["gang"]:
        raise click.UsageError("--workers are elastic and a --gang is fixed: use one of them")
    if workers and option_values["image"]:
        raise click.UsageError(
            "--workers need the daemon's socket, which containers do not have: run them without --image"
        )
    for option in ("heuristic", "utility", "batch_max", "batch"):
        if option_values[option] and not workers and not (option == "batch" and option_values.get("predict")):
            flag = f"--{option.replace('_', '-')}"
            raise click.UsageError(f"{flag} refines --workers: add for example --workers 1-8")
    if option_values["heuristic"] and option_values["utility"]:
        raise click.UsageError("--heuristic and --utility both choose the number of workers: use one of them")
    if rule(option_values):
        from vgpud.core.elastic import registry

        if why := registry.check(rule(option_values)):
            raise click.UsageError(why)
    if option_values["batch_max"] and option_values["batch_max"] < (option_values["batch"] or BATCH_MAX):
        raise click.UsageError("--batch-max needs a --batch to grow from, which must not be above it")


def rule(option_values: Mapping[str, Any]) -> str:
    """The rule for how many workers pay off, as the API has it."""
    return f"utility({option_values['utility']})" if option_values["utility"] else option_values["heuristic"] or ""


def least_gpus(option_values: Mapping[str, Any]) -> int:
    """The milli-GPU that the job starts with; 0: its environment says it."""
    gpus = option_values["gpus"]
    return int(gpus[0] if isinstance(gpus, tuple) else gpus or 0)


def fill(spec: pb.JobSpec, option_values: Mapping[str, Any]) -> None:
    """Sets the message's elastic fields."""
    if isinstance(option_values["gpus"], tuple):
        spec.elastic.gpus_milli_min, spec.elastic.gpus_milli_max = option_values["gpus"]
    if option_values["workers"]:
        spec.elastic.workers_min, spec.elastic.workers_max = option_values["workers"]
        spec.members = spec.elastic.workers_min
        spec.elastic.heuristic = rule(option_values)
        spec.elastic.batch, spec.elastic.batch_max = option_values["batch"] or 0, option_values["batch_max"] or 0
