"""Memory that fits into the credit at hand costs no system call."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks import harness
from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice, driver_uuid

COUNT = 200


def system_calls(shim: Path, driver: Path, socket: Path, *words: str) -> int:
    """What the program counted."""
    program = str(harness.build("tenants/alloc_syscalls.c"))
    settings = {"LD_PRELOAD": str(shim), "VGPU_DRIVER": str(driver), "VGPU_SOCKET": str(socket)}
    with FakeDaemon(socket, [FakeDevice(driver_uuid(0), 1024 * MIB, 64 * MIB)]) as fake:
        done = subprocess.run(
            [program, str(COUNT), *words], env={**os.environ, **settings}, capture_output=True, text=True, check=False
        )
        assert len(fake.processes) == 1  # it has met the hook
    if done.returncode == 3:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["system_calls"])


@pytest.mark.parametrize("size", [256, 2 * MIB, 64 * MIB])
def test_an_allocation_within_the_credit_makes_none(shim: Path, ledger_driver: Path, tmp_path: Path, size: int) -> None:
    assert system_calls(shim, ledger_driver, tmp_path / "s", str(size)) == 0


def test_those_that_are_made_are_counted(shim: Path, ledger_driver: Path, tmp_path: Path) -> None:
    assert system_calls(shim, ledger_driver, tmp_path / "s", "256", "3") == 3
