"""The arbiter in C has the files and the functions of its reference model (models/arbiter/), under the same names.

Functions of C have the prefix vg_core_ where other files call them. The tables say what only one of the two has, and
why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import PurePath

import pytest

from .tree import ROOT, c_code, source_files

MODEL, CORE = "models/arbiter/", "shim/arbiter/"
PREFIX = "vg_core_"

ONLY_IN_MODEL = {
    "gate_states": "the states of a gate as a table, for docs/design/states.md",
    "device.free": "C asks each slice as it walks the table",
    "device.saturating": "C asks each slice as it walks the table: in_slot()",
    "model.divide_towards_zero": "a division of C",
}
ONLY_IN_C = {
    "arbiter": "the thread",
    "coast": "the timetable without a daemon; its model is tests/arbiter/timetable.py",
    "gang": "arbiters among each other",
    "links": "what is read of copies, and shown of their rates: copies is the policy",
    "helper_bell": "the helper threads of programs",
    "memory": "credit of memory",
    "memory_pages": "credit of memory in the shared memory",
    "overlap": "times of processes become that of their slice",
    "pages": "the shared memory",
    "reclaim": "requests to give memory back",
    "residence": "what processes see and report of memory that leaves",
    "record": "recordings",
    "state": "what the thread and its parts share",
    "thread_priority": "the kernel's scheduler",
    "trace": "events for users",
    "turns": "processes of one slice",
    "device.count_lately": "keeps a count that the model makes each time",
    "device.sum_slot": "keeps a sum that the model makes each time",
    "lags.furthest_behind": "saves most_behind() for most slices",
    "model.in_slot": "the model's saturating()",
    "model.least": "the same, unsigned",
    "model.max": "a function of Python",
    "model.min": "a function of Python",
    "outputs.note_behind": "the model looks at all slices for each",
    "policy.init": "the model is a dataclass",
    "slot.is_before": "the model sorts by a tuple",
}

#: in .clang-format's layout a definition begins in column 0
_DEFINITION = re.compile(r"^(?:static |inline |const |struct )*\w+ \**(\w+)\([^;{}]*\) \{$", re.M)


def functions_of_python(text: str) -> set[str]:
    """Functions of a module, and the methods and properties of its classes."""
    tree = ast.parse(text)
    scopes: list[ast.Module | ast.ClassDef] = [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]
    return {node.name for scope in scopes for node in scope.body if isinstance(node, ast.FunctionDef)}


def functions_of_c(code: str) -> set[str]:
    return {name.removeprefix(PREFIX) for name in _DEFINITION.findall(code)}


def _by_file(pairs: list[tuple[str, set[str]]]) -> dict[str, set[str]]:
    """Source and header are one file."""
    files: dict[str, set[str]] = {}
    for name, functions in pairs:
        files.setdefault(PurePath(name).stem, set()).update(functions)
    return files


def model_files() -> dict[str, set[str]]:
    names = [name for name in source_files(".py", under=MODEL) if not name.endswith("__init__.py")]
    return _by_file([(name, functions_of_python((ROOT / name).read_text())) for name in names])


def core_files() -> dict[str, set[str]]:
    return _by_file([(name, functions_of_c(c_code(name))) for name in source_files(".c", ".h", under=CORE)])


def differences(model: Mapping[str, set[str]], core: Mapping[str, set[str]]) -> tuple[set[str], set[str]]:
    """Files, and functions of files that both have ("file.function"), that only the model or only the core has."""
    both = model.keys() & core.keys()
    of_model = {f"{file}.{name}" for file in both for name in model[file]}
    of_core = {f"{file}.{name}" for file in both for name in core[file]}
    return (model.keys() - both) | (of_model - of_core), (core.keys() - both) | (of_core - of_model)


def test_names_are_the_same() -> None:
    of_model, of_core = differences(model_files(), core_files())
    assert of_model - ONLY_IN_MODEL.keys() == set(), "shim/arbiter/ has no such file or function"
    assert of_core - ONLY_IN_C.keys() == set(), "models/arbiter/ has no such file or function"
    assert ONLY_IN_MODEL.keys() - of_model == set(), "both have these, or neither does"
    assert ONLY_IN_C.keys() - of_core == set(), "both have these, or neither does"


def test_all_of_them_are_read() -> None:
    assert sum(map(len, model_files().values())) > 120
    assert sum(len(names) for file, names in core_files().items() if file not in ONLY_IN_C) > 120


def test_every_part_of_the_core_has_a_header() -> None:
    sources = [PurePath(name) for name in source_files(".c", under=CORE)]
    missing = [str(name) for name in sources if not (ROOT / name.with_suffix(".h")).is_file()]
    assert not missing, missing
    names = [name for name in source_files(".h", under=CORE) if not (ROOT / name).with_suffix(".c").is_file()]
    assert {PurePath(name).stem for name in names} == {"model", "state"}, "these hold data alone"


@pytest.mark.parametrize(
    ("core_functions", "only_model", "only_core"),
    [
        ({"lags": {"forgive"}}, set(), set()),
        ({"lags": {"forgive", "forget"}}, set(), {"lags.forget"}),
        ({"lags": set()}, {"lags.forgive"}, set()),
        ({"lags": {"pardon"}}, {"lags.forgive"}, {"lags.pardon"}),
        ({"lags": {"forgive"}, "shares": {"forgive"}}, set(), {"shares"}),
        ({"shares": {"forgive"}}, {"lags"}, {"shares"}),
    ],
)
def test_a_planted_difference_is_found(
    core_functions: dict[str, set[str]], only_model: set[str], only_core: set[str]
) -> None:
    assert differences({"lags": {"forgive"}}, core_functions) == (only_model, only_core)


def test_functions_of_both_languages_are_found() -> None:
    python = "def grant(): pass\nclass Slice:\n @property\n def weight(self): pass\nX = lambda: 0\n"
    assert functions_of_python(python) == {"grant", "weight"}
    c = (
        "struct vg_core_slice *vg_core_find(struct vg_core *core,\n    uint64_t id) {\n  if (id) {\n  }\n}\n"
        "static inline bool vg_core_waits(int a) {\n}\nstatic const struct vg_core_slice *first(void) {\n}\n"
        "void vg_core_set(int a);\nstruct vg_core {\n};\n"
    )
    assert functions_of_c(c) == {"find", "waits", "first"}
