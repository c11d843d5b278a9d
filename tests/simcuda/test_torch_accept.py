"""PyTorch as PyPI has it, on the simulated device: operators, networks and features run without an error, a slice sees
the same outputs and memory to the byte, and memory ends at the slice's last granule.

VGPU_TORCH_PYTHON names an interpreter with torch (CUDA 13); without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vgpud.simdevice.process import SimulatedDevice

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: before conftest.py takes the user's settings away
PYTHON = os.environ.get("VGPU_TORCH_PYTHON")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="VGPU_TORCH_PYTHON names no interpreter with torch"),
    pytest.mark.slow,
]
MEMORY = "8G"
SLICE = ("--gpus", "0.5", "--mem", MEMORY)


def run(where: tuple[str, ...], program: str) -> list[Any]:
    """What the program prints, run by `vgpu sim run`."""
    command = [sys.executable, "-m", "vgpud.cli.main", "sim", "run", *where, "--", str(PYTHON), str(HERE / program)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, [line for line in lines if len(line) == 2] or done.stderr
    return lines


@cache
def run_in_slice(program: str) -> list[Any]:
    return run(SLICE, program)


@pytest.fixture
def own_device(short_dir: Path) -> Iterator[tuple[str, ...]]:
    """A device of the slice's size, without a hook."""
    with SimulatedDevice(short_dir / "sim", {"memory_bytes": MEMORY}) as made:
        yield "--dir", str(made.directory)


@pytest.mark.parametrize(
    ("program", "count_min"), [("torch_operators.py", 150), ("torch_networks.py", 2 * 12), ("torch_features.py", 20)]
)
def test_a_slice_sees_the_same_outputs_and_memory(own_device: tuple[str, ...], program: str, count_min: int) -> None:
    """To the byte: peaks of what PyTorch allocates and reserves, and what the driver has left."""
    lines = run_in_slice(program)
    assert len(lines) >= count_min
    assert run(own_device, program) == lines


def test_memory_ends_at_the_slices_last_granule(own_device: tuple[str, ...]) -> None:
    (found,) = run_in_slice("torch_last_granule.py")
    assert (found["total"], found["rest"], found["retries"]) == (8 << 30, 0, 1)
    for message in found["messages"]:
        assert message.startswith("CUDA out of memory. Tried to allocate")
        for part in ("total capacity of 8.00 GiB", "is free", "allocated by PyTorch", "reserved by PyTorch"):
            assert part in message
    assert run(own_device, "torch_last_granule.py") == [found]
