"""A model examined before it runs: the options that name it and its training, and the result.

Shared by `vgpu predict` and `vgpu submit --predict`; vgpud.predict is imported only when a model is named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.exits import CliError
from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam, Whole
from vgpud.errors import ExitCode

if TYPE_CHECKING:
    from vgpud.predict.entry import Asked, Read
    from vgpud.predict.features import Features
    from vgpud.predict.hardware import Gpu
    from vgpud.predict.memory import Estimate
    from vgpud.predict.model import Predicted

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


@dataclass(frozen=True)
class Looked:
    """The prediction for a model on a device. Memory: of the process with its context, from the graph."""

    asked: Asked
    gpu: Gpu
    read: Read
    features: Features
    memory: Estimate
    predicted: Predicted

    @property
    def in_range(self) -> bool:
        """Whether the predictor covers the model: it was trained on such models, and every operation is known."""
        return self.predicted.in_range and not self.read.counts.unknown

    @property
    def described(self) -> str:
        """The model and its training, as text."""
        counts = self.read.counts
        parameters = self.features["parameters"]
        scale, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if parameters >= s), (1, ""))
        size = f"{counts.family} of {parameters / scale:.3g}{unit} parameters"
        return f"{self.asked.model}: {size}, batch {counts.batch}, {self.asked.optimizer}, {self.asked.precision}"

    @property
    def why(self) -> str:
        """A sentence about the range; empty if the model is in range."""
        if self.read.counts.unknown:
            return f"out of range: the cost of {', '.join(self.read.counts.unknown)} is not known"
        return self.predicted.why

    def memory_range(self) -> tuple[float, float, float]:
        """Low, value, high: predicted if the model is in range, otherwise from the graph."""
        found = self.predicted.memory_bytes if self.in_range else self.memory
        return found.low, found.value, found.high


def look(settings: Settings, model: str, given: Mapping[str, Any]) -> Looked:
    """Reads the model and predicts. given: model_options', batch, and gpu or devices. Raises errors of one line."""
    from vgpud.predict import entry, hardware
    from vgpud.predict import model as models

    gpu = hardware.named(given.get("gpu") or _device(settings, given.get("devices")))
    predictor = models.load(given.get("predictor"))
    asked = entry.Asked(
        model,
        given.get("batch"),
        given.get("optimizer") or "adam",
        given.get("precision") or "fp32",
        dict(given.get("dims") or ()),
    )
    read = entry.read(asked)
    known = entry.known(read, asked, gpu)
    return Looked(asked, gpu, read, known, entry.memory_bytes(read, gpu), predictor.predict(known))


def _device(settings: Settings, wanted: Collection[str] | None) -> str:
    """The model name of the daemon's device, or of these (index or UUID; None: no --device was given).

    Raises CliError if there is no device, or several models.
    """
    from vgpud.cli.common.client import Client

    try:
        with Client(settings) as client:
            there = client.devices()
    except CliError as error:
        text = f"the daemon did not name its device ({error.format_message()}): give one with --gpu, as in --gpu h200"
        raise CliError(text, ExitCode.UNREACHABLE) from error
    meant = [one for one in there if not wanted or one.uuid in wanted or str(one.index) in wanted]
    names = sorted({device.name for device in meant})
    if len(names) != 1:
        found = ", ".join(names) or ("no such device" if wanted else "no device")
        remedy = "name one with --gpu" if wanted is None else "choose with --device"
        raise CliError(f"the daemon has {found}: {remedy}", ExitCode.USAGE)
    return names[0]
