"""Reading MODEL in a separate process, with limits of time and memory and without a device.

Nothing of a model file is executed. An entry point is the user's own code and runs as the user, as the training would;
its model computes nothing, as its tensors have shapes only.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.errors import ExitCode
from vgpud.predict.features import Features, features
from vgpud.predict.graph import GraphError, label
from vgpud.predict.graph_counts import Counts
from vgpud.predict.hardware import Gpu
from vgpud.predict.memory import STATES, Estimate
from vgpud.predict.names import suggest_files
from vgpud.predict.ops import Op, Step

TIMEOUT_S = 120
MEMORY_BYTES = 8 << 30
MAPPED_BYTES = 48 << 30
ANSWER_BYTES_MAX = 64 << 20
BATCH_MAX = 1 << 24
#: what --batch is where the model leaves it open
BATCH = 64
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ROOT = str(Path(__file__).resolve().parents[2])
_SUFFIXES = {".onnx": "onnx", ".pt2": "pt2"}
#: `python -c` looks into the working directory first, where a file may lie that is called as a module is: not before
#: the path is ours is anything else imported
_START = "import sys; sys.path[:]=sys.argv[1:]; from vgpud.predict.graph_child import main; main()"


@dataclass(frozen=True)
class Asked:
    """The model to predict. batch None: the file's, or BATCH; environment None: that of this process."""

    model: str
    batch: int | None = None
    optimizer: str = "adam"
    precision: str = "fp32"
    dims: Mapping[str, int] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    environment: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Read:
    """A model's prediction and what it is based on."""

    counts: Counts
    memory: Estimate


def compute_features(reading: Read, query: Asked, gpu: Gpu) -> Features:
    """What a predictor goes by: the model on this device. Raises GraphError."""
    counts = reading.counts
    step = Step(
        counts.batch,
        counts.inputs,
        counts.outputs,
        training=query.optimizer != "none",
        states=STATES[query.optimizer],
        element_bytes=4 if query.precision == "fp32" else 2,
    )
    try:
        return features(counts.ops, step, gpu.at(query.precision))
    except (ValueError, OverflowError) as error:
        raise GraphError(f"{query.model} has impossible sizes: {error}") from error


def memory_bytes(reading: Read, gpu: Gpu) -> Estimate:
    """The whole process on this device, its context included."""
    low, value, high = gpu.context_bytes(any(op.kind == "convolution" for op in reading.counts.ops))
    memory = reading.memory
    return Estimate(
        memory.low + low, memory.value + value, memory.high + high, memory.kept_bytes, memory.replayed_bytes
    )


def is_entry_point(model: str) -> bool:
    """Whether it is written as module:function."""
    return Path(model).suffix.lower() not in _SUFFIXES and _ENTRY.fullmatch(model) is not None


def kind_of(model: str) -> str:
    """onnx, pt2 or entry. Raises GraphError."""
    suffix = Path(model).suffix.lower()
    if suffix in _SUFFIXES:
        if not Path(model).is_file():
            raise GraphError(f"there is no file {label(model)}{suggest_files(Path(model))}", ExitCode.NOT_FOUND)
        return _SUFFIXES[suffix]
    module, colon, function = model.partition(":")
    if module.endswith(".py") and colon and Path(module).is_file():
        remedy = f"write the module without .py, as in {Path(module).stem}:{function or 'FUNCTION'}"
        raise GraphError(f"{label(model)} names a file: {remedy}")
    if is_entry_point(model):
        return "entry"
    if (suffix == ".py" and Path(model).is_file()) or (model.isidentifier() and Path(f"{model}.py").is_file()):
        example = f"{Path(model).stem}:FUNCTION"
        raise GraphError(f"{label(model)} is a program: name its function that returns the model, as in {example}")
    what = "an ONNX file (.onnx), a program of torch.export (.pt2) or module:function"
    if suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".safetensors"):
        raise GraphError(f"{label(model)} has only weights, and loading it could run code: MODEL must be {what}")
    raise GraphError(f"{label(model)} is not a readable model: MODEL must be {what}")


def read(query: Asked) -> Read:
    """Reads a model in a child process. Raises GraphError: one line."""
    kind = kind_of(query.model)
    request = {
        "parent": os.getpid(),
        "kind": kind,
        "model": query.model,
        "batch": query.batch,
        "free_batch": BATCH,
        "optimizer": query.optimizer,
        "precision": query.precision,
        "dims": dict(query.dims),
        "memory_bytes": MEMORY_BYTES,
        "mapped_bytes": MAPPED_BYTES,
        "seconds": int(4 * query.timeout_s),  # of the processor; the clock is watched from here
    }
    here = os.getcwd()
    # vgpud's own directory comes last: it may be the working directory, whose other files must not be imported
    path = [here, *sys.path] if kind == "entry" else [*(p for p in sys.path if p and p != here), _ROOT]
    answer = _ran(query, json.dumps(request), path)
    if "refused" in answer:
        raise GraphError(str(answer["refused"]))
    counts = answer["counts"]
    ops = tuple(Op(**{**op, "parameters": tuple(op["parameters"])}) for op in counts["ops"])
    return Read(Counts(**{**counts, "ops": ops, "unknown": tuple(counts["unknown"])}), Estimate(**answer["memory"]))


def _ran(query: Asked, request: str, path: list[str]) -> Any:
    """The child's answer. What it says on stderr is shown only when it dies."""
    ours = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    env = {**(query.environment or os.environ), **ours}
    command = [sys.executable, "-c", _START, *path]
    name = query.model
    with subprocess.Popen(
        command,
        env=env,
        text=True,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        try:
            out, said = child.communicate(request, timeout=query.timeout_s)
        except BaseException as error:  # Ctrl-C, too
            if child.returncode is None:  # it leads a session of its own: whatever it has started goes as well
                os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            text = f"{name} was not read within {query.timeout_s:g} s: predict a smaller model, or part of it"
            raise GraphError(text, ExitCode.TIMED_OUT) from None
    try:
        return json.loads(out.strip().splitlines()[-1] if out.strip() else "")
    except ValueError:
        raise GraphError(f"{name} cannot be read: {_last_words(child.returncode, said)}") from None


def _last_words(code: int, stderr_text: str) -> str:
    if code < 0:
        limit = f" (it may use {MEMORY_BYTES >> 30} GiB)" if -code in (signal.SIGKILL, signal.SIGABRT) else ""
        return f"its reader was ended by {signal.Signals(-code).name}{limit}"
    lines = [line for line in stderr_text.splitlines() if line.strip()]
    return f"its reader ended with code {code}: {label(lines[-1]) if lines else 'nothing said'}"
