"""What libvgpu.so is as a file, and that preloading it into programs without CUDA changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import build_shim
import cudaspec
import pytest

from tests.shim.conftest import ROOT, Run
from vgpud.libraries import elf, fit

PROGRAMS = {
    "true": ["/bin/true"],
    "false": ["/bin/false"],
    "bash": ["bash", "-c", "echo $((6 * 7)); ls / | wc -l; exit 5"],
    "python": [sys.executable, "-c", "import ctypes, json, sys; print(json.dumps([1])); sys.exit(7)"],
    "no-program": ["/bin/sh", "-c", "exec /nowhere/at/all"],
}


def test_exports_are_held_exactly(shim: Path, surface: cudaspec.Surface) -> None:
    exports = set(elf.Elf(shim).exports())
    spares = {name for name in exports if name.startswith(fit.SPARE_PREFIX)}
    ours = {"dlopen", "dlmopen", "vg_shim_marker", "vg_shim_memory"}
    ours |= {f"vg_shim_reclaim_{name}" for name in ("watch", "unwatch", "read")}
    assert exports - spares == {e.name for e in surface.entries} | ours
    assert len(spares) == 256
    assert min(map(len, spares)) == 80


def test_needs_nothing_but_libc(shim: Path) -> None:
    allowed = re.compile(r"lib(c|dl|pthread)\.so\.\d+|ld-linux[-\w]*\.so\.\d+")
    assert [n for n in elf.Elf(shim).find_needed_libraries() if not allowed.fullmatch(n)] == []


def test_thread_local_storage_is_reached_without_a_call(shim: Path) -> None:
    """Launches and allocations read it, and the loader's function that gives its address may allocate memory."""
    imports = subprocess.run(["nm", "-D", "-u", shim], capture_output=True, text=True, check=True).stdout
    relocations = subprocess.run(["readelf", "-rW", shim], capture_output=True, text=True, check=True).stdout
    assert "__tls_get_addr" not in imports
    assert re.findall(r"R_\w+_(?:TLSDESC|DTPMOD|TLS_DTPMOD)\w*", relocations) == []


def test_no_constructors(shim: Path) -> None:
    """The compiler's own frame_dummy is the only entry of .init_array, its counterpart of .fini_array."""
    sections = subprocess.run(["readelf", "-SW", shim], capture_output=True, text=True, check=True).stdout
    for name in (".init_array", ".fini_array"):
        match = re.search(rf"\{name}\s+\w+\s+\w+\s+\w+\s+(\w+)", sections)
        assert match is None or int(match[1], 16) == 8, f"{name}: {match and match[1]} bytes"
    assert not re.search(r"\.(ctors|dtors|preinit_array)\s", sections)


def test_linked_as_fitting_and_safety_need(shim: Path) -> None:
    """Both hash tables for fit.py, anonymous version so that dlopen is interposed, no writable code, stays loaded."""
    dynamic = subprocess.run(["readelf", "-dW", shim], capture_output=True, text=True, check=True).stdout
    headers = subprocess.run(["readelf", "-lW", shim], capture_output=True, text=True, check=True).stdout
    assert "(HASH)" in dynamic and "(GNU_HASH)" in dynamic and "(VERDEF)" not in dynamic
    assert "libcuda.so.1" in dynamic and "BIND_NOW" in dynamic and "NODELETE" in dynamic and "SYMBOLIC" in dynamic
    assert "GNU_RELRO" in headers and "TEXTREL" not in dynamic
    assert not re.search(r"GNU_STACK.*RWE", headers)


LAUNCHES = [f"cuLaunch{kind}Kernel{variant}" for kind in ("", "Cooperative") for variant in ("", "_ptsz")]


def _instructions(library: Path, name: str) -> list[list[str]]:
    command = ["objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", library]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split(":", 1)[1].split() for line in text.splitlines() if re.match(r"\s+[0-9a-f]+:\t", line)]
    assert lines, f"{name} is not in {library}"
    return lines


def _ends_in_jumps(library: Path, name: str) -> bool:
    """A function that may save registers, and ends in jumps out of it alone."""
    return not {line[0] for line in _instructions(library, name)} & {"call", "callq", "ret", "retq", "bl", "blr"}


def _only_jumps(library: Path, name: str) -> bool:
    """A function that leaves the stack as it is and ends in jumps out of it alone."""
    lines = _instructions(library, name)
    words = {line[0] for line in lines}
    operands = " ".join(word for line in lines for word in line[1:])
    stack = re.search(r"[re]?[sb]p\b|\b(x29|x30)\b", operands)
    return not stack and not words & {"call", "callq", "push", "pop", "ret", "retq", "leave", "bl", "blr"}


def test_launches_are_passed_on_by_jumps(shim: Path, tmp_path: Path) -> None:
    """The hook knows the arguments in registers only; a compiler that calls instead of jumping would lose the rest."""
    assert [name for name in LAUNCHES if not _only_jumps(shim, name)] == []
    assert [name for name in LAUNCHES if not _ends_in_jumps(shim, f"vg_gated_{name}")] == []
    spoiled = tmp_path / "calls.o"
    flags = [*build_shim.CFLAGS, "-fno-optimize-sibling-calls"]
    subprocess.run(["gcc", *flags, "-c", "-o", spoiled, "cuda_hook.c"], cwd=ROOT, check=True)
    assert [name for name in LAUNCHES if _only_jumps(spoiled, name)] == []


@pytest.mark.parametrize("environment", [{}, {"LD_BIND_NOW": "1"}], ids=["lazy", "bind-now"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_preloading_changes_nothing(program: str, environment: dict[str, str], shim: Path, run: Run) -> None:
    command: list[str | Path] = list(PROGRAMS[program])
    before, after = run(command, environment=environment), run(command, hook=shim, environment=environment)
    assert (after.returncode, after.stdout, after.stderr) == (before.returncode, before.stdout, before.stderr)


def test_only_resolve_touches_the_dynamic_loader() -> None:
    called = re.compile(r"(?<![\w\"])(dlsym|dlvsym|dlopen|dlmopen|dlinfo|dladdr1?|dlclose|dlerror)\(")
    found = {}
    folders = ("base", "session", "ledger", "context", "gate", "attach", "driver", "hooks", "nvml", "gen/hooks")
    paths = [path for folder in folders for path in ROOT.glob(f"shim/{folder}/*.c")]
    assert len(paths) > 50, "they are not found any more"
    for path in [*paths, ROOT / "cuda_hook.c"]:
        text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(\\.|[^\"\\])*\"", "", path.read_text(), flags=re.DOTALL)
        if path.parent.name != "driver" and path.name != "resolve_ml.c" and called.search(text):
            found[str(path.relative_to(ROOT))] = called.findall(text)
    assert found == {}


def test_the_build_needs_nothing_of_cuda() -> None:
    sources = [p for p in [*ROOT.glob("shim/**/*.[chS]"), ROOT / "cuda_hook.c"] if p.is_file()]
    named = re.compile(r"#\s*include\s*[<\"](cuda|cudaGL|cudaEGL|nvml)\.h[>\"]")
    assert [p.name for p in sources if named.search(p.read_text())] == []
