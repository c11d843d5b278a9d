"""The benchmark of the queue over many nodes, small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import rows
from benchmarks.cluster import apart, decisions, models, packing, topology
from benchmarks.cluster.__main__ import BENCH
from benchmarks.table import Figure, at_least
from tests.simulate.worlds import job
from vgpud.core.jobs.model import Place
from vgpud.simulate import clusters, results, scenario
from vgpud.simulate.interference import FULL
from vgpud.simulate.trace import TraceJob, order_jobs

FIFO = scenario.Scenario("fifo", "best-fit")
JOBS = st.lists(
    st.builds(job, at_s=st.integers(0, 50), duration_s=st.integers(1, 20), gpus=st.sampled_from([0.25, 0.5, 1, 2])),
    min_size=1,
    max_size=12,
).map(lambda jobs: order_jobs(jobs, sort=True))


def test_a_small_cluster_decides() -> None:
    found = decisions.measure("2d-las(3250,7200)", jobs=200, nodes=10, decisions=5)
    assert 0 < found["median_ms"] <= found["p99_ms"] <= found["look_mean_ms"] * 5


def test_models_are_drawn_the_same_each_time() -> None:
    first, again = (models.draw_jobs(models.CLUSTER400, 48, 0.7) for _ in range(2))
    assert first == again and len({job.spec.model for job in first}) > 10
    assert all(dict(job.spec.ask.rates).keys() == models.GPUS for job in first)


@pytest.mark.parametrize("model", ["ResNet-50 (batch size 32)", "A3C"])
def test_speeds_are_those_of_the_table(model: str) -> None:
    (job,) = [one for one in models.draw_jobs(models.CLUSTER400, 48, 0.7) if one.spec.members == 1][:1]
    nodes = clusters.parse("1x1:k80+1x1:v100")
    assert models.rate(model, 1, "v100") > models.rate(model, 1, "k80") > 0.001
    assert job.spec.skew_ppm == -1 and len(nodes) == 2


# ---- a queue on each node ----


@given(JOBS, st.integers(1, 4))
def test_every_job_is_sent_to_one_node_in_its_order(jobs: list[TraceJob], count: int) -> None:
    nodes = clusters.parse(f"{count}x2")
    known = [replace(one, where=str(number)) for number, one in enumerate(jobs)]
    for parts in (apart.in_turn(known, nodes), apart.ends_first(known, nodes)):
        assert len(parts) == count
        assert sorted((one for part in parts for one in part), key=lambda one: int(one.where)) == known
        assert all([int(one.where) for one in part] == sorted(int(one.where) for one in part) for part in parts)


def test_to_the_node_where_it_ends_first() -> None:
    """The slow node takes what would wait longer for the fast one."""
    nodes = clusters.parse("1x1:k80+1x1:v100")
    machines = models.Speeds(models.models_of(nodes))
    model = "ResNet-50 (batch size 64)"  # seven times as fast there
    jobs = [job(0, 10, model=model) for _ in range(9)]
    assert [len(part) for part in apart.ends_first(jobs, nodes, machines)] == [1, 8]
    assert [len(part) for part in apart.ends_first(jobs, nodes)] == [5, 4]


@given(JOBS)
def test_one_cluster_together_is_itself(jobs: list[TraceJob]) -> None:
    alone = scenario.run(jobs, clusters.parse("1x2"), FIFO)
    assert results.figures(apart.merge_outcomes([alone])) == results.figures(alone)


@given(JOBS, st.integers(1, 3))
def test_sums_of_several_are_those_of_each(jobs: list[TraceJob], count: int) -> None:
    nodes = clusters.parse(f"{count}x2")
    parts = apart.in_turn(jobs, nodes)
    each = [scenario.run(part, (node,), FIFO) for part, node in zip(parts, nodes, strict=True) if part]
    whole = apart.run(parts, nodes, FIFO)
    assert whole.capacity_milli == 2000 * count and len(whole.jobs) == len(jobs)
    times = [sample.at_ns for sample in whole.samples]
    assert times == sorted(set(times))
    for value in ("held_milli", "waiting", "fragmented_milli"):

        def sums(outcome: Any, value: str = value) -> int:
            ends_ns = [*(sample.at_ns for sample in outcome.samples[1:]), 10**12]
            return sum(
                getattr(sample, value) * max(0, min(end_ns, 10**12) - sample.at_ns)
                for sample, end_ns in zip(outcome.samples, ends_ns, strict=True)
            )

        assert sums(whole) == sum(sums(one) for one in each)


# ---- fractions ----


def test_fractions_are_those_of_the_pods() -> None:
    pods = packing.pods()
    assert len(pods) > 500 and all(0 < one.duration_ns <= packing.LONGEST_NS for one in pods)
    asks = [one.spec.ask for one in pods]
    assert 0.3 < sum(ask.width_milli < 1000 for ask in asks) / len(asks) < 0.7
    first, again = (packing.with_fractions(packing.PHILLY, asks) for _ in range(2))
    assert first == again and len(first) == models.JOBS_MAX
    assert all(one.spec.members == 1 and one.spec.width_milli <= 8000 for one in first)
    assert {one.spec.ask for one in first if one.spec.width_milli < 1000} <= set(asks)


def test_a_whole_job_is_as_fast_as_its_gang_on_one_node() -> None:
    gang = next(
        one
        for one in models.draw_jobs(models.CLUSTER400, 64, 0.7)
        if one.spec.members == 8 and one.spec.skew_ppm > 500_000
    )
    on_one = packing.to_whole_job(gang)
    assert (on_one.spec.members, on_one.spec.width_milli) == (1, 8000) and on_one.spec.ask.rates == gang.spec.ask.rates
    machines = models.Speeds({"a": "v100", "b": "v100"})
    near, whole = machines.speed(gang, (Place("a", ()),) * 8), machines.speed(on_one, (Place("a", ()),))
    assert near == whole > machines.speed(gang, (Place("a", ()), Place("b", ())) * 4)


def test_the_load_is_what_is_asked_for() -> None:
    pods = packing.pods()
    assert pods[0].submitted_ns > 0, "the first ones are longer than a day"
    jobs = models.dense(pods, 64, 0.8)
    assert jobs[0].submitted_ns == 0
    length_ns = jobs[-1].submitted_ns
    assert sum(one.duration_ns * one.spec.width_milli for one in jobs) == pytest.approx(0.8 * 64_000 * length_ns)


# ---- switches ----


def test_the_network_costs_what_was_measured_and_more_above_a_switch() -> None:
    real = topology.connect_nodes(clusters.parse("8x2:v100"))
    machines = topology.Network({node.name: node.switches[0] for node in real})
    gang = job(0, 10, members=2, model="LM (batch size 5)")

    def speed(*nodes: str) -> float:
        return machines.speed(gang, tuple(Place(node, ()) for node in nodes)) / FULL

    near, far = (models.rate(gang.spec.model, 2, gpu) for gpu in ("v100", "v100_unconsolidated"))
    assert speed("n0", "n0") == pytest.approx(1, abs=1e-5)
    assert speed("n0", "n3") == pytest.approx(far / near, abs=1e-5)
    assert speed("n3", "n4") == pytest.approx(1 / (1 + 4 * (near / far - 1)), abs=1e-5)


# ---- rows that are kept ----


def test_a_kept_row_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its figures, its raw data and its verdicts are those of the last result, which is named."""
    run = rows.Row("one", lambda raw: [Figure("new", "c", "w", 2.0)])
    never = rows.Row("not run", lambda raw: 1 / 0)  # type: ignore[arg-type,return-value]
    bench = replace(BENCH, name="thing", rows={"old": never, "new": run})
    missed = Figure("old", "c", "w", 1.0, at_least(5))
    last = rows.write(bench, [missed, Figure("new", "c", "w", 1.0)], {"old": {"x": 7}, "new": {}}, tmp_path)[0]
    before = json.loads(last.read_text())
    monkeypatch.setattr(rows.results, "RESULTS", tmp_path)
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["bench", "--keep", "old", "--results", str(tmp_path)])
        assert rows.main(bench) == 1, "a missed goal stays missed"
        now = json.loads(last.read_text())
        assert now["figures"]["old"] == before["figures"]["old"] and now["figures"]["new"][0]["value"] == 2
        assert now["goals"] == before["goals"]
        assert now["raw"]["old"] == {"run": {"commit": before["commit"], "date": before["date"]}, "x": 7}
        assert f"The row old is of {before['date']}, commit {before['commit']}." in last.with_suffix(".md").read_text()
    (tmp_path / "apart").mkdir()
    apart = rows.write(bench, [Figure("old", "c", "w", 9.0, at_least(5))], {"old": {"x": 8}}, tmp_path / "apart")[0]
    monkeypatch.setattr("sys.argv", ["bench", "--take", str(apart), "--results", str(tmp_path)])
    assert rows.main(bench) == 0
    now = json.loads(last.read_text())
    assert (now["figures"]["old"][0]["value"], now["raw"]["old"]["x"], now["figures"]["new"][0]["value"]) == (9, 8, 2)
    monkeypatch.setattr("sys.argv", ["bench", "--keep", "none"])
    with pytest.raises(SystemExit):
        rows.main(bench)
    assert "none is no row" in capsys.readouterr().err
