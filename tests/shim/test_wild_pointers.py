"""A hook answers what the driver answers to pointers that point to nothing, and crashes only where the driver does."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import cudaspec
import hookdef
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import ROOT, Run
from tests.shim.fake_daemon import FakeDaemon, FakeDevice
from vgpud._shim import ffi, lib

SIM = ROOT / "vgpud/lib/sim"
PATTERNS = ("nothing", "wild", "zeros", "wilds", "special")
CRASH = -1
#: what no pattern makes: counts without what is counted
SPECIAL = {
    "cuLaunchKernelEx": "CUlaunchConfig c = {1, 1, 1, 1, 1, 1, .numAttrs = 1}; return cuLaunchKernelEx(&c, 0, 0, 0);",
    "cuMemMapArrayAsync": "return cuMemMapArrayAsync((void *)zeros, 1u << 30, (CUstream)wild);",
}


def cases(surface: cudaspec.Surface, rows: dict[str, hookdef.Row]) -> list[tuple[str, int, int, int]]:
    """(entry point, pattern, whether handles are invalid, number of the one invalid pointer or -1), of all hooks."""
    found = []
    for entry in surface.entries:
        if rows[entry.name].behaviour == "pass" or not entry.parameters or entry.name == "cuInit":
            continue
        pointers = [i for i, p in enumerate(entry.parameters) if "*" in p.type_text]
        found += [(entry.name, pattern, handles, -1) for pattern in range(4) for handles in (0, 1)]
        found += [(entry.name, 2, handles, number) for number in pointers for handles in (0, 1)]
    return found + [(name, PATTERNS.index("special"), 0, -1) for name in SPECIAL]


@pytest.fixture(scope="module")
def program(surface: cudaspec.Surface, rows: dict[str, hookdef.Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = ['#include "wild.h"']
    names = {name for name, *_ in cases(surface, rows)}
    for entry in surface.entries:
        if entry.name not in names:
            continue
        sets = " ".join(f"ARGUMENT({p.type_text}, {i}, a{i});" for i, p in enumerate(entry.parameters))
        arguments = ", ".join(f"a{i}" for i in range(len(entry.parameters)))
        head = f"static int call_{entry.name}(int pattern, int handles_wild, int one)"
        lines.append(f"{head} {{ {sets} return {entry.name}({arguments}); }}")
    lines += [f"static int special_{name}() {{ {code} }}" for name, code in SPECIAL.items()]
    lines.append("static const struct { int (*call)(int, int, int); int pattern, handles, one; } cases[] = {")
    for name, pattern, handles, one in cases(surface, rows):
        kind = "call" if PATTERNS[pattern] != "special" else "special"
        lines.append(f"{{{kind}_{name}, {pattern}, {handles}, {one}}},")
    lines.append("""};
int main(int argc, char **argv) {
  int in_context = strcmp(argv[1], "in a context") == 0;
  start(strcmp(argv[1], "before cuInit") != 0);
  for (size_t i = strtoul(argv[2], NULL, 10); i < sizeof cases / sizeof cases[0]; i++) {
    prepare(in_context);
    printf("%zu %d\\n", i, cases[i].call(cases[i].pattern, cases[i].handles, cases[i].one));
    fflush(stdout);
  }
  return 0;
}""")
    folder = tmp_path_factory.mktemp("wild")
    (folder / "main.c").write_text("\n".join(lines))
    flags = ["-w", f"-iquote{tiny_driver.SNIPPETS}"]
    return tiny_driver.compile_c(folder / "wild", *flags, folder / "main.c", SIM / "libcuda.so.1")


@pytest.fixture(scope="module")
def sim_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vg") as parent:  # short: a socket lies in it
        folder = Path(parent) / "sim"
        server = subprocess.Popen([SIM / "vgpu-simd", "--dir", folder, "--foreground"], stdout=subprocess.DEVNULL)
        while not (folder / "sock").exists():
            assert server.poll() is None, "the simulated device does not start"
            time.sleep(0.01)
        yield folder
        server.terminate()
        server.wait(20)


def answers(run: Run, program: Path, when: str, count: int, hook: Path | None, settings: dict[str, str]) -> list[int]:
    """The result of each case; CRASH where the program ended there: the next one continues behind it."""
    found: list[int] = []
    paths = {"LD_LIBRARY_PATH": str(SIM)} | settings
    while len(found) < count:
        done = run([program, when, str(len(found))], None, hook, paths)
        found += [int(line.split()[1]) for line in done.stdout.splitlines()]
        assert done.returncode <= 0, done
        if done.returncode:
            found.append(CRASH)
    return found


@pytest.mark.parametrize("when", ["before cuInit", "without a context", "in a context"])
def test_the_answer_is_the_drivers(
    when: str,
    surface: cudaspec.Surface,
    rows: dict[str, hookdef.Row],
    program: Path,
    sim_dir: Path,
    shim: Path,
    run: Run,
    tmp_path: Path,
) -> None:
    asked = cases(surface, rows)
    settings = {"VGPU_SIM_DIR": str(sim_dir)}
    unhooked = answers(run, program, when, len(asked), None, settings)
    with FakeDaemon(tmp_path / "s", [FakeDevice(b"SIMULATED-GPU\0\0\0", total_bytes=1 << 40)]) as fake:
        limits = ffi.new("struct vg_slice_params *")
        limits.min_milli, limits.max_milli = 500, 990  # capped: launches are counted
        limits.mem_min_bytes = limits.mem_max_bytes = 1 << 40
        assert lib.vg_arbiter_slice_set(fake._arbiters[0], 1, limits) == 0
        settings |= {"VGPU_DRIVER": str(SIM / "libcuda.so.1"), "VGPU_SOCKET": str(tmp_path / "s")}
        hooked = answers(run, program, when, len(asked), shim, settings)
        assert bool(fake.processes) == (when != "before cuInit")
    assert sum(answer != CRASH for answer in unhooked) > len(asked) / 2
    differ = [
        f"{name} {PATTERNS[pattern]}{' handles' * handles}{f' wild {one}' if one >= 0 else ''}: {bare}, hooked {ours}"
        for (name, pattern, handles, one), bare, ours in zip(asked, unhooked, hooked, strict=True)
        if ours != bare != CRASH
    ]
    assert differ == []
