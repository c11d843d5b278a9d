"""The daemon's part in forgetting: when, what stays, and how often it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.store.test_user_shares import EVE, MOST, ended, of
from vgpud.config import Config
from vgpud.core.events import Log
from vgpud.core.jobs.counts import JobCounts
from vgpud.core.jobs.model import Job, JobState
from vgpud.daemon.jobs.past import SAY_NS, Past
from vgpud.daemon.jobs.requests import JobRequests
from vgpud.store.database import Store
from vgpud.store.jobs import JobStore

S = 1_000_000_000
NOW_NS = 400 * 24 * 3600 * S


def world(folder: Path) -> tuple[Past, JobStore, list[Log]]:
    store, said = JobStore(Store(folder)), []
    host: Any = SimpleNamespace(config=Config(state_bytes_max=MOST), note=said.append)
    return Past(host, store), store, said


def test_a_user_who_writes_on_is_kept_below_the_bound_and_named_once_an_hour(tmp_path: Path) -> None:
    past, store, said = world(tmp_path)
    next_id, jobs = 1, dict[int, Job]()
    for second in range(15):
        store.save([ended(n) for n in range(next_id, next_id + 200)])
        next_id += 200
        past.forget(NOW_NS + second * S, jobs)
    left = of(store, EVE)
    assert len(left) < 2000 and left[-1] == next_id - 1
    assert len(said) == 1 and f"uid {EVE} most of it" in said[0].message
    store.save([ended(n) for n in range(next_id, next_id + 2000)])
    past.forget(NOW_NS + SAY_NS + 15 * S, jobs)
    assert len(said) == 2


def test_what_a_waiting_job_comes_after_stays(tmp_path: Path) -> None:
    """Else it would be cancelled after a restart."""
    past, store, _ = world(tmp_path)
    waits = ended(9000)
    waits.state, waits.spec = JobState.PENDING, replace(waits.spec, after=(3,))
    store.save([ended(n) for n in range(1, 3000)])
    for second in range(5):
        past.forget(NOW_NS + second * S, {9000: waits})
    assert of(store, EVE)[0] == 3


def test_what_a_users_live_jobs_run_is_bounded() -> None:
    """Ten thousand jobs of 192 KiB each were allowed, in memory and in the database."""
    counts = JobCounts()
    host: Any = SimpleNamespace(node="n", config=Config())
    requests = JobRequests(host, SimpleNamespace(counts=counts))  # type: ignore[arg-type]
    number = 0
    while (denied := requests._too_large(ended(1, size=95_000).spec)) is None and number < 1000:
        number += 1
        counts.see(replace(ended(number, size=95_000), state=JobState.PENDING))
    assert denied and 64 << 20 > counts.bytes_of_user(EVE) > 63 << 20
    assert f"uid {EVE}" in denied.message and "64MiB" in denied.message
    assert requests._too_large(ended(1, uid=1).spec) is None
