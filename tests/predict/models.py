"""Small models as entry points for the tests, and some that are none."""

from __future__ import annotations

import os
import time

import torch
from torch import nn


def convolutional(batch: int) -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 3)]
    return nn.Sequential(*layers, nn.GELU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10)), torch.randn(batch, 3, 32, 32)


def perceptron(batch: int) -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(batch, 128)


def pyramid(batch: int) -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers), torch.randn(batch, 128)


class Words(nn.Module):
    """An encoder over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(500, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(64, 500)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(self.words(words)))


def encoder(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return Words(), torch.randint(0, 500, (batch, 16))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(32, 64, 2, batch_first=True)
        self.last = nn.Linear(64, 4)

    def forward(self, series: torch.Tensor) -> torch.Tensor:
        return self.last(self.cells(series)[0][:, -1])


def recurrent(batch: int) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    return Recurrent(), {"series": torch.randn(batch, 24, 32)}


def overwriting(batch: int) -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(128, 128), nn.SiLU(inplace=True), nn.Linear(128, 128), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.Linear(128, 10)), torch.randn(batch, 128)


class Residual(nn.Module):
    """Only its activation functions themselves keep what they write."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 128), nn.Linear(128, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + torch.sigmoid(self.first(x))
        return x * 2 + nn.functional.gelu(self.second(x)) / 3


def residual(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return Residual(), torch.randn(batch, 128)


def with_example(batch: int) -> nn.Module:
    model, inputs = perceptron(batch)
    model.example_input_array = inputs
    return model


def with_eight(batch: int) -> nn.Module:
    return with_example(8)


def of_seven(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return perceptron(7)


def talkative(batch: int) -> tuple[nn.Module, torch.Tensor]:
    if os.environ["CUDA_VISIBLE_DEVICES"]:
        raise RuntimeError("a device could be seen")
    print('{"refused": "no, this is what somebody prints"}', flush=True)
    return perceptron(batch)


def bare(batch: int) -> nn.Module:
    return perceptron(batch)[0]


def nothing(batch: int) -> None:
    return None


def failing(batch: int) -> None:
    raise ValueError(f"no model\nfor {batch}")


def on_a_gpu(batch: int) -> tuple[nn.Module, torch.Tensor]:
    model, inputs = perceptron(batch)
    return model.cuda(), inputs


class Choosing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def choosing(batch: int) -> tuple[nn.Module, torch.Tensor]:
    return Choosing(), torch.randn(batch, 4)


def sleeping(batch: int) -> None:
    time.sleep(60)


def hungry(batch: int) -> object:
    return [bytearray(64 << 20) for _ in range(64)]


def leaving(batch: int) -> None:
    os._exit(3)


def exiting(batch: int) -> None:
    raise SystemExit(4)


number = 7
