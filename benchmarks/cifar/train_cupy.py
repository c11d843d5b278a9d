"""Trains a small residual network with CuPy, by hand-written gradients; --device cpu runs the same code on NumPy.

`python -m benchmarks.cifar.train_cupy --seconds 20`; exit code 3 when CuPy or a device is missing. Convolutions are
matrix products over picture patches (im2col), so the device sees GEMM, gather and element-wise kernels.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from benchmarks.cifar.data import LABELS, load_or_sample
from benchmarks.cifar.progress import Progress, arguments

SETUP_STEPS = 3
LEARNING_RATE = 0.05
MOMENTUM = 0.9
WIDTH = 16

Array = Any  # cupy.ndarray or numpy.ndarray


class Conv:
    """A 3 x 3 convolution with padding 1. Pictures are (n, height, width, channels)."""

    def __init__(self, xp: Any, rng: Any, inputs: int, outputs: int, stride: int) -> None:
        self.xp, self.stride, self.inputs = xp, stride, inputs
        self.weight = xp.asarray(rng.normal(0, (2 / (9 * inputs)) ** 0.5, (9 * inputs, outputs)).astype("float32"))
        self.speed = xp.zeros_like(self.weight)

    def convolve(self, x: Array) -> Array:
        """Returns the convolution; keeps the patches for backward()."""
        _n, height, width, _ = x.shape
        padded = self.xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        s = self.stride
        views = [padded[:, i : i + height : s, j : j + width : s] for i in range(3) for j in range(3)]
        self.patches = self.xp.concatenate(views, axis=3)
        self.shape = x.shape
        return self.patches @ self.weight

    def backward(self, gradient: Array) -> Array:
        """Moves the weights and returns the gradient at the input."""
        n, height, width, channels = self.shape
        flat = gradient.reshape(-1, gradient.shape[3])
        towards = (flat @ self.weight.T).reshape(*gradient.shape[:3], 9, channels)
        self.speed = MOMENTUM * self.speed + self.patches.reshape(len(flat), -1).T @ flat
        self.weight = self.weight - LEARNING_RATE * self.speed
        padded = self.xp.zeros((n, height + 2, width + 2, channels), "float32")
        s = self.stride
        for k in range(9):
            i, j = divmod(k, 3)
            padded[:, i : i + height : s, j : j + width : s] += towards[:, :, :, k]
        return padded[:, 1:-1, 1:-1]


class Network:
    """stem -> residual block -> convolution of stride 2 -> mean -> linear; ReLU after each."""

    def __init__(self, xp: Any, rng: Any) -> None:
        self.xp = xp
        self.stem = Conv(xp, rng, 3, WIDTH, 2)
        self.inner = Conv(xp, rng, WIDTH, WIDTH, 1)
        self.down_conv = Conv(xp, rng, WIDTH, 2 * WIDTH, 2)
        self.head = xp.asarray(rng.normal(0, 0.1, (2 * WIDTH, LABELS)).astype("float32"))

    def step(self, images: Array, labels: Array) -> Array:
        """One step of gradient descent. Returns the mean loss before it, on the device."""
        xp = self.xp
        x = (images.transpose(0, 2, 3, 1).astype("float32") - 128) / 64
        a = xp.maximum(self.stem.convolve(x), 0)
        b = xp.maximum(self.inner.convolve(a) + a, 0)
        c = xp.maximum(self.down_conv.convolve(b), 0)
        mean = c.mean((1, 2))
        scores = mean @ self.head
        scores = scores - scores.max(1, keepdims=True)
        odds = xp.exp(scores)
        odds = odds / odds.sum(1, keepdims=True)
        wanted = xp.eye(LABELS, dtype="float32")[labels]
        loss = -(xp.log((odds * wanted).sum(1) + 1e-9)).mean()
        gradient = (odds - wanted) / len(labels)
        to_mean = gradient @ self.head.T
        self.head = self.head - LEARNING_RATE * (mean.T @ gradient)
        to_c = xp.broadcast_to(to_mean[:, None, None] / (c.shape[1] * c.shape[2]), c.shape) * (c > 0)
        to_b = self.down_conv.backward(to_c) * (b > 0)
        to_a = (self.inner.backward(to_b) + to_b) * (a > 0)
        self.stem.backward(to_a)
        return loss

    def checksum(self) -> float:
        """Sum of the absolute weights, to compare two runs."""
        arrays = (self.stem.weight, self.inner.weight, self.down_conv.weight, self.head)
        return sum(float(abs(array.astype("float64")).sum()) for array in arrays)


def backend(device: str) -> tuple[Any, str]:
    """The array library and the device's name. Raises ImportError, or RuntimeError without a device."""
    if device == "cpu":
        import numpy

        return numpy, "cpu"
    import cupy  # type: ignore[import-not-found,unused-ignore]

    if cupy.cuda.runtime.getDeviceCount() < 1:
        raise RuntimeError("CuPy finds no CUDA device; try --device cpu")
    return cupy, cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def train(args: Namespace) -> int:
    """Runs the training; prints lines. Returns the exit code."""
    import numpy

    xp, name = backend(args.device)
    pictures, note = load_or_sample(args.data)
    progress = Progress(args, "cupy", name, note, "SIMULATED" in name)
    model = Network(xp, numpy.random.default_rng(args.seed))

    def step(index: int) -> Array:
        images, labels = pictures.batch(index, args.batch)
        return model.step(xp.asarray(images), xp.asarray(labels))

    for index in range(SETUP_STEPS):
        float(step(index))
    progress.training_begins()
    index = SETUP_STEPS
    while progress.wants_more():
        loss = step(index)
        index += 1
        waited = progress.report_due()
        progress.step_done(waited, float(loss) if waited else None)
    progress.end(checksum=model.checksum())
    return 0


def main() -> int:
    """Reads the options, then trains."""
    args = arguments(str(__doc__))
    try:
        return train(args)
    except (ImportError, RuntimeError) as error:
        print(f"train_cupy: skipped: {error}")
        return 3


if __name__ == "__main__":
    raise SystemExit(main())
