"""Each make target in a clone where nothing else was made: what it starts comes with the extras that it installs."""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.rules.tree import ROOT

TARGETS = re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
#: programs of Python packages that are no modules of ours
TOOLS = ("ruff", "mypy", "clang-format")
#: in every virtual environment
ALWAYS = {"pip", "vgpud"}
#: imports a module, or the file's code without `if __name__ == "__main__"`, where only some packages are installed
ALONE = """
import importlib.abc, importlib.metadata, re, runpy, sys
what, allowed = sys.argv[1], set(sys.argv[2].split())
owners = {
    top: {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    for top, names in importlib.metadata.packages_distributions().items()
}
class Installed(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in owners and not owners[top] & allowed:
            raise ModuleNotFoundError(f"No module named {name!r}, which comes with {owners[top]}", name=name)
sys.meta_path.insert(0, Installed())
sys.path.insert(0, "")
if what.endswith(".py"):
    sys.path.insert(0, what.rpartition("/")[0])
    runpy.run_path(what, run_name="looked at")
else:
    runpy.run_module(what, run_name="looked at")
"""


def distributions(extras: str) -> set[str]:
    """Everything that `pip install .[extras]` installs: names as PyPI writes them."""
    found, waiting = set(ALWAYS), [("vgpud", frozenset(extras.split(",")) if extras else frozenset[str]())]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of another extra than this machine has
            continue
        found.add(name)
        for line in required:
            one = Requirement(line)
            if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in (wanted or {""})):
                continue
            entry = (canonicalize_name(one.name), frozenset(one.extras))
            if entry not in seen:
                seen.add(entry)
                waiting.append(entry)
    return found


def commands(target: str, venv: Path) -> tuple[str, list[list[str]]]:
    """(the extras that a target installs in an empty clone, "" if none; the commands that it then runs)."""
    asked = ["make", "--no-print-directory", "-n", f"VENV={venv}", target]
    lines = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.replace("\\\n", " ")
    words = [shlex.split(line.partition("&&")[2] or line) for line in lines.splitlines()]
    setups = [line for line in words if line[:1] == ["tools/setup"]]
    assert len(setups) <= 1, "one set-up makes all that a target needs"
    return (setups[0][2] if setups else ""), [line for line in words if line and line[0].startswith(str(venv))]


def missing(what: str, installed_names: set[str]) -> str:
    """What the import of a module or a file lacks, "" for nothing."""
    code = [sys.executable, "-c", ALONE, what, " ".join(sorted(installed_names))]
    return subprocess.run(code, cwd=ROOT, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_starts_only_what_it_installs(target: str, tmp_path: Path) -> None:
    extras, lines = commands(target, tmp_path / "venv")
    assert extras or not lines
    for program, *words in lines:
        if Path(program).name in TOOLS:
            assert "dev" in extras.split(","), program
            continue
        assert Path(program).name == "python", program
        what = words[1] if words[0] == "-m" else words[0]
        if "test" not in extras.split(","):  # CI runs `make test` where nothing else is installed
            assert not missing(what, distributions(extras)), f"{what} with {extras}"


def test_what_is_not_installed_is_missed() -> None:
    assert not missing("vgpud.cli.main", distributions("demo"))
    assert "No module named 'click'" in missing("vgpud.cli.main", distributions("demo") - {"click"})
