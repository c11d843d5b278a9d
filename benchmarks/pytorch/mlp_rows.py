"""Trains networks of linear layers one after the other, each in a process of its own, and writes how much memory
PyTorch had reserved at most. Run by mlp_memory.py with an interpreter that has PyTorch; knows nothing of vgpud.

    python mlp_rows.py ROWS OUTPUT

ROWS: JSON, a list of {"inputs": N, "widths": [N, ...], "batch": N}; a ReLU is between two layers. OUTPUT: JSON, the
MiB for each row, null where the training failed. A training is what GPUMemNet measured: one pass for a summary of the
layers, then two epochs of 4,096 made-up samples with Adam, of which the first holds the most. Names of tensors are
those of the measured program, since a tensor lives as long as its name: inputs and labels of the step before are gone
when the next ones are copied, its outputs are not.
"""

import json
import os
import sys
import traceback
from typing import Any

import torch
from torch import nn

SAMPLES, EPOCHS = 4096, 2
SUMMARY_BATCH = 2  # of the package that prints the summary
MIB = 1 << 20


def build_network(row: dict[str, Any]) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = row["inputs"]
    for width in row["widths"]:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers[:-1])


def train(row: dict[str, Any]) -> int:
    model = build_network(row).to("cuda")
    model(torch.rand(SUMMARY_BATCH, 1, row["inputs"]).to("cuda"))
    optimizer, criterion = torch.optim.Adam(model.parameters()), nn.CrossEntropyLoss()
    all_inputs = torch.randn(SAMPLES, row["inputs"])
    all_labels = torch.randint(0, row["widths"][-1], (SAMPLES,))
    for _ in range(EPOCHS):
        for begin in range(0, SAMPLES, row["batch"]):
            inputs, labels = all_inputs[begin : begin + row["batch"]], all_labels[begin : begin + row["batch"]]
            inputs, labels = inputs.to("cuda"), labels.to("cuda")
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            loss.item()
    torch.cuda.synchronize()
    return int(torch.cuda.max_memory_reserved()) // MIB


def train_in_child(row: dict[str, Any]) -> int | None:
    reading, writing = os.pipe()
    pid = os.fork()  # before CUDA starts: each child starts its own
    if pid == 0:
        try:
            os.write(writing, str(train(row)).encode())
        except Exception:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return int(text) if text else None


def main() -> None:
    rows_path, output_path = sys.argv[1:]
    with open(rows_path) as file:
        rows = json.load(file)
    peaks = [train_in_child(row) for row in rows]
    with open(output_path, "w") as file:
        json.dump(peaks, file)


main()
