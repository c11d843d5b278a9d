"""The options of `vgpu submit` by which a job is stretched while it runs: its GPUs, or its workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.quantities import AnyParam, Gpus, Whole
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus

if TYPE_CHECKING:
    from vgpud.v1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])
#: as in vgpud.core.queue.check and vgpud.api.elastic_messages
MEMBERS_MAX, BATCH_MAX = 1024, 1 << 40
#: options that say how one member shares, which is the queue's business where it is stretched
_SHARES = {"min_milli": "--min", "max_milli": "--max", "spread": "--spread", "gang": "--gang"}


class Stretch(AnyParam):
    """A fraction of GPUs, or the least and the most of one device; becomes milli-GPU, one number or two."""

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
            self.fail(f"{str(value)!r} has no size: write the least first, as 0.25..1", param, ctx)
        if most > MILLI_PER_DEVICE:
            self.fail(f"{str(value)!r} is more than one device: write 1 at most, or --workers 1-8", param, ctx)
        return (least, most) if least < most else least


class Workers(AnyParam):
    """The least and the most of workers, such as 1-8; one number is both."""

    name = "workers"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", str(value).strip())
        if not found:
            self.fail(f"{str(value)!r} is no number of workers: write for example 1-8", param, ctx)
        least, most = int(found[1]), int(found[2] or found[1])
        if not 1 <= least <= most <= MEMBERS_MAX:
            self.fail(f"{str(value)!r} cannot be: the least first, from 1 to {MEMBERS_MAX}", param, ctx)
        return least, most


_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("--gpus", Stretch(), "F|F..F", "SM time: 0.5 is half a device; 0.25..1 stretches between these while it runs."),
    (
        "--workers",
        Workers(),
        "1-8",
        "As many processes as are worth it and have room, each with --gpus.",
    ),
    ("--heuristic", None, "RULE", "How many workers are worth it (default: 'efficiency(0.1)')."),
    ("--utility", None, "RULE", "The same by what the result is worth: 'linear,100,0.5,samples=5000000'."),
    ("--batch", Whole(1, BATCH_MAX), "N", "Global batch of all workers together, or of the model to --predict."),
    ("--batch-max", Whole(1, BATCH_MAX), "N", "It grows with the workers, up to this (default: it stays)."),
)


def stretch_options(function: F) -> F:
    """Adds --gpus, --workers and what goes with them."""
    for name, kind, metavar, text in reversed(_OPTIONS):
        function = click.option(name, type=kind, default=None, metavar=metavar, help=text)(function)
    return function


def check(given: Mapping[str, Any]) -> None:
    """Raises UsageError where two of the options cannot be meant together."""
    gpus, workers = given["gpus"], given["workers"]
    if isinstance(gpus, tuple):
        stretched = f"--gpus {format_gpus(gpus[0])}..{format_gpus(gpus[1])}"
        if workers:
            raise click.UsageError(f"{stretched} and --workers stretch the job in two ways: use one of them")
        for name, option in _SHARES.items():
            if given[name] is not None:
                raise click.UsageError(f"{stretched} says how much it has: leave {option} out")
    if workers and given["gang"]:
        raise click.UsageError("--workers stretch and a --gang does not: use one of them")
    if workers and given["image"]:
        raise click.UsageError("--workers need the daemon's socket, which no container has: run them without --image")
    for option in ("heuristic", "utility", "batch_max", "batch"):
        if given[option] and not workers and not (option == "batch" and given.get("predict")):
            flag = f"--{option.replace('_', '-')}"
            raise click.UsageError(f"{flag} says how workers are used: give how many, for example --workers 1-8")
    if given["heuristic"] and given["utility"]:
        raise click.UsageError("--heuristic and --utility say the same in two ways: use one of them")
    if rule(given):
        from vgpud.core.elastic import registry

        if why := registry.check(rule(given)):
            raise click.UsageError(why)
    if given["batch_max"] and given["batch_max"] < (given["batch"] or BATCH_MAX):
        raise click.UsageError("--batch-max needs a --batch to grow from, which is not above it")


def rule(given: Mapping[str, Any]) -> str:
    """How many workers are worth it, as the API has it."""
    return f"utility({given['utility']})" if given["utility"] else given["heuristic"] or ""


def least_gpus(given: Mapping[str, Any]) -> int:
    """With what it begins."""
    gpus = given["gpus"]
    return int(gpus[0] if isinstance(gpus, tuple) else gpus)


def fill(spec: pb.JobSpec, given: Mapping[str, Any]) -> None:
    """The message's part."""
    if isinstance(given["gpus"], tuple):
        spec.elastic.gpus_milli_min, spec.elastic.gpus_milli_max = given["gpus"]
    if given["workers"]:
        spec.elastic.workers_min, spec.elastic.workers_max = given["workers"]
        spec.members = spec.elastic.workers_min
        spec.elastic.heuristic = rule(given)
        spec.elastic.batch, spec.elastic.batch_max = given["batch"] or 0, given["batch_max"] or 0
