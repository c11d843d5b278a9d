"""PyTorch's NCCL backend on two simulated devices: alone, and two slices of both devices at once.

VGPU_TORCH_PYTHON names an interpreter with torch (CUDA 13); without it these tests are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vgpud.cli.demo.private_system import OwnSystem

TORCH = os.environ.get("VGPU_TORCH_PYTHON", "")
PROGRAM = Path(__file__).resolve().parent / "torch_nccl.py"
SECONDS = 280
pytestmark = [
    pytest.mark.skipif(not TORCH, reason="VGPU_TORCH_PYTHON names no interpreter with torch"),
    pytest.mark.slow,
]

MakeSystem = Callable[..., OwnSystem]


def start(system: OwnSystem, way: list[str], *arguments: str) -> subprocess.Popen[str]:
    """Two ranks by torchrun, on a port of their own."""
    ranks = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM), *arguments]
    command = [sys.executable, "-m", "vgpud.cli.main", *way, "--", TORCH, "-W", "ignore", *ranks]
    env = {**system.env, "VGPU_SIM_DIR": str(system.sim_dir), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_training_on_two_devices(make_system: MakeSystem) -> None:
    system = make_system({"devices": "2"})
    done = start(system, ["sim", "run"])
    said = done.communicate(timeout=SECONDS)[0]
    assert done.returncode == 0, said[-4000:]
    assert "rank 0 is done" in said
    assert "rank 1 is done" in said


def test_two_slices_of_both_devices(make_system: MakeSystem) -> None:
    """Each trains with 0.4 of both; their ranks meet on both devices at once."""
    system = make_system({"devices": "2"})
    runs = [start(system, ["run", "--gpus", "0.8", "--spread", "2"]) for _ in range(2)]
    for run in runs:
        said = run.communicate(timeout=SECONDS)[0]
        assert run.returncode == 0, said[-4000:]
        assert said.count("is done") == 2


def test_a_killed_rank_ends_the_other(make_system: MakeSystem) -> None:
    system = make_system({"devices": "2"})
    done = start(system, ["sim", "run"], "killed")
    said = done.communicate(timeout=SECONDS)[0]
    assert done.returncode != 0
    assert "is done" not in said
