"""The process that reads a model: foreign files and the user's own code stay in here, within limits.

Started by graph_reading with one JSON document on stdin; answers with one JSON line on the descriptor that it was
started with as stdout. What the user's code prints goes to stderr.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from vgpud.predict import graph_counts, memory
from vgpud.predict.graph import Graph, GraphError, label, refuse_unused

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Answers {"refused": line} or what graph_reading.Read holds."""
    asked = json.load(sys.stdin)
    _end_with(asked["parent"])
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        _limit(asked["memory_bytes"], asked["mapped_bytes"], asked["seconds"])
        json.dump(_answer(asked), answer)


def _end_with(parent: int) -> None:
    """Ends with the parent process: after Ctrl-C or a kill no process waits for the answer."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was before
        sys.exit(1)


def _limit(memory_bytes: int, mapped_bytes: int, seconds: int) -> None:
    """Data and address space (libraries of CUDA map many GiB), processor time, no core files."""
    limits = ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_AS, mapped_bytes))
    for kind, amount in (*limits, (resource.RLIMIT_CPU, seconds), (resource.RLIMIT_CORE, 0)):
        _soft, hard = resource.getrlimit(kind)
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(kind, (amount, amount))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _read(request)
    except GraphError as error:
        return {"refused": str(error)}
    except MemoryError:
        limit = request["memory_bytes"] >> 30
        return {"refused": f"{request['model']} needs more than {limit} GiB to be read: predict a smaller one"}
    except ModuleNotFoundError as error:
        return {"refused": f"{error.name} is not installed: pip install 'vgpud[predict]'"}
    except Exception as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return {"refused": f"{request['model']} cannot be read ({what})"}


def _read(request: dict[str, Any]) -> dict[str, Any]:
    made = _graph(request)
    if not any(op.kind.forward_kernels for op in made.ops):
        raise GraphError(f"{request['model']} computes nothing: it has no operations")
    batch = request["batch"] or made.batch
    half = request["precision"] != "fp32"
    counts = graph_counts.count(made, batch, half)
    bytes_ = memory.estimate(made, batch, request["optimizer"], half)
    return {"counts": dataclasses.asdict(counts), "memory": dataclasses.asdict(bytes_)}


def _graph(request: dict[str, Any]) -> Graph:
    """By the reader for its kind; each is imported only when it is needed."""
    kind, model, dims = request["kind"], request["model"], request["dims"]
    batch = request["batch"] or request["free_batch"]
    if kind == "entry":
        from vgpud.predict.entry_point import check_entry_point

        check_entry_point(model)
        from vgpud.predict import torch_trace  # imports PyTorch

        refuse_unused(model, set(dims))
        return torch_trace.trace(model, batch, request["optimizer"] != "none")
    if kind == "onnx":
        from vgpud.predict import onnx_model

        return onnx_model.read(Path(model), batch, dims)
    if kind == "pt2":
        from vgpud.predict import torch_pt2

        return torch_pt2.read(Path(model), batch, dims)
    raise GraphError(f"{label(model)} is of an unknown type")


if __name__ == "__main__":
    main()
