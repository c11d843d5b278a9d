"""What the simulated driver implements is reported as it is: what is listed as missing answers so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from vgpud.simdevice.coverage import coverage
from vgpud.simdevice.process import SimulatedDevice

NOT_SUPPORTED = 801
#: what the clients of this folder cannot do without
NEEDED = ("cuInit", "cuLaunchKernel", "cuGraphLaunch", "cuStreamEndCapture", "cuLibraryGetKernel", "cuMemAlloc_v2")
#: what calls answer after cuInit: before it, they say that it is missing
CALLS = """
import ctypes, json, sys
driver = ctypes.CDLL("libcuda.so.1")
assert driver.cuInit(0) == 0
print(json.dumps([getattr(driver, name)(*[None] * 12) for name in sys.argv[1:]]))
"""


def test_coverage_is_true(short_dir: Path) -> None:
    found = coverage()
    assert all(found[name] for name in NEEDED)
    missing = [name for name, implemented in found.items() if not implemented]
    with SimulatedDevice(short_dir / "sim") as device:
        command = [sys.executable, "-c", CALLS, "cuCtxSynchronize", *missing]
        done = subprocess.run(command, env=device.environment(), capture_output=True, text=True, timeout=60, check=True)
    implemented, *others = json.loads(done.stdout)
    assert others and set(others) == {NOT_SUPPORTED}
    assert implemented != NOT_SUPPORTED
