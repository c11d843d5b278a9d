"""What comments and docstrings name is there: files of the tree, functions that something defines."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from .tree import ROOT, parse, source_files

#: a file with its folders in a sentence; not a part of a longer path, of a pattern or of an #include
FILE = re.compile(r"(?<![\w./*{<-])((?:[\w-]+/)*[\w-]+\.(?:py|c|h|md|proto|json|toml|sh|def|yaml))\b(?![\w(*}>])")
FUNCTION = re.compile(r"(?<![\w./])((?:\w+\.)*\w+)\(\)")
#: a class with its module before it
CLASS = re.compile(r"(?<![\w./])([a-z]\w+)\.([A-Z]\w*[a-z]\w*)\b(?!\.\w)")
COMMENT_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|(/\*.*?\*/|//[^\n]*)', re.DOTALL)
PYTHON_COMMENT_OR_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'|(#[^\n]*)", re.DOTALL
)
#: of other projects, of a user, or made by a build
FOREIGN_FILES = re.compile(
    r"""(.*/)?(
    cuda|cudaEGL|cudaGL|cudaProfiler|cudaTypedefs|cudaVDPAU|nvml|slurm|sqlite3|fcntl|dl-cache|proc_ns|memcontrol|SPEC
    |config|daemon|job|ddp|program|train|model|options|sitecustomize|onnx|alice|ours|queues|vgpud|NAME|FAMILY
    )\.\w+|(shim/)?gen/.*|hook_(gate|order|sync|table|trampolines)\.[ch]""",
    re.VERBOSE,
)
#: of the standard library, libc and others
FOREIGN_FUNCTIONS = {
    "Quantity.Value",
    "astimezone",
    "psutil.cpu_times",
    "select",
    "sigtimedwait",
    "time.monotonic",
    "typeof",
}


def _python_prose(name: str) -> Iterator[tuple[int, str]]:
    text = (ROOT / name).read_text()
    for match in PYTHON_COMMENT_OR_STRING.finditer(text):
        if match[1]:
            yield text.count("\n", 0, match.start()) + 1, match[1]
    for node in ast.walk(parse(name)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node, clean=False)
            if docstring:
                yield node.body[0].lineno, docstring


def _c_prose(text: str) -> Iterator[tuple[int, str]]:
    for match in COMMENT_OR_STRING.finditer(text):
        if match[1]:
            yield text.count("\n", 0, match.start()) + 1, match[1]


def prose() -> Iterator[tuple[str, str]]:
    """(where, text) of each comment and docstring."""
    for name in source_files(".py"):
        yield from ((f"{name}:{line}", text) for line, text in _python_prose(name))
    for name in source_files(".c", ".h"):
        yield from ((f"{name}:{line}", text) for line, text in _c_prose((ROOT / name).read_text()))


@functools.cache
def _files() -> frozenset[str]:
    """Each file of the tree, by all ends of its path."""
    parts = (name.split("/") for name in source_files(""))
    return frozenset("/".join(path[start:]) for path in parts for start in range(len(path)))


@functools.cache
def _definitions() -> frozenset[str]:
    names: set[str] = set()
    for name in source_files(".py"):
        defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names |= {node.name for node in ast.walk(parse(name)) if isinstance(node, defined)}
    for name in source_files(".c", ".h", ".def", ".sh", ".js"):
        names |= set(re.findall(r"\b(\w+)\s*\(", (ROOT / name).read_text()))
    return frozenset(names)


def _holds(module: str, name: str) -> bool:
    """Whether a module of that name has it, or none is ours."""
    paths = [ROOT / path for path in source_files(".py") if path.endswith(f"/{module}.py")]
    return not paths or any(re.search(rf"\b{name}\b", path.read_text()) for path in paths)


def missing(text: str) -> list[str]:
    """What a text names that is not there."""
    files = [file for file in FILE.findall(text) if file not in _files() and not FOREIGN_FILES.fullmatch(file)]
    functions = [name for name in FUNCTION.findall(text) if name not in FOREIGN_FUNCTIONS]
    unknown = [f"{name}()" for name in functions if name.rpartition(".")[2] not in _definitions()]
    classes = [f"{module}.{name}" for module, name in CLASS.findall(text) if not _holds(module, name)]
    return files + unknown + classes


def test_what_comments_name_is_there() -> None:
    wrong = [f"{where}: {name}" for where, text in prose() for name in missing(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see shim/gate/wait.c and wait.c", []),
        ("mirrors models/arbiter/slices.py.", ["models/arbiter/slices.py"]),
        ("checked by machine.check_all_of_it()", ["machine.check_all_of_it()"]),
        ("for server.Servers, as server.Server", ["server.Servers"]),
        ('#include <cuda.h> and "cuda.h"', []),
    ],
)
def test_a_planted_name_is_seen(text: str, names: list[str]) -> None:
    assert missing(text) == names
