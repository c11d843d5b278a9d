"""The source files of the project, and how the rules read them."""

from __future__ import annotations

import ast
import functools
import gc
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("vgpud/v1alpha1/", "vgpud/k8s/kubelet_api/", "shim/gen/")
FOLDERS = ("vgpud", "models", "shim", "tests", "benchmarks", "protos", "tools")


@functools.cache
def _all() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.split("\n") if listed.returncode == 0 else _walk()
    return [n for n in names if not n.startswith(GENERATED) and (ROOT / n).is_file()]


def _walk() -> list[str]:
    """Without git (a source distribution): everything under the folders that hold sources."""
    found = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if "__pycache__" not in p.parts]
    return [str(p.relative_to(ROOT)) for p in [*found, *ROOT.glob("*.py"), *ROOT.glob("*.c"), *ROOT.glob("*.md")]]


def source_files(*suffixes: str, under: str | tuple[str, ...] = "") -> list[str]:
    """Source files of the project, relative to the root; generated ones left out."""
    return [n for n in _all() if n.endswith(suffixes) and n.startswith(under)]


@functools.cache
def parse(name: str) -> ast.Module:
    """A file's tree. All trees stay: three quarters of the time would go into looks for garbage among them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse((ROOT / name).read_text(), filename=name)
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def imports(name: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import: those in functions and those for the type checker only, too.

    `from a import b` is a.b, whether that is a module or not. Raises AssertionError for a relative import.
    """
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import; name the module in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def c_code(name: str) -> str:
    """A C file without comments; line numbers stay."""
    text = (ROOT / name).read_text()
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def find(pattern: str, names: list[str]) -> list[str]:
    """Each line of the C files in which the pattern is found, comments left out."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate(c_code(name).split("\n"), 1)
        if re.search(pattern, line)
    ]


def components(graph: dict[str, set[str]]) -> list[set[str]]:
    """The circles of a graph: its strongly connected components of more than one node (Tarjan 1972)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], index[other])
        if lowest[node] == index[node]:
            circle = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(circle)

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found
