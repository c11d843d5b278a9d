"""Run by an interpreter with PyTorch, on a simulated device: what PyTorch does with cuDNN, in parts.
Prints a JSON line for each, with the peak of memory after it. Anything that PyTorch cannot do ends it with 1."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

GPU = "cuda"
warnings.filterwarnings("error", message="RNN module weights are not part of single contiguous chunk")


#: groups, dilation, stride, and whether channels are the last dimension
SHAPES = ((1, 1, 1, False), (4, 1, 2, True), (1, 2, 1, False), (16, 1, 1, True))
BACKENDS = (
    *(SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION),
    *(SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH),
)


def convolutions() -> None:
    cases = itertools.product((1, 2, 3), (torch.float32, torch.float16, torch.bfloat16, torch.float64), (False, True))
    for dims, dtype, is_transposed in cases:
        made: type[nn.Module] = getattr(nn, f"Conv{'Transpose' if is_transposed else ''}{dims}d")
        for groups, dilation, stride, is_last in (
            (1, 1, 1, False),
            (4, 1, 2, True),
            (1, 2, 1, False),
            (16, 1, 1, True),
        ):
            layer = made(16, 32, 3, padding=1, groups=groups, dilation=dilation, stride=stride).to(GPU, dtype)
            x = torch.randn(4, 16, *[18] * dims, device=GPU, dtype=dtype)
            if is_last and dims > 1:
                layout = torch.channels_last if dims == 2 else torch.channels_last_3d
                layer, x = layer.to(memory_format=layout), x.contiguous(memory_format=layout)
            x.requires_grad_()
            layer(x).sum().backward()
            assert x.grad is not None and x.grad.shape == x.shape and layer.weight.grad is not None
    x, weight, bias = (torch.randn(shape, device=GPU) for shape in ((4, 16, 18, 18), (32, 16, 3, 3), (32,)))
    y = torch.cudnn_convolution_relu(x, weight, bias, (1, 1), (1, 1), (1, 1), 1)
    torch.cudnn_convolution_add_relu(x, weight, y, 1.0, bias, (1, 1), (1, 1), (1, 1), 1)


def settings() -> None:
    for benchmark, is_deterministic in itertools.product((False, True), repeat=2):
        with torch.backends.cudnn.flags(enabled=True, benchmark=benchmark, deterministic=is_deterministic):
            convolutions()


def milliseconds(work: Callable[[], object], repeats: int = 3) -> float:
    work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / repeats


def times() -> None:
    """A convolution of 118.4e9 operations, at the figures of an H200's data sheet. Without TF32 another engine runs."""
    for is_benchmarked in (False, True):
        for is_allowed, tflops in ((True, 494.5), (False, 67)):
            x, weight = torch.randn(256, 64, 56, 56, device=GPU), torch.randn(128, 64, 3, 3, device=GPU)
            with torch.backends.cudnn.flags(enabled=True, benchmark=is_benchmarked, allow_tf32=is_allowed):
                took = milliseconds(lambda x=x, weight=weight: functional.conv2d(x, weight, padding=1))  # type: ignore[misc]
            assert took >= 118.4 / tflops, (is_benchmarked, is_allowed, took)


def normalization() -> None:
    for dtype, is_last, is_trained in itertools.product((torch.float32, torch.float16), (False, True), (False, True)):
        layer = nn.BatchNorm2d(32).to(GPU).train(is_trained)
        layout = torch.channels_last if is_last else torch.contiguous_format
        x = torch.randn(8, 32, 16, 16, device=GPU, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
        layer(x).sum().backward()
    for layer in (nn.BatchNorm1d(32), nn.BatchNorm3d(32), nn.InstanceNorm2d(32, affine=True), nn.GroupNorm(4, 32)):
        dims = {"BatchNorm1d": 1, "BatchNorm3d": 3}.get(type(layer).__name__, 2)
        layer.to(GPU)(torch.randn(4, 32, *[8] * dims, device=GPU)).sum().backward()


def run_recurrent(layer: nn.RNNBase, dtype: torch.dtype, is_packed: bool) -> None:
    x = torch.randn(10, 6, 24, device=GPU, dtype=dtype, requires_grad=True)
    given = nn.utils.rnn.pack_padded_sequence(x, [10, 8, 8, 3, 2, 1]) if is_packed else x
    y = layer(given)[0]
    (y.data if is_packed else y).sum().backward()
    assert x.grad is not None and all(parameter.grad is not None for parameter in layer.parameters())
    with torch.no_grad():
        layer.eval()(given)


def recurrent() -> None:
    cells, dtypes = (nn.LSTM, nn.GRU, nn.RNN), (torch.float32, torch.float16, torch.float64)
    for cell, dtype, is_both, layers, is_packed in itertools.product(
        cells, dtypes, (False, True), (1, 3), (False, True)
    ):
        dropout = 0.2 if layers > 1 else 0.0
        made = cell(24, 48, layers, bidirectional=is_both, dropout=dropout).to(GPU, dtype)
        run_recurrent(made, dtype, is_packed)
    for bias in (False, True):
        run_recurrent(nn.LSTM(24, 48, 2, proj_size=16, bidirectional=True, bias=bias).to(GPU), torch.float32, False)


def losses() -> None:
    steps, batch, words, length = 50, 4, 20, 10
    probabilities = torch.randn(steps, batch, words, device=GPU, requires_grad=True)
    labels = torch.ones(batch * length, dtype=torch.int32)
    for lengths in (
        [(steps,) * batch, (length,) * batch],
        [torch.full((batch,), n, dtype=torch.int32, device=GPU) for n in (steps, length)],
    ):
        given = labels if isinstance(lengths[0], tuple) else labels.to(GPU)
        functional.ctc_loss(probabilities.log_softmax(2), given, *lengths).backward()
    grid = functional.affine_grid(torch.randn(2, 2, 3, device=GPU, requires_grad=True), (2, 3, 8, 8), True)
    functional.grid_sample(torch.randn(2, 3, 8, 8, device=GPU), grid, align_corners=True).sum().backward()


def attention() -> None:
    for backend, is_causal, is_masked, dropout, heads, keys in itertools.product(
        BACKENDS, (False, True), (False, True), (0.0, 0.125), (8, 2), (64, 96)
    ):
        if (is_causal and (is_masked or keys == 96)) or (is_masked and backend == SDPBackend.FLASH_ATTENTION):
            continue
        if heads == 2 and backend == SDPBackend.EFFICIENT_ATTENTION:
            continue
        q, k, v = (
            torch.randn(2, count, length, 64, device=GPU, dtype=torch.bfloat16, requires_grad=True)
            for count, length in ((8, 64), (heads, keys), (heads, keys))
        )
        mask = torch.zeros(2, 1, 64, keys, device=GPU, dtype=torch.bfloat16) if is_masked else None
        with sdpa_kernel(backend):
            y = functional.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, enable_gqa=heads == 2)
            y.sum().backward()
        assert q.grad is not None and v.grad is not None
    q = torch.randn(4, 16, 4096, 64, device=GPU, dtype=torch.float16)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        took = milliseconds(lambda: functional.scaled_dot_product_attention(q, q, q))
    assert took >= 2 * 137.4 / 989.5, took


class Residual(nn.Module):
    """Two convolutions around which the input goes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.around = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.main(x) + self.around(x))


class Contracting(nn.Module):
    """A step of a U: convolutions, the smaller rest of the U inside, and both put together."""

    def __init__(self, inputs: int, width: int, depth: int) -> None:
        super().__init__()
        self.contraction = nn.Sequential(nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.inner = Contracting(width, 2 * width, depth - 1) if depth else nn.Conv2d(width, 2 * width, 1)
        self.expansion = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join = nn.Conv2d(2 * width, width, 3, padding=1)
        self.output = nn.Conv2d(width, 2 * inputs if depth < 2 else 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        contracted = self.contraction(x)
        expanded = self.expansion(self.inner(functional.max_pool2d(contracted, 2)))
        return self.output(self.join(torch.cat([expanded, contracted], 1)))


def make_resnet() -> nn.Module:
    stem = (nn.Conv2d(3, 32, 7, 2, 3, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    body = (Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2))
    return nn.Sequential(*stem, *body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def train(network: nn.Module, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype, is_last: bool) -> None:
    layout = torch.channels_last if is_last else torch.contiguous_format
    network, x = network.to(GPU).to(memory_format=layout), x.contiguous(memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(enabled=dtype == torch.float16)
    for _ in range(2):
        with torch.autocast(GPU, dtype, enabled=dtype != torch.float32):
            loss = functional.cross_entropy(network(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def networks() -> None:
    images, labels = torch.randn(8, 3, 96, 96, device=GPU), torch.zeros(8, dtype=torch.long, device=GPU)
    masks = torch.zeros(8, 96, 96, dtype=torch.long, device=GPU)
    for dtype, is_last in ((torch.float32, False), (torch.float16, True), (torch.bfloat16, True)):
        train(make_resnet(), images, labels, dtype, is_last)
        train(Contracting(3, 16, 2), images, masks, dtype, is_last)
    train_captured(make_resnet().to(GPU), images, labels)


def train_captured(network: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        functional.cross_entropy(network(x), y).backward()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    for _ in range(3):
        graph.replay()
    layer, sequence = nn.LSTM(32, 64, 2).to(GPU), torch.randn(20, 8, 32, device=GPU)
    torch.cuda.make_graphed_callables(layer, (sequence,))(sequence)[0].sum().backward()


PARTS = (convolutions, settings, times, normalization, recurrent, losses, attention, networks)


def main() -> None:
    for part in PARTS:
        torch.cuda.reset_peak_memory_stats()
        part()
        torch.cuda.synchronize()
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), *torch.cuda.mem_get_info()
        print(json.dumps([part.__name__, *peaks]), flush=True)


if __name__ == "__main__":
    main()
