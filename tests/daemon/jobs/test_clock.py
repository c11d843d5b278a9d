"""The queue's clock on machines whose clock is set."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vgpud.daemon.jobs import clock as module
from vgpud.daemon.jobs.clock import Clock

S = 1_000_000_000
HOUR, YEAR = 3600 * S, 365 * 86400 * S


class Machine:
    wall_ns, boot_ns, boot = 50 * YEAR, 10 * HOUR, "a"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(time, "time_ns", lambda: made.wall_ns)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _: made.boot_ns)
    monkeypatch.setattr(module, "boot_id", lambda: made.boot)
    return made


@pytest.mark.parametrize("set_ns", [HOUR, -HOUR, YEAR, -YEAR])
def test_it_continues_for_running_jobs(machine: Machine, tmp_path: Path, set_ns: int) -> None:
    path = tmp_path / "clock"
    first = Clock(0, path)
    began_ns = first.now_ns()
    assert began_ns == machine.wall_ns
    machine.wall_ns += set_ns + S
    machine.boot_ns += S
    assert first.now_ns() == began_ns + S
    assert Clock(began_ns, path, continues=True).now_ns() == began_ns + S
    assert Clock(began_ns, path).now_ns() == max(machine.wall_ns, began_ns + 1), "nothing runs: the machine's again"


def test_after_a_boot_it_is_the_machines_and_never_before_what_was_written(machine: Machine, tmp_path: Path) -> None:
    path = tmp_path / "clock"
    Clock(0, path)
    machine.boot, machine.boot_ns, machine.wall_ns = "b", S, machine.wall_ns + HOUR
    assert Clock(0, path, continues=True).now_ns() == machine.wall_ns
    assert Clock(machine.wall_ns + YEAR, path, continues=True).now_ns() > machine.wall_ns + YEAR
    path.write_text("b nonsense")
    assert Clock(0, path, continues=True).now_ns() == machine.wall_ns


def test_a_clock_that_was_set_is_reported_once(machine: Machine) -> None:
    clock = Clock(0)
    assert clock.news() == ""
    machine.wall_ns += 2 * HOUR
    assert clock.news().startswith("this machine's clock is 2 h ahead of the queue's")
    machine.wall_ns += S
    assert clock.news() == ""
    machine.wall_ns -= 3 * HOUR
    assert "clock is 1 h behind the queue's" in clock.news()
    machine.wall_ns += HOUR
    assert clock.news() == "this machine's clock and the queue's agree again"
    assert clock.news() == ""
