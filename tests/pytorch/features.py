"""Run by an interpreter with PyTorch, on a simulated device: twenty of PyTorch's features. Prints a JSON line for each:
its name, and the peak of memory after it. Anything that PyTorch cannot do ends it with 1.
"""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, TensorDataset

GPU = "cuda"
MIB = 1 << 20


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).to(GPU)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(inputs).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def properties() -> None:
    found = torch.cuda.get_device_properties(0)
    assert torch.cuda.is_available() and "SIMULATED" in found.name and found.total_memory > 1 << 30
    assert torch.cuda.get_device_capability() == (found.major, found.minor)


def counted_memory() -> None:
    before = torch.cuda.memory_allocated()
    x = torch.zeros(200, device=GPU) + 1
    assert torch.cuda.memory_allocated() - before == 1024 and len(x) == 200


def free_memory() -> None:
    before = torch.cuda.mem_get_info()[0]
    block = torch.empty(64 * MIB, dtype=torch.uint8, device=GPU)
    assert before - torch.cuda.mem_get_info()[0] == 64 * MIB == len(block)
    del block
    torch.cuda.empty_cache()


def events() -> None:
    x = torch.empty(4096, 4096, device=GPU, dtype=torch.bfloat16)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    x @ x
    begin.record()
    x @ x
    end.record()
    end.synchronize()
    assert 0.1 < begin.elapsed_time(end) < 100, begin.elapsed_time(end)


def optimizers() -> None:
    model = network()
    for made in (torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), torch.optim.Adam(model.parameters())):
        step(model, made, torch.randn(32, 64, device=GPU))
    fused = torch.optim.AdamW(model.parameters(), fused=True)
    assert step(model, fused, torch.randn(32, 64, device=GPU)).item() == 0


def convolutions() -> None:
    for is_enabled in (False, True):
        with torch.backends.cudnn.flags(enabled=is_enabled):
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).to(GPU)
            step(model, torch.optim.SGD(model.parameters(), 0.1), torch.randn(4, 3, 32, 32, device=GPU))


def recurrent() -> None:
    model = nn.LSTM(32, 64, 2).to(GPU)
    model(torch.randn(5, 3, 32, device=GPU))[0].sum().backward()


def transforms() -> None:
    x = torch.randn(16, 64, device=GPU)
    assert torch.fft.irfft(torch.fft.rfft(x)).shape == x.shape


def mixed_precision() -> None:
    model = network()
    with torch.autocast(GPU, torch.bfloat16):
        assert model(torch.randn(8, 64, device=GPU)).dtype == torch.bfloat16


def scaled_gradients() -> None:
    model, scaler = network(), torch.amp.GradScaler(GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        with torch.autocast(GPU, torch.float16):
            loss = model(torch.randn(8, 64, device=GPU)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def attention() -> None:
    q = torch.randn(2, 4, 128, 64, device=GPU, dtype=torch.bfloat16, requires_grad=True)
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


def graphs() -> None:
    model, inputs = network(), torch.randn(8, 64, device=GPU)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step(model, optimizer, inputs)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(model, optimizer, inputs)
    for _ in range(10):
        graph.replay()


def graphed_callables() -> None:
    model = torch.cuda.make_graphed_callables(network(), (torch.randn(8, 64, device=GPU),))
    model(torch.randn(8, 64, device=GPU)).sum().backward()


def loaders() -> None:
    data = TensorDataset(torch.arange(64.0).view(16, 4))
    for (batch,) in DataLoader(data, 8, num_workers=1, pin_memory=True):
        assert batch.is_pinned() and torch.equal(batch.to(GPU, non_blocking=True).cpu(), batch)


def fractions() -> None:
    free = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        torch.empty(free // 2, dtype=torch.uint8, device=GPU)
        raise AssertionError("a fraction is no limit")
    except torch.OutOfMemoryError:
        pass
    torch.cuda.set_per_process_memory_fraction(1.0)


def other_allocators() -> None:
    """Each in a process of its own: they are chosen before CUDA starts."""
    code = "import torch; x = [torch.zeros(1 << n, device='cuda') for n in range(24)]; del x; torch.cuda.empty_cache()"
    for setting in ("expandable_segments:True", "backend:cudaMallocAsync"):
        env = {**os.environ, "PYTORCH_ALLOC_CONF": setting, "PYTORCH_CUDA_ALLOC_CONF": setting}
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], env=env, check=True, timeout=60)


def profiles() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        torch.randn(64, 64, device=GPU).sum()
    assert any("aten::sum" in one.key for one in found.key_averages())


def linear_algebra() -> None:
    x = torch.randn(4, 32, 32, device=GPU)
    torch.linalg.qr(x)
    torch.linalg.eigh(x)
    torch.linalg.svd(x)
    torch.linalg.cholesky_ex(x)


def streams() -> None:
    side, x = torch.cuda.Stream(priority=-1), torch.zeros(1024, device=GPU)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x.add(1)
    y.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert side.query()


def checkpoints() -> None:
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    step(model, optimizer, torch.randn(8, 64, device=GPU))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    found = torch.load(file)
    network().load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])


FEATURES: tuple[Callable[[], None], ...] = (
    *(properties, counted_memory, free_memory, events, optimizers, convolutions, recurrent, transforms),
    *(mixed_precision, scaled_gradients, attention, graphs, graphed_callables, loaders, fractions, other_allocators),
    *(profiles, linear_algebra, streams, checkpoints),
)


def main() -> None:
    warnings.simplefilter("ignore")
    for feature in FEATURES:
        torch.cuda.reset_peak_memory_stats()
        feature()
        torch.cuda.synchronize()
        gc.collect()  # graphs are in cycles; a worker of a DataLoader, a fork, must not be the one that frees them
        figures = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[0]
        print(json.dumps([feature.__name__, *figures]), flush=True)


if __name__ == "__main__":
    main()
