"""No two C sources need each other's symbols, over however many others, nor do two folders or two headers.

Every target that build_shim.py links is looked at, what is generated included.
"""

from __future__ import annotations

import functools
import re
import subprocess
from pathlib import Path

import pytest

from shim import build_shim

from .test_includes import include_pairs
from .tree import components

_SYMBOL = re.compile(r"^\S* *([A-Za-z]) (\S+)$")


def _unit(name: str) -> str:
    return str(Path(name).with_suffix("")).removeprefix("shim/")


@functools.cache
def _symbols(object_file: str) -> tuple[set[str], set[str], set[str]]:
    """(defined, weakly defined, used) global symbols of one object file."""
    listed = subprocess.run(["nm", object_file], capture_output=True, text=True, check=True).stdout
    defined, weak, used = set(), set(), set()
    for line in listed.splitlines():
        if found := _SYMBOL.match(line.strip()):
            kind, name = found.groups()
            if kind in "Uvw":
                used.add(name)
            elif kind in "VW":
                weak.add(name)
            elif kind.isupper():
                defined.add(name)
    return defined, weak, used


def _owners(symbols: dict[str, tuple[set[str], set[str], set[str]]]) -> dict[str, str]:
    """Symbol -> the source whose definition is linked: a weak one (gen/) only where there is no other."""
    owners = {name: _unit(source) for source, (_, weak, _) in symbols.items() for name in weak}
    return owners | {name: _unit(source) for source, (defined, _, _) in symbols.items() for name in defined}


def graph(sources: list[str]) -> dict[str, dict[str, set[str]]]:
    """Source -> source that it needs -> the symbols by which it does."""
    objects = build_shim.compile_objects(sources, build_shim.CFLAGS)  # those of the product: nothing is compiled twice
    both = dict(zip(sources, map(_symbols, objects), strict=True))
    owner = _owners(both)
    needs: dict[str, dict[str, set[str]]] = {}
    for source, (_, _, used) in both.items():
        for name in used & set(owner):
            if owner[name] != _unit(source):
                needs.setdefault(_unit(source), {}).setdefault(owner[name], set()).add(name)
    return needs


def find_circles(sources: list[str]) -> tuple[list[set[str]], str]:
    """The circles, and every tie inside them."""
    needs = graph(sources)
    circles = components({one: set(others) for one, others in needs.items()})
    ties = [
        f"{one} -> {other}: {', '.join(sorted(needs[one][other])[:6])}"
        for circle in circles
        for one in sorted(circle)
        for other in sorted(circle & set(needs.get(one, ())))
    ]
    return circles, "\n".join(ties)


@pytest.mark.parametrize("target", ["daemon", *build_shim.targets()])
def test_no_two_files_need_each_other(target: str) -> None:
    sources = build_shim.daemon_sources() if target == "daemon" else build_shim.targets()[target][0]
    circles, ties = find_circles(sources)
    assert not circles, f"{[len(c) for c in circles]} files in circles:\n{ties}"


#: What is generated is a part of the folder whose hand-written half it completes; cuda_hook.c holds hooks, too.
PARTS = {".": "hooks", "gen/hooks": "hooks", "gen/simgpu": "simgpu/entries"}


def rooms_of(needs: dict[str, dict[str, set[str]]]) -> dict[str, set[str]]:
    """Folder -> the folders that its sources need: a header that lies apart from its source would hide that."""
    rooms: dict[str, set[str]] = {}
    for one, others in needs.items():
        for room, other in ((str(Path(one).parent), str(Path(name).parent)) for name in others):
            pair = PARTS.get(room, room), PARTS.get(other, other)
            if pair[0] != pair[1]:
                rooms.setdefault(pair[0], set()).add(pair[1])
    return rooms


@pytest.mark.parametrize("target", ["daemon", *build_shim.targets()])
def test_no_two_folders_need_each_other(target: str) -> None:
    sources = build_shim.daemon_sources() if target == "daemon" else build_shim.targets()[target][0]
    circles = components(rooms_of(graph(sources)))
    assert circles == [], f"folders in circles: {circles}"


def test_generated_stubs_hide_no_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weak functions of gen/ stand for hooks that are not written: a hook that is there is what others need."""
    texts = {
        "one": "void one(void); void other(void); void one(void) { other(); }",
        "other": "void one(void); void other(void); void other(void) { one(); }",
        "stubs": "__attribute__((weak)) void one(void); void one(void) {} __attribute__((weak)) void other(void) {}",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.c").write_text(text)
    (tmp_path / "shim").symlink_to(build_shim.SHIM)  # of which every file includes a header
    monkeypatch.setattr(build_shim, "ROOT", tmp_path)
    monkeypatch.setattr(build_shim, "OBJECTS", tmp_path / "objects")
    circles, _ = find_circles([f"{name}.c" for name in texts])
    assert circles == [{"one", "other"}]


def test_no_two_headers_include_each_other() -> None:
    needs: dict[str, set[str]] = {}
    for name, other in include_pairs():
        if name.endswith(".h"):
            needs.setdefault(name.removeprefix("shim/"), set()).add(other)
    assert components(needs) == []


def test_a_planted_circle_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_shim, "OBJECTS", tmp_path)
    (tmp_path / "one.c").write_text("void other(void);\nvoid one(void) { other(); }\n")
    (tmp_path / "other.c").write_text("void one(void);\nvoid other(void) { one(); }\n")
    circles, ties = find_circles([str(tmp_path / "one.c"), str(tmp_path / "other.c")])
    assert [len(c) for c in circles] == [2] and "one" in ties
