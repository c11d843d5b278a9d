"""What the driver's headers say, as data: types, integer constants and the prototype of every entry point.

Two readers of one grammar. `read_toolkit` parses NVIDIA's headers where a toolkit is installed (development time
only), `read_committed` parses shim/gen/abi/cuda_abi.h, the facts taken from them; all else is generated from that.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pycparser import c_ast, c_generator, c_parser

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h")

# Stand in for libc's and the window systems' headers: pycparser knows no builtins, and only sizes matter here.
FAKE_LIBC = """
typedef unsigned long size_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;
"""
WINDOW_TYPES = """
typedef unsigned int GLenum;
typedef unsigned int GLuint;
typedef int GLint;
typedef int EGLint;
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef uint32_t VdpDevice;
typedef uint32_t VdpVideoSurface;
typedef uint32_t VdpOutputSurface;
typedef int VdpGetProcAddress(VdpDevice device, uint32_t function_id, void **function_pointer);
"""
FAKE_HEADERS = {
    "stdlib.h": "#include <stdint.h>\n",
    "stddef.h": "#include <stdint.h>\n",
    "stdint.h": "#ifndef FAKE_LIBC\n#define FAKE_LIBC\n" + FAKE_LIBC + "#endif\n",
    "GL/gl.h": "#include <window_types.h>\n",
    "EGL/egl.h": "#include <window_types.h>\n",
    "EGL/eglext.h": "#include <window_types.h>\n",
    "vdpau/vdpau.h": "#include <window_types.h>\n",
    "window_types.h": "#ifndef WINDOW_TYPES\n#define WINDOW_TYPES\n" + WINDOW_TYPES + "#endif\n",
}
# Linked by name only; on other systems than Linux.
NOT_ON_LINUX = ("cuWGLGetDevice",)

_CONSTANT = re.compile(r"#define (CU(?:DA)?_[A-Z][A-Za-z0-9_]*) (\S.*)")
_CONSTANT_VALUE = re.compile(r"[\w\s()*+|<\-]+")


class SpecError(Exception):
    """A header could not be found or parsed; the message names it and how to fix that."""


@dataclass(frozen=True)
class Parameter:
    name: str
    type_text: str  # as written, typedef names kept: "CUstream", "const CUlaunchConfig *"
    declaration: str  # "CUstream hStream"


@dataclass(frozen=True)
class EntryPoint:
    name: str
    result: str
    parameters: tuple[Parameter, ...]

    @property
    def declaration_list(self) -> str:
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def argument_list(self) -> str:
        return ", ".join(p.name for p in self.parameters)

    @property
    def prototype(self) -> str:
        return f"{self.result} {self.name}({self.declaration_list})"

    @property
    def per_thread(self) -> bool:
        """True for the twin whose default stream is the calling thread's own."""
        return self.name.endswith(("_ptsz", "_ptds"))


@dataclass(frozen=True)
class Surface:
    """The driver's surface: `types` is C text in dependency order, `constants` maps macro names to their text."""

    types: str
    constants: dict[str, str]
    entries: tuple[EntryPoint, ...]

    @property
    def version(self) -> int:
        """CUDA_VERSION, e.g. 13000 for 13.0."""
        return int(self.constants["CUDA_VERSION"])


def find_toolkit() -> Path | None:
    """The include directory of a toolkit that has all HEADERS: CUDA_HOME, next to nvcc, or a wheel's; else None."""
    candidates: list[Path] = []
    if home := os.environ.get("CUDA_HOME"):
        candidates.append(Path(home) / "include")
    if nvcc := shutil.which("nvcc"):
        candidates.append(Path(nvcc).resolve().parent.parent / "include")
    candidates.append(Path("/usr/local/cuda/include"))
    candidates += sorted(Path("/usr/local").glob("cuda-*/include"), reverse=True)
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    candidates += sorted(site.glob("cu*/include"), reverse=True)
    return next((path for path in candidates if all((path / header).is_file() for header in HEADERS)), None)


def _preprocess(include: Path, arguments: list[str], source: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FAKE_HEADERS.items():
            path = Path(folder) / "fake" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (Path(folder) / "all.c").write_text(source)
        compiler = os.environ.get("CC", "gcc").split()
        command = [*compiler, "-E", "-std=c11", "-nostdinc", "-D__CUDA_API_VERSION_INTERNAL", "-D__attribute__(x)="]
        command += [*arguments, "-I", f"{folder}/fake", "-I", str(include), f"{folder}/all.c"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SpecError(f"{include}: the preprocessor refuses the CUDA headers: {done.stderr.strip().splitlines()[0]}")
    return done.stdout


def _constants(include: Path, source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _preprocess(include, ["-dM"], source).splitlines():
        match = _CONSTANT.fullmatch(line.rstrip())
        if match and _CONSTANT_VALUE.fullmatch(match[2]) and match[1] != "CUDA_CB":
            found[match[1]] = match[2]
    return dict(sorted(found.items()))


def _parameter(node: c_ast.Node, index: int) -> Parameter | None:
    generator = c_generator.CGenerator()
    type_text = generator.visit(node.type if isinstance(node, c_ast.Decl) else node)
    if type_text == "void":
        return None
    name = getattr(node, "name", None)
    if not name:
        raise SpecError(f"parameter {index} has no name: {type_text}")
    bare = c_ast.Typename(None, node.quals, None, _without_name(node.type))
    return Parameter(name, generator.visit(bare), generator.visit(node))


def _without_name(node: c_ast.Node) -> c_ast.Node:
    if isinstance(node, c_ast.TypeDecl):
        return c_ast.TypeDecl(None, node.quals, None, node.type)
    if isinstance(node, c_ast.PtrDecl):
        return c_ast.PtrDecl(node.quals, _without_name(node.type))
    if isinstance(node, c_ast.ArrayDecl):
        return c_ast.PtrDecl([], _without_name(node.type))
    return node


def _entry(node: c_ast.Decl) -> EntryPoint:
    arguments = node.type.args.params if node.type.args else []
    parameters = tuple(p for i, a in enumerate(arguments) if (p := _parameter(a, i)))
    return EntryPoint(node.name, c_generator.CGenerator().visit(node.type.type), parameters)


def _surface(text: str, constants: dict[str, str], skip_typedefs: int) -> Surface:
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "/*")))
    nodes = c_parser.CParser().parse(text).ext[skip_typedefs:]
    generator = c_generator.CGenerator()
    types: list[str] = []
    entries: dict[str, EntryPoint] = {}
    known = set(re.findall(r"typedef .*?(\w+);", FAKE_LIBC))
    for node in nodes:
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            if re.match(r"cu[A-Z]", node.name) and node.name not in NOT_ON_LINUX:
                entries.setdefault(node.name, _entry(node))
        elif not (isinstance(node, c_ast.Typedef) and node.name in known):
            types.append(generator.visit(node) + ";")
    return Surface("\n".join(types), constants, tuple(sorted(entries.values(), key=lambda e: e.name)))


def read_toolkit(include: Path) -> Surface:
    """Parses the headers of a toolkit. Raises SpecError when one is missing or cannot be parsed."""
    missing = [h for h in HEADERS if not (include / h).is_file()]
    if missing:
        raise SpecError(f"{include} has no {', '.join(missing)}: install the CUDA toolkit's development headers")
    source = "".join(f"#include <{h}>\n" for h in HEADERS)
    return _surface(_preprocess(include, ["-P"], source), _constants(include, source), 0)


def read_committed(header: Path) -> Surface:
    """Parses shim/gen/abi/cuda_abi.h, which needs no preprocessor. Raises SpecError when it is missing."""
    if not header.is_file():
        raise SpecError(f"{header} is missing: run shim/codegen/generate.py --from-toolkit")
    text = header.read_text()
    constants = {m[1]: m[2] for m in map(_CONSTANT.fullmatch, text.splitlines()) if m}
    return _surface(FAKE_LIBC + text, constants, FAKE_LIBC.count("typedef"))
