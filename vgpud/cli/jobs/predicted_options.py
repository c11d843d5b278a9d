"""`vgpu submit --predict MODEL`: derives the options that the user has not given, and prints them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.predict.run import look, model_options
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cli.predict.run import Looked

F = TypeVar("F", bound=Callable[..., Any])

#: options of model_options, which mean nothing without --predict
_ITS_OPTIONS = ("optimizer", "precision", "dims", "predictor")
#: --gpus is rounded to twentieths, --mem to 64 MiB: no prediction is finer
STEP_MILLI, STEP_BYTES = 50, 64 << 20
_MILLI = 1000
#: as in vgpud.api.elastic_messages
_MODEL_BYTES = 200


def predict_options(function: F) -> F:
    """--predict MODEL and the options of its training; --batch is submit's own."""
    text = "Derive --gpus and --mem from this model: a file.onnx, file.pt2 or module:function."
    return click.option("--predict", metavar="MODEL", help=text)(model_options(function))


def fill(settings: Settings, option_values: dict[str, Any]) -> str:
    """Sets gpus and mem of `option_values` if they are None, and "prediction" to the API message (or None).

    Removes the options of predict_options. Returns the line to be printed, empty without --predict. Raises errors of
    one line: a model that cannot be read, or that does not fit on the device.
    """
    model = option_values.pop("predict")
    options = {name: option_values.pop(name) for name in _ITS_OPTIONS}
    option_values["prediction"] = None
    if model is None:
        named = next((name for name in _ITS_OPTIONS if options[name]), None)
        if named is not None:
            raise click.UsageError(f"--{'dim' if named == 'dims' else named} describes a model: give --predict MODEL")
        return ""
    found = look(settings, model, {**options, "batch": _batch(option_values), "devices": option_values["devices"]})
    option_values["prediction"] = message(found)
    return f"{_share(found, option_values)}; {_memory(found, option_values)}"


def _batch(option_values: dict[str, Any]) -> int | None:
    """The batch of one process: workers divide the global batch."""
    batch, workers = option_values["batch"], option_values["workers"]
    if batch is None:
        return None
    return max(1, int(batch) // int(workers[0])) if workers else int(batch)


def _share(result: Looked, option_values: dict[str, Any]) -> str:
    """Sets --gpus; returns the sentence about it."""
    from vgpud.core.units import format_gpus

    if not result.in_range:
        rest = "give --gpus" if option_values["gpus"] is None else "--gpus stays as given"
        return f"{result.why}: {rest}"
    part = result.prediction.utilisation
    said = f"{result.description}, uses {part.value:.1%} of one {result.gpu.name} ({part.low:.1%} to {part.high:.1%})"
    if option_values["gpus"] is not None:
        return f"{said}, --gpus stays as given"
    milli = math.ceil(part.value * _MILLI / STEP_MILLI) * STEP_MILLI
    milli = min(_MILLI, max(STEP_MILLI, milli))
    option_values["gpus"] = milli
    return f"{said}: --gpus {format_gpus(milli)}"


def _memory(result: Looked, option_values: dict[str, Any]) -> str:
    """Sets --mem to the upper end, because too little ends the job; returns the sentence about it."""
    from vgpud.core.units import format_bytes

    low, value, high = result.memory_range()
    there = result.gpu.memory_gb * 10**9
    by = {"dry_run": ", by a dry run", "graph": ", from its graph"}.get(result.memory_by, "")
    said = f"memory {format_bytes(int(value))} ({format_bytes(int(low))} to {format_bytes(int(high))}{by})"
    if low > there:
        text = f"one {result.gpu.name} has {result.gpu.memory_gb} GB, too little for {result.description}"
        raise CliError(f"{text}: {said}; lower --batch", ExitCode.NO_CAPACITY)
    if any(option_values[name] is not None for name in ("mem", "mem_min", "mem_max")):
        return f"{said}, --mem stays as given"
    option_values["mem"] = min(there // STEP_BYTES, -(-int(high) // STEP_BYTES)) * STEP_BYTES
    return f"{said}: --mem {option_values['mem'] >> 20}M"


def shorten(model: str) -> str:
    """The name as the daemon keeps it: printable; only the end of a path that is too long."""
    from vgpud.view.text import plain

    text = plain(model)
    if len(text.encode()) > _MODEL_BYTES:
        text = "..." + text.encode()[3 - _MODEL_BYTES :].decode(errors="ignore")
    return text


def message(result: Looked) -> Any:
    """The prediction as the daemon keeps it."""
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    low, value, high = result.memory_range()
    made = pb.Prediction(
        model=shorten(result.query.model),
        device=result.gpu.name,
        mem_bytes=pb.Range(value=value, low=low, high=high),
        out_of_range=not result.in_range,
        features=dict(result.features.values),
    )
    for name in ("utilisation", "sm_activity"):
        part = getattr(result.prediction, name)
        if part is not None:
            getattr(made, name).CopyFrom(pb.Range(value=part.value, low=part.low, high=part.high))
    return made
