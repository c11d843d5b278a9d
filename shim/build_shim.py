"""Builds everything native: the cffi extension and the plain shared libraries (DESIGN D1).

`python shim/build_shim.py` builds in place (vgpud/_shim.abi3.so, vgpud/lib/); setup.py calls the same functions.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cffi

ROOT = Path(__file__).resolve().parent.parent
SHIM = ROOT / "shim"
sys.path.append(str(SHIM / "codegen"))
import generate  # noqa: E402
import generate_simcuda  # noqa: E402

#: object files, a folder for each compiler and set of flags; those of other sources are used where contents are equal
OBJECTS = Path(os.environ.get("VGPU_OBJECTS") or ROOT / "build" / "objects")
ABI_HEADERS = ("abi/vg_abi.h", "arbiter/arbiter.h", "attach_server/attach_server.h")

#: folders whose files are loaded into every tenant's process
TENANT_FOLDERS = ("base", "session", "ledger", "context", "gate", "moves", "attach", "driver", "hooks", "gen/hooks")
#: what the NVML shim takes of them
NVML_PARTS = (
    *("base/prim", "base/log", "session/visible_devices", "attach/socket"),
    *("driver/next", "driver/elf", "driver/search", "driver/open", "driver/own_calls"),
)
SIMGPU_FOLDERS = (
    *("base", "process", "arena", "streams", "memory", "arrays", "copies", "textures", "images", "modules", "graphs"),
    *("capture", "ipc", "contexts", "entries"),
)

#: where CUDA's libraries for the simulated device are built: the name says what they are, their files have to be named
#: as NVIDIA's
SIMCUDA = "sim/SIMULATED"

#: targets that are programs, not shared libraries
PROGRAMS = ("sim/vgpu-simd", "vgpu-runtime", "vgpu-job")
#: those that run inside engines, and in roots that may hold no C library of ours; and what must start in a moment. So
#: they run on any glibc, too
STATIC = ("sim/vgpu-simd", "vgpu-runtime", "vgpu-job")

#: data that a target reads at run time: output under vgpud/lib -> source
DATA = {"sim/libcuda.so.1": {"sim/kernels.model": "shim/simgpu/kernels.model"}}

CFLAGS = ["-O2", "-g", "-std=gnu11", "-fPIC", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-pthread"]
CFLAGS += ["-iquote", "shim"]  # ours are named from here: "gate/gate.h"
#: for shared libraries: nothing newer than GLIBC_2.17 is asked for, and functions are looked for where old glibcs have
#: them (glibc_floor.h)
OLD_GLIBC_CFLAGS = ["-include", "shim/base/glibc_floor.h"]
OLD_GLIBC_LDFLAGS = ["-Wl,--push-state,--no-as-needed", "-l:libpthread.so.0", "-l:libdl.so.2", "-Wl,--pop-state"]
CFLAGS += OLD_GLIBC_CFLAGS
LDFLAGS = ["-shared", "-pthread", "-Wl,-z,relro,-z,now,-z,nodelete", "-Wl,--hash-style=both", *OLD_GLIBC_LDFLAGS]
#: Code and constants in one segment: two mappings less for the dynamic loader to make, in every process that starts.
LDFLAGS += ["-Wl,-z,noseparate-code"]


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "gcc"))


def machine() -> str:
    """What the compiler compiles for, as uname -m has it: CC=aarch64-linux-gnu-gcc builds for another machine."""
    return _machine(tuple(compiler()))


@functools.cache
def _machine(command: tuple[str, ...]) -> str:
    try:
        target = subprocess.run([*command, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # the build itself says what is wrong with it
        return os.uname().machine
    return target.partition("-")[0]


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
    its_machine = own.exists() and machine() == os.uname().machine
    return [str(SHIM)] if its_machine else [str(SHIM), str(SHIM / "pyabi")]


def _in(*folders: str) -> list[str]:
    """The C files of folders of shim/, relative to the root."""
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (SHIM / folder).glob("*.c"))


def _parts(*names: str) -> list[str]:
    return [f"shim/{name}.c" for name in names]


def daemon_sources() -> list[str]:
    """What runs in the daemon without the interpreter."""
    return _in("attach_server", "arbiter") + _parts("base/prim", "base/run_time")


ffibuilder = cffi.FFI()
ffibuilder.cdef(cdef())
ffibuilder.set_source(
    "vgpud._shim",
    '#include "attach_server/attach_server.h"',
    sources=daemon_sources(),
    include_dirs=python_headers(),
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread", *OLD_GLIBC_CFLAGS],
    extra_link_args=["-pthread", *OLD_GLIBC_LDFLAGS],
    py_limited_api=True,
)


def targets() -> dict[str, tuple[list[str], list[str]]]:
    """Output under vgpud/lib -> (sources, linker flags). What is generated of them is there afterwards."""
    generate.update()
    return {
        "libvgpu.so": (
            ["cuda_hook.c", *_in(*TENANT_FOLDERS), *_parts("gen/abi/entries")]
            + [f"shim/driver/lazy_{machine()}.S", f"shim/driver/dlopen_{machine()}.S"],
            ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/hooks/libvgpu.map"],
        ),
        "libvgpu-ml.so": (
            _parts(*NVML_PARTS) + _in("nvml") + [f"shim/nvml/lazy_{machine()}.S"],
            ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/nvml/libvgpu-ml.map"],
        ),
        "sim/libcuda.so.1": (
            _parts("base/prim", "ledger/array_boxes", "gen/abi/entries", "simcuda/common/devices")
            + _in(*(f"simgpu/{folder}" for folder in SIMGPU_FOLDERS), "gen/simgpu"),
            ["-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,--version-script=shim/gen/simgpu/simgpu.map", "-lm"],
        ),
        "sim/libnvidia-ml.so.1": (
            _parts("base/prim") + _in("simgpu/nvml"),
            # without -Bsymbolic, as NVIDIA's: its functions call each other through the symbol table
            ["-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=shim/simgpu/nvml/nvml.map"],
        ),
        "sim/vgpu-simd": (_parts("base/prim") + _in("simgpu/server"), ["-lm"]),
        "vgpu-runtime": (_in("runtime"), []),
        "vgpu-job": (_in("job"), []),
        **{simcuda_target(library): _simcuda(library) for library in generate_simcuda.LIBRARIES},
    }


def simcuda_target(library: generate_simcuda.Library) -> str:
    """NVRTC lies in a folder of its own: it is not preloaded (vgpud/libraries/simulated.py)."""
    folder = f"{SIMCUDA}/nvrtc" if library.folder.startswith("nvrtc") else SIMCUDA
    return f"{folder}/{library.soname}"


def _simcuda(library: generate_simcuda.Library) -> tuple[list[str], list[str]]:
    folder = library.folder
    script = f"-Wl,--version-script=shim/gen/simcuda/{folder}/{folder}.map"
    sources = _in(*(f"simcuda/{part}" for part in ("common", library.base, folder) if part), f"gen/simcuda/{folder}")
    if folder == "nccl":  # its ranks wait for each other in shared memory
        sources += _parts("base/prim")
    return sources, [f"-Wl,-soname,{library.soname}", "-Wl,-Bsymbolic", script]


@functools.cache
def _version(command: tuple[str, ...]) -> str:
    return subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout


def _inputs(depends: Path) -> list[Path]:
    """The files that an object is made of: what gcc -MMD lists, system headers left out. Names are quoted for make."""
    words = re.findall(r"(?:\\.|[^\s\\])+", depends.read_text().replace("\\\n", " "))
    return [ROOT / re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words[1:]]


def _key(depends: Path) -> str:
    """A hash of the contents of everything that an object is made of."""
    digests = (hashlib.sha256(path.read_bytes()).digest() for path in _inputs(depends))
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _compile(source: str, command: list[str], folder: Path) -> Path:
    """Compiles one source to an object in `folder`, unless the one there is of the same contents.

    Safe beside other processes that do the same: one at a time is at a source.
    """
    made = folder / (source.replace("/", "__") + ".o")
    depends, key = made.with_suffix(".d"), made.with_suffix(".key")
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if made.exists() and key.read_text() == _key(depends):
                return made
        except FileNotFoundError:  # never compiled to its end, or a header is gone
            pass
        key.unlink(missing_ok=True)
        output = made.with_suffix(".new")  # renamed: others may be linking the old one
        os.utime(lock.fileno())
        begun_ns = os.fstat(lock.fileno()).st_mtime_ns
        listing = ["-MMD", "-MT", "object", "-MF", str(depends)]
        subprocess.run([*command, *listing, "-c", "-o", str(output), source], cwd=ROOT, check=True)
        output.replace(made)
        if all(path.stat().st_mtime_ns < begun_ns for path in _inputs(depends)):
            key.write_text(_key(depends))  # else one was saved meanwhile, and the object may be of its contents before
    return made


def compile_objects(sources: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Paths of the objects of C and assembler files (relative to the root), compiled side by side where they are not
    there yet. Raises CalledProcessError when the compiler refuses one."""
    generate.update()  # headers, even where no source is generated
    command = [*compiler(), *flags]
    name = hashlib.sha256("\0".join([_version(tuple(compiler())), *command]).encode()).hexdigest()[:16]
    folder = OBJECTS / name
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return [str(path) for path in pool.map(lambda source: _compile(source, command, folder), sources)]


def static_flags() -> list[str]:
    """-static where the C library has a static half: such a program starts faster and needs nothing of its root."""
    probe = ["-static", "-x", "c", "-o", os.devnull, "-"]
    source = "int main(void) { return 0; }"
    done = subprocess.run([*compiler(), *probe], input=source, text=True, capture_output=True, check=False)
    if done.returncode == 0:
        return ["-static"]
    names = " and ".join(name.rpartition("/")[2] for name in STATIC)
    print(f"note: no static C library here (libc6-dev, glibc-static): {names} are linked dynamically")
    return []


def build_target(name: str, output_folder: Path, extra: list[str] | None = None) -> None:
    """Compiles one of targets() into out/name. Raises CalledProcessError when the compiler refuses."""
    sources, ldflags = targets()[name]
    path = output_folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    link = [f for f in LDFLAGS if name not in PROGRAMS or f not in ("-shared", *OLD_GLIBC_LDFLAGS)]
    link += static_flags() if name in STATIC else []
    cflags = [f for f in CFLAGS if name not in PROGRAMS or f not in OLD_GLIBC_CFLAGS] + (extra or [])
    objects = compile_objects(sources, cflags)
    command = [*compiler(), *cflags, "-o", str(path), *objects, *link, *ldflags, "-ldl"]
    subprocess.run(command, cwd=ROOT, check=True)
    for copy, source in DATA.get(name, {}).items():
        shutil.copyfile(ROOT / source, output_folder / copy)


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
