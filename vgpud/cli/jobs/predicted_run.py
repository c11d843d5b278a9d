"""`vgpu submit --predict-run`: runs the command on a private simulated device first, and derives the options that the
user has not given from what it has taken there."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.jobs.predicted_options import STEP_BYTES, STEP_MILLI, shorten
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.predict.dry_run import DryRun

F = TypeVar("F", bound=Callable[..., Any])

_MILLI = 1000


def predict_run_option(function: F) -> F:
    """--predict-run."""
    text = "Run COMMAND on a SIMULATED device first, and derive --gpus and --mem from what it takes."
    return click.option("--predict-run", is_flag=True, help=text)(function)


def fill_from_run(settings: Settings, option_values: dict[str, Any], command: Sequence[str]) -> str:
    """Sets gpus and mem of `option_values` if they are None, and "prediction" to the API message.

    Removes the option. Returns the line to be printed, empty without --predict-run. Raises errors of one line: a
    command that fails, uses no device, or does not fit on the daemon's.
    """
    if not option_values.pop("predict_run"):
        return ""
    if option_values["prediction"] is not None:
        raise click.UsageError("--predict reads a model and --predict-run runs the command: give one of them")
    if option_values["image"]:
        raise click.UsageError(
            "--predict-run runs the command here, not in --image: try `vgpu predict run` in the image"
        )
    from vgpud.cli.predict.predict_run import refuse_unused, run_dry
    from vgpud.cli.predict.run import find_device_name
    from vgpud.predict.dry_device import find_device

    device = find_device(find_device_name(settings, option_values["devices"]))
    with _in_directory(option_values["directory"]):
        torch, results, exit_code = run_dry(command, device, 0, {**os.environ, **dict(option_values["env"] or ())})
    if not results:
        refuse_unused(torch, exit_code)
    if exit_code:
        raise CliError(f"COMMAND ended with {exit_code} in its dry run: nothing was submitted", ExitCode.OTHER)
    (result,) = results  # there was one device
    option_values["prediction"] = _message(command, result)
    return f"{_share(result, option_values)}; {_memory(result, option_values)}"


@contextmanager
def _in_directory(directory: str | None) -> Iterator[None]:
    kept = os.getcwd()
    if directory:
        os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(kept)


def _share(result: DryRun, option_values: dict[str, Any]) -> str:
    from vgpud.core.units import format_gpus

    part = result.utilisation()
    text = f"uses about {part.value:.0%} of one {result.device.name} ({part.low:.0%} to {part.high:.0%})"
    if option_values["gpus"] is not None:
        return f"{text}, --gpus stays as given"
    milli = min(_MILLI, max(STEP_MILLI, math.ceil(part.value * _MILLI / STEP_MILLI) * STEP_MILLI))
    option_values["gpus"] = milli
    return f"{text}: --gpus {format_gpus(milli)}"


def _memory(result: DryRun, option_values: dict[str, Any]) -> str:
    """Sets --mem to the upper end, because too little ends the job; returns the sentence about it."""
    from vgpud.core.units import format_bytes

    memory, there = result.memory(), result.device.memory_bytes
    low, value, high = (format_bytes(int(x)) for x in (memory.low, memory.value, memory.high))
    text = f"memory {value} ({low} to {high})"
    if memory.low > there:
        refusal = f"one {result.device.name} has {format_bytes(there)}, too little for COMMAND: {text}"
        raise CliError(f"{refusal}; lower its batch", ExitCode.NO_CAPACITY)
    if any(option_values[name] is not None for name in ("mem", "mem_min", "mem_max")):
        return f"{text}, --mem stays as given"
    option_values["mem"] = min(there // STEP_BYTES, math.ceil(memory.high / STEP_BYTES)) * STEP_BYTES
    return f"{text}: --mem {option_values['mem'] >> 20}M"


def _message(command: Sequence[str], result: DryRun) -> Any:
    """The prediction as the daemon keeps it."""
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    made = pb.Prediction(model=shorten(" ".join(command)), device=result.device.name)
    for name, part in (("mem_bytes", result.memory()), ("utilisation", result.utilisation())):
        getattr(made, name).CopyFrom(pb.Range(value=part.value, low=part.low, high=part.high))
    return made
