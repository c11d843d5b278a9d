"""The figures that are published or follow from the rules: the slides' example, Tiresias' trace, Muri's trace.

In the smallest world (counted GPUs, no costs); benchmarks/scheduling has them from the simulator.
"""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import pytest

from tests.core.policy.world import World, make_job, mean_jct_s
from vgpud.core.jobs.model import GPU_SECOND, SECOND_NS, Job
from vgpud.core.policy.gittins import Gittins
from vgpud.core.policy.registry import NEW_QUEUE, make

DATA = Path(__file__).resolve().parents[3] / "benchmarks" / "data"
HOUR_S = 3600


def trace(name: str) -> list[Job]:
    with (DATA / name).open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        make_job(number, int(row["num_gpu"]), float(row["duration"]), float(row["submit_time"]))
        for number, row in enumerate(rows, 1)
    ]


def run(name: str, policy: str, gpus: int, strict: bool = False) -> tuple[float, World]:
    jobs = trace(name)
    world = World(make(policy), gpus, strict=strict)
    world.run(jobs)
    return mean_jct_s(jobs), world


class SlidesGittins(Gittins):
    """The index as the slides have it, which no distribution has: 0.25 at 0, 0.20 at 4, rising from there on."""

    def __init__(self) -> None:
        super().__init__("slides", by_width=True, table=[4, 5, 6, 7, 8, 9, 10, 11, 12])  # type: ignore[list-item]
        self.costs = [1000 // 25, 1000 // 20, *range(49, 41, -1)]


LAS = "J1 J2 J3 J2 J1 J2 J3 J2 J2 J3 J2 J2 J3 J2 J3 J3"
LAS_KEEPING = "J1 J2 J3 J2 J2 J1 J3 J2 J2 J3 J2 J2 J3 J2 J3 J3"
SLIDES = "J1 J1 J2 J2 J2 J2 J3 J3 J3 J3 J3 J3 J2 J2 J2 J2"
SHORTEST = "J1 J1 J2 J2 J2 J2 J2 J2 J2 J2 J3 J3 J3 J3 J3 J3"


@pytest.mark.parametrize(
    ("policy", "schedule", "mean"),
    [
        ("2d-las(every=1)", LAS, 35 / 3),
        ("2d-las(every=1,keep)", LAS_KEEPING, 12),
        ("slides", SLIDES, 10),
        ("2d-gittins(4,8,12)", SHORTEST, 28 / 3),
        ("srsf", SHORTEST, 28 / 3),
        ("fifo", SHORTEST, 28 / 3),
    ],
)
def test_slides_example(policy: str, schedule: str, mean: float) -> None:
    jobs = [make_job(1, 2, 2), make_job(2, 1, 8), make_job(3, 2, 6)]
    world = World(SlidesGittins() if policy == "slides" else make(policy), 2, unit_ns=SECOND_NS)
    world.run(jobs)
    assert " ".join(f"J{running}" for (running,) in world.schedule) == schedule
    assert mean_jct_s(jobs) == pytest.approx(mean)


def test_true_index_of_the_slides_jobs() -> None:
    """0.125, 0.167 and 0.25 for jobs that need 4, 8 or 12 and have used 0, 4 or 8."""
    policy = make("2d-gittins(4,8,12)")
    assert isinstance(policy, Gittins)
    assert [GPU_SECOND / cost for cost in policy.costs[:3]] == pytest.approx([1 / 8, 1 / 6, 1 / 4])


@pytest.mark.parametrize(
    ("policy", "strict", "mean"),
    [
        ("fifo", True, "1556.5"),
        ("fifo", False, "715.3"),
        ("2d-las(3250,7200)", False, "715.3"),
        ("srtf", False, "519.9"),
        ("srsf", False, "563.4"),
    ],
)
def test_tiresias_60_jobs_on_8_gpus(policy: str, strict: bool, mean: str) -> None:
    assert f"{run('tiresias/60_job.csv', policy, 8, strict)[0]:.1f}" == mean


@pytest.mark.parametrize(
    ("policy", "strict", "hours"),
    [
        ("fifo", True, 207.6),
        ("fifo", False, 118.9),
        ("2d-las(3250,7200)", False, 83.6),
        ("srtf", False, 61.0),
        ("srsf", False, 59.8),
    ],
)
def test_muri_400_jobs_on_64_gpus(policy: str, strict: bool, hours: float) -> None:
    assert run("muri/muri_cluster400_job.csv", policy, 64, strict)[0] / HOUR_S == pytest.approx(hours, rel=0.03)


@pytest.mark.parametrize("knob", [4, 8])
def test_promotion_does_not_thrash_and_shortens_the_longest_wait(knob: int) -> None:
    """As published it makes 45,514 preemptions or more here, against 398 without."""
    _, without = run("muri/muri_cluster400_job.csv", "2d-las(3250,7200)", 64)
    _, promoting = run("muri/muri_cluster400_job.csv", f"2d-las(3250,7200,promote={knob})", 64)
    assert without.preemptions < promoting.preemptions < 3 * without.preemptions
    assert promoting.longest_wait_ns <= 0.7 * without.longest_wait_ns


#: of the released Tiresias' 2D-LAS (its bug fixed where that is better), 8 and 64 GPUs
RELEASED_H = {
    "tiresias/60_job.csv": 715.3 / HOUR_S,
    "muri/muri_cluster400_job.csv": 81.1,
    "muri/muri_trace3_job.csv": 87.6,
    "muri/muri_trace1_job.csv": 856.0,
}
WITHOUT_KNOWLEDGE = "las(3250,7200,narrow)"


@pytest.mark.parametrize("name", RELEASED_H)
def test_one_policy_without_durations_beats_the_released_2d_las_on_every_trace(name: str) -> None:
    mean, _ = run(name, WITHOUT_KNOWLEDGE, 8 if "60_job" in name else 64)
    assert mean / HOUR_S < RELEASED_H[name]


def test_it_is_within_1_3_of_the_oracle() -> None:
    mean, _ = run("muri/muri_cluster400_job.csv", WITHOUT_KNOWLEDGE, 64)
    assert mean / HOUR_S <= 1.3 * 59.8


@pytest.mark.parametrize("name", ["muri/muri_cluster400_job.csv", "muri/muri_trace3_job.csv"])
def test_gittins_with_the_traces_own_distribution_beats_2d_las(name: str) -> None:
    needed = [job.spec.duration_ns * job.width_milli for job in trace(name)]
    policy = make("2d-gittins(file=own)", lambda path: [Fraction(service, GPU_SECOND) for service in needed])
    jobs = trace(name)
    World(policy, 64).run(jobs)
    assert mean_jct_s(jobs) < 0.95 * run(name, "2d-las", 64)[0]


@pytest.mark.parametrize("name", ["muri/muri_cluster400_job.csv", "muri/muri_trace3_job.csv"])
def test_the_order_of_new_queues_is_near_a_table_known_beforehand_and_preempts_little_more_than_2d_las(
    name: str,
) -> None:
    needed = [Fraction(job.spec.duration_ns * job.width_milli, GPU_SECOND) for job in trace(name)]
    known = trace(name)
    World(make("2d-gittins(file=own)", lambda path: needed), 64).run(known)
    mean, world = run(name, NEW_QUEUE, 64)
    assert mean <= 1.1 * mean_jct_s(known)
    assert world.preemptions <= 1.35 * run(name, "2d-las(3250,7200)", 64)[1].preemptions
