"""What the programs of this folder share: one line of JSON at the end, and how a program says that it cannot run.

A program computes something that comes out the same each time, and prints {"result": ..., "total_bytes": ...}, where
total_bytes is the memory of the device as the framework sees it. It changes nothing of the device's settings.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

MISSING = 3  # exit code: the framework, or what it needs, is not there
MIB = 1 << 20


def missing(why: str) -> None:
    """Ends the program: it cannot run here. `why` is its last line."""
    print(why)
    sys.exit(MISSING)


def load(name: str) -> Any:
    """Imports a framework, or ends the program."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing(f"no {name}: {error}")


def load_torch() -> tuple[Any, str]:
    """PyTorch made deterministic, and where the program runs: "cuda", or "cpu" when the first argument says so."""
    torch = load("torch")
    target = "cpu" if sys.argv[1:2] == ["cpu"] else "cuda"
    if target == "cuda" and not torch.cuda.is_available():
        missing("PyTorch finds no CUDA device")
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch, target


def torch_total(torch: Any, target: str) -> int:
    """The device's memory as PyTorch says it, by both of its ways; 0 on the CPU."""
    if target == "cpu":
        return 0
    total = int(torch.cuda.mem_get_info()[1])
    assert total == torch.cuda.get_device_properties(0).total_memory, "PyTorch's two totals differ"
    return total


def network(torch: Any, target: str) -> Any:
    """A small network, the same each time."""
    nn = torch.nn
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(target)


def batch(torch: Any, target: str, index: int) -> tuple[Any, Any]:
    """Inputs and labels number `index`, made on the CPU: the same on every device."""
    made = torch.Generator().manual_seed(index)
    inputs = torch.randn(32, 64, generator=made)
    return inputs.to(target), torch.randint(0, 10, (32,), generator=made).to(target)


def train(torch: Any, model: Any, target: str, steps: int, first: int = 0) -> list[float]:
    """Trains for some steps; the losses."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for index in range(first, first + steps):
        inputs, labels = batch(torch, target, index)
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def raises(error: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object]) -> bool:
    """Does the call end with that error?"""
    try:
        call()
    except error:
        return True
    return False


def done(result: dict[str, Any], total_bytes: int) -> None:
    """The program's last line."""
    print(json.dumps({"result": result, "total_bytes": total_bytes}))
