"""A model examined before it runs: the options that name it and its training, and the result.

Shared by `vgpu predict` and `vgpu submit --predict`; vgpud.predict is imported only when a model is named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam, Whole
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.predict.looked import Looked as Looked

#: as in vgpud.predict.memory and .hardware, which are imported when a model is named
OPTIMIZERS = ("none", "sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")
PRECISIONS = ("fp32", "fp16", "bf16")
BATCH_MAX, DIMS_MAX = 1 << 24, 1 << 30

F = TypeVar("F", bound=Callable[..., Any])

batch_option = click.option(
    "--batch", type=Whole(1, BATCH_MAX), metavar="N", help="Samples in a step (default: the file's, or 64)."
)


class Dim(AnyParam):
    """NAME=N, a free dimension of the model and its size; becomes a pair."""

    name = "dimension"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, equals, number = str(value).rpartition("=")
        good = equals and name and number.isascii() and number.isdigit() and len(number) < 11
        if not good or not 0 < int(number) <= DIMS_MAX:
            self.fail(f"{str(value)!r} is not a dimension: write for example seq=128", param, ctx)
        return name, int(number)


def model_options(function: F) -> F:
    """--optimizer, --precision, --dim, --predictor: the training, and the predictor."""
    path = click.Path(dir_okay=False, path_type=Path)
    options = (
        click.option(
            "--optimizer",
            type=click.Choice(OPTIMIZERS),
            help="Optimizer of the training; none: inference (default: adam).",
        ),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), help="fp16, bf16: mixed, as torch.autocast (default: fp32)."
        ),
        click.option(
            "--dim", "dims", type=Dim(), multiple=True, metavar="NAME=N", help="Size of a free dimension of the model."
        ),
        click.option("--predictor", type=path, metavar="FILE", help="Predictor made by vgpu predict train."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def look(settings: Settings, model: str, option_values: Mapping[str, Any]) -> Looked:
    """Reads the model and predicts. option_values: model_options', batch, gpu or devices. Raises errors of one line."""
    from vgpud.cli.common.output import say
    from vgpud.cli.predict import dry_model
    from vgpud.predict import entry, looked

    gpu = option_values.get("gpu") or find_device_name(settings, option_values.get("devices"))
    if settings.output == "table" and sys.stderr.isatty() and entry.is_entry_point(model):
        say(f"{model} is traced by PyTorch, whose import takes a while")
    torch = dry_model.find_own_torch(model)
    found = looked.look(
        model,
        gpu,
        batch=option_values.get("batch"),
        optimizer=option_values.get("optimizer") or "adam",
        precision=option_values.get("precision") or "fp32",
        dims=dict(option_values.get("dims") or ()),
        predictor=option_values.get("predictor"),
        environment=dry_model.find_environment(torch),
    )
    return dry_model.measure_memory(found, torch)


def find_device_name(settings: Settings, device_names: Collection[str] | None) -> str:
    """The model name of the daemon's device, or of these (index or UUID; None: no --device was given).

    Raises CliError if there is no device, or several models.
    """
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(settings) as client:
            there = client.all(calls.devices())
    except CliError as error:
        text = f"the daemon did not name its device ({error.message}): give one with --gpu, as in --gpu h200"
        raise CliError(text, ExitCode.UNREACHABLE) from error
    chosen_devices = [
        one for one in there if not device_names or one.uuid in device_names or str(one.index) in device_names
    ]
    names = sorted({device.name for device in chosen_devices})
    if len(names) != 1:
        found = ", ".join(names) or ("no such device" if device_names else "no device")
        remedy = "name one with --gpu" if device_names is None else "choose with --device"
        raise CliError(f"the daemon has {found}: {remedy}", ExitCode.USAGE)
    return names[0]
