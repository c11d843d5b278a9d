"""Documents, messages, comments and names use the words of docs/glossary.md, and none that it lists as not used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import click

from vgpud.cli.main import cli
from vgpud.serve import main as vgpud

from .test_prose import prose
from .tree import ROOT, c_code, parse, source_files

GLOSSARY = "docs/glossary.md"
TERMS_MAX = 30
#: what prose quotes: code in backticks, words in quotation marks, members of modules and objects
QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|\w+\.\w+")
#: words of stored fields and recorded events, and of an argument in Slurm's and pytest's own language
KEPT_WORDS = frozenset(["kinds", "room", "parted", "door"])


def _rows(title: str) -> list[list[str]]:
    """The rows of the glossary's table whose first column has this title."""
    lines = (ROOT / GLOSSARY).read_text().splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith(f"| {title} |")) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def not_used() -> re.Pattern[str]:
    """One pattern for every word and phrase that is not used."""
    cells = [row[3] for row in _rows("term")] + [row[0] for row in _rows("not used")]
    phrases = [phrase for cell in cells for phrase in re.findall("`([^`]+)`", cell)]
    return re.compile(
        "|".join(rf"\b{re.escape(p).replace(chr(92) + '*', r'[a-z]*')}\b" for p in phrases), re.IGNORECASE
    )


def _texts_of_python(name: str) -> Iterator[tuple[int, str]]:
    """The strings of a module, its docstrings left out: one word may be a cell of a table."""
    tree = parse(name)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and (text.isalpha() or " " in text.strip()):
            yield node.lineno, text


def _texts_of_c(name: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(c_code(name).split("\n"), 1):
        yield from ((number, text) for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line) if " " in text)


def _helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Help texts are docstrings of commands, which the strings of modules leave out."""
    yield path, command.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child
            yield from _helps(child, f"{path} {name}")


def texts() -> Iterator[tuple[str, str]]:
    """(where, text) of everything that a user reads."""
    for name in source_files(".md"):
        if name != GLOSSARY and not name.startswith("benchmarks/results/"):  # results are as they were measured
            yield from ((f"{name}:{n}", line) for n, line in enumerate((ROOT / name).read_text().splitlines(), 1))
    for name in source_files(".py", under="vgpud/"):
        yield from ((f"{name}:{n}", text) for n, text in _texts_of_python(name))
    for name in ["cuda_hook.c", *source_files(".c", ".h", under="shim/")]:
        yield from ((f"{name}:{n}", text) for n, text in _texts_of_c(name))
    yield from _helps(cli, "vgpu")
    yield from _helps(vgpud, "vgpud")


def test_no_text_has_a_word_that_is_not_used() -> None:
    pattern = not_used()
    wrong = [
        f"{where}: {found.group()!r} in {text.strip()[:100]!r}"
        for where, text in texts()
        for found in [pattern.search(text)]
        if found
    ]
    assert not wrong, f"{len(wrong)} texts; docs/glossary.md has what stands instead\n" + "\n".join(wrong)


def test_no_comment_has_a_word_that_is_not_used() -> None:
    pattern = not_used()
    texts = ((where, QUOTED.sub("", text)) for where, text in prose())
    wrong = [f"{where}: {word.group()!r}" for where, text in texts for word in pattern.finditer(text)]
    assert not wrong, "\n".join(wrong)


def words_of(name: str) -> list[str]:
    """The words of an identifier, in small letters."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def test_no_name_has_a_word_that_is_not_used() -> None:
    pattern = not_used()
    wrong = set()
    for file in source_files(".py"):
        for node in ast.walk(parse(file)):
            name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
            name = name or (
                node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
            )
            wrong |= {
                (file, name) for word in words_of(name or "") if word not in KEPT_WORDS and pattern.fullmatch(word)
            }
    assert not wrong, "\n".join(f"{file}: {name}" for file, name in sorted(wrong))


def test_the_glossary_is_short() -> None:
    assert len(_rows("term")) <= TERMS_MAX


def test_a_planted_word_is_seen() -> None:
    assert not_used().search("The operator Mended it") and not not_used().search("a recommended value")
