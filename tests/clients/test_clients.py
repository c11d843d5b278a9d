"""Unmodified client programs on the simulated device: each checks its own numbers and prints ok."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.conftest import NEEDS


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
