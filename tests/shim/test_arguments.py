"""Every argument arrives, at the first call (through the thunk that resolves) and at later ones; on aarch64 too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import build_shim
import cudaspec
import hookdef
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import Run
from tests.shim.tiny_driver import TinyDriver
from vgpud.libraries import elf, fit

CROSS = "aarch64-linux-gnu-gcc"


def caller(surface: cudaspec.Surface, rows: dict[str, hookdef.Row], extra: tuple[str, ...]) -> str:
    """A program that calls everything generated, twice, with other bytes in every argument, and prints the answers."""
    out = ['#include "gen/abi/cuda_abi.h"', "#include <stdio.h>", "#include <string.h>"]
    out += [f"CUresult {n}(long, double, int, long, long, long, long, long, char);" for n in extra]
    calls = []
    for entry in surface.entries:
        if rows[entry.name].behaviour in hookdef.HAND_WRITTEN:
            continue
        sets = " ".join(
            f"{p.type_text} a{i}; memset((void *)&a{i}, {i + 1}, sizeof a{i});" for i, p in enumerate(entry.parameters)
        )
        arguments = ", ".join(f"a{i}" for i in range(len(entry.parameters)))
        out.append(
            f'static void call_{entry.name}(void) {{ {sets} printf("{entry.name} %d\\n", {entry.name}({arguments})); }}'
        )
        calls.append(f"call_{entry.name}();")
    calls += [f'printf("{n} %d\\n", {n}(1, 2.5, 3, 4, 5, 6, 7, 8, 9));' for n in extra]
    out.append("int main(void) { for (int i = 0; i < 2; i++) { " + " ".join(calls) + " } return 0; }")
    return "\n".join(out)


def test_every_argument_arrives(
    surface: cudaspec.Surface,
    rows: dict[str, hookdef.Row],
    same_driver: TinyDriver,
    shim: Path,
    run: Run,
    tmp_path: Path,
) -> None:
    (tmp_path / "caller.c").write_text(caller(surface, rows, ()))
    program = tiny_driver.compile_c(tmp_path / "caller", "-w", tmp_path / "caller.c", same_driver.path)
    unhooked, hooked = run([program], same_driver), run([program], same_driver, shim)
    assert unhooked.returncode == 0
    assert len(set(unhooked.stdout.splitlines())) > 500
    assert (hooked.returncode, hooked.stdout) == (0, unhooked.stdout)


def test_every_argument_arrives_through_spare_entries(
    surface: cudaspec.Surface, other_driver: TinyDriver, other_shim: Path, run: Run, tmp_path: Path
) -> None:
    present = [e for e in surface.entries if e.name in ("cuInit", "cuMemAlloc_v2")]
    nothing = {e.name: hookdef.Row(e.name, "custom", "asks", "not called here", 0) for e in present}
    (tmp_path / "caller.c").write_text(caller(cudaspec.Surface("", {}, tuple(present)), nothing, other_driver.extra))
    program = tiny_driver.compile_c(tmp_path / "caller", "-w", tmp_path / "caller.c", other_driver.path)
    unhooked, hooked = run([program], other_driver), run([program], other_driver, other_shim)
    assert unhooked.stdout.count("\n") == 2 * len(other_driver.extra)
    assert (hooked.returncode, hooked.stdout) == (0, unhooked.stdout)


@pytest.fixture(scope="module")
def arm_shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which(CROSS) is None:
        pytest.skip(f"no {CROSS} here: install gcc-aarch64-linux-gnu")
    folder = tmp_path_factory.mktemp("arm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", CROSS)
        build_shim.build_target("libvgpu.so", folder)
    return folder / "libvgpu.so"


def test_aarch64_exports_the_same(arm_shim: Path, shim: Path) -> None:
    library = elf.Elf(arm_shim)
    assert library.machine == elf.MACHINES["aarch64"]
    assert set(library.exports()) == set(elf.Elf(shim).exports())


@pytest.mark.slow
def test_aarch64_every_argument_arrives(
    arm_shim: Path, surface: cudaspec.Surface, rows: dict[str, hookdef.Row], tmp_path: Path
) -> None:
    """Under an emulator: trampolines, the resolving thunk, spare entries and the dlopen stub."""
    root = Path("/usr/aarch64-linux-gnu")
    if shutil.which("qemu-aarch64") is None or not (root / "lib/libc.so.6").exists():
        pytest.skip("no qemu-aarch64 with an aarch64 libc here: install qemu-user and libc6-dev-arm64-cross")
    driver = tiny_driver.build(surface, tmp_path / "driver", extra=("cuFuture",), compiler=CROSS)
    fitted = fit.fit(arm_shim, driver.path, tmp_path / "fitted/libvgpu.so").path
    (tmp_path / "caller.c").write_text(caller(surface, rows, driver.extra))
    program = tiny_driver.compile_c(tmp_path / "caller", "-w", tmp_path / "caller.c", driver.path, compiler=CROSS)
    opener = tiny_driver.compile_c(tmp_path / "opener", tiny_driver.SNIPPETS / "open_all.c", compiler=CROSS)

    def run_emulated(hook: str, *command: Path | str) -> str:
        qemu = ["qemu-aarch64", "-L", str(root), "-E", f"LD_LIBRARY_PATH={driver.path.parent}:{root}/lib", "-E", hook]
        return subprocess.run([*qemu, *map(str, command)], capture_output=True, text=True, check=True).stdout

    unhooked, hooked = run_emulated("NONE=", program), run_emulated(f"LD_PRELOAD={fitted}", program)
    assert unhooked.count("\n") > 1000
    assert hooked == unhooked
    assert run_emulated(f"LD_PRELOAD={fitted}", opener, "libcuda.so", "libcuda.so.1", "libm.so.6").splitlines() == [
        f"{fitted} 1",
        f"{fitted} 1",
        f"{root}/lib/libm.so.6 0",
    ]
