"""`vgpu predict MODEL`: utilisation, SM activity and memory of a model before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.predict.run import batch_option, look, model_options

if TYPE_CHECKING:
    from vgpud.predict.looked import Looked
    from vgpud.predict.model import Interval
    from vgpud.view.fit import Grid

#: the words that name a subcommand in the place of MODEL
TRAIN, RUN = "train", "run"


class PredictCommand(VgpuCommand):
    """Handles `vgpu predict train` and `vgpu predict run` as commands of their own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] == [TRAIN]:
            from vgpud.cli.predict.predict_train import train

            return train.make_context(f"{info_name} {TRAIN}", args[1:], parent, **extra)
        if args[:1] == [RUN]:
            from vgpud.cli.predict.predict_run import run

            return run.make_context(f"{info_name} {RUN}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command("predict", cls=PredictCommand, short_help="Predict a model's use of a GPU before it runs.")
@click.argument("model", metavar="MODEL")
@batch_option
@model_options
@click.option("--gpu", metavar="NAME", help="Device: h200, a100, ... (default: the daemon's).")
@pass_settings
def predict(settings: Settings, /, model: str, **option_values: Any) -> None:
    """Predict utilisation, SM activity and peak memory of training MODEL, each with an interval, without a GPU.

    \b
    vgpu predict net:make --batch 512 --gpu h200          function make(batch) of your file, as in `vgpu docs predict`
    vgpu predict resnet50.onnx --batch 128 --precision fp16 --gpu h200
    vgpu predict exported.pt2 --optimizer none            inference
    vgpu predict run --gpu a100 -- python train.py        run a program without a GPU (see its --help)
    vgpu predict train --data measured.csv                train your own predictor (see its --help)

    MODEL is an ONNX file (.onnx), a program of torch.export (.pt2), or module:function in Python, which is called with
    the batch and returns the model and example inputs; it is traced with tensors that have shapes but no values. Where
    its PyTorch has CUDA, three steps run on a private SIMULATED device, for the memory. Files are read as data; nothing
    in them is executed. `vgpu docs predict` describes how the figures are made.
    """
    from vgpud.cli.common.output import emit, say

    found = look(settings, model, option_values)
    emit(settings, view(found), [model], lambda: grid(found))
    if settings.output == "table":
        say(f"{found.description}, on one {found.gpu.name}")
        if found.why:
            say(found.why)
        if found.why_no_run:
            say(f"the memory is not by a dry run: {found.why_no_run}")


def view(result: Looked) -> dict[str, Any]:
    """The fields of `-o json`, whose names are stable. Shares are 0..1; null: no prediction, out of range."""
    counts = result.read.counts
    low, value, high = result.memory_range()
    by = "predictor" if result.in_range else "analytic"
    return {
        "model": result.query.model,
        "gpu": result.gpu.name,
        "batch": counts.batch,
        "optimizer": result.query.optimizer,
        "precision": result.query.precision,
        "family": counts.family,
        "in_range": result.in_range,
        "why": result.why or None,
        "utilisation": _part(result.utilisation),
        "utilisation_by": by if result.utilisation else None,
        "sm_activity": _part(result.prediction.sm_activity if result.in_range else None),
        "memory_bytes": {"value": int(value), "low": int(low), "high": int(high)},
        "memory_by": result.memory_by,
        "memory_of_graph_bytes": {
            "value": result.memory.value,
            "low": result.memory.low,
            "high": result.memory.high,
        },
        "kept_for_backward_bytes": result.memory.kept_bytes,
        "unknown_operations": list(counts.unknown),
        "features": dict(result.features.values),
    }


def _part(part: Interval | None) -> dict[str, float] | None:
    if part is None:
        return None
    return {"value": round(part.value, 4), "low": round(part.low, 4), "high": round(part.high, 4)}


def grid(result: Looked) -> Grid:
    """The three figures, and how each was found."""
    from vgpud.core.units import format_bytes
    from vgpud.view.fit import Grid

    made = Grid(("WHAT", ">PREDICTED", ">FROM", ">TO", "BY"))
    sm_activity = result.prediction.sm_activity if result.in_range else None
    lacking = "not measured" if result.in_range else "out of range"
    by = "predictor" if result.in_range else "analytic"
    for title, part in (("utilisation", result.utilisation), ("SM activity", sm_activity)):
        shown = ["-"] * 3 if part is None else [f"{x:.1%}" for x in (part.value, part.low, part.high)]
        made.rows.append((title, *shown, lacking if part is None else by))
    low, value, high = (format_bytes(int(x)) for x in result.memory_range())
    made.rows.append(("memory", value, low, high, result.memory_by.replace("_", " ")))
    return made
