"""C1 and L1: when tenants coast and what that costs, on made-up device logs; which look-aheads are compared."""

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.sharing import plan as plan_module
from benchmarks.sharing.bench import Bench, Observed, Running
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_coast import read_coast
from benchmarks.sharing.rows_lookahead import LOOKAHEADS_NS, l1
from vgpud.cli.demo.private_system import PartError
from vgpud.simdevice.busy_log import SECOND_NS, Span

MS = 1_000_000
KILLED_NS, STARTED_NS, END_NS = 3 * SECOND_NS, 6 * SECOND_NS, 9 * SECOND_NS
NOTED = {"killed_ns": KILLED_NS, "started_ns": STARTED_NS, "answered_ns": STARTED_NS + 200 * MS}


def run(
    stuck_ms: int = 40, coasting: float = 0.25, after: float = 0.25, idle: float = 0.0, lost_work: float = 0
) -> Observed:
    """.25/.75 in turns of 20 ms; from the kill on b alone for stuck_ms, then parts of coasting, and after once back.

    idle: what the device does not do of each turn while coasting.
    """
    a, b = [], []
    for begin_ns in range(0, END_NS, 20 * MS):
        if KILLED_NS <= begin_ns < KILLED_NS + stuck_ms * MS:
            part, rest = 0.0, 0.0
        elif KILLED_NS <= begin_ns < STARTED_NS:
            part, rest = coasting, idle
        else:
            part, rest = (after if begin_ns >= STARTED_NS else 0.25), 0.0
        cut_ns = begin_ns + round(20 * MS * part)
        a.append(Span(begin_ns, cut_ns, 1))
        b.append(Span(cut_ns, begin_ns + round(20 * MS * (1 - rest)), 2))
    return Observed(0, END_NS, {"a": a, "b": b}, {}, {}, {}, {"a": lost_work, "b": 0}, NOTED)


@pytest.mark.parametrize("stuck_ms", [0, 40, 100])
def test_coasting_begins_where_both_have_their_parts_in_a_period(stuck_ms: int) -> None:
    found = read_coast(run(stuck_ms))
    assert found.until_coasting_ms == max(0, stuck_ms - 15), "a's first slot is the last quarter of the window"
    assert found.shortfall_ms == pytest.approx(found.until_coasting_ms / 4, abs=0.1)
    assert found.idle_ms == pytest.approx(0, abs=0.1)
    assert found.before_pp == pytest.approx(0, abs=0.01)
    assert found.kept_percent == pytest.approx(100, abs=0.01)


def test_who_never_coasts_is_far_from_its_part() -> None:
    found = read_coast(run(stuck_ms=3000))
    assert found.until_coasting_ms == math.inf
    assert found.farthest_percent == math.inf, "there is no second of coasting"
    assert found.shortfall_ms == pytest.approx(750, abs=1)


def test_shares_while_coasting_are_judged_against_the_part_itself() -> None:
    found = read_coast(run(coasting=0.23))
    assert found.coasting_pp == pytest.approx(2, abs=0.05)
    assert found.farthest_percent == pytest.approx(8, abs=0.2)
    assert found.after_pp == pytest.approx(0, abs=0.01)


def test_time_that_coasting_leaves_unused_is_shown() -> None:
    assert read_coast(run(idle=0.05)).kept_percent == pytest.approx(95, abs=0.1)


def test_a_daemon_that_comes_back_wrong_shows_afterwards_and_around_its_return() -> None:
    found = read_coast(run(after=0.35, lost_work=3))
    assert found.after_pp == pytest.approx(10, abs=0.01)
    assert found.return_pp == pytest.approx(10, abs=0.01)
    assert found.coasting_pp < 1
    assert found.lost_kernels == 3


def test_what_is_done_meanwhile_ends_with_a_run_that_fails() -> None:
    class Failing:
        program = type("Program", (), {"warm_up_s": 0})

        def poll(self) -> None:
            raise PartError("gone")

        def time_bursts(self, _begin: bool) -> None:
            pass

    seen: list[str] = []

    def wait_to_the_end(running: Running) -> None:
        try:
            running.wait_until(running.end_ns)
        except PartError as error:
            seen.append(str(error))
            raise

    own: Any = None
    with pytest.raises(PartError, match="gone"):
        Bench(own, 3600, True)._measure([Failing()], {}, wait_to_the_end)  # type: ignore[list-item]
    assert seen == ["the run was given up"]
    over = threading.Event()
    Running(own, {}, 0, 0, over).wait_until(0)


def test_the_look_aheads_are_none_and_the_shipped_one(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    @contextlib.contextmanager
    def open_bench(*_where: Any, config: tuple[str, ...]) -> Iterator[Any]:
        opened.append(config)
        yield None

    monkeypatch.setattr(plan_module, "open_bench", open_bench)
    full = run()
    monkeypatch.setattr(Plan, "run_once", lambda *_which: full)
    figures = list(l1(Plan(9, 1, False)))
    assert opened == [("[arbiter]", f"lookahead_ns = {ns}") for ns in LOOKAHEADS_NS] * 2
    assert LOOKAHEADS_NS[0] == 0 < LOOKAHEADS_NS[1]
    gained = [figure for figure in figures if "gained" in figure.what]
    assert [(figure.value, figure.is_missed) for figure in gained] == [(0, False)] * 2
