"""Qualifying in steps: budgets, what is kept and gone on with, and the table of simulated and real figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.qualify import steps, table
from benchmarks.qualify.checks import Found
from benchmarks.qualify.steps import Step

ROOT = Path(__file__).resolve().parents[2]


class Memory(dict[str, Any]):
    """A store of finished steps."""

    def put(self, key: str, found: object) -> None:
        self[key] = found


class Tenant:
    stopped = False

    def stop(self) -> None:
        self.stopped = True


class Own:
    """A system of which only the tenants are looked at."""

    def __init__(self) -> None:
        self.tenants = [Tenant()]


def finds(found: Found) -> Callable[[Any], Found]:
    return lambda _own: found


def fails(_own: Any) -> Found:
    raise RuntimeError("no such thing")


def never_ends(_own: Any) -> Found:
    while True:
        time.sleep(0.01)


def run(plan: list[Step], store: Memory, **more: float) -> dict[str, Found]:
    return steps.run(plan, Own(), store, lambda *_said: None, **more)[0]  # type: ignore[arg-type]


def test_a_finished_step_is_kept_and_not_done_again() -> None:
    store = Memory()
    bad = Found({"share": 0.4}, ["not the share"])
    assert run([Step("one", 9, finds(bad))], store) == {"one": bad}
    assert run([Step("one", 9, fails), Step("two", 9, fails)], store) == {
        "one": bad,
        "two": Found(problems=["RuntimeError: no such thing"]),
    }


def test_a_step_that_could_not_run_is_tried_again() -> None:
    store = Memory()
    run([Step("one", 9, finds(Found(skipped="no framework")))], store)
    assert run([Step("one", 9, finds(Found({"a": 1})))], store)["one"].figures == {"a": 1}


def test_a_step_that_takes_longer_is_stopped_and_its_tenants_with_it() -> None:
    store, own = Memory(), Own()
    plan = [Step("one", 0.1, never_ends), Step("two", 9, finds(Found({"a": 1})))]
    found, _seconds = steps.run(plan, own, store, lambda *_said: None)  # type: ignore[arg-type]
    assert found["one"].problems and "0 s" in found["one"].problems[0]
    assert found["two"].figures == {"a": 1} and list(store) == ["two"]
    assert own.tenants[0].stopped


def test_without_time_left_steps_are_skipped_and_gone_on_with_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LEAST_S", 0.1)
    store = Memory()
    plan = [Step("one", 9, never_ends), Step("two", 9, finds(Found({"a": 1})))]
    found = run(plan, store, total_s=0.3)
    assert [one.skipped for one in found.values()] == [steps.NO_TIME] * 2 and not store
    plan[0] = Step("one", 9, finds(Found({"b": 2})))
    assert [one.figures for one in run(plan, store).values()] == [{"b": 2}, {"a": 1}]


def test_all_steps_have_names_of_their_own_and_budgets() -> None:
    plan = steps.plan(sys.executable)
    assert len({step.name for step in plan}) == len(plan) > 15
    assert all(steps.LEAST_S < step.budget_s < steps.TOTAL_S / 5 for step in plan)


def test_the_table_has_a_line_for_each_number_of_either_side() -> None:
    simulated = {"constants": {"figures": {"launch_ns": 2000, "device": "x", "only": 3}}}
    real = {"constants": {"figures": {"launch_ns": 3000.0}}, "checkpoint": {"figures": {"gb": 8}}}
    lines = [line.split() for line in table.table(simulated, real).splitlines()[1:]]
    assert lines == [
        ["constants.launch_ns", "2,000", "3,000", "1.50"],
        ["constants.only", "3.0000", "-", "-"],
        ["checkpoint.gb", "-", "8.0000", "-"],
    ]


def test_the_command_goes_on_behind_what_is_kept(tmp_path: Path) -> None:
    def qualify(*more: str) -> subprocess.CompletedProcess[str]:
        folders = ["--results", str(tmp_path / "results"), "--kept", str(tmp_path / "kept")]
        command = [sys.executable, "-m", "benchmarks.qualify", "--sim", "--only", "identity", *folders, *more]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    first, again = qualify(), qualify("--resume")
    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert " kept" not in first.stdout and "kept of" in again.stdout
    found = json.loads((tmp_path / "results" / "qualify-sim.json").read_text())
    assert found["figures"]["identity"]["figures"]["asked"] > 900
    other = qualify("--resume", "--python", "/usr/bin/python3")
    assert other.returncode == 2 and "python was" in other.stderr
