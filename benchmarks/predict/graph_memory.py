"""The row "graph-memory": peak memory of GPUMemNet's runs as the graph alone says it, with nothing learnt from them.

A context and libraries cost as much for every model of one machine: their median is taken off before sizes are
compared, and is a figure of its own.
"""

from __future__ import annotations

import ast
import csv
import re
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.predict import gpumemnet_data
from benchmarks.table import Figure, at_least, at_most
from vgpud.predict import entry, graph, graph_counts, hardware, memory
from vgpud.predict.graph import Graph, Op, Role, Tensor

ROW = "graph-memory"
#: what is smaller is all context and rounding
LARGE_MIB = 256
INSIDE, ABOVE = at_least(90), at_most(1)
MIB = 1 << 20


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Of all runs that trained: how many lie within the interval, how far off the tensors' sizes are."""
    gpu = hardware.find_gpu(gpumemnet_data.A100.name)
    inside: list[bool] = []
    above: list[bool] = []
    pairs: list[tuple[float, float]] = []
    with gpumemnet_data.CSV.open(encoding="utf-8", newline="") as file:
        for cells in csv.DictReader(file):
            if not float(cells["Avg SMACT"]):
                continue  # it ended at once
            made = perceptron(cells)
            estimate = memory.estimate(made, made.batch, "adam", False)
            read = entry.Read(graph_counts.count(made, made.batch), estimate)
            whole = entry.memory_bytes(read, gpu)
            measured = float(cells["Max GPU Memory (MiB)"])
            inside.append(whole.low <= measured * MIB <= whole.high)
            above.append(measured * MIB > whole.high)
            pairs.append((estimate.replayed_bytes / MIB, measured))
    rest = statistics.median(measured - tensors for tensors, measured in pairs)
    large = [abs(tensors - (measured - rest)) / (measured - rest) for tensors, measured in pairs if tensors > LARGE_MIB]
    raw["runs"] = len(pairs)
    case = "GPUMemNet, Adam, fp32, A100 40GB"
    yield Figure(ROW, case, "runs whose memory lies within the interval, %", 100 * statistics.mean(inside), INSIDE)
    yield Figure(ROW, case, "runs whose memory is above it, and so above --mem, %", 100 * statistics.mean(above), ABOVE)
    yield Figure(ROW, case, "context and libraries, MiB", rest)
    yield Figure(ROW, case, f"tensors of more than {LARGE_MIB} MiB: median error, %", 100 * statistics.median(large))
    yield Figure(ROW, case, "the same, 90th percentile, %", 100 * statistics.quantiles(large, n=10)[-1])


def perceptron(cells: dict[str, str]) -> Graph:
    """A run's model as a reader of models would have it: each linear layer with its weight seen through a view."""
    named = re.fullmatch(r"input:(\d+)_.*_batch:(\d+)\.out", cells["Filename"])
    if named is None:
        raise ValueError(f"{cells['Filename']!r} does not say what was run")
    width, batch = int(named[1]), int(named[2])
    made = Graph(batch)
    made.tensor("x", Tensor((batch, width), role=Role.INPUT))
    last = "x"
    for number, (kind, outputs, _parameters) in enumerate(ast.literal_eval(cells["Activations-Params"])):
        out = f"y{number}"
        made.tensor(out, Tensor((batch, outputs)))
        if kind == "linear":
            weight, bias, turned = (f"{what}{number}" for what in ("weight", "bias", "turned"))
            made.tensor(weight, Tensor((outputs, width), role=Role.PARAMETER))
            made.tensor(bias, Tensor((outputs,), role=Role.PARAMETER))
            made.tensor(turned, Tensor((width, outputs)))
            made.op(Op("t", graph.VIEW, (weight,), (turned,)))
            made.op(Op("addmm", graph.MATMUL, (bias, last, turned), (out,)))
            width = outputs
        else:
            made.op(Op("relu", graph.ACTIVATION, (last,), (out,)))
        last = out
    return made
