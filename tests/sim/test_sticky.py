"""Errors that a context keeps: of kernels that fault, and on request; neighbours, and the end of it."""

from __future__ import annotations

import pytest

from .conftest import MakeDevice, MakeProgram, run


@pytest.mark.parametrize(
    "environment",
    [
        {"FAULT": "fault_700"},
        {"FAULT": "fault_710"},
        {"FAULT": "fault_719"},
        {"FAULT": "fault_700", "CREATED": "1"},
        {"VGPU_SIM_FAIL": "cuLaunchKernel:2=719"},
    ],
)
def test_a_fault_stays_until_its_context_ends(
    device: MakeDevice, program: MakeProgram, environment: dict[str, str]
) -> None:
    assert run(program("sticky"), device(), **environment) == "ok\n"
