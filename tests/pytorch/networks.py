"""Run by an interpreter with PyTorch, on a simulated device: trains twelve small networks for three steps each, like
those of torchvision and of the transformers that people use. Prints a JSON line for each: its name, the shape of its
output, its loss, and the peaks of memory. Anything that PyTorch cannot do ends it with 1.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

GPU = "cuda"
CLASSES, WORDS, TOKENS, WIDTH = 10, 1000, 64, 128
STEPS = 3


class Plus(nn.Sequential):
    """What its layers make, and the input itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Together(nn.ModuleList):
    """What each of its branches makes, along the channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], 1)


def conv(inputs: int, outputs: int, side: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    made = nn.Conv2d(inputs, outputs, side, stride, side // 2, groups=groups, bias=False)
    return nn.Sequential(made, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(channels, CLASSES))


# ---- of pictures ----


def plain() -> nn.Module:
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 16 * 16, 256), nn.Linear(256, CLASSES))


def residual() -> nn.Module:
    blocks = [Plus(conv(64, 16, 1), conv(16, 16), conv(16, 64, 1)) for _ in range(4)]
    return nn.Sequential(conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, head(64))


def separable() -> nn.Module:
    blocks = [
        Plus(conv(32, 96, 1), conv(96, 96, groups=96), nn.Conv2d(96, 32, 1), nn.BatchNorm2d(32)) for _ in range(4)
    ]
    return nn.Sequential(conv(3, 32, stride=2), *blocks, nn.Hardswish(), head(32))


def dense() -> nn.Module:
    blocks = [Together([nn.Identity(), conv(32 + 16 * i, 16)]) for i in range(5)]
    return nn.Sequential(conv(3, 32, stride=2), *blocks, nn.AvgPool2d(2), head(112))


def branches() -> nn.Module:
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(32, 16, 1))
    block = Together([conv(32, 16, 1), conv(32, 16), nn.Sequential(conv(32, 16, 1), conv(16, 16, 5)), pool])
    return nn.Sequential(conv(3, 32, stride=2), block, conv(64, 64, 7), head(64))


class Segmenting(nn.Module):
    """An hourglass with a connection across it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = conv(3, 32), nn.Sequential(nn.MaxPool2d(2), conv(32, 64))
        self.up, self.out = nn.ConvTranspose2d(64, 32, 2, 2), nn.Conv2d(64, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.down(x)
        return self.out(torch.cat([wide, self.up(self.deep(wide))], 1)).mean((2, 3))


def modern() -> nn.Module:
    def block() -> nn.Module:
        return Plus(
            nn.Conv2d(48, 48, 7, padding=3, groups=48),
            nn.GroupNorm(1, 48),
            nn.Conv2d(48, 192, 1),
            nn.GELU(),
            nn.Conv2d(192, 48, 1),
        )

    made = nn.Sequential(nn.Conv2d(3, 48, 4, 4), block(), block(), head(48))
    return made.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class Patches(nn.Module):
    """Attention between pieces of a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.cut, self.first = nn.Conv2d(3, WIDTH, 8, 8), nn.Parameter(torch.zeros(1, 1, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        pieces = self.cut(x).flatten(2).transpose(1, 2)
        return self.out(self.layers(torch.cat([self.first.expand(len(x), -1, -1), pieces], 1))[:, 0])


# ---- of words ----


class Encoder(nn.Module):
    """Words that are hidden are found, as BERT's are. Padding is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 2), nn.Linear(WIDTH, WORDS)
        self.out.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        padding = torch.zeros(tokens.shape, dtype=torch.bool, device=GPU)
        places = self.places(torch.arange(TOKENS, device=GPU))
        return self.out(self.layers(self.words(tokens) + places, src_key_padding_mask=padding))


class Attending(nn.Module):
    """Causal attention, of fewer keys than queries, with places as rotations."""

    def __init__(self, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.head = heads, key_heads, WIDTH // heads
        self.inward = nn.Linear(WIDTH, (heads + 2 * key_heads) * self.head, bias=False)
        self.outward = nn.Linear(WIDTH, WIDTH, bias=False)

    def rotate(self, x: Tensor) -> Tensor:
        angles = torch.outer(torch.arange(x.shape[2], device=GPU), torch.ones(self.head // 2, device=GPU)).to(x.dtype)
        first, second = x.chunk(2, -1)
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
        )

    def forward(self, x: Tensor) -> Tensor:
        split = self.inward(x).view(*x.shape[:2], -1, self.head).transpose(1, 2)
        q, k, v = split.split([self.heads, self.key_heads, self.key_heads], 1)
        is_grouped = self.heads != self.key_heads
        made = functional.scaled_dot_product_attention(
            self.rotate(q), self.rotate(k), v, is_causal=True, enable_gqa=is_grouped
        )
        return self.outward(made.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """A layer of two factors."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 6 * WIDTH, bias=False), nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.inward(x).chunk(2, -1)
        return self.outward(functional.silu(gate) * value)


def causal(norm: type[nn.Module], key_heads: int, feed: Callable[[], nn.Module]) -> nn.Module:
    layers = [Plus(norm(WIDTH), Attending(4, key_heads)), Plus(norm(WIDTH), feed())]
    layers += [Plus(norm(WIDTH), Attending(4, key_heads)), Plus(norm(WIDTH), feed())]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, norm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False))


def older() -> nn.Module:
    return causal(nn.LayerNorm, 4, lambda: nn.Sequential(nn.Linear(WIDTH, 512), nn.GELU("tanh"), nn.Linear(512, WIDTH)))


def newer() -> nn.Module:
    return causal(nn.RMSNorm, 2, Gated)


class Translating(nn.Module):
    """An encoder and a decoder, which attends to it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.Transformer(WIDTH, 4, 2, 2, 2 * WIDTH, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(TOKENS, device=GPU)
        words = self.words(tokens)
        return self.out(self.layers(words, words, tgt_mask=mask, tgt_is_causal=True))


class Recurrent(nn.Module):
    """Two layers of LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(2 * WIDTH, WORDS)
        self.layers = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True, bidirectional=True, dropout=0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layers(self.words(tokens))[0])


PICTURES: dict[str, Callable[[], nn.Module]] = {
    "plain": plain,
    "residual": residual,
    "separable": separable,
    "dense": dense,
    "branches": branches,
    "segmenting": Segmenting,
    "modern": modern,
    "patches": Patches,
}
TEXTS: dict[str, Callable[[], nn.Module]] = {
    "encoder": Encoder,
    "older": older,
    "newer": newer,
    "translating": Translating,
    "recurrent": Recurrent,
}


def train(name: str, half: torch.dtype | None) -> list[object]:
    """Its figures. half: what autocast computes with; None: without it."""
    is_text = name in TEXTS
    network = (TEXTS if is_text else PICTURES)[name]().to(GPU)
    optimizer = torch.optim.AdamW(network.parameters(), fused=half is not None)
    for _ in range(STEPS):
        inputs = torch.zeros(4, TOKENS, dtype=torch.long) if is_text else torch.randn(4, 3, 64, 64)
        targets = torch.zeros(4 * TOKENS if is_text else 4, dtype=torch.long)
        optimizer.zero_grad()
        with torch.autocast(GPU, half or torch.bfloat16, enabled=half is not None):
            outputs = network(inputs.to(GPU))
            loss = functional.cross_entropy(outputs.flatten(0, -2), targets.to(GPU))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    return [name, str(half), list(outputs.shape), loss.item(), *peaks, *torch.cuda.mem_get_info()]


def main() -> None:
    torch.manual_seed(0)
    for name in sys.argv[1:] or [*PICTURES, *TEXTS]:
        for half in (None, torch.bfloat16):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            print(json.dumps(train(name, half)), flush=True)


if __name__ == "__main__":
    main()
