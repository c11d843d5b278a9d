"""Builds everything native: the cffi extension and the plain shared libraries (DESIGN D1).

`python shim/build_shim.py` builds in place (vgpud/_shim.abi3.so, vgpud/lib/); setup.py calls the same functions.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "shim"
ABI_HEADERS = ("vg_abi.h", "arbiter.h")
ARBITER_SOURCES = (*sorted(f"shim/{path.name}" for path in SHIM.glob("arbiter*.c")), "shim/prim.c")

#: targets that are programs, not shared libraries
PROGRAMS = ("sim/vgpu-simd", "vgpu-runtime", "vgpu-job")
#: those that run inside engines, and in roots that may hold no C library of ours; and what must start in a moment
STATIC = ("vgpu-runtime", "vgpu-job")

#: data that a target reads at run time: output under vgpud/lib -> source
DATA = {"sim/libcuda.so.1": {"sim/kernels.model": "shim/simgpu/kernels.model"}}

CFLAGS = ["-O2", "-g", "-std=gnu11", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-pthread"]
CFLAGS += ["-iquote", "shim"]  # not -I: shim/link.h must not stand in for <link.h>
#: for shared libraries: nothing newer than GLIBC_2.17 is asked for, and functions are looked for where old glibcs have
#: them (glibc_floor.h)
OLD_GLIBC_CFLAGS = ["-include", str(SHIM / "glibc_floor.h")]
OLD_GLIBC_LDFLAGS = ["-Wl,--push-state,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-Wl,--pop-state"]
CFLAGS += OLD_GLIBC_CFLAGS
LDFLAGS = ["-shared", "-pthread", "-Wl,-z,relro,-z,now,-z,nodelete", "-Wl,--hash-style=sysv", *OLD_GLIBC_LDFLAGS]


def cdef() -> str:
    """The ABI headers as cffi reads them: without preprocessor lines other than integer macros."""
    keep = re.compile(r"#define\s+\w+\s+(0x[0-9a-fA-F]+|\d+)\s*(/\*.*\*/)?$")
    lines: list[str] = []
    for name in ABI_HEADERS:
        for line in (SHIM / name).read_text().splitlines():
            if not line.startswith("#") or keep.match(line):
                lines.append(line)
    return "\n".join(lines)


def python_headers() -> list[str]:
    """Include directories of the cffi module: our stand-in for Python.h only where the interpreter's own is missing."""
    own = Path(sysconfig.get_path("include")) / "Python.h"
    return [str(SHIM)] if own.exists() else [str(SHIM), str(SHIM / "pyabi")]


ffibuilder = cffi.FFI()
ffibuilder.cdef(cdef())
ffibuilder.set_source(
    "vgpud._shim",
    '#include "arbiter.h"',
    sources=list(ARBITER_SOURCES),
    include_dirs=python_headers(),
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread", *OLD_GLIBC_CFLAGS],
    extra_link_args=["-pthread", *OLD_GLIBC_LDFLAGS],
    py_limited_api=True,
)


def _sources(*patterns: str) -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for pattern in patterns for p in ROOT.glob(pattern))


def targets() -> dict[str, tuple[list[str], list[str]]]:
    """Output under vgpud/lib -> (sources, linker flags)."""
    machine = os.uname().machine
    return {
        "libvgpu.so": (
            ["cuda_hook.c"]
            + [name for name in _sources("shim/*.c") if not name.startswith("shim/arbiter")]
            + _sources("shim/driver/*.c", "shim/gen/hook_*.c", f"shim/*_{machine}.S"),
            ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/libvgpu.map"],
        ),
        "libvgpu-ml.so": (
            [f"shim/{name}.c" for name in ("prim", "log", "resolve_elf", "resolve_search", "link_wire", "visible")]
            + _sources("shim/driver/*.c", "shim/ml/*.c", f"shim/ml/*_{machine}.S"),
            ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/libvgpu-ml.map"],
        ),
        "sim/libcuda.so.1": (
            ["shim/prim.c", "shim/array_boxes.c"]
            + _sources("shim/simgpu/*.c", "shim/simgpu/cuda/*.c", "shim/simgpu/memory/*.c", "shim/gen/simgpu_*.c"),
            ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/simgpu.map", "-lm"],
        ),
        "sim/libnvidia-ml.so.1": (
            ["shim/prim.c", *_sources("shim/simgpu/nvml/*.c")],
            # without -Bsymbolic, as NVIDIA's: its functions call each other through the symbol table
            ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=shim/simgpu/nvml/nvml.map"],
        ),
        "sim/vgpu-simd": (["shim/prim.c", *_sources("shim/simgpu/server/*.c")], ["-lm"]),
        "vgpu-runtime": (_sources("shim/runtime/*.c"), []),
        "vgpu-job": (_sources("shim/job/*.c"), []),
    }


def static_flags(compiler: list[str]) -> list[str]:
    """-static where the C library has a static half: such a program starts faster and needs nothing of its root."""
    probe = ["-static", "-x", "c", "-o", os.devnull, "-"]
    source = "int main(void) { return 0; }"
    done = subprocess.run([*compiler, *probe], input=source, text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return ["-static"]
    print("note: no static C library here (libc6-dev, glibc-static): vgpu-runtime and vgpu-job are linked dynamically")
    return []


def build_target(name: str, out: Path, extra: list[str] | None = None) -> None:
    """Compiles one of targets() into out/name. Raises CalledProcessError when the compiler refuses."""
    sources, ldflags = targets()[name]
    path = out / name
    path.parent.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    link = [f for f in LDFLAGS if name not in PROGRAMS or f not in ("-shared", *OLD_GLIBC_LDFLAGS)]
    link += static_flags(compiler) if name in STATIC else []
    cflags = [f for f in CFLAGS if name not in PROGRAMS or f not in OLD_GLIBC_CFLAGS]
    command = compiler + cflags + (extra or []) + ["-o", str(path)] + sources + link + ldflags + ["-ldl"]
    subprocess.run(command, cwd=ROOT, check=True)
    for copy, source in DATA.get(name, {}).items():
        shutil.copyfile(ROOT / source, out / copy)


def main() -> None:
    wanted = sys.argv[1:] or [*targets(), "_shim"]
    for name in wanted:
        if name == "_shim":
            os.chdir(ROOT)
            ffibuilder.compile(tmpdir=str(ROOT), verbose=False)
        else:
            build_target(name, ROOT / "vgpud" / "lib")
        print("built", name)


if __name__ == "__main__":
    main()
