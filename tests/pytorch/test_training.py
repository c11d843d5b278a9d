"""A training in half a device, by the command of README, and what `vgpu predict run` says of it and of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.simcuda.test_predict_run import predict

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


FLOPS = """
import torch
from torch.utils.flop_counter import FlopCounterMode
networks = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.Flatten(), torch.nn.Linear(16 * 30 * 30, 10)).cuda()
attention = torch.nn.MultiheadAttention(64, 4, batch_first=True).cuda()
images, words = torch.randn(8, 3, 32, 32, device="cuda"), torch.randn(4, 128, 64, device="cuda")
heads = [torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.half, requires_grad=True) for _ in range(3)]
with FlopCounterMode(display=False) as counter:
    networks(images).sum().backward()
    attention(words, words, words, need_weights=False)[0].sum().backward()
    torch.nn.functional.scaled_dot_product_attention(*heads).sum().backward()
print("counted", counter.get_total_flops())
"""
TWO_RANKS = """
import os, torch
torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
layer = torch.nn.Linear(1024, 1024, device="cuda")
model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])
for _ in range(3):
    model(torch.randn(64 * (1 + 31 * rank), 1024, device="cuda")).square().mean().backward()
torch.cuda.synchronize()
torch.distributed.destroy_process_group()
"""


def test_operations_are_those_that_pytorch_counts(torch_python: str) -> None:
    done = predict("--gpu", "a100-40g", "-o", "json", "--", torch_python, "-c", FLOPS)
    (counted,) = (line.split()[1] for line in done.stderr.splitlines() if line.startswith("counted"))
    assert json.loads(done.stdout)["flops"] == int(counted) > 0


def test_two_ranks_of_torchrun(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO_RANKS)
    launcher = (torch_python, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = predict("--devices", "2", "-o", "json", "--steps", "3", "--", *launcher, tmp_path / "train.py")
    assert done.returncode == 0, done
    first, second = json.loads(done.stdout)["devices"]
    assert 0 < first["flops"] * 32 == second["flops"]
    assert 0 < first["allocated_bytes"] < second["allocated_bytes"]


#: `vgpu` in the interpreter that has PyTorch, with what vgpud itself needs
VGPU = "import sys; sys.path.append(sys.argv.pop(1)); from vgpud.cli.main import invoke; sys.exit(invoke(sys.argv[1:]))"
NET = """
import torch
def make(batch):
    return torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))), torch.randn(batch, 1024)
"""


def test_a_model_in_python_is_run_for_its_memory(torch_python: str, tmp_path: Path) -> None:
    """Without any of NVIDIA's libraries, which its PyTorch would need to be imported."""
    (tmp_path / "net.py").write_text(NET)
    arguments = (sysconfig.get_path("purelib"), "predict", "net:make", "--batch", "64", "--gpu", "a100", "-o", "json")
    done = subprocess.run(
        [torch_python, "-c", VGPU, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["memory_by"] == "dry_run"
    parameters_bytes = 4 * (1024 * 1024 + 1024) * 4
    tensors_bytes = found["memory_bytes"]["low"] - (1409 << 20)
    assert 4 * parameters_bytes < tensors_bytes < 8 * parameters_bytes, "weights, gradients, Adam's states and more"
