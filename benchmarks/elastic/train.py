"""Trains a small network on CIFAR-like pictures with `vgpud.elastic`: `python -m benchmarks.elastic.train --steps 50`.

As a job: `vgpu submit --gpus 0.25 --workers 1-8 -- python -m benchmarks.elastic.train`. On tensors of the processor, so
that the simulated device does; without batch normalisation, whose statistics would be those of a worker's part. Each
worker prints a JSON line per step.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cifar.data import SAMPLE_RECORDS, load, parse, sample

LEARNING_RATE = 0.05
GROUPS = 4


def arguments() -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--steps", type=int, default=50)
    made.add_argument("--batch", type=int, default=64, help="pictures in a step, of all workers together")
    made.add_argument("--width", type=int, default=8, help="channels of the first layer")
    made.add_argument("--data", type=Path, help="CIFAR-10 binary file or folder (default: a synthetic sample)")
    made.add_argument("--records", type=int, default=SAMPLE_RECORDS, help="pictures of the synthetic sample")
    made.add_argument("--seed", type=int, default=1, help="of the initial weights and of the order of the pictures")
    made.add_argument("--double", action="store_true", help="float64: the order in which numbers are added shows less")
    made.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="that a step takes longer")
    made.add_argument("--slow", type=int, default=-1, metavar="WORKER", help="whose steps take --slow-s longer")
    made.add_argument("--slow-s", type=float, default=0.1, metavar="SECONDS")
    made.add_argument("--checkpoint", type=Path, help="written every 10 steps; training continues from it if it exists")
    made.add_argument("--lines", type=Path, metavar="FOLDER", help="where each worker keeps its lines, too")
    return made.parse_args()


def network(torch: Any, width: int) -> Any:
    """Two 3 x 3 convolutions, each with group normalisation, and a linear layer."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.GroupNorm(GROUPS, width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1), nn.GroupNorm(GROUPS, 2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 10),
    )  # fmt: skip


class Lines:
    """Where this worker says what it does."""

    def __init__(self, folder: Path | None, worker: int) -> None:
        self._file = folder and (folder / f"worker-{worker}.jsonl").open("a")

    def say(self, **values: object) -> None:
        """A line, at once."""
        line = json.dumps({"pid": os.getpid(), "time_ns": time.monotonic_ns(), **values})
        for file in filter(None, (sys.stdout, self._file)):
            print(line, file=file, flush=True)


def train(args: argparse.Namespace) -> None:
    """The whole program; what is vgpud's of it are the lines with `workers`."""
    import torch

    from vgpud import elastic

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    torch.set_default_dtype(torch.float64 if args.double else torch.float32)
    pictures = load(args.data) if args.data else parse(sample(args.records), "the synthetic sample")
    images, labels = torch.from_numpy(pictures.images), torch.from_numpy(pictures.labels).long()
    model = network(torch, args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    number = int(os.environ.get("VGPU_WORKER", "0"))
    lines = Lines(args.lines, number)
    everything = {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    with elastic.Workers(state=[model, optimizer, scheduler], batch=args.batch) as workers:
        everything["workers"] = workers
        resume(torch, args.checkpoint, everything)
        for step in workers.steps(args.steps):
            own = workers.indices(len(images), seed=args.seed)
            loss = torch.nn.functional.cross_entropy(
                model((images[own].to(torch.get_default_dtype()) - 128) / 64), labels[own]
            )
            optimizer.zero_grad()
            loss.backward()
            time.sleep(args.pause + (args.slow_s if number == args.slow else 0.0))
            if workers.average(model, loss):
                optimizer.step()
                scheduler.step()
                now = {"worker": number, "rank": workers.rank, "workers": workers.size, "idle_s": workers.idle_seconds}
                lines.say(event="step", step=step, loss=workers.loss, **now)
            if workers.rank == 0 and args.checkpoint and step % 10 == 9:
                keep(torch, args.checkpoint, everything)
        checksum = sum(float(parameter.detach().double().abs().sum()) for parameter in model.parameters())
        lines.say(event="end", step=workers.step, samples=workers.samples, worker=number, checksum=checksum)


def keep(torch: Any, path: Path, everything: dict[str, Any]) -> None:
    """Writes a checkpoint, whole or not at all."""
    part = path.with_suffix(".part")
    torch.save({name: made.state_dict() for name, made in everything.items()}, part)
    part.rename(path)


def resume(torch: Any, path: Path | None, everything: dict[str, Any]) -> None:
    """Continues from a checkpoint."""
    if path and path.exists():
        states = torch.load(path, weights_only=True)
        for name, made in everything.items():
            made.load_state_dict(states[name])


if __name__ == "__main__":
    train(arguments())
