"""PyTorch as PyPI has it, with cuDNN of the simulated device: what it can do, and the same memory in a slice.

VGPU_TORCH_PYTHON names an interpreter with torch (CUDA 13); without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sim.conftest import MakeDevice, device  # noqa: F401  device is a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = Path(__file__).resolve().parent / "cudnn_torch.py"
#: before conftest.py takes the user's settings away
PYTHON = os.environ.get("VGPU_TORCH_PYTHON")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="VGPU_TORCH_PYTHON names no interpreter with torch"),
    pytest.mark.slow,
]
PARTS = ("convolutions", "settings", "times", "normalization", "recurrent", "losses", "attention", "networks")


def run(where: list[str], *parts: str) -> dict[str, Any]:
    """What the program says of each part, run by `vgpu sim run`."""
    command = [sys.executable, "-m", "vgpud.cli.main", "sim", "run", *where, "--", str(PYTHON), str(PROGRAM), *parts]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {name: figures for name, *figures in map(json.loads, done.stdout.splitlines())}


def test_each_part_works(device: MakeDevice) -> None:  # noqa: F811
    made = device(memory_bytes="8G")
    assert set(run(["--dir", str(made.directory)], *PARTS)) == set(PARTS)


def test_a_slice_sees_the_same_memory(device: MakeDevice) -> None:  # noqa: F811
    """To the byte: peaks of what PyTorch allocates and reserves, and what the driver has left."""
    made = device(memory_bytes="4G")
    parts = ("normalization", "recurrent", "attention", "networks")
    alone = run(["--dir", str(made.directory)], *parts)
    assert run(["--gpus", "0.5", "--mem", "4G"], *parts) == alone
