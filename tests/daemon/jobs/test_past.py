"""The daemon's part in forgetting: when, what stays, and how often it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.store.test_user_shares import EVE, MOST, make_ended_job, of
from vgpud.config import Config, LiveConfig
from vgpud.core.events import Log
from vgpud.core.jobs.counts import JobCounts
from vgpud.core.jobs.model import Job, JobState
from vgpud.daemon.jobs.arrays import Arrays
from vgpud.daemon.jobs.hold import HOLD_FILE, HOLD_NS
from vgpud.daemon.jobs.past import SAY_NS, Past
from vgpud.daemon.jobs.submissions import JobSubmissions
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore

S = 1_000_000_000
DAY = 24 * 3600 * S
NOW_NS = 400 * DAY


def events_into(log: list[Log]) -> Any:
    return SimpleNamespace(note=log.append)


def world(folder: Path) -> tuple[Past, JobStore, list[Log]]:
    store, said = JobStore(Store(folder)), []
    config, events = LiveConfig(Config(state_bytes_max=MOST, state_dir=str(folder))), events_into(said)
    return Past(config, events, store, 0, NOW_NS), store, said


def restart(folder: Path, store: JobStore, latest_ns: int, now_ns: int) -> tuple[Past, list[Log]]:
    said: list[Log] = []
    config, events = LiveConfig(Config(accounting_days=400, state_dir=str(folder))), events_into(said)
    return Past(config, events, store, latest_ns, now_ns), said


@pytest.fixture
def wall() -> SimpleNamespace:
    """The machine's clock."""
    return SimpleNamespace(ns=1000 * DAY)


def run(past: Past, now_ns: int, for_ns: int, behind_ns: int = 0) -> int:
    """Runs the daemon for so long, the machine's clock so far behind the queue's. Returns when it ends."""
    for at_ns in range(now_ns, now_ns + for_ns + 1, HOLD_NS // 8):
        past.forget(at_ns, at_ns - behind_ns, {})
    return now_ns + for_ns


def test_a_start_under_a_clock_that_is_far_ahead_forgets_nothing(tmp_path: Path, wall: SimpleNamespace) -> None:
    """A bad RTC or a spoofed NTP: the past of all users was gone before an admin could set it right."""
    store, latest_ns = JobStore(Store(tmp_path)), 1000 * DAY
    store.save([replace(make_ended_job(1), ended_ns=latest_ns)])
    wall.ns = wrong_ns = latest_ns + 900 * DAY
    past, said = restart(tmp_path, store, latest_ns, wrong_ns)
    run(past, wrong_ns, HOLD_NS // 2)
    assert of(store, EVE) == [1]
    assert len(said) == 1 and "900 d after the latest entry of the database" in said[0].message
    # what was written under the wrong clock makes the next start look right; switched off for two days
    wall.ns = wrong_ns = wrong_ns + 2 * DAY
    past, said = restart(tmp_path, store, wrong_ns - DAY, wrong_ns)
    run(past, wrong_ns, HOLD_NS // 4)
    assert of(store, EVE) == [1] and "until vgpud has run for 12 h" in said[0].message
    # the clock is set right; the queue's, which never goes back, stays ahead
    wall.ns = latest_ns + DAY
    past, _ = restart(tmp_path, store, wrong_ns, wrong_ns + DAY)
    run(past, wrong_ns + DAY, 100 * DAY, behind_ns=wrong_ns - latest_ns)
    assert of(store, EVE) == [1]
    assert not (tmp_path / HOLD_FILE).exists()


def test_a_machine_that_was_off_for_years_forgets_a_day_later(tmp_path: Path, wall: SimpleNamespace) -> None:
    store = JobStore(Store(tmp_path))
    store.save([replace(make_ended_job(1), ended_ns=1000 * DAY)])
    wall.ns = 2000 * DAY
    past, _ = restart(tmp_path, store, 1000 * DAY, wall.ns)
    run(past, wall.ns, HOLD_NS)
    assert of(store, EVE) == []
    _, said = restart(tmp_path, store, wall.ns, wall.ns + S)
    assert not said


@pytest.mark.parametrize("text", ["", "nonsense", str(10**30), "9" * 5000])
def test_a_damaged_note_of_the_hold_holds_for_a_day(tmp_path: Path, wall: SimpleNamespace, text: str) -> None:
    store = JobStore(Store(tmp_path))
    store.save([replace(make_ended_job(1), ended_ns=1 * DAY)])
    (tmp_path / HOLD_FILE).write_text(text)
    now_ns = wall.ns
    for start in range(4):
        assert of(store, EVE) == [1], start
        past, _ = restart(tmp_path, store, now_ns - S, now_ns)
        now_ns = wall.ns = run(past, now_ns, HOLD_NS // 4) + 10 * DAY
    assert of(store, EVE) == []


def test_who_keeps_a_day_is_warned_of_half_a_one(tmp_path: Path, wall: SimpleNamespace) -> None:
    store, said = JobStore(Store(tmp_path)), []
    config = LiveConfig(Config(accounting_days=1, state_dir=str(tmp_path)))
    Past(config, events_into(said), store, wall.ns - DAY, wall.ns)
    assert len(said) == 1


def test_ended_jobs_alone_say_what_time_it_was(tmp_path: Path) -> None:
    store = JobStore(Store(tmp_path))
    store.save([replace(make_ended_job(1), ended_ns=1000 * DAY)])
    assert store.load().latest_ns == 1000 * DAY


def test_a_user_who_writes_on_is_kept_below_the_bound_and_named_once_an_hour(tmp_path: Path) -> None:
    past, store, said = world(tmp_path)
    next_id, jobs = 1, dict[int, Job]()
    for second in range(15):
        store.save([make_ended_job(n) for n in range(next_id, next_id + 200)])
        next_id += 200
        past.forget(NOW_NS + second * S, NOW_NS, jobs)
    left = of(store, EVE)
    assert len(left) < 2000 and left[-1] == next_id - 1
    assert len(said) == 1 and f"uid {EVE} most of it" in said[0].message
    store.save([make_ended_job(n) for n in range(next_id, next_id + 2000)])
    past.forget(NOW_NS + SAY_NS + 15 * S, NOW_NS, jobs)
    assert len(said) == 2


def test_what_a_waiting_job_comes_after_stays(tmp_path: Path) -> None:
    """Else it would be cancelled after a restart."""
    past, store, _ = world(tmp_path)
    waits = make_ended_job(9000)
    waits.state, waits.spec = JobState.PENDING, replace(waits.spec, after=(3,))
    store.save([make_ended_job(n) for n in range(1, 3000)])
    for second in range(5):
        past.forget(NOW_NS + second * S, NOW_NS, {9000: waits})
    assert of(store, EVE)[0] == 3


def test_what_a_users_live_jobs_run_is_bounded() -> None:
    """Ten thousand jobs of 192 KiB each were allowed, in memory and in the database."""
    counts = JobCounts()
    host: Any = SimpleNamespace(node=SimpleNamespace(name="n"), config=LiveConfig(Config()))
    jobs: Any = SimpleNamespace(counts=counts)
    submissions = JobSubmissions(host, jobs, Arrays(jobs))
    number = 0
    while (denied := submissions._too_large(make_ended_job(1, size=95_000).spec)) is None and number < 1000:
        number += 1
        counts.see(replace(make_ended_job(number, size=95_000), state=JobState.PENDING))
    assert denied and 64 << 20 > counts.bytes_of_user(EVE) > 63 << 20
    assert f"uid {EVE}" in denied.message and "64MiB" in denied.message
    assert submissions._too_large(make_ended_job(1, uid=1).spec) is None
