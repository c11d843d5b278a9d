"""PyTorch's NCCL backend on two simulated devices: alone, and two slices of both devices at once."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.command_line import ask, call
from vgpud.cli.demo.private_system import OwnSystem

PROGRAM = str(Path(__file__).resolve().parent / "nccl.py")
SECONDS = 280
#: the first test waits for the download as well
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MakeSystem = Callable[..., OwnSystem]
SLICE = ("run", "--gpus", "0.8", "--spread", "2")
#: both ranks by themselves, since torchrun ends the other one when one has ended; the exit code is that of rank 0
RANKS = """
export TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=100 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT="$0"
RANK=1 LOCAL_RANK=1 "$@" & RANK=0 LOCAL_RANK=0 "$@"; code=$?; wait; exit $code
"""


def start(system: OwnSystem, way: Sequence[str], *command: str) -> subprocess.Popen[str]:
    env = {**system.env, "VGPU_SIM_DIR": str(system.sim_dir), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "vgpud.cli.main", *way, "--", *command]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def start_training(system: OwnSystem, way: Sequence[str], python: str) -> subprocess.Popen[str]:
    """Two ranks by torchrun, on a port of their own."""
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return start(system, way, python, "-W", "ignore", *torchrun, PROGRAM)


def test_training_on_two_devices(make_system: MakeSystem, torch_python: str) -> None:
    system = make_system({"devices": "2"})
    done = start_training(system, ("sim", "run"), torch_python)
    said = done.communicate(timeout=SECONDS)[0]
    assert done.returncode == 0, said[-4000:]
    assert "rank 0 is done" in said
    assert "rank 1 is done" in said


def test_two_slices_of_both_devices(make_system: MakeSystem, torch_python: str) -> None:
    """Each trains with 0.4 of both; their ranks meet on both devices at once."""
    system = make_system({"devices": "2"})
    for run in [start_training(system, SLICE, torch_python) for _ in range(2)]:
        said = run.communicate(timeout=SECONDS)[0]
        assert run.returncode == 0, said[-4000:]
        assert said.count("is done") == 2


def test_a_killed_rank_is_an_error_of_the_other(make_system: MakeSystem, torch_python: str) -> None:
    """PyTorch raises NCCL's error for it, or its watchdog meets the error first and aborts. Nothing is left of the
    slice."""
    system = make_system({"devices": "2"})
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    done = start(system, SLICE, "sh", "-c", RANKS, port, torch_python, "-W", "ignore", PROGRAM, "killed")
    said = done.communicate(timeout=SECONDS)[0]
    assert done.returncode in (1, 128 + signal.SIGABRT), said[-4000:]
    for part in ("DistBackendError", "NCCL error", "ncclRemoteError", "the process of rank 1 of 2 has ended"):
        assert part in said, said[-4000:]
    assert "is done" not in said
    assert ask(system, "slice", "ls")["slices"] == []
    assert call(system, "run", "--gpus", "2", "--spread", "2", "--", "true").returncode == 0
