"""Devices that are drained, excluded or taken by others, on the simulated device: by command, by fault, by NVML."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from tests.daemon.forked import ForkedSystem
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.errors import ExitCode

SIM = {"devices": "3", "memory_bytes": "8G", "context_bytes": str(64 << 20)}
#: opens a context on device 1 of the simulated driver, outside every slice, and waits for its input to end
STRANGER = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDeviceGet(ctypes.byref(device), 1) == 0
assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, device) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(5 << 30)) == 0
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def start_system(*config: str) -> Iterator[OwnSystem]:
    with tempfile.TemporaryDirectory(prefix="vgd-", dir="/tmp") as folder:
        with ForkedSystem(Path(folder), SIM, config) as one:
            yield one


@pytest.fixture
def system() -> Iterator[OwnSystem]:
    with start_system() as one:
        yield one


def devices(system: OwnSystem) -> list[dict[str, Any]]:
    return list(ask(system, "gpu", "ls")["devices"])


def event_kinds(system: OwnSystem) -> list[str]:
    return [event["kind"] for event in ask(system, "events")["events"]]


def where(system: OwnSystem, name: str, *words: str) -> int:
    """The device of a new slice of half a device."""
    system.vgpu("slice", "create", name, "--gpus", "0.5", *words)
    return int(ask(system, "slice", "show", name)["slice"]["devices"][0]["device_index"])


def refusal(system: OwnSystem, *words: str) -> str:
    with pytest.raises(PartError) as error:
        system.vgpu(*words)
    return str(error.value)


def test_drained_by_an_admin_over_a_restart(system: OwnSystem) -> None:
    assert where(system, "a") == 0
    system.vgpu("gpu", "drain", "0", "--reason", "a fan is broken")
    assert where(system, "b") == 1
    assert "device 0 is drained: a fan is broken" in refusal(
        system, "slice", "create", "c", "--gpus", "0.2", "--device", "0"
    )
    assert "device.drained" in event_kinds(system), "the newest events may be lost with a daemon that is killed"
    assert system.daemon
    system.daemon.kill()
    system.start_daemon()
    now = devices(system)
    assert [(d["drained"], d["offered"], d["drained_by_fault"]) for d in now] == [
        ("a fan is broken", False, False),
        ("", True, False),
        ("", True, False),
    ]
    assert ask(system, "slice", "show", "a")["slice"]["devices"], "what is there stays"
    assert "no: drained: a fan is broken" in call(system, "gpu", "ls").stdout
    system.vgpu("gpu", "undrain", now[0]["uuid"])
    assert where(system, "c", "--device", now[0]["uuid"]) == 0
    assert "device.undrained" in event_kinds(system)
    assert "no device '7' on this node" in refusal(system, "gpu", "drain", "7", "--reason", "x")


def test_a_fault_of_the_device_drains_it_and_one_of_a_program_does_not(system: OwnSystem) -> None:
    system.vgpu("sim", "xid", "2", "31")
    system.vgpu("sim", "xid", "1", "79")
    wait_for("the drain", lambda: not devices(system)[1]["offered"])
    found = devices(system)
    assert found[1]["drained"].startswith("XID 79 (the device has fallen off the bus)")
    assert found[1]["drained_by_fault"]
    assert found[2]["offered"]
    assert "vgpu gpu undrain 1" in call(system, "doctor").stdout


@pytest.mark.parametrize(
    ("mode", "word"), [("exclusive", "exclusive-process"), ("mig", "MIG mode"), ("mps", "MPS (pid ")]
)
def test_what_has_a_whole_device_is_seen_while_it_has_it(system: OwnSystem, mode: str, word: str) -> None:
    system.vgpu("sim", "mode", "0", mode)
    wait_for("the look", lambda: not devices(system)[0]["offered"])
    assert word in devices(system)[0]["taken_by"]
    assert where(system, "a") == 1
    assert "device 0 is taken by" in refusal(system, "slice", "create", "b", "--gpus", "0.1", "--device", "0")
    system.vgpu("sim", "mode", "0", "shared")
    wait_for("the next look", lambda: bool(devices(system)[0]["offered"]))
    assert {"device.taken", "device.free"} <= set(event_kinds(system))


def test_a_daemon_starts_beside_a_device_that_is_taken_and_not_when_all_are() -> None:
    with start_system() as system:
        assert system.daemon
        system.daemon.stop()
        for index in ("0", "1"):
            system.vgpu("sim", "mode", index, "mig")
        system.start_daemon()
        assert [d["offered"] for d in devices(system)] == [False, False, True]
        system.daemon.stop()
        system.vgpu("sim", "mode", "2", "exclusive")
        with pytest.raises(PartError, match=f"ended with code {int(ExitCode.DEVICE_REFUSED)}.*MIG mode"):
            system.start_daemon()


def test_memory_of_programs_outside_slices_is_not_offered(system: OwnSystem) -> None:
    from vgpud.simdevice import process

    env = process.environment(system.sim_dir, os.environ)
    command = [sys.executable, "-c", STRANGER]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout and stranger.stdin
        assert stranger.stdout.readline() == "there\n"
        wait_for("the look", lambda: devices(system)[1]["taken_by"] != "")
        found = devices(system)[1]
        assert found["offered"]
        assert found["taken_by"].startswith("a program outside slices (5.1")
        words = ("slice", "create", "a", "--gpus", "0.5", "--device", "1", "--mem", "4G")
        assert "programs outside slices hold" in refusal(system, *words)
        system.vgpu(*words[:-1], "2G")
        stranger.stdin.close()
    wait_for("its end", lambda: devices(system)[1]["taken_by"] == "")


def test_excluded_devices_are_not_there() -> None:
    with start_system("[devices]", 'exclude = ["1"]') as system:
        assert [d["index"] for d in devices(system)] == [0, 2]
        assert "no device '1' on this node" in refusal(system, "gpu", "drain", "1", "--reason", "x")
    with start_system() as system:
        assert system.daemon
        system.daemon.stop()
        (system.folder / "vgpud.toml").open("a").write('[devices]\nexclude = ["0", "1", "2"]\n')
        with pytest.raises(PartError, match=r"devices\.exclude leaves no device"):
            system.start_daemon()
