"""The steps of `make qualify`: what each does, how long it may take, and running them within the time of all.

A step that is over is kept at once; --resume takes it from there. One that runs out of its budget has a problem, one
for which no time is left is skipped; neither is kept, nor is one that could not run: --resume tries them again.
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

from benchmarks.qualify import checks
from benchmarks.qualify.checks import Found
from tests.clients.gpu import matrix
from tests.conformance import suite
from vgpud.cli.own_system import OwnSystem

TOTAL_S = 530.0  # with start and end under nine minutes
LEAST_S = 5.0
NO_TIME = "no time left: --resume goes on here"


class OverBudget(BaseException):
    """A step has had its time; no check may take it for a failure of its own."""


class Store(Protocol):
    """Where finished steps are kept (benchmarks.sharing.kept.Kept)."""

    def get(self, key: str) -> dict[str, object] | None: ...

    def put(self, key: str, found: object) -> None: ...


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
        if outcome.skipped:
            return Found(skipped=outcome.skipped)
        figures = {"seconds": outcome.seconds, "seen_bytes": outcome.seen_bytes, "launches": outcome.launches}
        return Found(figures, outcome.problems)

    return check


def trainer(name: str, python: str) -> Callable[[OwnSystem], Found]:
    """A CIFAR trainer as a check."""
    return lambda own: checks.trainer(own, name, python)


def plan(python: str) -> list[Step]:
    """All steps, the ones that tell most first."""
    made = [
        Step("constants", 45, checks.constants),
        Step("identity", 20, checks.identity),
        Step("gate_c", 40, checks.gate_c),
        Step("conformance", 75, conformance),
        Step("checkpoint", 40, checks.checkpoint),
    ]
    made += [Step(name, 75, trainer(name, python)) for name in checks.TRAINERS]
    made += [Step(f"client {row.name}", 60, client(row, python)) for row in matrix.ROWS]
    made.append(Step("collect", 100, lambda own: checks.collect(own, python)))
    return made


@contextmanager
def within(seconds: float) -> Iterator[None]:
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
        with within(seconds):
            return step.check(own)
    except Exception as error:
        return Found(problems=[f"{type(error).__name__}: {error}"])
    finally:
        for tenant in own.tenants:
            tenant.stop()


def run(
    steps: Sequence[Step],
    own: OwnSystem,
    store: Store,
    say: Callable[[Step, Found, float], None],
    total_s: float = TOTAL_S,
) -> tuple[dict[str, Found], dict[str, float]]:
    """Runs the steps that are not kept; what all found, and the seconds of each (0: kept)."""
    end = time.monotonic() + total_s
    found: dict[str, Found] = {}
    seconds: dict[str, float] = {}
    for step in steps:
        begin = time.monotonic()
        left = end - begin
        kept = store.get(step.name)
        if kept is not None:
            found[step.name] = Found(**kept)  # type: ignore[arg-type]  # as it was put
        elif left < LEAST_S:
            found[step.name] = Found(skipped=NO_TIME)
        else:
            try:
                found[step.name] = attempt(step, own, min(step.budget_s, left))
                if not found[step.name].skipped:
                    store.put(step.name, asdict(found[step.name]))
            except OverBudget:
                over = Found(problems=[f"not done within its {step.budget_s:.0f} s"])
                found[step.name] = over if left >= step.budget_s else Found(skipped=NO_TIME)
        seconds[step.name] = 0.0 if kept is not None else round(time.monotonic() - begin, 2)
        say(step, found[step.name], seconds[step.name])
    return found, seconds
