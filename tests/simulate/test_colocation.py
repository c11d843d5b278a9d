"""Jobs that share devices in the simulator: what is seen of them goes to the daemon's watch; profiling; drawn data."""

from __future__ import annotations

import filecmp
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.predict import colocation, colocation_draw
from benchmarks.scheduling.traces import DATA
from tests.simulate.worlds import costs, ends_s
from tests.simulate.worlds import job as traced
from vgpud.core.jobs.model import SECOND_NS, Ask
from vgpud.core.model import Spec
from vgpud.simulate import clusters, reactive, scenario
from vgpud.simulate.engine import Outcome
from vgpud.simulate.interference import FULL, Pairs, gavel
from vgpud.simulate.sharing_monitor import SharingMonitor
from vgpud.simulate.trace import TraceJob

GIB = 1 << 30
RULE = "colocate(120,2)"


def job(at_s: float, duration_s: float, used: int, told_percent: int = -1, model: str = "", gib: int = 8) -> TraceJob:
    """A job of one device: what it uses and what is said of it, in percent."""
    made = traced(at_s, duration_s, model=model, used=10 * used)
    ask = Ask(
        Spec(1000, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB),
        utilisation_milli=10 * told_percent if told_percent >= 0 else -1,
    )
    return replace(made, spec=replace(made.spec, ask=ask, kinds=(model,) if model else ()))


def run(
    jobs: list[TraceJob], cluster: str = "1x1", monitor: SharingMonitor | None = None, **options: object
) -> Outcome:
    asked = scenario.Scenario("fifo", **{"placement": RULE, **options})  # type: ignore[arg-type]
    return scenario.run(jobs, clusters.parse(cluster), asked, monitor=monitor)


class Fixed:
    """Together each is that fast, in percent."""

    def __init__(self, percent: int) -> None:
        self.percent = percent

    def speed(self, job: TraceJob, neighbours: Sequence[TraceJob]) -> int:
        return FULL * self.percent // 100 if neighbours else FULL


# ---- measured ----


def test_after_a_minute_what_is_measured_counts() -> None:
    outcome = run([job(0, 300, used=40, told_percent=90), job(0, 100, used=60, told_percent=60)])
    assert ends_s(outcome) == [300, 160], "it starts when the first has been seen to use 40 %, at 60 s"


def test_without_a_prediction_a_job_is_alone_until_it_has_been_measured() -> None:
    outcome = run([job(0, 300, used=40), job(0, 100, used=60, told_percent=60)])
    assert ends_s(outcome) == [300, 160]


def test_on_a_full_device_a_prediction_is_not_lowered() -> None:
    jobs = [
        job(0, 100, used=70, told_percent=60),
        job(0, 400, used=60, told_percent=55),
        job(0, 400, used=60, told_percent=60),
    ]
    outcome = run(jobs)
    assert ends_s(outcome)[2] == 500, "the first one has ended, and the second one counts as it was predicted"
    assert [found.spec.ask.utilisation_milli for _, found in outcome.jobs] == [600, 550, 600]


def test_a_job_that_leaves_before_is_not_measured() -> None:
    monitor = SharingMonitor()
    assert ends_s(
        run([job(0, 30, used=40, told_percent=90), job(40, 100, used=50, told_percent=50)], monitor=monitor)
    ) == [30, 140]
    assert monitor.busy_ns() == round((30 * 0.4 + 100 * 0.5) * SECOND_NS)


def test_a_device_is_busy_with_all_its_jobs_but_never_more_than_whole() -> None:
    monitor = SharingMonitor()
    run([job(0, 100, used=70, told_percent=60), job(0, 50, used=60, told_percent=50)], monitor=monitor)
    assert monitor.busy_ns() == round((50 * 1.0 + 50 * 0.7) * SECOND_NS)


# ---- pairs that lose ----


def test_a_pair_that_loses_is_separated_and_remembered() -> None:
    """How fast each is alone is known of the one from the minute before, of the other from another of its kind."""
    monitor = SharingMonitor()
    jobs = [
        job(0, 90, used=30, told_percent=30, model="b"),
        job(100, 2000, used=40, told_percent=40, model="a"),
        job(200, 1000, used=30, told_percent=30, model="b"),
        job(4000, 1000, used=30, told_percent=30, model="b"),
        job(4000, 100, used=40, told_percent=40, model="a"),
    ]
    outcome = run(jobs, interference=Fixed(30), monitor=monitor)
    found = [done for _, done in outcome.jobs]
    assert monitor.separation_count == 1
    assert [done.preemptions for done in found] == [0, 0, 1, 0, 0]
    lost_s = 0.7 * 130  # while they were watched: 10 s to settle, two windows
    assert ends_s(outcome)[1] == pytest.approx(2100 + lost_s)
    assert ends_s(outcome)[2] == pytest.approx(2100 + lost_s + 1000 - 0.3 * 130), "it goes on when the other has gone"
    assert ends_s(outcome)[3:] == [5000, 5100], "such jobs are not put together again"


def test_a_pair_that_gains_stays() -> None:
    monitor = SharingMonitor()
    jobs = [job(0, 2000, used=40, told_percent=40, model="a"), job(100, 1000, used=30, told_percent=30, model="a")]
    outcome = run(jobs, interference=Fixed(60), monitor=monitor)
    assert monitor.separation_count == 0 and [done.preemptions for _, done in outcome.jobs] == [0, 0]


def test_without_interference_and_with_other_placements_nothing_changes() -> None:
    jobs = [job(10 * number, 300, used=90, told_percent=90) for number in range(6)]
    assert ends_s(run(jobs, "1x2")) == ends_s(run(jobs, "1x2", placement="best-fit"))


def test_jobs_are_guaranteed_their_part_by_the_machine() -> None:
    outcome = run([job(0, 100, used=40, told_percent=40)])
    assert outcome.jobs[0][1].spec.ask.spec.min_milli == 500


# ---- profiling ----


def test_profiles_are_taken_one_after_the_other() -> None:
    jobs = [job(0, 100, used=40), job(5, 30, used=50), job(5, 200, used=60), job(1000, 70, used=70)]
    found = reactive.profile(jobs, costs(start_s=1, suspend_s=2))
    assert [one.submitted_ns / SECOND_NS for one in found.rest] == [63, 63 + 31 + 63, 1063]
    assert [one.duration_ns / SECOND_NS for one in found.rest] == [40, 140, 10]
    assert [one.spec.ask.utilisation_milli for one in found.rest] == [400, 600, 700]
    assert found.index == (0, 2, 3)
    assert found.ended_ns == (-1, 94 * SECOND_NS, -1, -1), "the second one ends before its profile does"


# ---- the drawn data ----


def test_the_committed_data_is_what_the_script_draws(tmp_path: Path) -> None:
    colocation_draw.write(tmp_path)
    names = [f"{name}.csv" for name in colocation_draw.SETS]
    assert filecmp.cmpfiles(tmp_path, colocation_draw.FOLDER, names, shallow=False)[0] == names


@pytest.mark.parametrize("mean", colocation_draw.MEANS)
def test_what_is_drawn_is_what_is_said_of_it(mean: int) -> None:
    data = colocation.read_draws("day")
    assert len(data) == 1500 and max(one.duration_ns for one in data) <= 86_400 * SECOND_NS
    assert fmean(one.percents[mean] for one in data) == pytest.approx(mean, abs=0.01)
    assert sum(one.memory_gib <= 20 for one in data) / 1500 == pytest.approx(0.5, abs=0.03)
    assert sum(one.memory_gib > 40 for one in data) / 1500 == pytest.approx(0.2, abs=0.03)
    assert fmean(one.error for one in data) == pytest.approx(0, abs=0.08)
    assert math.sqrt(fmean(one.error**2 for one in data)) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("rmsle", [0.155, 0.4])
def test_predictions_are_as_wrong_as_they_are_said_to_be(rmsle: float) -> None:
    case = colocation.Case()
    jobs = colocation.trace(case, rmsle)
    errors = [
        math.log1p(one.spec.ask.utilisation_milli / 10) - math.log1p(one.utilisation_milli / 10)
        for one in jobs
        if one.spec.ask.utilisation_milli < 1000
    ]
    assert 0.75 * rmsle < math.sqrt(fmean(error**2 for error in errors)) < 1.05 * rmsle, "those above 100 % are cut off"
    assert [one.utilisation_milli for one in jobs] == [one.utilisation_milli for one in colocation.trace(case)]


def test_load_is_gpu_time_over_that_of_the_gpus() -> None:
    jobs = colocation.trace(colocation.Case(load=2.0))
    work_ns = sum(one.duration_ns for one in jobs)
    assert work_ns / (colocation.GPUS * jobs[-1].submitted_ns) == pytest.approx(2)
    assert {one.submitted_ns for one in colocation.trace(colocation.Case(load=math.inf))} == {0}


def test_demanding_models_are_the_jobs_that_use_most() -> None:
    pairs = gavel(DATA / "gavel" / "simulation_throughputs.json", "v100")
    order = pairs.by_demand()
    jobs = sorted(colocation.trace(colocation.Case(truth="v100")), key=lambda one: one.utilisation_milli)
    assert jobs[0].spec.model == order[0] and jobs[-1].spec.model == order[-1]
    plain = Pairs({("x (1)", "y (1)"): 500_000, ("x (1)", "z (1)"): 900_000, ("x", "z"): 1})
    assert plain.by_demand() == ("z (1)", "y (1)")


def test_sharing_beats_slots_on_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 150 jobs, on two GPUs, so that it takes seconds."""
    monkeypatch.setattr(colocation, "GPUS", 2)
    monkeypatch.setattr(colocation, "NODES", 1)
    whole = colocation.read_draws
    monkeypatch.setattr(colocation, "read_draws", lambda jobs: whole(jobs)[:150])
    case = colocation.Case(load=3.0)
    colocation.trace.cache_clear()
    base, found = colocation.slots(case, "fifo"), colocation.shared(case, 0.155)
    colocation.trace.cache_clear()
    assert found.shorter(base) > 20 and found.jct_h < base.jct_h and found.busy > base.busy
    assert base.useful <= base.busy <= 1 and found.busy <= 1
