"""The ledger of arrays: it equals what the simulated device has given, for every shape and in every order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice
from tests.shim.test_memory import ASK_UUID
from vgpud.simdevice import process, state_page

TENANT = Path(__file__).with_name("array_tenant.py")
LIMIT = 8192 * MIB
CONTEXT = 512 * MIB

Scenario = Callable[..., Any]


@pytest.fixture
def scenario(shim: Path, tmp_path: Path) -> Iterator[Scenario]:
    """Runs a scenario of array_tenant.py in a slice of 8 GiB of a simulated device."""
    with process.SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        # By another name: the hook would answer for libcuda.so.1, and the tenant wants to ask the driver itself.
        other_name = tmp_path / "libsimulated.so"
        other_name.symlink_to(device.lib_dir / "libcuda.so.1")
        base = {**os.environ, **device.environment(), "VGPU_DRIVER": str(other_name)}
        base["SIM_PAGE"] = str(device.directory / state_page.PAGE_NAME)
        asked = subprocess.run([sys.executable, "-c", ASK_UUID], env=base, capture_output=True, check=True)
        with FakeDaemon(tmp_path / "attach.sock", [FakeDevice(asked.stdout, LIMIT, CONTEXT)]) as daemon:

            def run(name: str, **environment: str) -> Any:
                hooked = {**base, "LD_PRELOAD": str(shim), "VGPU_SOCKET": str(daemon.path), **environment}
                command = [sys.executable, str(TENANT), name]
                done = subprocess.run(command, env=hooked, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
                return json.loads(done.stdout)

            yield run


def test_every_shape_costs_what_the_device_takes(scenario: Scenario) -> None:
    rows = scenario("shapes")["rows"]
    assert [code for *_, code, _, _ in rows] == [0] * 15 + [1] * 3
    assert [(shape, levels) for shape, levels, _, up, down in rows if up or down] == []


def test_where_the_driver_does_not_say_the_size_is_computed(scenario: Scenario) -> None:
    """Video and compressed formats may then be charged more than they take, never less."""
    rows = scenario(
        "shapes", VGPU_SIM_FAIL="cuArrayGetMemoryRequirements:*=801,cuMipmappedArrayGetMemoryRequirements:*=801"
    )
    assert all(
        up == down == 0 or (shape[3] in (0xB0, 0x91) and up > 0 == down) for (shape, _, _, up, down) in rows["rows"]
    )


def test_20_gib_in_8_are_out_of_memory(scenario: Scenario) -> None:
    answer = scenario("refused")
    assert answer == {"codes": [2, 2, 2], "output": 0xDEADBEEF, "taken": 0, "charged": 0}


def test_memory_mapped_into_arrays_is_charged_without_its_handle(scenario: Scenario) -> None:
    steps = scenario("sparse")["steps"]
    assert [name for name, code, _, _ in steps if code] == ["refused"]
    assert [(name, apart) for name, _, apart, _ in steps if apart] == []
    used = {name: used for name, _, _, used in steps}
    assert used["unmap some"] > used["unmap all"]
    assert used["whole"] > used["end of array"]


def test_small_ones_share_granules_as_on_the_device(scenario: Scenario) -> None:
    answer = scenario("churn")
    assert answer["failures"] == []
    assert answer["most"] > CONTEXT + 10 * MIB
    assert answer["apart"] == [0] * 10
    assert answer["end"] == 0
