"""What a program sees: the slice's devices alone, in CUDA's order, and the user's own choice among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls

from .conftest import wait_for_work

GIB = 1 << 30


@pytest.fixture
def five(make_system: Callable[..., OwnSystem]) -> OwnSystem:
    """Five devices; 2.5 of them, on devices 1, 3 and 4, are the slice `team`."""
    system = make_system({"devices": "5", "memory_bytes": "4G"})
    with system.client() as client:
        uuids = [d.uuid for d in client.all(calls.devices())]
    chosen = [word for index in (1, 3, 4) for word in ("--device", uuids[index])]
    system.vgpu("slice", "create", "team", "--gpus", "2.5", *chosen)
    return system


def list_devices(system: OwnSystem, program: str, visible: str | None = None) -> Any:
    """What the program says of its devices when it is started in the slice."""
    choice = [] if visible is None else ["env", f"CUDA_VISIBLE_DEVICES={visible}"]
    command = [sys.executable, "-m", "vgpud.cli.main", "run", "--slice", "team", "--", *choice, program]
    done = subprocess.run(command, env=system.env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def uuid_of(system: OwnSystem, index: int) -> str:
    with system.client() as client:
        return client.all(calls.devices())[index].uuid.removeprefix("GPU-").replace("-", "")


def test_two_and_a_half_devices_of_five(five: OwnSystem, programs: dict[str, str]) -> None:
    devices = list_devices(five, programs["seen"])["devices"]
    assert [d["uuid"] for d in devices] == [uuid_of(five, i) for i in (1, 3, 4)]
    assert [d["ordinal"] for d in devices] == [0, 1, 2]
    assert sorted(d["bytes"] for d in devices) == [2 * GIB, 4 * GIB, 4 * GIB]


def test_the_users_choice_counts_within_the_slice(five: OwnSystem, programs: dict[str, str]) -> None:
    assert [d["uuid"] for d in list_devices(five, programs["seen"], "2,0")["devices"]] == [
        uuid_of(five, i) for i in (4, 1)
    ]
    assert [d["uuid"] for d in list_devices(five, programs["seen"], "1,7,0")["devices"]] == [uuid_of(five, 3)]


def test_foreign_devices_are_refused(five: OwnSystem, programs: dict[str, str]) -> None:
    with five.client() as client:
        foreign, own = client.all(calls.devices())[0].uuid, client.all(calls.devices())[3].uuid
    assert list_devices(five, programs["seen"], foreign)["devices"] == []
    assert [d["uuid"] for d in list_devices(five, programs["seen"], f"{own},{foreign}")["devices"]] == [
        uuid_of(five, 3)
    ]


def test_the_programs_environment_is_as_it_was(five: OwnSystem, tmp_path: Any) -> None:
    """The list the driver is shown is gone again when cuInit returns: children inherit what the user has set."""
    code = "import ctypes, os; c = ctypes.CDLL('libcuda.so.1'); c.cuInit(0); os.execvp('env', ['env'])"
    program = ["env", "CUDA_VISIBLE_DEVICES=0", sys.executable, "-c", code]
    command = [sys.executable, "-m", "vgpud.cli.main", "run", "--slice", "team", "--", *program]
    done = subprocess.run(command, env=five.env, capture_output=True, text=True, check=True)
    assert "CUDA_VISIBLE_DEVICES=0" in done.stdout.splitlines()
    assert "LD_PRELOAD" not in os.environ


@pytest.mark.alone
def test_a_process_that_hides_a_device_does_not_blur_its_slices_drain(
    make_system: Callable[..., OwnSystem], programs: dict[str, str]
) -> None:
    """Else what the neighbour uses is charged to the slice by half, and the neighbour goes over its cap."""
    system = make_system({"devices": "2"})
    system.vgpu("slice", "create", "both", "--gpus", "1.5", "--mem", "2G")
    command = [programs["tenant"], "250"]
    sharing, hiding = (system.run("both", [], ["env", f"CUDA_VISIBLE_DEVICES={seen}", *command]) for seen in ("1", "0"))
    wait_for_work(hiding)
    other = system.run("other", ["--gpus", "0.5", "--mem", "1G"], command)
    pids = [wait_for_work(other)["pid"], wait_for_work(sharing)["pid"]]
    check_shares_sum(system, pids, 2, lambda others, own: others < 1.4 * own, first_max=0.56, device=1)
