"""Mixed jobs on a real Slurm while its daemons and ours are killed: a small acceptance run of the queue."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

JOBS, SEED, LOAD, LONGEST_S = 20, 5, 1.5, 8.0


def test_all_jobs_end_once_whatever_is_killed() -> None:
    from benchmarks.cluster.acceptance import __main__ as acceptance
    from benchmarks.cluster.acceptance import faults, forecast, records, workload
    from benchmarks.cluster.acceptance.play import play
    from benchmarks.cluster.acceptance.site import PROCESS_NAMES, Folder, missing, site

    reason = missing()
    if reason:
        pytest.skip(reason)
    jobs = workload.generate(JOBS, SEED, LOAD, LONGEST_S)
    plan = faults.plan(workload.span_s(jobs), SEED)
    with site(acceptance.POLL_S) as made:
        played = play(made, Folder.make(made.folder / "jobs"), jobs, plan)
        found = records.check(jobs, played.records, workload.QUEUES, made.device_bytes())
        said = f"{played.log_text}\n{made.cluster.logs()}"
        made.stop()
        differences = acceptance.replay_steps(made)
        took = forecast.latencies([path.read_text() for path in made.recordings()], played.records)
    assert {fault.kind for fault in played.faults} == set(PROCESS_NAMES)
    assert found.wrong == [] and played.failed == [], said
    assert len(found.ended_ns) == JOBS and found.starts >= JOBS
    assert differences == []
    assert took.starts and took.ends and took.costs().start_ns > 0
