"""The programs that the demo runs: a training with PyTorch's CUDA build or with tinygrad, whichever is installed, else
the trainer of `vgpu sim load`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.libraries.environment import preload_simulated
from vgpud.predict.interpreter import find_torch

ROOT = Path(__file__).resolve().parents[3]
TRAINER, TORCH_TRAINER = "benchmarks.cifar.train_tinygrad", "benchmarks.cifar.train_torch"
#: kernels long enough that trainers wait for the device, not for Python
KERNEL_MODEL = ROOT / "benchmarks" / "cifar" / "kernels.model"
NEEDED = ("tinygrad", "numpy")
PLOT = "matplotlib"
_IMPORT_S = 60


@dataclass(frozen=True)
class Programs:
    """What each tenant runs. words: what it is; setup: what the first one does before it counts; remarks: what is not
    shown here, and what would show it."""

    command: Sequence[str]
    words: str
    setup: str = "set-up"
    env: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def has_torch() -> bool:
    """Whether this interpreter has PyTorch's build for CUDA, and what the trainer needs beside it."""
    torch = find_torch([sys.executable], os.environ)
    return torch is not None and bool(torch.cuda) and is_installed("numpy")


def find_torch_fault() -> str:
    """What this interpreter's PyTorch lacks on a simulated device, "" if nothing: a version that vgpud does not know
    may need names that its libraries do not have. All names are looked up when it is imported, with LD_BIND_NOW."""
    env = preload_simulated(os.environ) | {"LD_BIND_NOW": "1"}
    try:
        command = [sys.executable, "-c", "import torch"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_IMPORT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"its import takes longer than {_IMPORT_S} s"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else lines[-1] if lines else f"its import ended with {done.returncode}"


def choose(is_simulated: bool) -> Programs:
    """The best that this installation has; nothing is refused for a missing package."""
    remarks = (
        [] if is_installed(PLOT) else [f"no plot: {PLOT} is not installed (pip install {PLOT}); the curves are below"]
    )
    with_torch = has_torch()
    if with_torch and is_simulated and (fault := find_torch_fault()):
        with_torch = False
        remarks.append(f"PyTorch is not used, since it does not work on the simulated device: {fault}")
    missing = [] if with_torch else [name for name in NEEDED if not is_installed(name)]
    if missing or not KERNEL_MODEL.exists():
        why = f"{', '.join(missing)} not installed" if missing else "the trainers of the sources are not there"
        text = f"{why}: the two programs are `vgpu sim load trainer`, which use the device as a trainer does and"
        text += " train nothing; pip install 'vgpud[demo]' in a clone of the sources trains a network"
        command = [sys.executable, "-m", "vgpud.cli.main", "sim", "load", "trainer", "-o", "json", "--report", "0.2"]
        return Programs(command, "two programs that use the device as trainers do", remarks=(text, *remarks))
    env = {"PYTHONPATH": str(ROOT)}
    if is_simulated:
        # simulated kernels take the time that the model file says, so tinygrad need not optimise them
        env |= {"VGPU_SIM_KERNELS": str(KERNEL_MODEL), "NOOPT": "1", "PARALLEL": "0"}
    trainer, framework = (TORCH_TRAINER, "PyTorch") if with_torch else (TRAINER, "tinygrad")
    command = [sys.executable, "-m", trainer, "--seconds", "600", "--report-every", "10"]
    setup = "set-up" if with_torch else "set-up: the network is compiled"
    return Programs(command, f"two training programs ({framework}), one device", setup, env, remarks)
