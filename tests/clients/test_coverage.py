"""What the simulated driver implements is told as it is: what is listed as missing answers so."""

from __future__ import annotations

import ctypes

from tests.clients.conftest import SIM
from vgpud.sim_coverage import coverage

NOT_SUPPORTED = 801
#: what the clients of this folder cannot do without
NEEDED = ("cuInit", "cuLaunchKernel", "cuGraphLaunch", "cuStreamEndCapture", "cuLibraryGetKernel", "cuMemAlloc_v2")


def test_coverage_is_true() -> None:
    found = coverage()
    assert all(found[name] for name in NEEDED)
    missing = [name for name, implemented in found.items() if not implemented]
    library = ctypes.CDLL(str(SIM / "libcuda.so.1"))
    nothing = [None] * 12
    assert missing and {getattr(library, name)(*nothing) for name in missing} == {NOT_SUPPORTED}
    assert library.cuCtxSynchronize() != NOT_SUPPORTED
