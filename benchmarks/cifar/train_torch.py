"""Trains the small network with PyTorch, on a real or a simulated device or, as a smoke test, on the CPU.

On the simulated device kernels compute nothing, so there is no loss and no checksum.

`python -m benchmarks.cifar.train_torch --seconds 20`; exit code 3 when PyTorch or a device is missing.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from benchmarks.cifar.data import load_or_sample
from benchmarks.cifar.progress import Progress, arguments

SETUP_STEPS = 3
LEARNING_RATE = 0.02


def block(nn: Any, inputs: int, outputs: int, stride: int) -> Any:
    """Two 3 x 3 convolutions beside a shortcut (see model_tinygrad.Block)."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
            )  # fmt: skip
            same = inputs == outputs
            self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

        def forward(self, x: Any) -> Any:
            return (self.main(x) + self.shortcut(x)).relu()

    return Block()


def network(nn: Any, width: int = 16) -> Any:
    """The same network as model_tinygrad.SmallResNet."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.ReLU(), block(nn, width, 2 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, 10),
    )  # fmt: skip


def train(args: Namespace) -> int:
    """Runs the training; prints lines. Returns the exit code."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    if args.device == "gpu" and not torch.cuda.is_available():
        print("train_torch: PyTorch finds no CUDA device; try --device cpu")
        return 3
    target = "cuda" if args.device == "gpu" else "cpu"
    name = torch.cuda.get_device_name(0) if target == "cuda" else "cpu"
    is_simulated = "SIMULATED" in name
    pictures, note = load_or_sample(args.data)
    progress = Progress(args, "torch", name, note, is_simulated)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    model = network(torch.nn).to(target)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)

    def step(index: int) -> Any:
        images, labels = pictures.batch(index, args.batch)
        inputs = (torch.from_numpy(images).to(target).float() - 128) / 64
        loss = torch.nn.functional.cross_entropy(model(inputs), torch.from_numpy(labels).long().to(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for index in range(SETUP_STEPS):
        step(index).item()
    progress.training_begins()
    index = SETUP_STEPS
    while progress.wants_more():
        loss = step(index)
        index += 1
        waited = progress.report_due()
        value = float(loss.item()) if waited else None  # waits for the device
        progress.step_done(waited, None if is_simulated else value)
    checksum = sum(float(p.detach().double().abs().sum().item()) for p in model.parameters())
    progress.end(**({} if is_simulated else {"checksum": checksum}))
    return 0


def main() -> int:
    """Reads the options, then trains."""
    args = arguments(str(__doc__))
    try:
        return train(args)
    except ImportError as error:
        print(f"train_torch: skipped: {error}; install PyTorch to run it")
        return 3


if __name__ == "__main__":
    raise SystemExit(main())
