"""Which entry points of the driver the simulated driver implements; the others answer CUDA_ERROR_NOT_SUPPORTED.

Read from the library's bytes, nothing is loaded: shim/gen/simgpu/simgpu_entries.c writes two distances per entry point,
to the body and to the one that says "not supported"; the two are the same place if the entry point is not
implemented.
"""

from __future__ import annotations

import struct
from pathlib import Path

from vgpud import paths
from vgpud.libraries import elf

MARK = b"vgpu-sim-entries"
#: their bodies only report to the program why they are not supported
_REFUSALS = ("cuGetExportTable",)


def coverage(library: Path | None = None) -> dict[str, bool]:
    """Entry point -> implemented, sorted by name. library: the simulated libcuda.so.1 (the installed one).

    Raises elf.ElfError for a file that is not that library, FileNotFoundError when it is not built.
    """
    read = elf.Elf(library or paths.sim_lib_dir() / "libcuda.so.1")
    names = sorted(name for name, symbol in read.exports().items() if symbol.function)
    start = read.data.find(MARK)
    if start < 0:
        raise elf.ElfError(f"{read.path} is not the simulated driver")
    distances = struct.iter_unpack("<ii", read.data[start + len(MARK) :][: 8 * len(names)])
    found = {
        name: body != missing_distance + 4 for name, (body, missing_distance) in zip(names, distances, strict=True)
    }
    return found | dict.fromkeys(_REFUSALS, False)
