"""Elastic jobs in the simulation: their speed goes by their size, and a change costs time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.simulate.worlds import job, run
from vgpud.core.jobs.model import SECOND_NS, Elastic, JobState, QueueSpec
from vgpud.simulate import readers, results, scaling, scenario
from vgpud.simulate.engine import Costs, Outcome
from vgpud.simulate.interference import Summed
from vgpud.simulate.scaling import SLIDES, Curve
from vgpud.simulate.trace import TraceError, TraceJob

LINEAR = Curve(((1, 1), (64, 64)))


def elastic(
    at_s: float, work_s: float, workers_min: int, workers_max: int, workers: int | None = None, curve: Curve = LINEAR
) -> TraceJob:
    """It would take so long with `workers` workers."""
    made = job(at_s, work_s, members=workers_min)
    spec = replace(made.spec, elastic=Elastic(least_members=workers_min, most_members=workers_max))
    return replace(made, spec=spec, scaling=curve, scaled_from=workers or workers_min)


def times_s(outcome: Outcome) -> list[tuple[float, float]]:
    return [(known.first_started_ns / SECOND_NS, known.ended_ns / SECOND_NS) for _, known in outcome.jobs]


def test_the_slides_curve() -> None:
    assert [SLIDES.rate(k) // 1000 for k in (0, 1, 8, 16, 24, 32, 48, 64, 100)] == [
        0, 137, 1100, 2200, 3100, 4000, 4500, 5000, 5000,
    ]  # fmt: skip
    assert SLIDES.speed(32, 16, 1000) == 1818
    assert SLIDES.speed(16, 32, 1000) == 550
    assert SLIDES.rescale_sizes(16, 4).rate(8) == SLIDES.rate(32)


def test_it_grows_when_nothing_has_happened_for_a_minute() -> None:
    # 60 s at 1 of 4 workers' speed, then 4 times as fast
    outcome = run([elastic(0, 400, 1, 4)], "1x4")
    assert times_s(outcome) == [(0, 60 + 340 / 4)]


def test_a_change_costs_time_in_which_it_has_its_devices_and_does_nothing() -> None:
    outcome = run([elastic(0, 400, 1, 4)], "1x4", costs=Costs(resize_ns=30 * SECOND_NS))
    assert times_s(outcome) == [(0, 90 + 340 / 4)]
    held = [(sample.at_ns // SECOND_NS, sample.held_milli) for sample in outcome.samples]
    assert (60, 4000) in held and held[-1][1] == 0


def test_it_shrinks_for_a_job_that_has_waited_half_a_minute_and_no_further_than_that_needs() -> None:
    trace = [elastic(0, 4000, 1, 4), job(100, 1000, members=2)]
    outcome = run(trace, "1x4", costs=Costs(resize_ns=5 * SECOND_NS))
    (_, first_ends), (second_starts, second_ends) = times_s(outcome)
    assert (second_starts, second_ends) == (135, 1135), "30 s, and 5 in which the other one shrinks"
    # to 60 at 1 worker; from 65 to 130 at 4; from 135 at 2, until the other one ends at 1135; from 1140 at 4
    done = 60 + 65 * 4 + 1000 * 2
    assert done + 4 * (first_ends - 1140) == 4000, "nothing had been done since 135 when the other one ended"


def test_what_idles_beside_one_that_does_not_fit_is_used_until_it_does() -> None:
    trace = [job(0, 500, members=3), elastic(0, 4000, 1, 4), job(1, 10, members=4)]
    outcome = run(trace, "1x5", "strict:fifo")
    (_, rigid_ends), (_, _), (wide_starts, wide_ends) = times_s(outcome)
    assert rigid_ends == 500
    assert (wide_starts, wide_ends) == (500, 510), "the elastic job's second worker left at once"


def test_nothing_changes_for_jobs_that_are_not_elastic() -> None:
    trace = [job(0, 10), job(1, 5, members=2), job(2, 3)]
    outcome = run(trace, "1x2", "strict:fifo")
    assert [ends for _, ends in times_s(outcome)] == [10, 15, 18]


def test_an_elastic_slice_in_a_simulated_cluster() -> None:
    made = job(0, 100, gpus=0.25)
    spec = replace(made.spec, elastic=Elastic(least_milli=250, most_milli=1000))
    first = replace(made, spec=spec, scaling=Curve(((1000, 1000),)), scaled_from=1000)
    outcome = run([first], "1x1", placement="best-fit")
    assert times_s(outcome) == [(0, 60 + (100 - 15))], "a quarter of the speed for a minute, then all of it"
    outcome = run([first, job(80, 100, gpus=0.5)], "1x1", placement="best-fit", interference=Summed())
    (_, (second_starts, _)) = times_s(outcome)
    assert second_starts == 110


@st.composite
def traces(draw: st.DrawFn) -> list[TraceJob]:
    made, at_s = [], 0
    for _ in range(draw(st.integers(1, 12))):
        at_s += draw(st.sampled_from([0, 1, 20, 40, 100]))
        work_s, least = draw(st.integers(1, 600)), draw(st.integers(1, 4))
        if draw(st.booleans()):
            made.append(
                elastic(at_s, work_s, least, min(8, least + draw(st.integers(0, 6))), workers=draw(st.integers(1, 8)))
            )
        else:
            made.append(job(at_s, work_s, members=least))
    return made


@pytest.mark.parametrize("placement", ["count", "best-fit"])
@settings(max_examples=examples(60), deadline=None)
@given(
    trace=traces(),
    policy=st.sampled_from(["fifo", "strict:fifo", "2d-las(100,1000)", "srtf"]),
    resize_s=st.sampled_from([0, 3, 30]),
    idle_s=st.sampled_from([0, 5, 60]),
)
def test_all_end_and_no_work_is_lost(
    placement: str, trace: list[TraceJob], policy: str, resize_s: int, idle_s: int
) -> None:
    queue = QueueSpec("default", min_run_ns=0, elastic_idle_ns=idle_s * SECOND_NS)
    costs = Costs(resize_ns=resize_s * SECOND_NS)
    outcome = run(trace, "1x8", policy, placement, queues=(queue,), costs=costs)
    assert not outcome.refused_jobs
    for traced, known in outcome.jobs:
        assert known.state is JobState.COMPLETED
        if traced.scaling is None:
            assert known.executed_ns == traced.duration_ns
        else:
            elastic_spec = traced.spec.elastic
            assert elastic_spec is not None
            slowest = traced.scaling.speed(elastic_spec.least_members, traced.scaled_from, 1_000_000)
            fastest = traced.scaling.speed(elastic_spec.most_members, traced.scaled_from, 1_000_000)
            assert known.executed_ns >= traced.duration_ns * 1_000_000 // fastest - 1
            if not resize_s:
                assert known.executed_ns <= traced.duration_ns * 1_000_000 // slowest + 100
    assert max(sample.held_milli for sample in outcome.samples) <= 8000
    assert results.figures(outcome).jobs == len(trace)


def read(tmp_path: Path, text: str) -> list[TraceJob]:
    file = tmp_path / "trace.csv"
    file.write_text("num_gpu,submit_time,duration,min_gpu,max_gpu\n" + text)
    return readers.read(file)


def test_a_trace_says_which_jobs_are_elastic(tmp_path: Path) -> None:
    rigid, elastic_job = read(tmp_path, "4,0,100,,\n2,0,400,1,4\n")
    assert rigid.spec.elastic is None and rigid.scaling is None
    assert elastic_job.spec.elastic == Elastic(least_members=1, most_members=4) and elastic_job.spec.members == 1
    assert times_s(run([elastic_job], "1x4")) == [(0, 60 + (800 - 60) / 4)], "as fast as there are workers"
    concave = scenario.apply_curve([rigid, elastic_job], scaling.parse("1:10,2:15,4:20"))
    assert concave[0] == rigid
    ((_, ends),) = times_s(run(concave[1:], "1x4"))
    assert ends == pytest.approx(60 + (400 - 60 * 10 / 15) * 15 / 20)


def test_bounds_that_fall_are_refused_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"trace.csv:3: min_gpu 4, num_gpu 2, max_gpu 8: must be in ascending order"):
        read(tmp_path, "4,0,100,,\n2,0,400,4,8\n")


@pytest.mark.parametrize("text", ["", "16", "16:a", "0:5", "16:2200,16:4000", "16:2200,32:100", "1:0", "1:99999999999"])
def test_curves_that_are_invalid(text: str) -> None:
    with pytest.raises(ValueError, match="16:2200,32:4000,64:5000"):
        scaling.parse(text)
