"""The acceptance run of the queue over many nodes: its jobs, its checks and its forecast, without a Slurm."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.cluster.acceptance import faults, forecast, records, workload
from benchmarks.cluster.acceptance.site import PROCESS_NAMES, SLURMCTLD
from benchmarks.cluster.acceptance.workload import QUEUES, Submission
from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate.engine import Costs

GIB = 1 << 30
HALF = Submission("j000", 0.0, "teaching", "shard:500", 1, (2000,))
#: begins when HALF has ended
GANG = Submission("j001", 1.0, "research", "gpu:1", 2, (3000,), after=("j000",))
ARRAY = Submission("j002", 1.0, "teaching", "shard:250", 1, (1000, 1000))
ALL = (HALF, GANG, ARRAY)


def line(word: str, name: str, at_s: float, **fields: object) -> str:
    given = {
        "rank": 0,
        "job": "1",
        "restarts": 0,
        "node": "n1",
        "devices": "0",
        "bytes": GIB,
        "before_s": 0.0,
        **fields,
    }
    times = int(at_s * SECOND_NS), int(float(str(given["before_s"])) * SECOND_NS)
    parts = (given["rank"], given["job"], given["restarts"], given["node"], given["devices"], given["bytes"])
    return " ".join(str(part) for part in (word, name, *parts, *times))


GOOD = [
    line("start", "j000", 1, bytes=2 * GIB),
    line("end", "j000", 3, bytes=2 * GIB),
    *(line("start", f"j002.{i}", 1.5, devices="1") for i in range(2)),
    *(line("end", f"j002.{i}", 2.5, devices="1") for i in range(2)),
    *(line("start", "j001", 4, rank=i, node=f"n{i + 1}", bytes=4 * GIB) for i in range(2)),
    *(line("end", "j001", 7, rank=i, node=f"n{i + 1}", bytes=4 * GIB) for i in range(2)),
]


def check(lines: list[str], submissions: tuple[Submission, ...] = ALL) -> records.Findings:
    return records.check(submissions, records.parse("\n".join(lines)), QUEUES, 4 * GIB)


# ---- jobs ----


def test_jobs_are_mixed_and_the_same_each_time() -> None:
    jobs = workload.generate(500, 1)
    assert jobs == workload.generate(500, 1) != workload.generate(500, 2)
    assert sum(len(one.jobs) for one in jobs) == 500
    assert {(one.gres, one.nodes) for one in jobs} == set(workload.SHAPES)
    assert {one.user for one in jobs} == {"man", "games"} and any(one.is_array for one in jobs)
    assert all(one.nodes == 1 for one in jobs if one.is_array)
    limits = {queue.name: queue.limit_milli for queue in QUEUES}
    assert all(one.width_milli <= limits[one.queue] for one in jobs)
    durations_s = sorted(ms / 1000 for one in jobs for ms in one.durations_ms)
    assert durations_s[0] >= 2 and durations_s[250] < 5 and 30 < durations_s[-1] <= 60


def test_jobs_come_after_earlier_ones() -> None:
    jobs = workload.generate(200, 3)
    at = {one.name: number for number, one in enumerate(jobs)}
    after = [(at[name], number) for number, one in enumerate(jobs) for name in one.after]
    assert after and all(before < number for before, number in after)
    assert [one.at_s for one in jobs] == sorted(one.at_s for one in jobs)
    assert any(one.after_any for one in jobs if one.after)


def test_each_daemon_is_killed() -> None:
    planned = faults.plan(600, 1)
    assert planned == faults.plan(600, 1) and {fault.kind for fault in planned} == set(PROCESS_NAMES)
    assert len(planned) >= 20 and len(faults.plan(5, 1)) == len(PROCESS_NAMES)
    assert [fault.at_s for fault in planned] == sorted(fault.at_s for fault in planned) and planned[-1].at_s < 600
    often = faults.plan(600, 1, slurmctld_every_s=20)
    assert sum(fault.kind == SLURMCTLD for fault in often) == 30


def test_slurmctld_is_ended_by_turns() -> None:
    planned = faults.plan(600, 1)
    gentle = [fault.gentle for fault in planned if fault.kind == SLURMCTLD]
    assert gentle[:3] == [False, True, False]
    assert not any(fault.gentle for fault in planned if fault.kind != SLURMCTLD)
    assert all(fault.gentle == (fault.kind == SLURMCTLD) for fault in faults.plan(600, 1, gentle=True))


# ---- checks ----


def test_nothing_is_wrong_with_a_good_run() -> None:
    found = check(GOOD)
    assert found.wrong == [] and found.starts == 4
    assert found.most_milli == {"research": 2000, "teaching": 1000}
    times = records.jct_s(ALL, found.ended_ns, 0)
    assert times == {"j000": 3, "j001": 6, "j002.0": 1.5, "j002.1": 1.5}


@pytest.mark.parametrize(
    ("extra_lines", "left_out", "what"),
    [
        ([], "end j001 1", "lost_jobs"),
        ([line("start", "j000", 8, bytes=2 * GIB), line("end", "j000", 9)], "", "repeated_jobs"),
        ([line("start", "j000", 5, bytes=2 * GIB)], "", "repeated_jobs"),
        ([line("overlap", "j000", 2)], "", "repeated_jobs"),
        ([line("start", "j009", 2), line("end", "j009", 3)], "", "repeated_jobs"),
        ([line("start", "j001", 2, node="n2", bytes=4 * GIB), line("stop", "j001", 2.1)], "", "too_early"),
    ],
)
def test_what_is_wrong_is_found(extra_lines: list[str], left_out: str, what: str) -> None:
    lines = [one for one in GOOD if not left_out or not one.startswith(left_out)] + extra_lines
    assert [text.partition(":")[0] for text in check(lines).wrong] == [what]


def test_limits_are_looked_at() -> None:
    first = Submission("a", 0, "teaching", "gpu:1", 1, (1000,))
    jobs = tuple(replace(first, name=name) for name in "abc")

    def run(name: str, device: int, at_s: float) -> list[str]:
        return [line(word, name, at, devices=str(device), bytes=4 * GIB) for word, at in _word_at(at_s)]

    assert check([*run("a", 0, 1), *run("b", 1, 1), *run("c", 0, 2)], jobs).wrong == []
    beyond = check([*run("a", 0, 1), *run("b", 1, 1.5), *run("c", 0, 1.5)], jobs)
    assert [text.partition(":")[0] for text in beyond.wrong] == ["over_quota", "over_device"]
    assert beyond.most_milli["teaching"] == 3000


def _word_at(at_s: float) -> list[tuple[str, float]]:
    return [("start", at_s), ("end", at_s + 1)]


def test_memory_is_looked_at() -> None:
    lines = [line("start", "j000", 1, bytes=4 * GIB), line("end", "j000", 3)]
    assert check(lines, (HALF,)).memory == [f"j000 {4 * GIB}, not {2 * GIB}"]


def test_a_killed_run_ends_with_its_checkpoint() -> None:
    """And one that had ended when it was killed has worked once."""
    lines = [line("start", "j000", 1, bytes=2 * GIB), line("start", "j000", 9, bytes=2 * GIB, before_s=2.5)]
    done = line("again", "j000", 20, before_s=11)
    found = records.runs(records.parse("\n".join([*lines, done])))
    assert [(run.end_ns / SECOND_NS, run.how) for run in found] == [(2.5, "killed"), (11, "end")]
    checked = check([*lines, done], (HALF,))
    assert checked.wrong == [] and (checked.killed_runs, checked.redone_runs) == (1, 1)


# ---- the forecast ----


def test_a_lone_job_takes_its_time_and_a_start() -> None:
    said = forecast.forecast((HALF,), Costs(SECOND_NS, SECOND_NS, SECOND_NS))
    assert said.jct_s == {"j000": 3.0}


def test_dependencies_gangs_and_arrays_are_forecast() -> None:
    said = forecast.forecast(ALL, Costs())
    assert said.jct_s == {"j000": 2.0, "j001": 4.0, "j002.0": 1.0, "j002.1": 1.0}


def test_what_a_start_costs_counts() -> None:
    jobs = workload.generate(120, 4)
    dear = forecast.forecast(jobs, Costs(2 * SECOND_NS, SECOND_NS, 2 * SECOND_NS))
    cheap = forecast.forecast(jobs, Costs())
    assert len(dear.jct_s) == 120 and dear.mean_jct_s > cheap.mean_jct_s + 2
    assert dear.preemptions > 0


def test_latencies_are_those_between_decisions_and_programs() -> None:
    recording = [
        {"queues": [], "nodes": [], "policy": {}, "hows": []},
        {"at_ns": 0, "event": {"type": "Submitted", "job_ids": [1], "spec": {"name": "12_3"}}},
        {"at_ns": 0, "event": {"type": "Woken"}, "commands": [{"type": "StartJob", "job_id": 1}]},
        {"at_ns": 4 * SECOND_NS, "event": {"type": "Woken"}, "commands": [{"type": "StopJob", "job_id": 1}]},
        {
            "at_ns": 6 * SECOND_NS,
            "event": {"type": "JobSuspended", "job_id": 1, "how": "requeue"},
            "commands": [{"type": "StartJob", "job_id": 1}],
        },
        {
            "at_ns": 9 * SECOND_NS,
            "event": {"type": "JobEnded", "job_id": 1, "attempt": 2, "exit_code": 0},
            "commands": [],
        },
    ]
    text = "\n".join(json.dumps(one) for one in recording) + '\n{"at_ns": 9, "eve'
    jobs = [line("start", "j000", 1, job="12_3"), line("stop", "j000", 5, job="12_3")]
    jobs += [line("start", "j000", 7.5, job="12_3"), line("end", "j000", 8.5, job="12_3")]
    found = forecast.latencies([text], records.parse("\n".join(jobs)))
    assert (found.starts, found.restarts, found.ends, found.stops) == ([1.0], [1.5], [0.5], [2.0])
    assert found.costs() == Costs(1_500_000_000, 2 * SECOND_NS, 2_500_000_000)
