"""Every driver function of a program over all families of memory fails once, in turn, and in a nightly run each of its
calls; the ledger is exact after each. And every family is refused what is beyond the limit.

The program is benchmarks/tenants/ledger.c; which calls it makes, the hook's own among them, the simulated
driver counts. A call that gives something back is tried a second time by the program, as a careful one would.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import ledger
from tests.examples import is_nightly
from tests.shim.fake_daemon import FakeDaemon, FakeDevice, wait_until
from vgpud.simdevice import process as sim_process
from vgpud.simdevice import state_page

CONTEXT = 64 << 20
LIMIT = 8 << 30
WORKERS = 4
ASK_UUID = """
import ctypes, sys
driver = ctypes.CDLL("libcuda.so.1")
uuid = (ctypes.c_ubyte * 16)()
assert driver.cuInit(0) == 0 and driver.cuDeviceGetUuid_v2(uuid, 0) == 0
sys.stdout.buffer.write(bytes(uuid))
"""


class Bench:
    """One simulated device, and for each run a slice of its own."""

    def __init__(self, folder: Path, shim: Path, device: sim_process.SimulatedDevice) -> None:
        self.folder, self.preloaded, self.device = folder, str(shim), device
        self.program = ledger.build()
        command = [sys.executable, "-c", ASK_UUID]
        self.uuid = subprocess.run(command, env=device.environment(), capture_output=True, check=True).stdout

    def device_bytes(self, pid: int) -> int:
        """What the device counts for a process."""
        page = state_page.read(self.device.directory / state_page.PAGE_NAME)
        return page.devices[0].process_used_bytes.get(pid, 0)

    @contextlib.contextmanager
    def tenant(self, name: str, *words: str, **environment: str) -> Iterator[tuple[FakeDaemon, subprocess.Popen[str]]]:
        """The program in a slice of its own; it is at its end when this ends."""
        with FakeDaemon(self.folder / f"{name}.sock", [FakeDevice(self.uuid, LIMIT, CONTEXT)]) as fake:
            env = {**os.environ, **self.device.environment(), "LD_PRELOAD": self.preloaded}
            env |= {"VGPU_SOCKET": str(fake.path), **environment}
            pipe = subprocess.PIPE
            command = [str(self.program), *words]
            with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
                yield fake, process

    def run_families(self, name: str, **environment: str) -> str:
        """One object of every family; what was wrong, or nothing."""
        with self.tenant(name, "once", **environment) as (fake, process):
            assert process.stdout and process.stderr
            line = process.stdout.readline()
            if not line:
                return f"it ended: {process.stderr.read()}"
            answer = json.loads(line)

            def count_bytes() -> int:
                return self.device_bytes(answer["pid"]) + self.device_bytes(answer["peer"])

            exact = wait_until(lambda: count_bytes() == fake.used_bytes(), 2)
            return "" if exact else f"the device counts {count_bytes()}, the ledger {fake.used_bytes()}"


@pytest.fixture(scope="module")
def bench(shim: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("f")
    config = {"devices": 1, "memory_bytes": "64G", "context_bytes": CONTEXT}
    with sim_process.SimulatedDevice(folder / "sim", config) as device:
        yield Bench(folder, shim, device)


def numbers_to_fail(count: int) -> Iterable[int]:
    """Of the calls of a function: all in a nightly run, else the first and the last."""
    return range(1, count + 1) if is_nightly() else sorted({1, count})


@pytest.mark.slow
def test_every_driver_call_fails_once_and_the_ledger_is_exact(bench: Bench) -> None:
    counts = bench.folder / "counts"
    assert bench.run_families("first", VGPU_SIM_COUNT_CALLS=str(counts)) == ""
    calls: dict[str, int] = {}
    for file in (counts, counts.with_suffix(".peer")):
        # the peer writes its own when it ends, which may be after the program
        assert wait_until(lambda file=file: file.exists() and file.stat().st_size > 0, 10)
        for name, number in (line.split() for line in file.read_text().splitlines()):
            calls[name] = max(int(number), calls.get(name, 0))
    assert set(calls) >= MADE
    assert sum(calls.values()) > 200
    faults = [f"{name}:{i}=999" for name, count in calls.items() for i in numbers_to_fail(count)]
    with ThreadPoolExecutor(WORKERS) as workers:
        said = workers.map(
            lambda numbered: bench.run_families(f"s{numbered[0]}", VGPU_SIM_FAIL=numbered[1]), enumerate(faults)
        )
        wrong = {fault: what for fault, what in zip(faults, said, strict=True) if what}
    assert wrong == {}


#: what the program is known by: one call of each family at least
MADE = {
    *("cuMemAlloc_v2", "cuMemAllocPitch_v2", "cuMemAllocManaged", "cuMemAllocAsync", "cuMemAllocFromPoolAsync_ptsz"),
    *("cuMemPoolCreate", "cuMemPoolTrimTo", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRetainAllocationHandle"),
    *("cuMulticastBindMem", "cuMemMapArrayAsync", "cuArray3DCreate_v2", "cuMipmappedArrayCreate"),
    *("cuGraphAddMemAllocNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuStreamBeginCapture_v2"),
    *("cuCtxCreate_v2", "cuCtxDestroy_v2", "cuGreenCtxCreate", "cuGreenCtxDestroy", "cuDevicePrimaryCtxReset_v2"),
    *("cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2", "cuIpcCloseMemHandle", "cuIpcOpenEventHandle"),
    *("cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemPoolExportPointer"),
    *("cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemHostAlloc"),
}


def test_every_family_is_refused_what_is_beyond_the_limit(bench: Bench) -> None:
    """20 GiB in a slice of 8 on a device of 64."""
    with bench.tenant("large", "large", str(20 << 30)) as (_, process):
        out, errors = process.communicate()
    assert errors == ""
    refused = json.loads(out)
    del refused["event"]
    assert {name: calls for name, calls in refused.items() if calls == 0} == {}
    assert len(refused) == 18
