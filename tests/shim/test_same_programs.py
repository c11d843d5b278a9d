"""The programs of tests/sim beneath the hook, in a slice of half the device: they find what they find without it.

Where they ask how much memory is free the slice is the smaller one, so that its ledger has to follow the device.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice
from tests.sim.conftest import MakeDevice, MakeProgram, device, program, run

__all__ = ["device", "program"]

CONTEXT = 64 * MIB
#: what the device itself calls its parts, where the configuration does not say
UUIDS = [b"SIMULATED-GPU\0\0" + bytes([index]) for index in range(2)]


PROGRAMS = [
    "arrays",
    "batches",
    "captures",
    "copies",
    "external",
    "first",
    "graphs",
    "green",
    "memory",
    "order",
    "settings",
    "states",
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(shim: Path, short_dir: Path, device: MakeDevice, program: MakeProgram, name: str) -> None:
    made = device(devices=2, memory_bytes="2G", context_bytes=str(CONTEXT))
    with FakeDaemon(short_dir / "attach.sock", [FakeDevice(uuid, 1024 * MIB, CONTEXT) for uuid in UUIDS]) as fake:
        hooked = {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
        hooked["VGPU_DRIVER"] = str(made.lib_dir / "libcuda.so.1")
        # What its maker has let go of and others hold is not in the ledger: the daemon sees it, through NVML.
        assert run(program(name), made, **hooked, MAKER_LAST="1") == "ok\n"
        assert fake.processes
