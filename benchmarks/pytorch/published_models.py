"""The models of GPUMemNet's tables, for an interpreter that has PyTorch; knows nothing of vgpud.

Networks that convolve and encoders of its tables by their settings; its published models, from torchvision, timm and
transformers, by configuration, without weights.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

Row = dict[str, Any]
FILTERS_MAX = 2048
CLASSES, TOKENS = 1000, 512
GROWTH, BLOCK_LAYERS, TRANSITION_INTERVAL = 32, 4, 5  # of dense networks
SIDE_LEAST = 7  # of an image: no network makes it smaller on purpose


# ---- networks of the table of CNNs ----


def widths(row: Row) -> Iterator[int]:
    """Channels behind each convolution."""
    depth, base = row["depth"], row["base_filters"]
    kind, ratio = row["architecture"], FILTERS_MAX / base
    for i in range(depth):
        if kind in ("pyramid", "gradual"):
            yield min(int(base * (ratio ** (1 / (depth if kind == "pyramid" else 2 * depth))) ** i), FILTERS_MAX)
        elif kind == "bottleneck":
            growth = 2 if depth <= 2 else ratio ** (1 / (depth - 1))
            yield base * 2 if i == 0 else min(int(base * growth ** (i - 1)), FILTERS_MAX)
        elif kind == "hourglass" and i < depth // 2:
            yield min(int(base * ratio ** (i / (depth // 2))), FILTERS_MAX)
        elif kind == "hourglass":
            yield max(int(base * ratio ** ((depth - i - 1) / (depth - depth // 2))), base)
        else:  # uniform
            yield base


def make_block(row: Row, channels: int, width: int, stride: int = 1, activation: str = "", size: int = 3) -> nn.Module:
    """A convolution with what follows it."""
    layers: list[nn.Module] = [nn.Conv2d(channels, width, size, stride, padding=size // 2)]
    if row["batch_norm"]:
        layers.append(nn.BatchNorm2d(width))
    layers.append(getattr(nn, activation or row["activation"])())
    if row["dropout"] and not activation:
        layers.append(nn.Dropout(0.3))
    return nn.Sequential(*layers)


class Residual(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Two convolutions beside one of single pixels."""

    def __init__(self, row: Row, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(make_block(row, channels, width, stride), make_block(row, width, width))
        layers: list[nn.Module] = []
        if channels != width or stride != 1:
            layers.append(nn.Conv2d(channels, width, 1, stride))
            layers += [nn.BatchNorm2d(width)] if row["batch_norm"] else []
        self.shortcut = nn.Sequential(*layers)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        beside = self.shortcut(images)
        made: torch.Tensor = self.body(images) + beside
        return made


class Dense(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Each convolution has all that was before it in its block."""

    def __init__(self, row: Row, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make_block(row, channels + i * GROWTH, GROWTH) for i in range(BLOCK_LAYERS))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found = [images]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def build_residual_layers(row: Row) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    channels, side, base = row["channels"], row["image_size"], row["base_filters"]
    growth = (FILTERS_MAX / base) ** (1 / row["depth"])
    for i in range(row["depth"] // 2):
        width = min(int(base * growth**i), FILTERS_MAX)
        stride = 2 if i % 2 and side > SIDE_LEAST else 1
        layers.append(Residual(row, channels, width, stride))
        channels, side = width, side // stride
        if side <= SIDE_LEAST:
            break
    return layers, channels


def build_dense_layers(row: Row) -> tuple[list[nn.Module], int]:
    layers: list[nn.Module] = []
    channels, blocks = row["channels"], row["depth"] // 4
    for i in range(blocks):
        layers.append(Dense(row, channels))
        channels += GROWTH * BLOCK_LAYERS
        if i % TRANSITION_INTERVAL == 0 and i != blocks - 1:
            halves = make_block({**row, "dropout": 0}, channels, channels // 2, activation="ReLU", size=1)
            layers += [halves, nn.AvgPool2d(2)]
            channels //= 2
    return layers, channels


def build_network(row: Row) -> nn.Module:
    layers: list[nn.Module] = []
    channels = row["channels"]
    if row["architecture"] == "residual":
        layers, channels = build_residual_layers(row)
    elif row["architecture"] == "dense":
        layers, channels = build_dense_layers(row)
    else:
        for width in widths(row):
            layers.append(make_block(row, channels, width))
            channels = width
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, row["classes"]), nn.Softmax(dim=1)]
    return nn.Sequential(*layers, *head)


# ---- encoders of the table of transformers ----


class Encoder(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A class for the mean of a text."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        size = row["embedding_size"]
        self.embedding = nn.Embedding(row["vocabulary"], size)
        self.places = nn.Parameter(torch.zeros(1, row["sequence_length"], size))
        layer = nn.TransformerEncoderLayer(size, row["heads"], row["hidden_size"], 0.3, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, row["layers"], enable_nested_tensor=False)
        self.last = nn.Linear(size, row["classes"])

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(self.layers(self.embedding(words) + self.places).mean(dim=1))
        return made


# ---- published models ----


def build_model(name: str) -> tuple[nn.Module, int]:
    import torchvision.models as published

    if name == "Xception":
        import timm

        return timm.create_model("xception", pretrained=False, num_classes=CLASSES), 224
    if name == "inception":
        return published.inception_v3(weights=None, aux_logits=False, num_classes=CLASSES, init_weights=False), 299
    names = {"mobilenetV2": "mobilenet_v2", "efficientnet": "efficientnet_b0"}
    return getattr(published, names.get(name, name))(weights=None), 224


def build_text_model(name: str) -> Any:
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
