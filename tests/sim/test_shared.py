"""Memory that several processes hold on the simulated device: made by one, opened by others, charged once."""

from __future__ import annotations

import pytest

from .conftest import MakeDevice, MakeProgram, run


@pytest.mark.parametrize("name", ["shared", "shared_physical", "shared_pools", "shared_events"])
def test_program(device: MakeDevice, program: MakeProgram, name: str) -> None:
    assert run(program(name), device(devices=2, memory_bytes="1G", context_bytes="64M")) == "ok\n"
