"""Queues as a node has them: guarantees, limits and policies hold in the simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.simulate.worlds import ends_s, job, run
from vgpud.core.jobs.model import NEVER_NS, QueueSpec
from vgpud.simulate import quotas
from vgpud.simulate.trace import TraceError, TraceJob

SHOWN = {
    "name": "team",
    "parent": None,
    "guarantee_milli": 1000,
    "limit_milli": None,
    "weight": 2,
    "used_milli": 500,
    "running": 1,
    "policy": "2d-las(3250,7200)",
    "placement": "fgd",
    "spread": False,
    "strict": False,
    "backfill": True,
    "min_run_ns": 0,
    "members": ["uid:1000"],
}


def write_queues(folder: Path, data: Any) -> Path:
    path = folder / "queues.json"
    path.write_text(json.dumps(data))
    return path


def test_as_quota_get_shows_them(tmp_path: Path) -> None:
    (spec,) = quotas.read(write_queues(tmp_path, {"schema_version": 1, "queues": [SHOWN]}))
    wanted = QueueSpec("team", "", 1000, NEVER_NS, 2, "2d-las(3250,7200)", "fgd", min_run_ns=0)
    assert spec == wanted


def of(queue: str, one: TraceJob) -> TraceJob:
    return replace(one, spec=replace(one.spec, queue=queue))


def test_limits_and_guarantees_hold() -> None:
    a, b = QueueSpec("a", limit_milli=1000, min_run_ns=0), QueueSpec("b", guarantee_milli=1000, min_run_ns=0)
    trace = [of("a", job(0, 10)), of("a", job(0, 10)), of("b", job(1, 5)), of("b", job(1, 5))]
    assert ends_s(run(trace, "1x2", "", "", queues=(a, b))) == [10, 20, 6, 11]
    greedy = replace(a, limit_milli=NEVER_NS)
    outcome = run(trace, "1x2", "", "", queues=(greedy, b))
    assert [known.preemptions for _, known in outcome.jobs] == [0, 1, 0, 0], "it makes room for the guarantee"


def test_a_policy_for_all_of_them() -> None:
    queues = (QueueSpec("a", policy="fifo", min_run_ns=0),)
    trace = [of("a", job(0, 10)), of("a", job(1, 2))]
    assert ends_s(run(trace, "1x1", "", "", queues=queues)) == [10, 12]
    assert ends_s(run(trace, "1x1", "srtf", "", queues=queues)) == [12, 3]


def test_jobs_of_queues_that_are_not_there_are_left_out() -> None:
    outcome = run([of("a", job(0, 1)), of("tea", job(0, 1))], "1x1", "", "", queues=(QueueSpec("a"),))
    ((refused, why),) = outcome.refused_jobs
    assert refused.spec.queue == "tea" and "tea" in why


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"jobs": []}, "has no queues"),
        ([], "has no queues"),
        ([{"weight": 1}], "a queue without a name"),
        ([{**SHOWN, "weight": "much"}], "queue 'team': 'much' is no int"),
    ],
)
def test_refused(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        quotas.read(write_queues(tmp_path, data))


def test_queues_that_cannot_be_are_refused_as_the_daemon_does() -> None:
    with pytest.raises(TraceError, match="nobody"):
        run([job(0, 1)], "1x1", "", "", queues=(QueueSpec("default", parent="nobody"),))
