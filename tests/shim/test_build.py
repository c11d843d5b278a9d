"""Objects that shim/build_shim.py keeps by contents: used again while all that they are made of is as it was, and
recreated when it is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from shim import build_shim

SOURCES = ["part.c"]
LONG_AGO = 1_000_000_000


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source with a header, in a directory whose name make would have to quote."""
    root = tmp_path / "one $ #tree"
    root.mkdir()
    (root / "part.h").write_text("#define VALUE 1\n")
    (root / "part.c").write_text('#include "part.h"\nint value = VALUE;\n')
    for name in ("part.h", "part.c"):
        os.utime(root / name, (LONG_AGO, LONG_AGO))
    monkeypatch.setattr(build_shim, "ROOT", root)
    monkeypatch.setattr(build_shim, "OBJECTS", root / "build" / "objects")
    return root


def flags(root: Path) -> list[str]:
    return ["-iquote", ".", "-include", str(root / "part.h")]


def test_kept_until_a_header_changes(tree: Path) -> None:
    (made,) = build_shim.compile_objects(SOURCES, flags(tree))
    first = Path(made).stat().st_ino
    assert build_shim.compile_objects(SOURCES, flags(tree)) == [made]
    assert Path(made).stat().st_ino == first
    before = Path(made).read_bytes()
    (tree / "part.h").write_text("#define VALUE 2\n")
    assert build_shim.compile_objects(SOURCES, flags(tree)) == [made]
    assert Path(made).read_bytes() != before


def test_header_saved_during_the_compilation(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is of the contents before: it must not be taken for one of those that were saved."""
    real = shutil.which(os.environ.get("CC", "gcc"))
    saves = tree / "cc"
    saves.write_text(f'#!/bin/sh\n{real} "$@" && [ "$1" = --version ] || echo "#define VALUE 2" >part.h\n')
    saves.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setattr(build_shim, "compiler", lambda: [str(saves)])
        (made,) = build_shim.compile_objects(SOURCES, flags(tree))
        saves.write_text(f'#!/bin/sh\nexec {real} "$@"\n')
        before = Path(made).read_bytes()
        assert build_shim.compile_objects(SOURCES, flags(tree)) == [made]
    assert Path(made).read_bytes() != before


def test_refused_source(tree: Path) -> None:
    """An object from before is not used in the place of one that cannot be made."""
    build_shim.compile_objects(SOURCES, flags(tree))
    (tree / "part.c").write_text("no C at all\n")
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            build_shim.compile_objects(SOURCES, flags(tree))
