"""Every entry point has one row on purpose; what a build generates is current; hand-written families are complete."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import cudaspec
import emit
import generate
import hookdef
import pytest
from cudaspec import EntryPoint, SpecError

from tests.shim.conftest import ROOT
from vgpud.libraries import elf

ENTRIES = tuple(EntryPoint(name, "CUresult", ()) for name in ("cuA", "cuA_v2", "cuA_v2_ptsz", "cuAb", "cuB"))


def rows_of(tmp_path: Path, text: str) -> list[hookdef.Row]:
    (tmp_path / "hooks.def").write_text(text)
    return hookdef.read_rows(tmp_path / "hooks.def")


def test_every_entry_point_has_one_row(surface: cudaspec.Surface, rows: dict[str, hookdef.Row]) -> None:
    assert set(rows) == {e.name for e in surface.entries}
    assert surface.version == 13000
    assert len(surface.entries) == 672  # 634 of cuda.h, the others of cudaGL.h, cudaEGL.h, cudaVDPAU.h, cudaProfiler.h


def test_twins_behave_alike(rows: dict[str, hookdef.Row]) -> None:
    """A per-thread twin never has another row than its legacy function."""
    for name, row in rows.items():
        if name.endswith(("_ptsz", "_ptds")) and name[:-5] in rows:
            assert (rows[name[:-5]].behaviour, rows[name[:-5]].away_behaviour) == (row.behaviour, row.away_behaviour), (
                name
            )


def test_a_row_serves_versions_and_twins(tmp_path: Path) -> None:
    found = hookdef.assign(ENTRIES, rows_of(tmp_path, "cuA gate gate x\ncuA{b} pass asks x\ncuB sync waits x\n"))
    assert [found[e.name].behaviour for e in ENTRIES] == ["gate", "gate", "gate", "pass", "sync"]


def test_a_row_with_a_version_takes_it_out(tmp_path: Path) -> None:
    found = hookdef.assign(
        ENTRIES, rows_of(tmp_path, "# comment\n\ncuA gate gate x\ncuA_v2 custom waits x\ncu{Ab,B} pass asks x\n")
    )
    assert [found[e.name].behaviour for e in ENTRIES] == ["gate", "custom", "custom", "pass", "pass"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cuA pass asks x\ncuB pass asks x\n", "cuAb has no row"),
        ("cuA* pass asks x\ncuB pass asks x\ncuAb gate gate x\n", "cuAb has 2 rows: lines 1, 3"),
        ("cu* pass asks x\ncuNothing* gate gate x\n", "line 2: cuNothing* meets no entry point"),
        ("cu{A,Ab,B,C} pass asks x\n", "line 1: cuC meets no entry point"),
        ("cu* maybe asks x\n", "hooks.def:1: expected"),
        ("cu* pass maybe x\n", "hooks.def:1: expected"),
        ("cu* pass asks\n", "hooks.def:1: expected"),
        ("cu* gate waits x\n", "hooks.def:1: what passes the gate waits there"),
    ],
)
def test_mistakes_are_named(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=says.replace("*", r"\*").replace("|", r"\|")):
        hookdef.assign(ENTRIES, rows_of(tmp_path, text))


@pytest.fixture
def gen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """What a clone has of shim/gen/."""
    for name in generate.COMMITTED:
        (tmp_path / name).parent.mkdir()
        shutil.copy(generate.GEN / name, tmp_path / name)
    monkeypatch.setattr(generate, "GEN", tmp_path)
    return tmp_path


def test_a_clone_lacks_nothing(gen: Path) -> None:
    generate.update()
    assert (gen / "hooks" / "hook_sync.c").stat().st_size > 1000
    tracked = subprocess.run(["git", "ls-files", "shim/gen"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode == 0:
        assert tracked.stdout.split() == [f"shim/gen/{name}" for name in generate.COMMITTED]


def test_update_generates_what_differs_and_nothing_else(gen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate.update()
    made = (gen / "hooks" / "hook_sync.c").read_text()
    (gen / "hooks" / "hook_sync.c").write_text("edited by hand\n")
    (gen / "hooks" / "left_over.c").write_text("nobody writes this any more\n")
    generate.update()
    assert (gen / "hooks" / "hook_sync.c").read_text() == made and not (gen / "hooks" / "left_over.c").exists()
    monkeypatch.setattr(generate, "generate_files", None)
    generate.update()  # nothing has changed: nothing is generated
    (gen / generate.STAMP).write_text("")
    with pytest.raises(TypeError):
        generate.update()


def test_a_header_that_a_toolkit_contradicts_is_seen(gen: Path, surface: cudaspec.Surface) -> None:
    include = cudaspec.find_toolkit()
    if include is None or cudaspec.read_toolkit(include).version != surface.version:
        pytest.skip("no CUDA toolkit of the committed header's version here")
    assert generate.main(["--check"]) == 0
    header = gen / generate.HEADER
    header.write_text(header.read_text().replace("CUresult cuInit(unsigned int Flags);\n", ""))
    assert generate.main(["--check"]) == 1


def test_the_committed_header_says_what_the_toolkit_says(surface: cudaspec.Surface) -> None:
    include = cudaspec.find_toolkit()
    if include is None:
        pytest.skip("no CUDA toolkit with development headers here")
    toolkit = cudaspec.read_toolkit(include)
    if toolkit.version != surface.version:
        pytest.skip(f"the toolkit here is {toolkit.version}, the committed header {surface.version}")
    assert emit.cuda_abi(toolkit) == (ROOT / "shim/gen/abi/cuda_abi.h").read_text()


def sizes(folder: Path, include: list[str], types: list[str], head: str) -> str:
    """What the C compiler says of the size of each type."""
    folder.mkdir()
    prints = "".join(f'printf("{t} %zu\\n", sizeof({t}));\n' for t in types)
    (folder / "sizes.c").write_text(f"{head}\n#include <stdio.h>\nint main(void) {{\n{prints}}}\n")
    subprocess.run(["gcc", "-std=gnu11", "-w", *include, "-o", folder / "sizes", folder / "sizes.c"], check=True)
    return subprocess.run([folder / "sizes"], capture_output=True, text=True, check=True).stdout


def test_the_committed_header_has_the_layouts_of_the_toolkit(surface: cudaspec.Surface, tmp_path: Path) -> None:
    """A program and the hook must agree on the size of everything that is handed over."""
    include = cudaspec.find_toolkit()
    if include is None or cudaspec.read_toolkit(include).version != surface.version:
        pytest.skip("no CUDA toolkit of the committed header's version here")
    types = sorted({match[1] for match in re.finditer(r"^} (CU\w+);", surface.types, re.MULTILINE)})
    types = [t for t in types if not t.startswith(("CUegl", "CUGL"))]
    ours = sizes(tmp_path / "ours", [f"-iquote{ROOT / 'shim'}"], types, '#include "gen/abi/cuda_abi.h"')
    head = "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <cudaProfiler.h>"
    assert ours == sizes(tmp_path / "theirs", [f"-I{include}"], types, head)
    assert len(types) > 100


def test_hand_written_families_are_complete(shim: Path, rows: dict[str, hookdef.Row]) -> None:
    """A memory or custom row without a body of its own falls back to a weak trampoline: none may be left."""
    exports = elf.Elf(shim).exports()
    hand_written = {name for name, row in rows.items() if row.behaviour in hookdef.HAND_WRITTEN}
    assert sorted(name for name in hand_written if exports[name].binding == elf.STB_WEAK) == []
    assert {name for name in rows if exports[name].binding == elf.STB_WEAK} <= hand_written
