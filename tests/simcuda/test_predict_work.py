"""`vgpu predict run`: operations that kernels are, and what a program takes of each of several devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simcuda.test_predict_run import MIB, needs_build, predict
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

TORCH = os.environ.get("VGPU_TORCH_PYTHON", "")
needs_torch = pytest.mark.skipif(not TORCH, reason="VGPU_TORCH_PYTHON names no interpreter with PyTorch's CUDA build")

#: the beginning of both programs
DRIVER = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
call("cuInit", 0)
"""
#: launches a kernel twice, and a graph of it three times, each of so many ns and operations
KERNELS = (
    DRIVER
    + """
context, module, function, stream, graph, launch = (ctypes.c_void_p() for _ in range(6))
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
parameters = "(.param .u64 a, .param .u64 b)"
image = f".version 8.0\\n.target sm_50\\n.address_size 64\\n.visible .entry simcuda_gemm{parameters} {{ ret; }}\\n"
call("cuModuleLoadData", ctypes.byref(module), image.encode())
call("cuModuleGetFunction", ctypes.byref(function), module, b"simcuda_gemm")
call("cuStreamCreate", ctypes.byref(stream), 1)
numbers = ctypes.c_uint64(2_000_000), ctypes.c_uint64(3_000_000_000)
args = (ctypes.c_void_p * 2)(*(ctypes.addressof(number) for number in numbers))
def start():
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, args, None)
for _ in range(2):
    start()
call("cuStreamBeginCapture_v2", stream, 2)
start()
call("cuStreamEndCapture", stream, ctypes.byref(graph))
call("cuGraphInstantiateWithFlags", ctypes.byref(launch), graph, ctypes.c_ulonglong(0))
for _ in range(3):
    call("cuGraphLaunch", launch, stream)
call("cuCtxSynchronize")
"""
)
#: takes 100 MiB of device 0, 300 of device 1
DEVICES = (
    DRIVER
    + """
for ordinal, size in ((0, 100), (1, 300)):
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
    call("cuCtxSetCurrent", context)
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size << 20))
"""
)
FAKE_TORCH = """
class cuda:
    is_initialized = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 3)
    max_memory_allocated = staticmethod(lambda device: (80 << 20, 250 << 20, 0)[device])
    max_memory_reserved = staticmethod(lambda device: (90 << 20, 298 << 20, 0)[device])
"""


@needs_build
def test_operations_are_counted_and_take_no_time_of_their_own() -> None:
    done = predict("--gpu", "a100", "-o", "json", "--", sys.executable, "-c", KERNELS)
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert (found["launches"], found["kernels_ns"]) == (5, 5 * 2_000_000)
    assert found["flops"] == 5 * 3_000_000_000
    shown = predict("--gpu", "a100", "--", sys.executable, "-c", KERNELS)
    (line,) = (line for line in shown.stdout.splitlines() if line.startswith("FLOPs"))
    assert line.split()[1] == "15G"


@needs_build
def test_a_product_of_fp32_by_three_of_tf32_is_one_that_takes_three_times_as_long(short_dir: Path) -> None:
    counted: dict[str, Any] = {}
    for math in ("tf32", "tf32x3"):
        model = short_dir / f"{math}.model"
        model.write_text(f"^simcuda_ us=0 wave_us=0 flops=arg1.i64 math={math}\n")
        with SimulatedDevice(short_dir / math, {"model": model, "speed": 1000}) as device:
            subprocess.run([sys.executable, "-c", KERNELS], env=device.environment(), check=True, timeout=60)
            counted[math] = state_page.read(device.directory / state_page.PAGE_NAME).devices[0]
    assert counted["tf32"].flops == counted["tf32x3"].flops == 15e9
    assert counted["tf32x3"].launch_ns == pytest.approx(3 * counted["tf32"].launch_ns, rel=0.01)


@needs_build
def test_each_device_is_counted_by_itself_and_the_fullest_decides() -> None:
    words = ("--gpu", "a100", "--devices", "3")
    found = json.loads(predict(*words, "-o", "json", "--", sys.executable, "-c", DEVICES).stdout)
    assert [(device["index"], device["given_out_bytes"]) for device in found["devices"]] == [
        (0, 100 * MIB),
        (1, 300 * MIB),
    ]
    assert found["given_out_bytes"] == 300 * MIB
    assert found["slice"]["mem_bytes"] == found["devices"][1]["memory_bytes"]["high"]
    shown = predict(*words, "--", sys.executable, "-c", DEVICES)
    assert [line.split()[0] for line in shown.stdout.splitlines()] == ["DEVICE", "0", "1"]
    assert "COMMAND has used 2 of 3 devices" in shown.stderr
    assert "the smallest slices that hold it: --gpus 0.044 --spread 2\n" in shown.stderr


@needs_build
def test_pytorch_says_its_peak_on_each_device(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    program = "import torch" + DEVICES
    done = predict("--devices", "2", "-o", "json", "--", sys.executable, "-c", program, PYTHONPATH=f".:{tmp_path}")
    sizes = [(device["allocated_bytes"], device["reserved_bytes"]) for device in json.loads(done.stdout)["devices"]]
    assert sizes == [(80 * MIB, 90 * MIB), (250 * MIB, 298 * MIB)]


def test_more_devices_than_can_be_simulated_are_refused() -> None:
    done = predict("--devices", "17", "--", "true")
    assert done.returncode != 0 and "--devices" in done.stderr and "16" in done.stderr


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


@pytest.mark.slow
@needs_torch
def test_operations_are_those_that_pytorch_counts() -> None:
    done = predict("--gpu", "a100-40g", "-o", "json", "--", TORCH, "-c", FLOPS)
    (counted,) = (line.split()[1] for line in done.stderr.splitlines() if line.startswith("counted"))
    assert json.loads(done.stdout)["flops"] == int(counted) > 0


@pytest.mark.slow
@needs_torch
def test_two_ranks_of_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TWO_RANKS)
    launcher = (TORCH, "-m", "torch.distributed.run", "--nproc-per-node", "2")
    done = predict("--devices", "2", "-o", "json", "--steps", "3", "--", *launcher, tmp_path / "train.py")
    assert done.returncode == 0, done
    first, second = json.loads(done.stdout)["devices"]
    assert 0 < first["flops"] * 32 == second["flops"]
    assert 0 < first["allocated_bytes"] < second["allocated_bytes"]
