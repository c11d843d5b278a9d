"""Unmodified client programs on the simulated device: each checks its own numbers and prints ok."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import MODEL, NEEDS, PROGRAMS, client_environment, run_python, skip_without
from vgpud.simdevice.busy_log import read_busy_log


@pytest.mark.parametrize("program", NEEDS)
def test_runs(program: str, run_program: Callable[..., str]) -> None:
    assert run_program(program).splitlines()[-1] == "ok"


def test_without_a_device(run_program: Callable[..., str]) -> None:
    """The library starts nothing by itself: without its server there is no device, and the program says so."""
    with pytest.raises(AssertionError, match="CUDA_ERROR_NO_DEVICE"):
        run_program("cuda_python", {"VGPU_SIM_DIR": "/nonexistent"})


def test_program_can_fail(run_program: Callable[..., str]) -> None:
    """The numbers are really looked at: a model without host implementations makes the program fail."""
    with pytest.raises(AssertionError, match="not equal"):
        run_program("cuda_python", {"VGPU_SIM_KERNELS": "/dev/null"})


def test_kernels_take_their_time(sim_device: Path, tmp_path: Path) -> None:
    """40 kernels of 1 ms: by the program's events and by the device's own log, launched singly and as a graph."""
    skip_without("cuda_python")
    model = tmp_path / "kernels.model"
    model.write_text(MODEL.read_text() + "^spin_1000$ us=1000 wave_us=0\n")
    env = client_environment(sim_device) | {"VGPU_SIM_KERNELS": str(model)}
    times = json.loads(run_python(PROGRAMS / "cuda_time.py", env))
    # single launches may come late on a busy machine, a graph is one
    assert times["launched_ms"] >= 20 and 20 <= times["graph_ms"] < 30, times
    busy_ns = sum(span.end_ns - span.begin_ns for span in read_busy_log(sim_device / "busy-0.log"))
    assert 40e6 <= busy_ns < 44e6, busy_ns
