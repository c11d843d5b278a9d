"""The simulation: which job ends when, what costs and neighbours change, and that it is the same every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.simulate.worlds import costs, ends_s, job, run
from vgpud.core.jobs.model import SECOND_NS, JobState
from vgpud.core.queue.machine import Machine
from vgpud.simulate import results, scenario
from vgpud.simulate.counted import Counted
from vgpud.simulate.engine import Simulation
from vgpud.simulate.interference import FULL, Pairs, Summed
from vgpud.simulate.trace import TraceJob


def test_first_in_first_out() -> None:
    trace = [job(0, 10), job(1, 5, members=2), job(2, 3)]
    assert ends_s(run(trace, "1x2", "strict:fifo")) == [10, 15, 18]
    assert ends_s(run(trace, "1x2", "fifo")) == [10, 15, 5], "the third passes the second, which does not fit"


def test_preempted_jobs_go_on_where_they_were() -> None:
    outcome = run([job(0, 10), job(2, 1)], "1x1", "srtf")
    assert ends_s(outcome) == [11, 3]
    assert [known.preemptions for _, known in outcome.jobs] == [1, 0]


def test_costs() -> None:
    trace = [job(0, 10), job(2, 1)]
    outcome = run(trace, "1x1", "srtf", costs=costs(start_s=0.5, suspend_s=2, resume_s=0.25))
    # works from 0.5 to 2, goes until 4; the other starts then and works from 4.5 to 5.5; 8.5 s are left from 5.75
    assert ends_s(outcome) == [14.25, 5.5]
    found = results.figures(outcome)
    assert found.utilisation == 1.0
    assert found.working == pytest.approx(11 / 14.25)


def test_what_its_suspension_takes_is_not_what_a_job_has_used() -> None:
    """The first has used 2 s of its 10 when the second comes: after 5 s of suspension 8 s are left, as before."""
    outcome = run([job(0, 10), job(2, 1), job(3, 5)], "1x1", "srtf", costs=costs(suspend_s=5))
    assert ends_s(outcome) == [21, 8, 13]
    assert [known.executed_ns for _, known in outcome.jobs] == [10 * SECOND_NS, SECOND_NS, 5 * SECOND_NS]


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_a_job_that_says_a_little_too_little_is_not_sent_to_the_back(policy: str) -> None:
    def says(at_s: float, duration_s: float, said_s: float) -> TraceJob:
        one = job(at_s, duration_s)
        return replace(one, spec=replace(one.spec, duration_ns=round(said_s * SECOND_NS)))

    assert ends_s(run([says(0, 110, 100), says(105, 50, 50)], "1x1", policy)) == [110, 160]
    assert ends_s(run([says(0, 1000, 10), says(500, 50, 50)], "1x1", policy)) == [1050, 550]
    woken = ends_s(run([says(0, 1000, 10), says(1, 200, 200)], "1x1", policy))
    assert woken == pytest.approx([1200, 776.65]), "without another event: after 10 s and ten times half as long again"


def test_what_starting_and_resuming_take_is_no_progress() -> None:
    times = costs(start_s=4, resume_s=8)
    # at 6 s the first has 8 s left, less the 4 s of its start, which would be paid again: the second one waits
    assert ends_s(run([job(0, 10), job(6, 5), job(20, 4)], "1x1", "srtf", costs=times)) == [14, 23, 31]
    # stopped at 6 s, it works again from 13 + 8 s on. At 30 s it has worked for 11 s: 89 s are left, less these 8
    assert ends_s(run([job(0, 100), job(6, 3), job(30, 80)], "1x1", "srtf", costs=times)) == [211, 13, 114]
    assert ends_s(run([job(0, 100), job(6, 3), job(30, 82)], "1x1", "srtf", costs=times)) == [119, 13, 205]


def test_a_job_that_is_stopped_while_it_starts_has_made_no_progress() -> None:
    outcome = run([job(0, 10), job(3, 1)], "1x1", "srtf", costs=costs(start_s=5))
    assert ends_s(outcome) == [19, 9]
    first = outcome.jobs[0][1]
    assert (first.overhead_ns, first.executed_ns) == (3 * SECOND_NS, 13 * SECOND_NS)


def test_a_job_that_ends_in_the_instant_in_which_it_is_stopped_has_ended() -> None:
    outcome = run([job(0, 10), job(9.5, 0.1), job(10, 1)], "1x1", "srtf")
    assert ends_s(outcome) == [10.1, 9.6, 11.1]
    outcome = run([job(0, 10, members=2), job(10, 1, members=2)], "1x2", "srtf", costs=costs(suspend_s=5))
    assert ends_s(outcome) == [10, 11]


def test_zero_duration() -> None:
    outcome = run([job(0, 0), job(0, 1)], "1x1")
    assert ends_s(outcome) == [0, 1]
    assert results.figures(outcome).jobs == 2


def test_what_can_never_run_is_refused_and_counted() -> None:
    outcome = run([job(0, 1, members=9), job(1, 1)], "1x8")
    assert ends_s(outcome) == [2]
    ((refused, why),) = outcome.refused_jobs
    assert refused.spec.members == 9 and "9" in why
    assert results.figures(outcome).refused == 1


def test_neighbours_slow_each_other_down_while_they_are_there() -> None:
    trace = [job(0, 10, gpus=0.5, used=600), job(2, 4, gpus=0.5, used=600)]
    speeds = 1 / 1.13  # 120 % together
    first, second = ends_s(run(trace, "1x1", placement="best-fit", interference=Summed()))
    assert second == pytest.approx(2 + 4 / speeds)
    assert first == pytest.approx(second + 10 - 2 - 4)
    assert ends_s(run(trace, "1x1", placement="best-fit")) == [10, 6]


def test_a_gang_is_as_slow_as_its_slowest_member() -> None:
    pairs = Pairs({("a", "b"): FULL // 2, ("b", "a"): FULL})
    trace = [job(0, 10, gpus=0.5, members=3, model="a"), job(0, 2, gpus=0.5, model="b")]
    first, second = ends_s(run(trace, "2x1", placement="best-fit", interference=pairs))
    assert second == 2
    assert first == 11, "one of its two devices was shared for two seconds, at half speed"
    second, first = ends_s(run(trace[::-1], "2x1", placement="best-fit", interference=pairs))
    assert (first, second) == (11, 2), "the other one"


def test_jobs_are_read_as_they_come_and_few_are_kept() -> None:
    """A second of work every two seconds: never are there more than the next one and those that run."""
    machine = Machine(scenario.make_queues(scenario.Scenario("fifo"), ()), Counted(1), scenario.make_policy)
    simulation = Simulation(machine, 1000)
    there = []

    def come() -> Iterator[tuple[int, TraceJob]]:
        for number in range(1, 51):
            there.append(len(simulation._runs) + len(simulation._work) + len(simulation._heap))
            yield number, job(2 * number, 1)

    simulation.submit_all(come())
    outcome = simulation.run()
    assert ends_s(outcome) == [2 * number + 1 for number in range(1, 51)]
    assert max(there) <= 3 and not simulation._runs and not simulation._known


def test_jobs_of_any_order_keep_their_numbers() -> None:
    trace = [job(0, 3), job(4, 5), job(1, 2), job(4, 1)]
    found = {known.job_id: known.ended_ns // SECOND_NS for _, known in run(trace, "1x1", "strict:fifo").jobs}
    assert found == {1: 3, 3: 5, 2: 10, 4: 11}
    assert [known.job_id for _, known in run(trace, "1x1").jobs] == [1, 2, 3, 4]


JOBS = st.lists(
    st.builds(
        job,
        st.integers(0, 20),
        st.integers(0, 30),
        st.sampled_from([0.25, 0.5, 1]),
        st.integers(1, 4),
        st.sampled_from(["a", "b"]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(40), deadline=None)
@given(JOBS, st.sampled_from(["strict:fifo", "fifo", "srtf", "2d-las(3,9)"]), st.booleans(), st.integers(0, 2))
def test_everything_ends_and_nothing_is_lost(
    trace: list[TraceJob], policy: str, with_neighbours: bool, cost: int
) -> None:
    trace = sorted(trace, key=lambda one: one.submitted_ns)
    more = {"costs": costs(cost, cost, cost), "interference": Summed() if with_neighbours else None}
    outcome = run(trace, "2x2", policy, "best-fit", **more)
    assert len(outcome.jobs) == len(trace)
    for traced, known in outcome.jobs:
        assert known.state is JobState.COMPLETED
        assert known.executed_ns >= traced.duration_ns, "nobody ends before its work is done"
        assert known.ended_ns - known.submitted_ns >= known.executed_ns
        if not with_neighbours and not cost:
            assert known.executed_ns == traced.duration_ns
    for sample in outcome.samples:
        assert 0 <= sample.held_milli <= outcome.capacity_milli
        assert 0 <= sample.fragmented_milli <= outcome.capacity_milli - sample.held_milli
        assert 0 <= sample.waiting <= len(trace)
    last = outcome.samples[-1]
    assert (last.held_milli, last.waiting, last.fragmented_milli) == (0, 0, 0)
    again = run(trace, "2x2", policy, "best-fit", **more)
    assert results.rows(again) == results.rows(outcome)
