"""The process that trains what is measured: a line of JSON asks, `ready` answers, `go` starts, a line of JSON reports.

    {"name": "resnet18", "batch": 32, "precision": "fp16", "seconds": 2.0, "gpu": "h100", "cpu": false}

Started by benchmarks.predict.collect, one for each architecture, so that a context's memory is that architecture's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.predict import architectures
from vgpud.predict import entry, graph_counts, hardware, memory, torch_trace
from vgpud.predict.ops import list_ingredients

OPTIMIZER = "adam"
WARM_STEPS = 3
#: steps between two looks at the clock on a device, whose queue runs ahead
STEPS_TOGETHER = 4
CPU_STEPS, CPU_BATCH = 2, 2
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def main() -> None:
    """Serves until its standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            answer = _measure(json.loads(line), answers.write)
        except torch.cuda.OutOfMemoryError:
            answer = {"failed": "out of memory"}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        answers.write(json.dumps(answer) + "\n")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _measure(request: Mapping[str, Any], say: Callable[[str], object]) -> dict[str, Any]:
    """A workload: what is known of it, then what it does."""
    known = _known_facts(request)
    make = getattr(architectures, request["name"])
    step = _Step(make, request)
    for _ in range(1 if request["cpu"] else WARM_STEPS):
        step.run()
    step.wait()
    say("ready\n")
    sys.stdin.readline()
    measured = _on_cpu(step) if request["cpu"] else _on_device(step, request["seconds"])
    return {**known, **measured}


def _known_facts(request: Mapping[str, Any]) -> dict[str, Any]:
    """Features, and the memory that the graph says."""
    name = f"{architectures.__name__}:{request['name']}"
    question = entry.Asked(name, request["batch"], OPTIMIZER, request["precision"])
    gpu = hardware.find_gpu(request["gpu"])
    half = request["precision"] != "fp32"
    made = torch_trace.trace(name, request["batch"], True)
    read = entry.Read(
        graph_counts.count(made, request["batch"], half), memory.estimate(made, request["batch"], OPTIMIZER, half)
    )
    estimate = entry.memory_bytes(read, gpu)
    return {
        "features": dict(entry.compute_features(read, question, gpu).values),
        "ingredients": list_ingredients(read.counts.ops),
        "unknown": list(read.counts.unknown),
        "estimate_bytes": dataclasses.asdict(estimate),
    }


class _Step:
    """A training step: data from the host, forward, backward, optimizer."""

    def __init__(self, make: Callable[[int], tuple[torch.nn.Module, Any]], request: Mapping[str, Any]) -> None:
        self.device = torch.device("cpu" if request["cpu"] else "cuda")
        with self.device:  # where random weights are made at once
            model, inputs = make(min(request["batch"], CPU_BATCH) if request["cpu"] else request["batch"])
        self.model = model.train()
        self.inputs = inputs
        if not request["cpu"]:
            self.inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.cpu().pin_memory(), inputs)
            del inputs
            torch.cuda.empty_cache()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.dtype = _DTYPES.get(request["precision"])
        scaled = self.dtype is torch.float16 and not request["cpu"]
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scaled)

    def run(self) -> None:
        inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.to(self.device, non_blocking=True), self.inputs)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.dtype) if self.dtype else contextlib.nullcontext():
            answer = self.model(**inputs) if isinstance(inputs, Mapping) else self.model(inputs)
            made = next(t for t in pytree.tree_leaves(dict(answer) if isinstance(answer, Mapping) else answer))
            loss = made.float().square().mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _on_device(step: _Step, seconds: float) -> dict[str, Any]:
    from benchmarks.predict.collect_nvml import Watch

    watch = Watch(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    torch.cuda.reset_peak_memory_stats()
    steps = 0
    with watch:
        begin = time.monotonic_ns()
        while time.monotonic_ns() - begin < seconds * 1e9:
            for _ in range(STEPS_TOGETHER):
                step.run()
            step.wait()
            steps += STEPS_TOGETHER
        took_ns = time.monotonic_ns() - begin
    held = watch.process_bytes()
    context = (held if held is not None else watch.used_bytes()) - torch.cuda.memory_reserved()
    return {
        "utilisation": watch.utilisation,
        "sm_activity": watch.sm_activity,
        "memory_bytes": torch.cuda.max_memory_reserved() + max(0, context),
        "context_bytes": context,
        "step_ns": took_ns / steps,
    }


def _on_cpu(step: _Step) -> dict[str, Any]:
    """Tries the program, measures nothing of a device."""
    begin = time.monotonic_ns()
    for _ in range(CPU_STEPS):
        step.run()
    took_ns = (time.monotonic_ns() - begin) / CPU_STEPS
    return {"utilisation": None, "sm_activity": None, "memory_bytes": None, "context_bytes": None, "step_ns": took_ns}


if __name__ == "__main__":
    main()
