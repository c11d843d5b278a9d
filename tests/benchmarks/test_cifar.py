"""The CIFAR-10 loader, the synthetic sample, and that the training programs learn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cifar import data

ROOT = Path(__file__).resolve().parents[2]


def test_the_sample_is_in_the_format_and_always_the_same() -> None:
    raw = data.sample(20)
    assert len(raw) == 20 * data.RECORD_BYTES
    assert raw == data.sample(20)
    assert raw != data.sample(20, seed=1)
    assert sorted(set(data.parse(raw, "sample").labels.tolist())) == list(range(10))


def test_the_planes_of_a_record_are_red_green_blue_rows() -> None:
    record = bytes([7]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes(range(32)) * 32
    pictures = data.parse(record, "one")
    assert pictures.images.shape == (1, 3, 32, 32)
    assert pictures.labels.tolist() == [7]
    assert pictures.images[0, 0, 5, 9] == 1 and pictures.images[0, 1, 5, 9] == 2 and pictures.images[0, 2, 5, 9] == 9


@pytest.mark.parametrize(
    ("raw", "message"),
    [(b"", "0 bytes"), (b"x" * 3072, "3072 bytes"), (bytes([10]) + bytes(3072), "record 0 has label 10")],
)
def test_what_is_not_the_format_is_refused_by_name(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(raw)
    with pytest.raises(data.DataError, match=message) as caught:
        data.load(path)
    assert "bad.bin" in str(caught.value)


def test_a_folder_of_batches_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "data_batch_2.bin").write_bytes(bytes([2]) + bytes(3072))
    (tmp_path / "data_batch_1.bin").write_bytes(bytes([1]) + bytes(3072))
    assert data.load(tmp_path).labels.tolist() == [1, 2]
    with pytest.raises(data.DataError, match="no data_batch"):
        data.load(tmp_path / "..")


def test_batches_cover_an_epoch_without_repeating() -> None:
    pictures = data.parse(data.sample(40), "sample")
    seen = np.concatenate([pictures.batch(step, 10)[0] for step in range(4)])
    assert len(np.unique(seen.reshape(40, -1), axis=0)) == 40
    assert len(pictures.batch(0, 100)[1]) == 100


def losses(module: str, *options: str) -> list[float]:
    """Runs a trainer on the CPU; its losses in order. Skips when its package is missing."""
    command = [sys.executable, "-m", f"benchmarks.cifar.{module}", "--device", "cpu", *options]
    quick = {"NOOPT": "1", "PARALLEL": "0"}  # tinygrad: compile plainly, the run is short
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **quick}, capture_output=True, text=True, timeout=600)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [lines[0]["event"], lines[-1]["event"]] == ["start", "end"]
    return [line["loss"] for line in lines if line["event"] == "progress"]


@pytest.mark.slow
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("train_tinygrad", ("--batch", "16", "--steps", "16", "--report-every", "1")),
        ("train_torch", ("--batch", "32", "--steps", "30", "--report-every", "1")),
        ("train_cupy", ("--batch", "64", "--steps", "60", "--report-every", "1")),
    ],
)
def test_training_lowers_the_loss(module: str, options: tuple[str, ...]) -> None:
    got = losses(module, *options)
    fourth = len(got) // 4
    assert sum(got[-fourth:]) < 0.7 * sum(got[:fourth])


def test_a_trainer_refuses_a_senseless_batch() -> None:
    command = [sys.executable, "-m", "benchmarks.cifar.train_cupy", "--device", "cpu", "--batch", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--batch" in done.stderr
