"""Traces models of GPUMemNet's tables and writes what their graphs say. Run by published.py with an interpreter that
has PyTorch, and for published models torchvision, timm and transformers.

    python -m benchmarks.predict.published_graphs ROWS OUTPUT

ROWS: JSON, a list of rows of the tables. OUTPUT: JSON, for each row the memory without a context in bytes, features on
an A100 of 40 GB, how many parameters, and whether it convolves; or {"error": text}.
"""

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.pytorch import published_models
from benchmarks.pytorch.published_models import TOKENS, Row
from vgpud.predict import entry, graph, graph_counts, hardware, memory, torch_trace
from vgpud.predict.entry import Asked, Read
from vgpud.predict.graph import Role

DEVICE = "a100-40g"
#: DataParallel gives each of two devices half of its batch; XLNet's trainer counts it for each device
HALF_BATCH = ("gpt2_large",)
Answer = tuple[torch.nn.Module, Any]

#: what `make` answers, which the tracer finds by its name
_row: Row = {}


def make(batch: int) -> Answer:
    """The entry point: the model of the row that is being looked at, and its inputs."""
    if "embedding_size" in _row:
        return published_models.Encoder(_row), torch.zeros(batch, _row["sequence_length"], dtype=torch.long)
    if "architecture" in _row:
        side = _row["image_size"]
        return published_models.build_network(_row), torch.empty(batch, _row["channels"], side, side)
    name = str(_row["model"])
    if not name.startswith(("BERT", "xlnet", "gpt2")):
        model, side = published_models.build_model(name)
        return model, torch.empty(batch, 3, side, side)
    tokens = torch.zeros(batch, TOKENS, dtype=torch.long)
    return published_models.build_text_model(name), {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}


def measure(row: Row) -> dict[str, Any]:
    _row.clear()
    _row.update(row)
    batch = row["batch_size"] // 2 if row.get("model") in HALF_BATCH else row["batch_size"]
    traced = torch_trace.trace(f"{__name__}:make", batch, True)
    estimate = memory.estimate(traced, batch, "adam", False)
    reading = Read(graph_counts.count(traced, batch), estimate)
    job_features = entry.compute_features(reading, Asked("row", batch), hardware.find_gpu(DEVICE))
    return {
        "low": estimate.low,
        "value": estimate.value,
        "high": estimate.high,
        "replayed": estimate.replayed_bytes,
        "features": dict(job_features.values),
        "parameters": sum(tensor.elements for tensor in traced.tensors.values() if tensor.role is Role.PARAMETER),
        "family": reading.counts.family,
        "convolves": any(op.kind is graph.CONV for op in traced.ops),
    }


def attempt(function: Callable[[Row], dict[str, Any]], row: Row) -> dict[str, Any]:
    try:
        return function(row)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    warnings.simplefilter("ignore")
    rows_path, output_path = sys.argv[1:]
    with open(rows_path) as file:
        rows = json.load(file)
    sys.modules["benchmarks.predict.published_graphs"] = sys.modules[__name__]
    answers = [attempt(measure, row) for row in rows]
    with open(output_path, "w") as file:
        json.dump(answers, file)


if __name__ == "__main__":
    main()
