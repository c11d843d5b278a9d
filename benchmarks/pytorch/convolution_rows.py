"""Trains convolutional networks and published models one after the other, each in a process of its own, and writes how
much memory PyTorch had reserved at most. Run by convolutions.py with an interpreter that has PyTorch, torchvision, timm
and transformers; knows nothing of vgpud.

    python -m benchmarks.pytorch.convolution_rows ROWS OUTPUT

ROWS: JSON, a list of rows of GPUMemNet's two tables, as convolutions.py reads them. OUTPUT: JSON, for each row MiB
reserved and the most that a convolution may work in (likely_mib, most_mib), or {"error": text}. Each training is what
GPUMemNet measured: a summary of the layers, then Adam over an epoch, here of a few batches, whose last is smaller.
The programs of the language models are in the authors' github.com/itu-rad/CARMA, folder workloads, of 75e5b71: with
their settings, how many devices each has, and, in the files *.rad, the memory that the table has.
"""

import contextlib
import ctypes
import json
import os
import random
import sys
import traceback
import warnings
from typing import Any

import torch
from torch import nn

from benchmarks.pytorch.published_models import TOKENS, Row, build_model, build_network, build_text_model

Shape = tuple[int, int, int]
MIB = 1 << 20
FULL_BATCHES = 3
SAMPLES, TRAINED_IMAGES, TESTED_IMAGES = 4096, 1_281_167, 50_000
#: texts have different lengths, which are not known here: enough batches that the allocator's cache has settled
TEXT_BATCHES, SEED = 40, 1
#: were measured on two devices, by DataParallel; here the first of them is looked at, which has the optimizer's state
ON_TWO_DEVICES = ("xlnet_base", "xlnet_large", "gpt2_large")


def train_network(row: Row) -> None:
    batch, shape = row["batch_size"], (row["channels"], row["image_size"], row["image_size"])
    network = build_network(row).to("cuda")
    shown = torch.randn(batch, *shape).to("cuda")  # it lives as long as the program
    network(shown)
    train(network, shape, batch, SAMPLES)


def to_device(model: Any) -> Any:
    """As a copy of the model to the device is, but without one on the host. Weights are never looked at."""
    return model.to_empty(device="cuda")


def train_images(row: Row) -> None:
    batch = row["batch_size"]
    with torch.device("meta"):
        model, side = build_model(row["model"])
    model, shape = to_device(model), (3, side, side)
    model(torch.rand(2, *shape).to("cuda"))  # what torchsummary passes
    train(model, shape, batch, TRAINED_IMAGES)
    model.eval()
    with torch.no_grad():
        for count in counts(batch, TESTED_IMAGES):
            inputs, labels = images(shape, count)
            outputs = model(inputs)
            nn.functional.cross_entropy(outputs, labels)
            torch.max(outputs, 1)


def draw_length(texts: int, rng: random.Random) -> int:
    """Tokens of the longest of so many texts: a batch is padded to it."""
    return max(rng.randint(1, TOKENS) for _ in range(texts))


def train_text(row: Row) -> None:
    """As GPUMemNet's authors publish it: BERT and GPT-2 in a loop of their own, on texts of full length; XLNet by the
    library's trainer, which clips gradients, has a batch for each device, and pads it to its longest text."""
    name, batch = row["model"], row["batch_size"]
    with torch.device("meta"):
        model = build_text_model(name)
    head = model.get_output_embeddings()
    if head is not None:
        head.weight = nn.Parameter(torch.empty(0, device="meta"))
    to_device(model).tie_weights()
    network = nn.DataParallel(model) if name in ON_TWO_DEVICES else model
    network.train()
    optimizer = torch.optim.AdamW(network.parameters())
    has_trainer, rng = name.startswith("xlnet"), random.Random(SEED)
    texts = batch * torch.cuda.device_count() if has_trainer else batch
    outputs = None  # named, as in the measured programs: it lives until the next one is there
    for _ in range(TEXT_BATCHES if has_trainer else FULL_BATCHES):
        length = draw_length(texts, rng) if has_trainer else TOKENS
        tokens = torch.zeros(texts, length, dtype=torch.long).to("cuda")
        mask = torch.ones(texts, length, dtype=torch.long).to("cuda")
        labels = torch.zeros(texts, dtype=torch.long).to("cuda") if has_trainer else tokens.clone()
        outputs = network(input_ids=tokens, attention_mask=mask, labels=labels)
        loss = outputs["loss"].mean()
        if has_trainer:
            outputs = None
        loss.backward()
        if has_trainer:
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


# ---- training ----


def counts(batch: int, samples: int) -> list[int]:
    """Sizes of the batches of an epoch, shortened."""
    return [*[batch] * FULL_BATCHES, *filter(None, [samples % batch])]


def images(shape: Shape, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(count, *shape).to("cuda"), torch.zeros(count, dtype=torch.long).to("cuda")


def train(network: nn.Module, shape: Shape, batch: int, samples: int) -> None:
    optimizer = torch.optim.Adam(network.parameters())
    network.train()
    criterion = nn.CrossEntropyLoss()
    for count in counts(batch, samples):
        inputs, labels = images(shape, count)
        optimizer.zero_grad()
        outputs = network(inputs)  # named, as in the measured programs: it lives until the next one is there
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        loss.item()


def measure(row: Row) -> dict[str, float]:
    if "architecture" in row:
        train_network(row)
    elif row["model"].startswith(("BERT", "xlnet", "gpt2")):
        train_text(row)
    else:
        train_images(row)
    torch.cuda.synchronize()
    likely, most = ctypes.c_uint64(0), ctypes.c_uint64(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcudnn.so.9").sc_dnn_get_workspaces(ctypes.byref(likely), ctypes.byref(most))
    return {
        "reserved_mib": torch.cuda.max_memory_reserved() / MIB,
        "allocated_mib": torch.cuda.max_memory_allocated() / MIB,
        "likely_mib": likely.value / MIB,
        "most_mib": most.value / MIB,
    }


def measure_in_child(row: Row) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()  # before CUDA starts: each child starts its own
    if pid == 0:
        try:
            answer: dict[str, Any] = measure(row)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": "the process was killed"}
    return found


def main() -> None:
    warnings.simplefilter("ignore")
    rows_path, output_path = sys.argv[1:]
    with open(rows_path) as file:
        rows = json.load(file)
    answers = []
    for row in rows:
        answers.append(measure_in_child(row))
    with open(output_path, "w") as file:
        json.dump(answers, file)


main()
