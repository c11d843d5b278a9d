"""The steps of `make qualify`: what each does, how long it may take, and running them within the time of all.

The budgets of all steps together stay below TOTAL_S (a test sums them). A step must be done when its own budget and
those of the steps before it are over: what they left of theirs is its to use, and so is the budget of a step that is
kept. The result of a step is kept as soon as it is there; --resume takes it from there. A step that runs out of its
time has a problem, one for which no time is left is skipped; neither is kept, nor is one that could not run: --resume
tries them again.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

from benchmarks.qualify import checks, fences
from benchmarks.qualify.checks import Found
from tests.clients.gpu import matrix
from tests.conformance import suite
from vgpud.cli.demo.private_system import OwnSystem

TOTAL_S = 560.0  # with start and end under ten minutes
LEAST_S = 5.0
NO_TIME = "the steps before it left no time: --resume continues here"


class OverBudget(BaseException):
    """A step has used its time; no check may take it for a failure of its own."""


class Store(Protocol):
    """Where finished steps are kept (benchmarks.sharing.kept.Kept)."""

    def get(self, key: str) -> dict[str, object] | None: ...

    def put(self, key: str, result: object) -> None: ...


@dataclass(frozen=True)
class Step:
    """A check, by name, and the seconds that it may take."""

    name: str
    budget_s: float
    check: Callable[[OwnSystem], Found]


def conformance(own: OwnSystem) -> Found:
    """The conformance suite: rows that differ hooked and unhooked, or from what is expected of a device."""
    with tempfile.TemporaryDirectory(prefix="vgpu-conform-") as folder:
        figures, differences, _said = suite.conform(own, Path(folder))
    return Found(figures, [str(one) for one in differences])


def client(row: matrix.Row, python: str) -> Callable[[OwnSystem], Found]:
    """A row of the framework matrix as a check."""

    def check(own: OwnSystem) -> Found:
        outcome = matrix.Matrix(own, python).run(row)
        if outcome.skip_reason:
            return Found(skip_reason=outcome.skip_reason)
        figures = {"seconds": outcome.seconds, "seen_bytes": outcome.seen_bytes, "launches": outcome.launches}
        return Found(figures, outcome.problems)

    return check


def trainer(name: str, python: str) -> Callable[[OwnSystem], Found]:
    """A CIFAR trainer as a check."""
    return lambda own: checks.trainer(own, name, python)


#: seconds of a row of the framework matrix: two starts of the framework and the work; those that compile take longer
CLIENT_BUDGETS_S = {"torch compile": 40, "torch loader": 25, "torch ddp": 25, "jax": 25, "triton": 20}
CLIENT_BUDGET_S = {"torch": 15, "cupy": 12}


def client_budget_s(name: str) -> float:
    """The budget of a row of the framework matrix."""
    return CLIENT_BUDGETS_S.get(name) or CLIENT_BUDGET_S[name.split()[0]]


def plan(python: str) -> list[Step]:
    """All steps, the most informative ones first."""
    made = [
        Step("constants", 20, checks.constants),
        Step("identity", 10, checks.identity),
        Step("gate_c", 25, checks.gate_c),
        Step("conformance", 45, conformance),
        Step("checkpoint", 25, checks.checkpoint),
        Step("memory_fence", 14, fences.memory_fence),
        Step("time_slice", 8, fences.time_slice),
    ]
    made += [Step(name, 40, trainer(name, python)) for name in checks.TRAINERS]
    made += [Step(f"client {row.name}", client_budget_s(row.name), client(row, python)) for row in matrix.ROWS]
    made.append(Step("collect", checks.COLLECT_S + 23, lambda own: checks.collect(own, python)))
    return made


@contextmanager
def limit_time(seconds: float) -> Iterator[None]:
    """Raises OverBudget in the body once the seconds are over."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise OverBudget

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def attempt(step: Step, own: OwnSystem, seconds: float) -> Found:
    """Runs a step; an exception is a problem of that step, not the end of all. Nothing of it runs on."""
    try:
        with limit_time(seconds):
            return step.check(own)
    except Exception as error:
        return Found(problems=[f"{type(error).__name__}: {error}"])
    finally:
        for tenant in own.tenants:
            tenant.stop()


def run(
    steps: Sequence[Step], own: OwnSystem, store: Store, say: Callable[[Step, Found, float], None]
) -> dict[str, Found]:
    """Runs the steps that are not kept; what all found. say: called after each with its seconds (0: kept)."""
    begin = time.monotonic()
    due_s = 0.0
    found: dict[str, Found] = {}
    for step in steps:
        due_s += step.budget_s
        passed_s = time.monotonic() - begin
        kept = store.get(step.name)
        if kept is None:
            found[step.name] = _run_one(step, own, store, due_s - passed_s)
        else:
            found[step.name] = Found(**kept)  # type: ignore[arg-type]  # as it was put
        say(step, found[step.name], round(time.monotonic() - begin - passed_s, 2) if kept is None else 0.0)
    return found


def _run_one(step: Step, own: OwnSystem, store: Store, left_s: float) -> Found:
    """Runs a step within what is left for it, and keeps what it found at once."""
    if left_s < LEAST_S:
        return Found(skip_reason=NO_TIME)
    try:
        found = attempt(step, own, left_s)
    except OverBudget:
        return Found(problems=[f"not done within {left_s:.0f} s: --resume tries it again"])
    if not found.skip_reason:
        store.put(step.name, asdict(found))
    return found
