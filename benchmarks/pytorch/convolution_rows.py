"""Trains convolutional networks and published models one after the other, each in a process of its own, and writes how
much memory PyTorch had reserved at most. Run by convolutions.py with an interpreter that has PyTorch, torchvision, timm
and transformers; knows nothing of vgpud.

    python convolution_rows.py ROWS OUTPUT

ROWS: JSON, a list of rows of GPUMemNet's two tables, as convolutions.py reads them. OUTPUT: JSON, for each row MiB
reserved and the most that a convolution may work in (likely_mib, most_mib), or {"error": text}. Each training is what
GPUMemNet measured: a summary of the layers, then Adam over an epoch, here of a few batches, whose last is smaller.
"""

import contextlib
import ctypes
import json
import os
import sys
import traceback
import warnings

import torch
from torch import nn

MIB = 1 << 20
FULL_BATCHES = 3
FILTERS_MAX = 2048
SAMPLES, TRAINED_IMAGES, TESTED_IMAGES = 4096, 1_281_167, 50_000
CLASSES, TOKENS = 1000, 512


# ---- networks of the table of CNNs ----


def widths(row):
    """Channels behind each convolution."""
    depth, base = row["depth"], row["base_filters"]
    kind, ratio = row["architecture"], FILTERS_MAX / base
    for i in range(depth):
        if kind == "pyramid":
            yield min(int(base * ratio ** (i / depth)), FILTERS_MAX)
        elif kind == "bottleneck":
            growth = 2 if depth <= 2 else ratio ** (1 / (depth - 1))
            yield base * 2 if i == 0 else min(int(base * growth ** (i - 1)), FILTERS_MAX)
        elif kind == "hourglass" and i < depth // 2:
            yield min(int(base * ratio ** (i / (depth // 2))), FILTERS_MAX)
        elif kind == "hourglass":
            yield max(int(base * ratio ** ((depth - i - 1) / (depth - depth // 2))), base)
        else:  # uniform
            yield base


def build_network(row):
    layers, channels = [], row["channels"]
    for width in widths(row):
        layers.append(nn.Conv2d(channels, width, 3, padding=1))
        if row["batch_norm"]:
            layers.append(nn.BatchNorm2d(width))
        layers.append(getattr(nn, row["activation"])())
        if row["dropout"]:
            layers.append(nn.Dropout(0.3))
        channels = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, row["classes"]), nn.Softmax(dim=1)]
    return nn.Sequential(*layers, *head)


def train_network(row):
    batch, shape = row["batch_size"], (row["channels"], row["image_size"], row["image_size"])
    network = build_network(row).to("cuda")
    shown = torch.randn(batch, *shape).to("cuda")  # it lives as long as the program
    network(shown)
    train(network, torch.optim.Adam(network.parameters()), shape, batch, SAMPLES, row["classes"])


# ---- published models ----


def build_model(name):
    import torchvision.models as published

    if name == "Xception":
        import timm

        return timm.create_model("xception", pretrained=False, num_classes=CLASSES), 224
    if name == "inception":
        return published.inception_v3(weights=None, aux_logits=False, num_classes=CLASSES, init_weights=False), 299
    names = {"mobilenetV2": "mobilenet_v2", "efficientnet": "efficientnet_b0"}
    return getattr(published, names.get(name, name))(weights=None), 224


def to_device(model):
    """As a copy of the model to the device is, but without one on the host. Weights are never looked at."""
    return model.to_empty(device="cuda")


def train_images(row):
    batch = row["batch_size"]
    with torch.device("meta"):
        model, side = build_model(row["model"])
    model, shape = to_device(model), (3, side, side)
    model(torch.rand(2, *shape).to("cuda"))  # what torchsummary passes
    train(model, torch.optim.Adam(model.parameters()), shape, batch, TRAINED_IMAGES, CLASSES)
    model.eval()
    with torch.no_grad():
        for count in counts(batch, TESTED_IMAGES):
            inputs, labels = images(shape, count, CLASSES)
            outputs = model(inputs)
            nn.functional.cross_entropy(outputs, labels)
            torch.max(outputs, 1)


def build_text_model(name):
    import transformers as published

    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    if name.startswith("BERT"):
        config = published.BertConfig(vocab_size=28996, **(large if name == "BERT_large" else {}))
        return published.BertForMaskedLM(config)
    if name.startswith("xlnet"):
        base = {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072}
        config = published.XLNetConfig(**(base if name == "xlnet_base" else {}))
        return published.XLNetForSequenceClassification(config)
    sizes = {"gpt2_large": (1280, 36, 20), "gpt2_xl": (1600, 48, 25)}[name]
    return published.GPT2LMHeadModel(published.GPT2Config(n_embd=sizes[0], n_layer=sizes[1], n_head=sizes[2]))


def train_text(row):
    """AdamW and clipped gradients, as the library's trainer has them."""
    with torch.device("meta"):
        model = build_text_model(row["model"])
    head, batch = model.get_output_embeddings(), row["batch_size"]
    if head is not None:
        head.weight = nn.Parameter(torch.empty(0, device="meta"))
    to_device(model).tie_weights()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(FULL_BATCHES):
        tokens = torch.zeros(batch, TOKENS, dtype=torch.long).to("cuda")
        mask = torch.ones(batch, TOKENS, dtype=torch.long).to("cuda")
        is_classified = row["model"].startswith("xlnet")
        labels = torch.zeros(batch, dtype=torch.long).to("cuda") if is_classified else tokens.clone()
        loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()


# ---- training ----


def counts(batch, samples):
    """Sizes of the batches of an epoch, shortened."""
    return [*[batch] * FULL_BATCHES, *filter(None, [samples % batch])]


def images(shape, count, classes):
    return torch.empty(count, *shape).to("cuda"), torch.zeros(count, dtype=torch.long).to("cuda")


def train(network, optimizer, shape, batch, samples, classes):
    network.train()
    criterion = nn.CrossEntropyLoss()
    for count in counts(batch, samples):
        inputs, labels = images(shape, count, classes)
        optimizer.zero_grad()
        outputs = network(inputs)  # named, as in the measured programs: it lives until the next one is there
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        loss.item()


def measure(row):
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


def measure_in_child(row):
    reading, writing = os.pipe()
    pid = os.fork()  # before CUDA starts: each child starts its own
    if pid == 0:
        try:
            answer = measure(row)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"error": "the process was killed"}


def main():
    warnings.simplefilter("ignore")
    rows_path, output_path = sys.argv[1:]
    with open(rows_path) as file:
        rows = json.load(file)
    answers = []
    for row in rows:
        answers.append(measure_in_child(row))
        print(row, answers[-1], file=sys.stderr, flush=True)
    with open(output_path, "w") as file:
        json.dump(answers, file)


main()
