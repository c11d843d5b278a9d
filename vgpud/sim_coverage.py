"""Which entry points of the driver the simulated driver implements; the others answer CUDA_ERROR_NOT_SUPPORTED.

Read from the library's symbols, nothing is loaded: what is not implemented is a weak symbol (shim/gen/simgpu_stubs.c),
which any definition in the simulator's sources replaces.
"""

from __future__ import annotations

from pathlib import Path

from vgpud import elf, paths


def coverage(library: Path | None = None) -> dict[str, bool]:
    """Entry point -> implemented, sorted by name. library: the simulated libcuda.so.1 (the installed one).

    Raises elf.ElfError for a file that is no library, FileNotFoundError when it is not built.
    """
    symbols = elf.Elf(library or paths.sim_lib_dir() / "libcuda.so.1").exports()
    return {name: symbols[name].binding != elf.STB_WEAK for name in sorted(symbols) if symbols[name].function}
