"""CIFAR-10 in its binary format: a loader for the real files, and a maker of a small synthetic sample.

The format (https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version"): records of 3073 bytes, one label byte 0..9
and then 3072 bytes of a 32 x 32 picture, 1024 red, 1024 green, 1024 blue, row by row. Real files hold 10000 records.
The sample is NOT CIFAR-10: its pictures are coloured stripes with noise, made from a seed, in the same format.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

LABELS = 10
CHANNELS = 3
SIDE_PIXELS = 32
PICTURE_BYTES = CHANNELS * SIDE_PIXELS * SIDE_PIXELS
RECORD_BYTES = 1 + PICTURE_BYTES
SAMPLE_RECORDS = 2048
SAMPLE_NOTE = "synthetic patterns in the CIFAR-10 binary format, not CIFAR-10"

Bytes = npt.NDArray[np.uint8]


class DataError(ValueError):
    """A file that is not in the CIFAR-10 binary format; the message names the file and what is wrong."""


@dataclass(frozen=True)
class Pictures:
    """images: uint8 of shape (n, 3, 32, 32); labels: uint8 of shape (n,), 0..9."""

    images: Bytes
    labels: Bytes

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, step: int, size: int) -> tuple[Bytes, Bytes]:
        """The step-th batch of a fixed reshuffled walk through the data: the same for every run (seed = epoch)."""
        per_epoch = max(1, len(self) // size)
        order = np.random.default_rng(step // per_epoch).permutation(len(self))
        begin = (step % per_epoch) * size
        chosen = np.resize(order[begin : begin + size], size)
        return self.images[chosen], self.labels[chosen]


def parse(raw: bytes, name: str) -> Pictures:
    """Takes the bytes of one file apart. Raises DataError when they are not whole records with labels 0..9."""
    if not raw or len(raw) % RECORD_BYTES:
        raise DataError(f"{name}: {len(raw)} bytes are not a whole number of {RECORD_BYTES}-byte CIFAR-10 records")
    records = np.frombuffer(raw, np.uint8).reshape(-1, RECORD_BYTES)
    labels = records[:, 0]
    if int(labels.max()) >= LABELS:
        wrong = int(np.argmax(labels >= LABELS))
        raise DataError(f"{name}: record {wrong} has label {int(labels[wrong])}, CIFAR-10 has labels 0..{LABELS - 1}")
    return Pictures(records[:, 1:].reshape(-1, CHANNELS, SIDE_PIXELS, SIDE_PIXELS).copy(), labels.copy())


def load(path: Path) -> Pictures:
    """Loads one file, or the training files data_batch_*.bin of a folder. Raises DataError or OSError."""
    if not path.is_dir():
        return parse(path.read_bytes(), str(path))
    files = sorted(path.glob("data_batch_*.bin"))
    if not files:
        raise DataError(f"{path}: no data_batch_*.bin in this folder; give the unpacked cifar-10-batches-bin")
    return parse(b"".join(file.read_bytes() for file in files), str(path))


def sample(records: int = SAMPLE_RECORDS, seed: int = 0) -> bytes:
    """Makes records of coloured, noisy stripes: label = direction and colour of the stripes. Same seed, same bytes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(records, dtype=np.uint8) % LABELS
    rows, columns = np.mgrid[0:SIDE_PIXELS, 0:SIDE_PIXELS].astype(np.float32)
    out = np.empty((records, RECORD_BYTES), np.uint8)
    for index, label in enumerate(labels.tolist()):
        angle = np.pi * label / LABELS
        phase = rng.uniform(0, 2 * np.pi)
        stripes = np.sin((rows * np.sin(angle) + columns * np.cos(angle)) * 0.8 + phase)
        colour = np.array([(label >> bit & 1) * 2 - 1 for bit in range(CHANNELS)], np.float32)
        picture = 128 + 50 * stripes[None] + 30 * colour[:, None, None] + rng.normal(0, 20, (CHANNELS, 32, 32))
        out[index, 0] = label
        out[index, 1:] = np.clip(picture, 0, 255).astype(np.uint8).reshape(-1)
    return out.tobytes()


def load_or_sample(path: Path | None) -> tuple[Pictures, str]:
    """The data and a note that says what they are. Without a path: the synthetic sample, made in memory."""
    if path is None:
        return parse(sample(), "the synthetic sample"), SAMPLE_NOTE
    return load(path), str(path)


def main() -> None:
    """Writes the sample to a file."""
    parser = argparse.ArgumentParser(description=f"Writes {SAMPLE_NOTE}.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--records", type=int, default=SAMPLE_RECORDS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output.write_bytes(sample(args.records, args.seed))
    print(f"{args.output}: {args.records} records, {SAMPLE_NOTE}")


if __name__ == "__main__":
    main()
