"""The conformance suite on the simulated device: every row hooked as unhooked, and as expected/ has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.qualify.checks import unhooked_env
from tests.conformance import suite
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the command finds on the simulated device, as it writes it."""
    folder = tmp_path_factory.mktemp("results")
    command = [sys.executable, "-m", "tests.conformance", "--sim", "--results", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False)
    path = folder / "conformance-sim.json"
    assert path.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(path.read_text())
    assert done.returncode == bool(found["raw"]["differences"])
    return found


@pytest.mark.parametrize("family", suite.FAMILIES)
def test_every_row_says_what_it_should(result: dict[str, Any], family: str) -> None:
    assert not [line for line in result["raw"]["differences"] if line.startswith(f"{family}/")]
    assert result["raw"]["said"][family]


@pytest.mark.parametrize("family", suite.FAMILIES)
def test_every_expectation_says_where_it_is_from(family: str) -> None:
    rows = suite.expected_rows(family)
    assert rows
    for name, row in rows.items():
        wanted = {
            "documented": {"result", "status"},
            "confirmed": {"result", "status", "driver", "device"},
            "without_device": {"result", "status", "driver"},
        }
        assert set(row) == wanted[row["status"]], name


def test_the_simulated_device_has_something_to_say_to_every_row(result: dict[str, Any]) -> None:
    """A skipped row is no difference."""
    rows = [facts for said in result["raw"]["said"].values() for facts in said.values()]
    assert len(rows) > 100 and not [facts for facts in rows if facts.startswith(suite.SKIPPED)]


def test_programs_that_are_not_hooked_are_compared_with_nothing(
    system: OwnSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_unhooked(name: str, _amounts: object, words: list[str]) -> Part:
        return Part(name, words, unhooked_env(system), system.folder)

    monkeypatch.setattr(system, "run", run_unhooked)
    with pytest.raises(PartError, match="not hooked"):
        suite.check_hooked(system, 1)


def test_a_row_that_differs_or_is_missing_is_named_with_its_facts() -> None:
    before = {"free": "free=0 again=1", "pitch": "alloc=0"}
    found = suite.compare("memory", "hook", before, {"free": "free=0 again=0", "managed": "alloc=2"})
    assert [str(one) for one in found] == [
        "memory/free: unhooked again=1, hooked again=0",
        "memory/pitch: unhooked alloc=0, hooked nothing",
        "memory/managed: unhooked nothing, hooked alloc=2",
    ]


def test_a_program_that_is_killed_is_a_row_that_differs() -> None:
    rows = suite.parse("free: free=0\npitch: signal=11\n")
    assert [one.row for one in suite.compare("memory", "hook", {"free": "free=0", "pitch": "alloc=0"}, rows)] == [
        "pitch"
    ]


def test_a_skipped_row_is_no_difference_and_keeps_its_expectation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "EXPECTED", tmp_path)
    suite.confirm("some", {"one": "code=0", "two": "code=1"}, "600.1", "a device")
    suite.confirm("some", {"one": "code=5", "two": "skipped: needs two devices"}, "600.2", "another")
    assert [row["result"] for row in suite.expected_rows("some").values()] == ["code=5", "code=1"]
    assert suite.without_skipped({"one": "code=5", "two": "skipped: why"}) == {"one": "code=5"}
