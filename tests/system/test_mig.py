"""Slices on MIG instances, the whole path: shares within one, instances beside each other, a daemon that dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

from .conftest import wait_for_work

#: the instances are the simulator's devices 1 and 2
SIM = {"devices": "1", "memory_bytes": "8G", "context_bytes": "64M", "device.0.mig": "3g.4gb, 3g.4gb"}
MEMORY = ("--mem", "1G")


@pytest.fixture
def system(make_system: Callable[..., OwnSystem]) -> OwnSystem:
    return make_system(SIM)


def test_an_instance_is_divided_like_a_gpu_and_the_other_one_is_its_own(
    system: OwnSystem, tenant: Callable[..., Part]
) -> None:
    for name, gpus, device in (("quarter", "0.25", "100"), ("rest", "0.75", "100"), ("other", "1", "101")):
        system.vgpu("slice", "create", name, "--gpus", gpus, "--device", device, *MEMORY)
    parts = [tenant("quarter"), tenant("rest"), tenant("other")]
    small, big, other = (wait_for_work(part)["pid"] for part in parts)
    check_shares_sum(system, [small, big], 2, lambda a, b: a + b > 0.7 and 2 * a < b < 4.5 * a, device=1)
    check_shares_sum(system, [other], 1, lambda alone: alone > 0.7, device=2)
    assert system.daemon
    system.daemon.kill()
    system.start_daemon()
    with system.client() as client:
        wait_for("the tenants' return", lambda: {p.pid for p in client.all(calls.processes())} == {small, big, other})
        assert all(p.resumed for p in client.all(calls.processes()))
    command = [sys.executable, "-m", "vgpud.cli.main", "events", "-o", "json"]
    stdout_text = subprocess.run(command, env=system.env, capture_output=True, text=True, check=True).stdout
    assert "memory.over_limit" not in stdout_text, "what they hold is of their instance"
    check_shares_sum(system, [small, big], 2, lambda a, b: a + b > 0.7 and 2 * a < b < 4.5 * a, device=1)
