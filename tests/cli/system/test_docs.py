"""`vgpu docs`: every page that a message names can be read where it is said."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rules.tree import ROOT, source_files
from vgpud.project import documents

FILES = source_files(".py", ".html", ".service", under="vgpud/") + source_files(".md", under="docs/")
FILES += source_files(".c", under=("shim/", "integrations/"))


def test_the_list_has_every_document_with_its_title(vgpu: Any) -> None:
    shown = vgpu("docs", "-o", "json").json["pages"]
    assert {page["name"] for page in shown} >= {"cli", "limits", "security", "security/console", "design/sharing"}
    assert len(shown) == len(list((ROOT / "docs").rglob("*.md")))
    assert {"name": "cli", "title": "The command line"} in shown
    table = vgpu("docs").stdout
    assert re.search(r"^limits +Limits", table, re.MULTILINE)
    names = vgpu("docs", "-o", "name").stdout.split()
    assert names.index("watching") < names.index("design/attach"), "what users need is first"


@pytest.mark.parametrize("name", ["limits", "docs/limits.md", "limits.md", "../limits.md#sharing", "docs/limits"])
def test_a_page_is_printed_as_it_is_into_a_pipe(vgpu: Any, name: str) -> None:
    assert vgpu("docs", name).stdout == (ROOT / "docs/limits.md").read_text()


def test_a_folder_has_a_page(vgpu: Any) -> None:
    text = (ROOT / "docs/security/README.md").read_text()
    assert vgpu("docs", "security").stdout == vgpu("docs", "docs/security/README.md").stdout == text
    assert vgpu("docs", "security/", "-o", "json").json["text"] == text


def test_a_terminal_gets_a_page_within_its_width(on_a_terminal: Callable[..., list[str]]) -> None:
    lines = on_a_terminal(60, "docs", "watching")
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 60 and "](" not in text and "```" not in text
    assert "What is going on" in text


def test_colours_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch, on_a_terminal: Any) -> None:
    pages: list[str] = []
    monkeypatch.setattr("click.echo_via_pager", pages.append)
    on_a_terminal(80, "docs", "limits")
    on_a_terminal(80, "docs", "limits", "--no-color")
    coloured, plain = (set(re.findall("\x1b\\[(?:[0-9]+;)*([34][0-7])m", page)) for page in pages)
    assert "36" in coloured and not plain
    assert not {code for code in coloured if code.startswith("4")}, "a background of our choice may hide the text"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("limit", "did you mean `vgpu docs limits`?"),
        ("sharing", "did you mean `vgpu docs design/sharing`?"),
        ("console.md", ""),
        ("xyzzy", "`vgpu docs` lists them"),
    ],
)
def test_an_unknown_page_is_answered_with_a_known_one(vgpu: Any, name: str, hint: str) -> None:
    result = vgpu("docs", name)
    assert result.code == (2 if hint else 0) and hint in result.stderr
    assert bool(hint) == (f"no document {name!r}" in result.stderr)


def test_a_package_without_documents_says_so(vgpu: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(documents, "_FOLDERS", (tmp_path,))
    result = vgpu("docs", "limits")
    assert result.code == 1 and "this installation has no documents" in result.stderr


def test_every_page_that_a_text_names_is_there() -> None:
    known = documents.list_pages()
    named = re.compile(r"\bdocs/([\w/-]+\.md)|`vgpu docs ([\w/-]+)`")
    missing = []
    count = 0
    for file in FILES:
        for found in named.finditer((ROOT / file).read_text()):
            count += 1
            name = found[1] or found[2]
            if documents.find_page(name, known) is None:
                missing.append(f"{file} names {name}")
    assert count > 20 and not missing, "\n".join(missing)


def test_the_build_copies_the_pages_and_forgets_removed_ones(tmp_path: Path) -> None:
    (tmp_path / "vgpud/docs").mkdir(parents=True)
    (tmp_path / "vgpud/docs/removed.md").write_text("of an earlier build")
    command = [sys.executable, "setup.py", "-q", "build_documents", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    folder = tmp_path / "vgpud/docs"
    made = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert made == {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert (folder / "limits.md").read_text() == (ROOT / "docs/limits.md").read_text()
