"""The row elastic_queue: which jobs are elastic, between what, and that the same run gives the same figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from benchmarks.predict import elastic_queue
from benchmarks.predict.elastic_queue import EAGER, PASSING, Case, elastic_trace, sums
from benchmarks.scheduling.policies import FIFO, TIRESIAS
from benchmarks.scheduling.traces import CLUSTER400, load
from benchmarks.table import near_percent


def test_half_the_jobs_are_elastic_around_what_the_trace_asks_for() -> None:
    asked, jobs = load(CLUSTER400), elastic_trace(Case())
    assert sum(job.spec.elastic is not None for job in jobs) == len(jobs) // 2 == 200
    for before, job in zip(asked, jobs, strict=True):
        if job.spec.elastic is None:
            assert job == before
            continue
        members = before.spec.members
        assert job.spec.members == job.spec.elastic.least_members == -(-members // 2)
        assert job.spec.elastic.most_members == min(64, 2 * members)
        assert job.scaled_from == members and job.duration_ns == before.duration_ns
    assert elastic_trace(Case()) == jobs and elastic_trace(Case(seed=2)) != jobs


def test_the_rigid_arm_is_the_published_one() -> None:
    rigid = sums(Case(rigid=True), FIFO)
    assert near_percent(207.6, 3).is_met_by((rigid.run_h + rigid.wait_h) / 400)
    assert not rigid.resizes


def test_elastic_jobs_wait_less_and_every_figure_has_a_value() -> None:
    rigid, elastic = sums(Case(rigid=True), FIFO), sums(Case(), FIFO)
    assert elastic.wait_h < rigid.wait_h and elastic.resizes > 100
    sums.cache_clear()
    assert sums(Case(), FIFO) == elastic
    first = next(iter(elastic_queue.figures({})))
    assert first.row == elastic_queue.ROW and first.value == rigid.run_h


def test_elastic_jobs_cost_their_users_no_time() -> None:
    """Wait and run together, against rigid jobs of the same policy; under 2D-LAS they were 2 % longer."""
    for policy in (TIRESIAS, PASSING):
        assert sums(Case(), policy).spent_h <= sums(Case(rigid=True), policy).spent_h, policy
    many = replace(EAGER, eager=False)
    assert sums(many, TIRESIAS).spent_h <= sums(Case(rigid=True), TIRESIAS).spent_h


def test_an_eager_queue_shortens_run_and_wait() -> None:
    """Not by the bounds that it is judged with alone."""
    for case in (EAGER, replace(EAGER, seed=2), replace(EAGER, spacing=2.0)):
        one, rigid = sums(case, TIRESIAS), sums(Case(rigid=True, spacing=case.spacing), FIFO)
        assert one.run_h < 0.8 * rigid.run_h and one.wait_h < 0.62 * rigid.wait_h
    assert sums(replace(EAGER, eager=False), TIRESIAS).run_h > 0.9 * sums(Case(rigid=True), FIFO).run_h


def test_what_letting_pass_brings_without_elastic_jobs_is_distinguished() -> None:
    """It meets the goal of the wait alone."""
    rigid, passing = sums(Case(rigid=True), FIFO), sums(Case(rigid=True), PASSING)
    found = {(figure.case, figure.what): figure.value for figure in islice(elastic_queue.figures({}), 40)}
    alone = found[f"rigid, {PASSING}", "wait, % below rigid FIFO: nothing is elastic"]
    assert alone == elastic_queue.percent_below(passing.wait_h, rigid.wait_h) > 38
    assert found[f"elastic, {PASSING}", "wait, % below rigid jobs of the same policy"] < alone
