"""Entry points that are refused before PyTorch is imported, and those that only their import can judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpud.predict.entry_point import check_entry_point
from vgpud.predict.graph import GraphError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "source",
    [
        "def make(batch): ...",
        "async def make(batch): ...",
        "class make: ...",
        "from elsewhere import other as make",
        "import make.inner",
        "if True:\n    for make in range(3): pass",
        "from elsewhere import *",
        "def __getattr__(name): ...",
        "globals()['ma' + 'ke'] = print",
        "import sys\nsys.modules[__name__].__dict__['ma' + 'ke'] = print",
        "match 1:\n    case make: pass",
        "what !",
    ],
)
def test_what_may_be_there_is_left_to_the_import(folder: Path, source: str) -> None:
    (folder / "entry_of_test.py").write_text(source + "\n")
    check_entry_point("entry_of_test:make")
    check_entry_point("entry_of_test:make.inner")


@pytest.mark.parametrize("entry", ["os.path:join", "xml.dom.minidom:parse", "json:loads", "sys:exit"])
def test_modules_of_packages_and_built_in_ones_are_left_to_the_import(entry: str) -> None:
    check_entry_point(entry)


def test_what_cannot_be_there_is_refused_without_a_run(folder: Path) -> None:
    (folder / "entry_of_test.py").write_text("raise SystemExit\ndef make(batch): ...\n")
    with pytest.raises(GraphError, match="module 'entry_of_test' has no 'mak', did you mean 'entry_of_test:make'"):
        check_entry_point("entry_of_test:mak")
    with pytest.raises(GraphError, match=r"no module 'entry_of_tets', did you mean 'entry_of_test:make\.inner'"):
        check_entry_point("entry_of_tets:make.inner")
    with pytest.raises(GraphError, match=r"there is no module 'qqqqq'$"):
        check_entry_point("qqqqq:make")
