"""A small ResNet-like network for 32 x 32 pictures, in tinygrad."""

# mypy: disable-error-code="attr-defined,no-any-return,no-untyped-call"

from __future__ import annotations

from tinygrad import Tensor, nn

WIDTH = 16


class Block:
    """Two 3 x 3 convolutions beside a shortcut; stride 2 halves the picture and the shortcut follows by a 1 x 1."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if inputs != outputs else None

    def __call__(self, x: Tensor) -> Tensor:
        y = self.second_norm(self.second(self.first_norm(self.first(x)).relu()))
        return (y + (self.shortcut(x) if self.shortcut else x)).relu()


class SmallResNet:
    """A convolution, a residual block, mean over the picture, a linear layer: about 15 000 weights."""

    def __init__(self, width: int = WIDTH) -> None:
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.block = Block(width, 2 * width, 2)
        self.head = nn.Linear(2 * width, 10)

    def __call__(self, images: Tensor) -> Tensor:
        x = self.stem((images.float() - 128) / 64).relu()
        return self.head(self.block(x).mean((2, 3)))
