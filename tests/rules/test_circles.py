"""No two C sources need each other's symbols, over however many others, and no two headers include each other.

Every target that build_shim.py links is looked at, what is generated included.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest

from .test_includes import included
from .tree import ROOT, components

_SYMBOL = re.compile(r"^\S* *([A-Za-z]) (\S+)$")


def _build_shim() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_shim", ROOT / "shim" / "build_shim.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _unit(name: str) -> str:
    return str(Path(name).with_suffix("")).removeprefix("shim/")


def _symbols(source: str, folder: Path) -> tuple[set[str], set[str]]:
    """(defined, used) global symbols of one source."""
    out = folder / (source.replace("/", "-") + ".o")
    flags = ["-O0", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-w", "-iquote", "shim"]
    # cuda_hook.c refuses to compile without optimisation: its calls are to be tail calls
    flags = ["-O2" if f == "-O0" and source == "cuda_hook.c" else f for f in flags]
    subprocess.run(["gcc", *flags, "-c", source, "-o", str(out)], cwd=ROOT, check=True)
    listed = subprocess.run(["nm", str(out)], capture_output=True, text=True, check=True).stdout
    defined, used = set(), set()
    for line in listed.splitlines():
        if found := _SYMBOL.match(line.strip()):
            kind, name = found.groups()
            if kind in "Uvw":
                used.add(name)
            elif kind.isupper():
                defined.add(name)
    return defined, used


def graph(sources: list[str], folder: Path) -> dict[str, dict[str, set[str]]]:
    """Source -> source that it needs -> the symbols by which it does."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        both = dict(zip(sources, pool.map(lambda source: _symbols(source, folder), sources), strict=True))
    owner = {name: _unit(source) for source, (defined, _) in both.items() for name in defined}
    needs: dict[str, dict[str, set[str]]] = {}
    for source, (_, used) in both.items():
        for name in used & set(owner):
            if owner[name] != _unit(source):
                needs.setdefault(_unit(source), {}).setdefault(owner[name], set()).add(name)
    return needs


def told(sources: list[str], folder: Path) -> tuple[list[set[str]], str]:
    """The circles, and every tie inside them."""
    needs = graph(sources, folder)
    circles = components({one: set(others) for one, others in needs.items()})
    ties = [
        f"{one} -> {other}: {', '.join(sorted(needs[one][other])[:6])}"
        for circle in circles
        for one in sorted(circle)
        for other in sorted(circle & set(needs.get(one, ())))
    ]
    return circles, "\n".join(ties)


@pytest.mark.parametrize("target", ["arbiter", *_build_shim().targets()])
def test_no_two_files_need_each_other(target: str, tmp_path: Path) -> None:
    build = _build_shim()
    sources = build.arbiter_sources() if target == "arbiter" else build.targets()[target][0]
    circles, ties = told(sources, tmp_path)
    assert not circles, f"{[len(c) for c in circles]} files in circles:\n{ties}"


def test_no_two_headers_include_each_other() -> None:
    needs: dict[str, set[str]] = {}
    for name, other in included():
        if name.endswith(".h"):
            needs.setdefault(name.removeprefix("shim/"), set()).add(other)
    assert components(needs) == []


def test_a_planted_circle_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text("void other(void);\nvoid one(void) { other(); }\n")
    (tmp_path / "other.c").write_text("void one(void);\nvoid other(void) { one(); }\n")
    circles, ties = told([str(tmp_path / "one.c"), str(tmp_path / "other.c")], tmp_path)
    assert [len(c) for c in circles] == [2] and "one" in ties
