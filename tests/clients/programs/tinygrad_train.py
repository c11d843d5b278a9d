"""A training program in tinygrad, DEV=CUDA: its just-in-time compiler makes, updates and launches graphs.

The simulated device computes nothing of it; on a real one the loss has to fall.
"""

from __future__ import annotations

import ctypes
import sys

from tinygrad import Context, Device, Tensor, TinyJit, nn

STEPS = 12
BATCH = 16


class Model:
    def __init__(self) -> None:
        self.first, self.last = nn.Linear(32, 16), nn.Linear(16, 4)

    def __call__(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


def is_simulated() -> bool:
    name = ctypes.create_string_buffer(256)
    from tinygrad.runtime.autogen import cuda

    assert cuda.cuDeviceGetName(name, len(name), 0) == 0
    return b"SIMULATED" in name.value


def main() -> None:
    assert Device.DEFAULT == "CUDA", Device.DEFAULT
    Tensor.manual_seed(1)
    model = Model()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=0.1)

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).sparse_categorical_crossentropy(y).backward()
        optimizer.step()
        return loss.realize()

    losses = []
    with Context(TRAINING=1):
        x = Tensor.rand(BATCH, 32).realize()
        y = Tensor([i % 4 for i in range(BATCH)]).realize()
        for _ in range(STEPS):
            batch = (x + 0).realize()  # a buffer of its own for each step, so that the graph has to be updated
            losses.append(step(batch, y).item())
    if not is_simulated() and losses[-1] >= losses[0]:
        sys.exit(f"the loss does not fall: {losses}")
    print("ok")


if __name__ == "__main__":
    main()
