"""Diagrams in the documents are those of the tables in the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "tools" / "diagrams.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_committed_diagrams_are_current_and_all_there(diagrams: ModuleType) -> None:
    text = (ROOT / "docs" / "design" / "states.md").read_text()
    assert diagrams.current(text) == text
    assert {name for name in diagrams.DIAGRAMS if f"<!-- diagram: {name} -->" in text} == set(diagrams.DIAGRAMS)


def test_a_diagram_of_before_is_replaced_and_an_unknown_one_an_error(diagrams: ModuleType) -> None:
    stale = "a\n<!-- diagram: job states -->\nstale text\n<!-- end -->\nb"
    made = diagrams.current(stale)
    assert "stale" not in made and "pending --> running: start" in made and made.endswith("<!-- end -->\nb")
    with pytest.raises(KeyError):
        diagrams.current("<!-- diagram: nothing -->\n<!-- end -->")


def test_a_state_that_nothing_leaves_is_final(diagrams: ModuleType) -> None:
    lines = diagrams.mermaid([("a", "go", "b"), ("a", "run", "b")], ("a",)).split("\n")
    assert lines[1:] == ["    [*] --> a", "    a --> b: go, run", "    b --> [*]"]
