"""Qualifying in steps: budgets, what is kept and continued, and the table of simulated and real figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.qualify import __main__ as command
from benchmarks.qualify import steps, table
from benchmarks.qualify.checks import Found
from benchmarks.qualify.steps import Step

ROOT = Path(__file__).resolve().parents[2]


class Memory(dict[str, Any]):
    """A store of finished steps."""

    def put(self, key: str, result: object) -> None:
        self[key] = result


class Tenant:
    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


class Own:
    """A system of which only the tenants are looked at."""

    def __init__(self) -> None:
        self.tenants = [Tenant()]


def finds(finding: Found) -> Callable[[Any], Found]:
    return lambda _own: finding


def fails(_own: Any) -> Found:
    raise RuntimeError("no such thing")


def never_ends(_own: Any) -> Found:
    while True:
        time.sleep(0.01)


def run(plan: list[Step], store: Memory) -> dict[str, Found]:
    return steps.run(plan, Own(), store, lambda *_said: None)  # type: ignore[arg-type]


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
    run([Step("one", 9, finds(Found(skip_reason="no framework")))], store)
    assert run([Step("one", 9, finds(Found({"a": 1})))], store)["one"].figures == {"a": 1}


def test_a_step_that_takes_longer_is_stopped_and_its_tenants_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LEAST_S", 0.05)
    store, own = Memory(), Own()
    plan = [Step("one", 0.1, never_ends), Step("two", 9, finds(Found({"a": 1})))]
    found = steps.run(plan, own, store, lambda *_said: None)  # type: ignore[arg-type]
    assert found["one"].problems and "0 s" in found["one"].problems[0]
    assert found["two"].figures == {"a": 1} and list(store) == ["two"]
    assert own.tenants[0].is_stopped


def test_a_step_may_use_what_those_before_it_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the budget of one that is kept: what did not fit into its own has more time when it is tried again."""
    asked: list[float] = []

    def attempt(_step: Step, _own: Any, seconds: float) -> Found:
        asked.append(seconds)
        return Found({"a": 1})

    monkeypatch.setattr(steps, "attempt", attempt)
    plan = [Step("one", 100, fails), Step("two", 20, fails)]
    run(plan, Memory())
    assert asked == [pytest.approx(100, abs=5), pytest.approx(120, abs=5)]


def test_without_time_left_a_step_is_skipped_and_continued_later(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Memory()
    monkeypatch.setattr(steps, "LEAST_S", 9.5)
    plan = [Step("one", 9, finds(Found({"a": 1})))]
    assert run(plan, store)["one"].skip_reason == steps.NO_TIME and not store
    monkeypatch.setattr(steps, "LEAST_S", 5)
    assert run(plan, store)["one"].figures == {"a": 1}


def test_what_a_step_found_is_kept_before_the_next_begins() -> None:
    store = Memory()

    def looks(_own: Any) -> Found:
        assert store["one"]["figures"] == {"a": 1} and said == ["one"]
        raise KeyboardInterrupt

    said: list[str] = []
    plan = [Step("one", 9, finds(Found({"a": 1}))), Step("two", 9, looks)]
    with pytest.raises(KeyboardInterrupt):
        steps.run(plan, Own(), store, lambda step, *_rest: said.append(step.name))  # type: ignore[arg-type]
    assert list(store) == ["one"]


def test_all_steps_have_names_of_their_own_and_budgets_below_ten_minutes() -> None:
    plan = steps.plan(sys.executable)
    assert len({step.name for step in plan}) == len(plan) > 15
    assert all(steps.LEAST_S < step.budget_s < steps.TOTAL_S / 5 for step in plan)
    assert steps.TOTAL_S == 560 > sum(step.budget_s for step in plan)


def test_the_exit_code_tells_a_skipped_step_from_a_good_one(capsys: pytest.CaptureFixture[str]) -> None:
    good, skipped, bad = Found({"a": 1}), Found(skip_reason="no torch"), Found(problems=["slow"])
    assert command.verdict({"one": good}) == 0 and not capsys.readouterr().out
    assert command.verdict({"one": good, "two": skipped}) == command.SKIPPED == 4
    assert "1 of 2 steps were skipped:\n  two: no torch\n" in capsys.readouterr().out
    assert command.verdict({"one": bad, "two": skipped}) == command.NOT_AS_ASSUMED == 1


def test_the_table_has_a_line_for_each_number_of_either_side() -> None:
    simulated: table.Figures = {"constants": {"figures": {"launch_ns": 2000, "device": "x", "only": 3}}}
    real: table.Figures = {"constants": {"figures": {"launch_ns": 3000.0}}, "checkpoint": {"figures": {"gb": 8}}}
    lines = [line.strip("| ").split(" | ") for line in table.compare(simulated, real).splitlines()[2:]]
    assert lines == [
        ["constants.launch_ns", "2,000", "3,000", "1.50"],
        ["constants.only", "3.0000", "-", "-"],
        ["checkpoint.gb", "-", "8.0000", "-"],
    ]


#: the command with two steps: the first finds something, the second holds the program until it is killed, or is skipped
TWO_STEPS = """
import os, sys, time
from benchmarks.qualify import __main__ as command, steps
from benchmarks.qualify.checks import Found
def second(own):
    print("second", flush=True)
    time.sleep(float(os.environ["HOLD_S"]))
    return Found(skip_reason="it has no framework")
plan = [steps.Step("first", 99, lambda own: Found({"share": 0.3})), steps.Step("second", 99, second)]
steps.plan = lambda python: plan
sys.exit(command.main())
"""


def qualify(
    folder: Path, *options: str, program: tuple[str, ...] = ("-m", "benchmarks.qualify"), hold_s: int = 0
) -> Any:
    folders = ["--results", str(folder / "results"), "--kept", str(folder / "kept")]
    words = [sys.executable, *program, "--sim", *folders, *options]
    env = {**os.environ, "HOLD_S": str(hold_s)}
    return subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_kill_keeps_what_was_measured_and_resume_continues(tmp_path: Path) -> None:
    program = ("-c", TWO_STEPS)
    with qualify(tmp_path, program=program, hold_s=600) as killed:
        assert any(line == "second\n" for line in killed.stdout)
        killed.kill()
    written = json.loads((tmp_path / "results" / "qualify-sim.json").read_text())
    assert written["figures"]["first"]["figures"] == {"share": 0.3} and written["parameters"] == {"steps": 1, "of": 2}
    with qualify(tmp_path, "--resume", program=program) as again:
        said, complaints = again.communicate(timeout=120)
    assert again.returncode == command.SKIPPED, complaints
    first, second = (line.split() for line in said.splitlines() if line.startswith(("  first ", "  second ")))
    assert first[1] == "kept" and " ".join(second).endswith("skipped: it has no framework")
    assert "1 of 2 steps were skipped" in said


def test_the_command_continues_behind_what_is_kept(tmp_path: Path) -> None:
    only = ("--only", "identity")

    def done(*options: str) -> tuple[int, str, str]:
        with qualify(tmp_path, *only, *options) as process:
            return (*process.communicate(timeout=120), process.returncode)[::-1]

    first, again = done(), done("--resume")
    assert (first[0], again[0]) == (0, 0), first[1] + again[1]
    assert " kept" not in first[2] and "kept of" in again[2]
    found = json.loads((tmp_path / "results" / "qualify-sim.json").read_text())
    assert found["figures"]["identity"]["figures"]["asked"] > 900
    other = done("--resume", "--python", "/usr/bin/python3")
    assert other[0] == 2 and "python was" in other[1]
