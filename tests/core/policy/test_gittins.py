"""The Gittins index of a table: against its definition, and where it must rise and fall."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.policy.world import make_job
from vgpud.core.jobs.model import GPU_SECOND, NEVER_NS, SECOND_NS, JobState
from vgpud.core.policy.gittins import ONE, UNKNOWN, Gittins, costs
from vgpud.core.policy.learnt_gittins import LearntGittins
from vgpud.core.policy.registry import make


def by_definition(needs: list[int], attained_service: int) -> Fraction:
    """sup over d of P(S - a <= d | S > a) / E[min(S - a, d) | S > a]; the best d ends where a job ends."""
    left = [service - attained_service for service in needs if service > attained_service]
    return max(Fraction(sum(x <= d for x in left), sum(min(x, d) for x in left)) for d in left)


@settings(deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=40))
def test_index_of_a_table_is_its_definition(needs: list[int]) -> None:
    policy = Gittins("", by_width=False, table=[Fraction(value) for value in needs])
    for level, edge in enumerate(policy.edges[:-1]):
        index = by_definition(needs, edge // SECOND_NS)
        assert SECOND_NS / policy.costs[level] == pytest.approx(float(index), rel=1e-6)
    assert policy.costs[-1] == UNKNOWN


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.just(10)), min_size=1, max_size=30), st.booleans())
def test_hull_finds_what_trying_all_finds(ends: list[tuple[int, int]], has_even_ends: bool) -> None:
    edges = [0, *(1000 << level for level in range(len(ends)))]
    alive, spent = [ONE], [0]
    for level, (dividend, divisor) in enumerate(ends):
        alive.append(alive[-1] - alive[-1] * dividend // divisor)
        working = (alive[-2] + alive[-1]) // 2 if has_even_ends else alive[-2]
        spent.append(spent[-1] + working * (edges[level + 1] - edges[level]))
    for level, found in enumerate(costs(edges, ends, has_even_ends=has_even_ends)):
        tried = [
            (spent[then] - spent[level]) // (alive[level] - alive[then])
            for then in range(level + 1, len(edges))
            if alive[then] < alive[level]
        ]
        assert found == (min(tried) if tried else UNKNOWN)


def test_index_falls_where_who_has_lived_long_lives_longer_and_rises_where_not() -> None:
    """Decreasing hazard: the order of LAS. Jobs that all need the same: the one with most behind it goes first."""
    heavy = LearntGittins("", by_width=True)  # of which no job has ended
    assert all(early < late for early, late in zip(heavy.all.costs, heavy.all.costs[1:], strict=False))
    alike = Gittins("", by_width=True, table=[Fraction(value) for value in range(1000, 1020)])
    assert all(early > late for early, late in zip(alike.costs[:-1], alike.costs[1:-1], strict=False))


def test_a_long_table_becomes_quantiles() -> None:
    policy = Gittins("", by_width=True, table=[Fraction(value) for value in range(1, 1001)])
    assert policy.levels == 64
    assert policy.edges[-1] == 1000 * GPU_SECOND
    assert 15 <= min(policy.ended_in) <= max(policy.ended_in) <= 16
    assert sum(policy.ended_in) == 1000


def test_beyond_the_table_comes_last() -> None:
    policy = make("2d-gittins(4,8,12)")
    job = make_job(1, 1, 100)
    job.state, job.started_ns = JobState.RUNNING, 0
    policy.touch(job, 12 * SECOND_NS)
    assert policy.key(job, 12 * SECOND_NS) > policy.key(make_job(2, 1, 100), 12 * SECOND_NS)
    assert policy.changes_at(job, 12 * SECOND_NS) == NEVER_NS


@pytest.mark.parametrize("policy", ["gittins(10,20)", "2d-gittins(10,20)"])
def test_narrow_ones_cost_less(policy: str) -> None:
    """In time only the GPUs divide the index; in two dimensions new jobs are equal, and the older goes first."""
    made = make(policy)
    wide, narrow = made.key(make_job(1, 8, 10), 0), made.key(make_job(2, 1, 10, at=1), 0)
    assert (narrow < wide) == policy.startswith("gittins")
    assert narrow != wide
