"""Trains a small convolutional network for so many seconds: trainer.py BATCH SECONDS. Run by sharing.py with an
interpreter that has PyTorch; knows nothing of vgpud. Prints one line of JSON: pid, steps, begin_ns and end_ns.

With a batch of 64 each kernel takes less time than its launch, with one of 8,192 the device is always at work.
"""

import json
import os
import sys
import time

import torch
from torch import nn

WARM_UP_STEPS = 50
#: after so many steps the program reads the loss, as trainers do
READ_EVERY_STEPS = 10


def make_network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 8 * 8, 10)),
    ).cuda()


def main() -> None:
    batch, seconds = int(sys.argv[1]), float(sys.argv[2])
    network = make_network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    images = torch.randn(batch, 3, 32, 32, device="cuda")
    labels = torch.zeros(batch, dtype=torch.long, device="cuda")

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        if number % READ_EVERY_STEPS == 0:
            loss.item()

    for number in range(WARM_UP_STEPS):
        step(number)
    torch.cuda.synchronize()
    begin_ns, steps = time.monotonic_ns(), 0
    while time.monotonic_ns() < begin_ns + seconds * 1e9:
        steps += 1
        step(steps)
    torch.cuda.synchronize()
    result = {"pid": os.getpid(), "steps": steps, "begin_ns": begin_ns, "end_ns": time.monotonic_ns()}
    print(json.dumps(result), flush=True)


main()
