"""Memory that a process opens of another one's (cuIpc*), in one slice and in two: the maker's slice has it, once, and
when the maker dies first the device counts it to the opener, whose ledger never had it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice, wait_until
from tests.shim.test_memory import ASK_UUID
from vgpud.simdevice import process as sim_process
from vgpud.simdevice import state_page

TENANT = Path(__file__).with_name("ipc_tenant.py")
CONTEXT = 64 * MIB
LIMIT = 256 * MIB


class Process:
    """A tenant, and what the device counts for it."""

    def __init__(self, device: sim_process.SimulatedDevice, environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.page = device.directory / state_page.PAGE_NAME
        self.popen = subprocess.Popen(
            [sys.executable, str(TENANT)], env=environment, stdin=pipe, stdout=pipe, text=True
        )
        self.pid = self._answer()

    def _answer(self) -> Any:
        assert self.popen.stdout
        return json.loads(self.popen.stdout.readline())

    def order(self, words: str) -> Any:
        assert self.popen.stdin
        self.popen.stdin.write(words + "\n")
        self.popen.stdin.flush()
        return self._answer()

    def wait_for_usage(self, size: int) -> bool:
        return wait_until(lambda: state_page.read(self.page).devices[0].process_used_bytes.get(self.pid, 0) == size, 5)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.communicate()


@pytest.fixture(params=[1, 2], ids=["one_slice", "two_slices"])
def pair(
    shim: Path, short_dir: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Process, Process, list[FakeDaemon]]]:
    """A maker and an opener, in as many slices."""
    with sim_process.SimulatedDevice(short_dir / "sim", {"devices": 1, "context_bytes": str(CONTEXT)}) as device:
        environment = {**os.environ, **device.environment(), "VGPU_DRIVER": str(device.lib_dir / "libcuda.so.1")}
        asked = subprocess.run([sys.executable, "-c", ASK_UUID], env=environment, capture_output=True, check=True)
        slices = [
            FakeDaemon(short_dir / f"{number}.sock", [FakeDevice(asked.stdout, LIMIT, CONTEXT)])
            for number in range(request.param)
        ]
        processes = []
        for one in slices:
            one.start()
        for one in (slices[0], slices[-1]):
            processes.append(Process(device, environment | {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(one.path)}))
        yield processes[0], processes[1], slices
        for process in processes:
            process.kill()
        for one in slices:
            one.__exit__()


def test_the_makers_slice_has_it_once(pair: tuple[Process, Process, list[FakeDaemon]]) -> None:
    maker, opener, slices = pair
    apart = len(slices) == 2
    made, own = CONTEXT + 64 * MIB, CONTEXT
    assert maker.order("a 64") == 0
    handle = maker.order("g")
    rest = (LIMIT - own if apart else LIMIT - own - made) // MIB
    assert opener.order(f"a {rest}") == 0  # nothing is left: what is opened needs no free memory
    own += rest * MIB
    for _ in range(2):
        assert opener.order(f"o {handle}") == 0
        assert wait_until(lambda: maker.order("i") == (made if apart else LIMIT))
        assert wait_until(lambda: opener.order("i") == LIMIT)
        assert maker.wait_for_usage(made)
        assert opener.wait_for_usage(own)
    assert opener.order("c") == 0
    assert maker.wait_for_usage(made)
    assert opener.wait_for_usage(own)
    maker.kill()
    slices[0].dead(slices[0].processes[0])
    assert opener.wait_for_usage(own + 64 * MIB)  # what the daemon finds beyond the ledger
    assert wait_until(lambda: opener.order("i") == own)
    assert opener.order("c") == 0
    assert opener.wait_for_usage(own)
