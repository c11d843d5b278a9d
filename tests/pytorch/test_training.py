"""A training in half a device, by the command of README, and the same training by `vgpu predict run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 240
#: the first test waits for the download as well
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TRAINING = """
import sys, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))).cuda()
if "convolve" in sys.argv:
    torch.nn.Conv2d(3, 8, 3).cuda()(torch.zeros(2, 3, 16, 16, device="cuda"))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.get_device_name())
"""


def start(python: str, way: tuple[str, ...], *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "vgpud.cli.main", *way, "--", python, "-c", TRAINING, *arguments]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(run: subprocess.Popen[str]) -> str:
    output, errors = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, errors
    return output


def test_a_training_in_half_a_device_and_as_predicted(torch_python: str) -> None:
    """PyTorch has the same memory in both."""
    predicting = ("predict", "run", "--gpu", "h200", "-o", "json")
    training = start(torch_python, ("sim", "run", "--gpus", "0.5"))
    plain, convolving = start(torch_python, predicting), start(torch_python, predicting, "convolve")
    allocated, reserved, name = finish(training).split(maxsplit=2)
    assert name == "SIMULATED H200\n"
    predicted: dict[str, Any] = json.loads(finish(plain))
    assert (predicted["allocated_bytes"], predicted["reserved_bytes"]) == (int(allocated), int(reserved))
    assert predicted["memory_at_least"] is False
    assert json.loads(finish(convolving))["memory_at_least"] is True
