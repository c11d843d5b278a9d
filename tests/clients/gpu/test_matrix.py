"""The runner of the framework matrix, on the simulated device with programs that stand in for frameworks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from benchmarks.qualify import checks
from tests.clients.gpu import matrix
from tests.examples import is_nightly
from vgpud.cli.demo.private_system import OwnSystem

ROOT = Path(__file__).resolve().parents[3]
STANDIN = Path(__file__).with_name("standin.py")
TORCH = ("torch_allocator", "torch_graph", "torch_compile", "torch_loader", "torch_ddp")


class StandIn(matrix.Row):
    def path(self) -> Path:
        return STANDIN


def stand_in(kind: str, within_bytes: int = 0) -> matrix.Row:
    return StandIn(kind, kind, {"STANDIN": kind}, within_bytes)


@pytest.fixture
def run(system: OwnSystem) -> Callable[[matrix.Row], matrix.Outcome]:
    return matrix.Matrix(system, sys.executable).run


def test_a_row_that_says_the_same_and_sees_its_slice(run: Callable[[matrix.Row], matrix.Outcome]) -> None:
    outcome = run(stand_in("same"))
    assert (outcome.state, outcome.problems) == ("same", [])
    assert outcome.launches == 5 and outcome.peak_bytes > 0 and outcome.seen_bytes > 0


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("differs", ["without a slice and in one: sum 2 and 3"]),
        ("crash", ["in a slice it ended with code 9: it went wrong"]),
        ("silent", ["without a slice it ended without a line of JSON"]),
        ("idle", ["its launches do not pass the gate"]),
    ],
)
def test_a_row_that_failed(run: Callable[[matrix.Row], matrix.Outcome], kind: str, says: list[str]) -> None:
    outcome = run(stand_in(kind))
    assert (outcome.state, outcome.problems) == ("FAILED", says)


def test_memory_that_is_not_the_slices(run: Callable[[matrix.Row], matrix.Outcome]) -> None:
    outcome = run(stand_in("larger"))
    assert [problem.partition(" sees ")[0] for problem in outcome.problems] == ["without a slice it", "in a slice it"]
    assert run(stand_in("larger", within_bytes=matrix.MIB)).state == "same"


def test_a_missing_framework_is_a_skipped_row(run: Callable[[matrix.Row], matrix.Outcome]) -> None:
    outcome = run(stand_in("lost"))
    assert (outcome.state, outcome.skip_reason, outcome.problems) == ("skipped", "no framework: not installed", [])


def test_the_table_shows_each_row_and_why() -> None:
    lost, bad = (
        matrix.Outcome("one", skip_reason="no one"),
        matrix.Outcome("two", ["it broke"], seen_bytes=2 * matrix.MIB),
    )
    lines = matrix.table([lost, bad]).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [
        ["one", "skipped"],
        ["no", "one"],
        ["two", "FAILED"],
        ["it", "broke"],
    ]
    assert "2 MiB" in lines[3]


def test_without_a_device_all_rows_are_skipped(tmp_path: Path) -> None:
    if not (reason := checks.has_device()):
        pytest.skip("there is a real device here")
    command = [sys.executable, "-m", "tests.clients.gpu", "--results", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("skipped") == len(matrix.ROWS) and reason in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_programs_are_there_and_say_when_a_framework_is_missing() -> None:
    env = {"PATH": "/usr/bin:/bin"}
    for program in {row.path() for row in matrix.ROWS}:
        command = [sys.executable, "-I", "-c", RUN_WITHOUT_FRAMEWORKS, str(program)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == matrix.MISSING, f"{program.name}: {done.stderr}"
        assert matrix.last_words(done.stdout).startswith("no ")


#: a program in a Python that finds no framework
RUN_WITHOUT_FRAMEWORKS = """
import runpy, sys
for name in ("torch", "cupy", "jax", "triton"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", TORCH if is_nightly() else TORCH[:2])
def test_torch_programs_on_the_cpu(program: str) -> None:
    """Twice the same."""
    pytest.importorskip("torch", reason="needs PyTorch, its CPU build will do")
    command = [sys.executable, str(matrix.PROGRAMS / f"{program}.py"), "cpu"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # threads of so small a network wait for each other busily
    runs: list[Mapping[str, object]] = []
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        runs.append(matrix.parse_output(program, done.returncode, done.stdout, done.stderr))
    assert runs[0] == runs[1]
