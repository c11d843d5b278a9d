"""Trains the small network with tinygrad: DEV=CUDA (a real or the simulated device) or --device cpu.

`python -m benchmarks.cifar.train_tinygrad --seconds 20`. On the simulated device kernels take time and compute nothing,
so no loss is shown. With --device cpu the loss is: that proves the program itself right.
"""

# mypy: disable-error-code="attr-defined,no-any-return,no-untyped-call"

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
from argparse import Namespace
from pathlib import Path

from benchmarks.cifar.data import load_or_sample
from benchmarks.cifar.progress import Progress, arguments

SETUP_STEPS = 3  # tinygrad's jit: run, record, and the first replay
LEARNING_RATE = 0.02
IN_FLIGHT = 3  # steps queued behind the one that the device works on, so that it never waits for Python
#: tinygrad keeps the host buffers of copies until it waits for the whole device
SYNCHRONIZE_EVERY = 64
BLOCKING_SYNC_NO_TIMING = 3


def choose_backend(device: str) -> None:
    """Sets what tinygrad reads from the environment at import: the backend, and where NVRTC is."""
    if device == "cpu":
        os.environ["DEV"] = "CPU"
        if not shutil.which("clang"):
            os.environ.setdefault("CC", str(Path(__file__).with_name("tinygrad_cc.sh")))
        return
    os.environ.setdefault("DEV", "CUDA")
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations or [] if package else []:
        for library in sorted(Path(folder).glob("*/lib/libnvrtc.so.*")):
            os.environ.setdefault("NVRTC_PATH", str(library))


def device_name() -> str:
    """The name of the CUDA device in use, by the driver."""
    from tinygrad import Device
    from tinygrad.runtime.autogen import cuda

    name = ctypes.create_string_buffer(128)
    cuda.cuDeviceGetName(name, len(name), Device[Device.DEFAULT].cu_device)
    return name.value.decode()


class InFlight:
    """Bounds how far Python runs ahead of a CUDA device: an event after each step, waited for IN_FLIGHT steps later."""

    def __init__(self) -> None:
        from tinygrad.runtime.autogen import cuda

        self.cuda = cuda
        self.events = [cuda.CUevent() for _ in range(IN_FLIGHT + 1)]
        for event in self.events:
            self._check(cuda.cuEventCreate(ctypes.byref(event), BLOCKING_SYNC_NO_TIMING))

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"the driver answers {code}")

    def add_step(self, step: int) -> None:
        """The step's work has been queued; returns when the step IN_FLIGHT before it is complete."""
        self._check(self.cuda.cuEventRecord(self.events[step % len(self.events)], None))
        if step >= IN_FLIGHT:
            self._check(self.cuda.cuEventSynchronize(self.events[(step - IN_FLIGHT) % len(self.events)]))


def train(args: Namespace) -> int:
    """Runs the training; prints lines. Returns the exit code."""
    from tinygrad import Device, Tensor, TinyJit, nn
    from tinygrad.helpers import Context

    from benchmarks.cifar.model_tinygrad import SmallResNet

    pictures, note = load_or_sample(args.data)
    name = "cpu" if args.device == "cpu" else device_name()
    progress = Progress(args, "tinygrad", name, note, "SIMULATED" in name)
    show_loss = "SIMULATED" not in name
    Tensor.manual_seed(args.seed)
    model = SmallResNet()
    optimizer = nn.optim.SGD(nn.state.get_parameters(model), lr=LEARNING_RATE, momentum=0.9)

    @TinyJit
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(images).sparse_categorical_crossentropy(labels)
        loss.backward()
        return loss.realize(*optimizer.schedule_step())

    def run(index: int) -> Tensor:
        images, labels = pictures.batch(index, args.batch)
        return step(Tensor(images).realize(), Tensor(labels.astype("int32")).realize())

    with Context(TRAINING=1):
        for index in range(SETUP_STEPS):
            run(index)
        device = Device[Device.DEFAULT]
        device.synchronize()
        in_flight = None if args.device == "cpu" else InFlight()
        progress.training_begins()
        queued = 0
        while progress.wants_more(queued):
            loss = run(SETUP_STEPS + queued)
            if in_flight:
                in_flight.add_step(queued)
            elif progress.report_due():
                device.synchronize()
            queued += 1
            if queued % SYNCHRONIZE_EVERY == 0:
                device.synchronize()
            if not in_flight or queued > IN_FLIGHT:
                due = progress.report_due()
                progress.step_done(due, loss.item() if due and show_loss else None)
        device.synchronize()
        while progress.steps < queued:
            progress.step_done(False, None)
    weights = sum(float(p.abs().sum().item()) for p in nn.state.get_parameters(model)) if show_loss else None
    progress.end(**({"checksum": weights} if show_loss else {}))
    return 0


def main() -> int:
    """Reads the options, then trains."""
    args = arguments(str(__doc__))
    choose_backend(args.device)
    try:
        return train(args)
    except ImportError as error:
        print(f"train_tinygrad: {error}; install it with: pip install 'vgpud[demo]'")
        return 3


if __name__ == "__main__":
    raise SystemExit(main())
