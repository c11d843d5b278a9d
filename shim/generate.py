"""Writes shim/gen/ (DESIGN D2): `generate.py` from the committed header and hooks.def, `--check` finds drift.

`--from-toolkit [--cuda-include DIR]` first takes the committed header, shim/gen/cuda_abi.h, from NVIDIA's headers:
only that step needs a CUDA toolkit. `--check` writes nothing and fails (exit 1) when a file differs from what would be
written; the committed header is compared too when a toolkit of its very version is at hand.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import cudaspec
import emit
import emit_hooks
import hookdef

SHIM = Path(__file__).resolve().parent
GEN = SHIM / "gen"
COMMITTED = "cuda_abi.h"


def generated(surface: cudaspec.Surface) -> dict[str, str]:
    """Every generated file but the committed header: its name under shim/gen/ and its text."""
    rows = hookdef.assign(surface.entries, hookdef.read_rows(SHIM / "hooks.def"))
    return {
        "counts.h": emit_hooks.counts_header(surface),
        "hook_gate.c": emit_hooks.gated(surface, rows),
        "hook_sync.c": emit_hooks.synchronising(surface, rows),
        "hook_table.c": emit_hooks.hook_table(surface, rows),
        "hook_table.h": emit_hooks.hook_header(),
        "hook_trampolines.c": emit_hooks.trampolines(surface, rows),
        "libvgpu.map": emit_hooks.library_script(surface),
        "spares.inc": emit_hooks.spare_stubs(),
        "entries.h": emit.entry_header(surface),
        "hook_entries.c": emit.entry_names(surface),
        "real.h": emit.real_header(surface),
        "simgpu_entries.h": emit.SIMULATED_HEADER,
        "simgpu_stubs.c": emit.simulated_stubs(surface),
        "simgpu.map": emit.version_script(surface.entries, ()),
    }


def drift(expected: dict[str, str]) -> list[str]:
    """Names of the files under shim/gen/ that differ from what is expected, are missing or are not ours."""
    different = [n for n, text in expected.items() if not (GEN / n).is_file() or (GEN / n).read_text() != text]
    strangers = {p.name for p in GEN.iterdir() if p.is_file()} - set(expected) - {COMMITTED}
    return sorted([*different, *(n for n in strangers if not n.startswith("ml_") and n != "libvgpu-ml.map")])


def _from_toolkit(include: Path | None) -> cudaspec.Surface:
    include = include or cudaspec.find_toolkit()
    if include is None:
        raise cudaspec.SpecError("no cuda.h found: name its folder with --cuda-include or install nvidia-cuda-runtime")
    return cudaspec.read_toolkit(include)


def _check() -> list[str]:
    different = drift(generated(cudaspec.read_committed(GEN / COMMITTED)))
    include = cudaspec.find_toolkit()
    if include is not None and all((include / h).is_file() for h in cudaspec.HEADERS):
        surface = cudaspec.read_toolkit(include)
        same_version = surface.version == cudaspec.read_committed(GEN / COMMITTED).version
        if same_version and emit.cuda_abi(surface) != (GEN / COMMITTED).read_text():
            different.append(COMMITTED)
    return different


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done or no drift, 1 drift, 2 a header or hooks.def is not understood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--from-toolkit", action="store_true")
    parser.add_argument("--cuda-include", type=Path)
    options = parser.parse_args(argv)
    try:
        if options.check:
            different = _check()
            for name in different:
                print(f"shim/gen/{name} is not what shim/generate.py writes: run `make gen`", file=sys.stderr)
            return 1 if different else 0
        GEN.mkdir(exist_ok=True)
        if options.from_toolkit:
            (GEN / COMMITTED).write_text(emit.cuda_abi(_from_toolkit(options.cuda_include)))
        for name, text in generated(cudaspec.read_committed(GEN / COMMITTED)).items():
            (GEN / name).write_text(text)
    except cudaspec.SpecError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
