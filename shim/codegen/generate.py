"""Makes shim/gen/ (DESIGN D2) of the committed header, hooks.def and the names of NVML. Every build does (update()); it
needs what the build itself needs, Python and cffi's pycparser.

`generate.py --from-toolkit [--cuda-include DIR]` takes the committed header, shim/gen/abi/cuda_abi.h, from NVIDIA's
headers: only that needs a CUDA toolkit. `--check` fails (exit 1) when a toolkit of the header's very version is at hand
and says otherwise.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

import cudaspec
import emit
import emit_copies
import emit_hooks
import generate_ml
import generate_simcuda
import hookdef

SHIM = Path(__file__).resolve().parents[1]
GEN = SHIM / "gen"
HEADER = "abi/cuda_abi.h"
#: under shim/gen/: what comes from NVIDIA's headers (generate_names.py makes the second)
COMMITTED = (HEADER, "simgpu/simgpu_names.c")
#: what the other files were made of and what they are, and who is making them
STAMP, LOCK = ".made_of", ".lock"


def generate_files(surface: cudaspec.Surface) -> dict[str, str]:
    """Every file that a build makes: its name under shim/gen/ and its text."""
    rows = hookdef.assign(surface.entries, hookdef.read_rows(SHIM / "codegen" / "hooks.def"))
    return {
        "abi/counts.h": emit_hooks.counts_header(surface),
        "hooks/hook_copy.c": emit_copies.copying(surface, rows),
        "hooks/hook_gate.c": emit_hooks.emit_gate_hooks(surface, rows),
        "hooks/hook_order.c": emit_hooks.ordering(surface, rows),
        "hooks/bodies.h": emit_hooks.body_header(surface, rows),
        "hooks/hook_waits.c": emit_hooks.waiting(surface, rows),
        "hooks/hook_sync.c": emit_hooks.synchronising(surface, rows),
        "hooks/hook_table.c": emit_hooks.hook_table(surface, rows),
        "hooks/hook_table.h": emit_hooks.hook_header(),
        "hooks/hook_trampolines.c": emit_hooks.trampolines(surface, rows),
        "hooks/libvgpu.map": emit_hooks.library_script(surface),
        "hooks/spares.inc": emit_hooks.spare_stubs(),
        "abi/entries.h": emit.entry_header(surface),
        "abi/entries.c": emit.entry_names(surface),
        "abi/real.h": emit.real_header(surface),
        "abi/simgpu_bodies.h": emit.simulated_bodies(surface),
        "simgpu/simgpu_entries.c": emit.simulated_entries(surface),
        "simgpu/simgpu.map": emit.version_script(surface.entries, ()),
        **generate_ml.generate_files(),
        **dict(generate_simcuda.generate_files()),
    }


def _digest(paths: Iterable[Path]) -> str:
    digests = (hashlib.sha256(path.read_bytes()).digest() for path in paths)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _inputs_digest() -> str:
    """Of all that the files are made of."""
    sources = [*(SHIM / "codegen").glob("*.py"), *(SHIM / "nvml").glob("*.c"), *generate_simcuda.list_sources()]
    return _digest([*sorted(sources), GEN / HEADER, SHIM / "codegen" / "hooks.def", SHIM / "nvml" / "names.txt"])


def _is_current(inputs: str) -> bool:
    try:
        made_of, outputs, *names = (GEN / STAMP).read_text().split()
        return made_of == inputs and outputs == _digest(GEN / name for name in names)
    except (FileNotFoundError, ValueError):  # ValueError: cut short, as its writer was killed
        return False


def _write(name: str, text: str) -> None:
    path = GEN / name
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")  # renamed: a compiler may be reading the old one
    fresh.write_text(text)
    fresh.replace(path)


def update() -> None:
    """Makes the files unless those that are there are of the same inputs, as made. Safe beside other processes that do
    the same. Raises SpecError when the header or hooks.def is not understood."""
    inputs = _inputs_digest()
    if _is_current(inputs):
        return
    with (GEN / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _is_current(inputs):
            return
        texts = generate_files(cudaspec.read_committed(GEN / HEADER))
        for name, text in texts.items():
            _write(name, text)
        known = {*texts, *COMMITTED, STAMP, LOCK}
        for path in [p for p in GEN.rglob("*") if p.is_file() and str(p.relative_to(GEN)) not in known]:
            path.unlink()  # of a generator before this one: a build takes all C files of a folder
        (GEN / STAMP).write_text("\n".join([inputs, _digest(GEN / name for name in texts), *texts]))


def _from_toolkit(include: Path | None) -> cudaspec.Surface:
    include = include or cudaspec.find_toolkit()
    if include is None:
        raise cudaspec.SpecError("no cuda.h found: name its folder with --cuda-include or install nvidia-cuda-runtime")
    return cudaspec.read_toolkit(include)


def _has_drifted() -> bool:
    """Whether a toolkit of the version of the committed header says something else than it."""
    include = cudaspec.find_toolkit()
    if include is None:
        return False
    surface = cudaspec.read_toolkit(include)
    if surface.version != cudaspec.read_committed(GEN / HEADER).version:
        return False
    return emit.cuda_abi(surface) != (GEN / HEADER).read_text()


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0 done or no drift, 1 drift, 2 a header or hooks.def is not understood."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--from-toolkit", action="store_true")
    parser.add_argument("--cuda-include", type=Path)
    options = parser.parse_args(argv)
    try:
        if options.check:
            drifted = _has_drifted()
            if drifted:
                print(f"shim/gen/{HEADER} is not what the toolkit says: generate.py --from-toolkit", file=sys.stderr)
            return 1 if drifted else 0
        if options.from_toolkit:
            _write(HEADER, emit.cuda_abi(_from_toolkit(options.cuda_include)))
        update()
    except cudaspec.SpecError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
