"""Figures, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.worlds import job, run
from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import report, results
from vgpud.simulate.engine import Sample


def test_figures_by_hand() -> None:
    """Two GPUs; the first job has both for 10 s, the second one from then on for 5, the third waits for nothing."""
    found = results.figures(run([job(0, 10, members=2), job(2, 5), job(16, 4, gpus=0.5)], "1x2", placement="best-fit"))
    assert (found.jobs, found.refused, found.unfinished, found.preemptions) == (3, 0, 0, 0)
    assert found.jct_s.mean == pytest.approx((10 + 13 + 4) / 3)
    assert (found.jct_s.p50, found.jct_s.maximum, found.makespan_s) == (10, 13, 20)
    assert found.queueing_s.mean == pytest.approx(8 / 3)
    assert found.longest_wait_s == 8
    assert found.utilisation == pytest.approx((20 + 5 + 2) / 40)
    assert found.fragmentation == pytest.approx(0.5 * 4 / 40)
    assert found.idle_while_waiting == 0
    assert found.rho.maximum == pytest.approx(13 / 5)
    assert found.jain == pytest.approx((1 + 5 / 13 + 1) ** 2 / (3 * (1 + (5 / 13) ** 2 + 1)))


def test_capacity_that_stays_empty_while_jobs_wait() -> None:
    found = results.figures(run([job(0, 10), job(0, 10, members=2)], "1x2", "strict:fifo"))
    assert found.idle_while_waiting == pytest.approx(10 / 40)


def test_percentiles_are_numpys() -> None:
    numpy = pytest.importorskip("numpy")

    @given(st.lists(st.floats(0, 1e9), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
    def check(values: list[float], part: float) -> None:
        assert results.percentile(sorted(values), part) == pytest.approx(float(numpy.percentile(values, 100 * part)))

    check()


def test_of_nothing() -> None:
    assert math.isnan(results.spread([]).mean)
    assert math.isnan(results.jain([]))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1), st.integers(1, 20))
def test_means_of_spans_keep_the_whole(steps: list[tuple[int, int]], count: int) -> None:
    at, samples = 0, []
    for gap, held in steps:
        samples.append(Sample(at * SECOND_NS, held, 0, 0))
        at += gap
    samples.append(Sample(at * SECOND_NS, 0, 0, 0))
    whole, *_ = results.sum_over_time(samples, at * SECOND_NS, 1000)
    found = report.means(samples, count)
    assert sum(value for _, value in found) * at * SECOND_NS / count == pytest.approx(whole)
    assert len(found) == count
