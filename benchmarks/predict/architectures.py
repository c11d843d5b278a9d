"""The models whose use of a device is measured: torchvision's, transformers' and plain torch's, random weights.

Each function is an entry point of `vgpu predict`: it takes the batch and returns the model and example inputs. Nothing
is downloaded: transformers' models are made from configurations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

CLASSES = 100
WORDS = 8192


def mlp(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Wide layers: matrix products that fill a device."""
    widths = (1024, 4096, 4096, 2048)
    layers = [m for a, b in itertools.pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES)), torch.randn(batch, widths[0])


def mlp_deep(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Narrow and deep: the host cannot launch as fast as the device computes."""
    layers = [m for _ in range(24) for m in (nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, CLASSES)), torch.randn(batch, 256)


def lenet(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """A small CNN on CIFAR's images."""
    features = [nn.Conv2d(3, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(1600, 512), nn.ReLU(), nn.Linear(512, 10)), _images(
        batch, 32
    )


class UNet(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Two levels down and up again, with the skip connections of segmentation."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.first, self.second = self._block(3, width), self._block(width, 2 * width)
        self.middle = self._block(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.back_second, self.back_first = self._block(4 * width, 2 * width), self._block(2 * width, width)
        self.last = nn.Conv2d(width, 2, 1)

    @staticmethod
    def _block(channels_in: int, channels_out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.BatchNorm2d(channels_out), nn.ReLU(inplace=True)
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        first = self.first(images)
        second = self.second(nn.functional.max_pool2d(first, 2))
        middle = self.middle(nn.functional.max_pool2d(second, 2))
        second = self.back_second(torch.cat([self.up_second(middle), second], 1))
        made: torch.Tensor = self.last(self.back_first(torch.cat([self.up_first(second), first], 1)))
        return made


def unet(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Segmentation: much memory for few parameters."""
    return UNet(), _images(batch, 128)


class Recurrent(nn.Module):  # type: ignore[misc]
    """A language model of a recurrence over words."""

    def __init__(self, kind: type[nn.RNNBase], width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.recurrence = kind(width, width, layers, batch_first=True)
        self.last = nn.Linear(width, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.recurrence(self.words(words))
        made: torch.Tensor = self.last(states)
        return made


def lstm(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """Two layers of LSTM over 64 words."""
    return Recurrent(nn.LSTM, 512, 2), _words(batch, 64)


def gru(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """One wide GRU over 32 words."""
    return Recurrent(nn.GRU, 1024, 1), _words(batch, 32)


def encoder(batch: int) -> tuple[nn.Module, torch.Tensor]:
    """torch's own transformer encoder on vectors."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(batch, 128, 384)


def _images(batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def _words(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (batch, length))


def _vision(name: str, size: int = 224) -> Callable[[int], tuple[nn.Module, Any]]:
    def make(batch: int) -> tuple[nn.Module, torch.Tensor]:
        from torchvision import models

        return models.get_model(name, weights=None, num_classes=CLASSES), _images(batch, size)

    return make


resnet18 = _vision("resnet18")
resnet50 = _vision("resnet50")
vgg11 = _vision("vgg11_bn")
mobilenet = _vision("mobilenet_v3_small")
efficientnet = _vision("efficientnet_b0")
densenet = _vision("densenet121")
convnext = _vision("convnext_tiny")
vit = _vision("vit_b_16")


def bert(batch: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Half of BERT's layers, classifying 128 words."""
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(vocab_size=WORDS, num_hidden_layers=6)
    return BertForSequenceClassification(config), {"input_ids": _words(batch, 128)}


def gpt2(batch: int) -> tuple[nn.Module, dict[str, Any]]:
    """Half of GPT-2's layers on 128 words."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=WORDS, n_layer=6, use_cache=False)
    return GPT2LMHeadModel(config), {"input_ids": _words(batch, 128)}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A function of this module, its family and the batches that are measured."""

    family: str
    batches: tuple[int, ...]


_SMALL = (16, 128, 512, 1024, 2048)
_MIDDLE = (2, 8, 16, 32, 64)
#: the first ones are of all families, as there may be time for some only
ALL = {
    "mlp": Architecture("mlp", _SMALL),
    "resnet50": Architecture("cnn", _MIDDLE),
    "lstm": Architecture("rnn", _MIDDLE),
    "bert": Architecture("transformer", _MIDDLE),
    "lenet": Architecture("cnn", _SMALL),
    "encoder": Architecture("transformer", _MIDDLE),
    "mlp_deep": Architecture("mlp", _SMALL),
    "gru": Architecture("rnn", _MIDDLE),
    "unet": Architecture("cnn", _MIDDLE),
    "vit": Architecture("transformer", _MIDDLE),
    "resnet18": Architecture("cnn", _MIDDLE),
    "gpt2": Architecture("transformer", _MIDDLE),
    "efficientnet": Architecture("cnn", _MIDDLE),
    "vgg11": Architecture("cnn", _MIDDLE),
    "convnext": Architecture("cnn", _MIDDLE),
    "densenet": Architecture("cnn", _MIDDLE),
    "mobilenet": Architecture("cnn", _MIDDLE),
}
