"""Candidates, the whole work, the choice and the frontier."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.tune.choice import RatedCandidate, choose, find_frontier
from vgpud.core.tune.model import Candidate, Work, make_candidates

PAIRS = st.lists(
    st.tuples(st.sampled_from([100, 250, 500, 1000, 2000]), st.integers(1, 512), st.floats(0.1, 1e6)),
    min_size=1,
    max_size=30,
).map(lambda rows: [(Candidate(milli, "batch", (("batch", batch),)), rate) for milli, batch, rate in rows])
WORK = st.builds(Work, samples=st.integers(0, 10**6), deadline_s=st.just(0.0)) | st.builds(
    Work, steps=st.integers(1, 10**6), deadline_s=st.floats(0.1, 1e6)
)


def test_candidates_are_all_combinations_small_fractions_first() -> None:
    found = make_candidates((500, 250, 500), ("batch", "latency"), {"workers": (0, 2), "batch": (32, 64)})
    assert len(found) == len(set(found)) == 2 * 2 * 4
    assert found[0] == Candidate(250, "batch", (("batch", 64), ("workers", 2)))
    assert found[-1].describe() == "--gpus 0.5 --class latency, batch 32, workers 0"


@given(PAIRS, WORK)
def test_no_other_is_cheaper_and_in_time(pairs: list[RatedCandidate], work: Work) -> None:
    chosen = choose(pairs, work)
    in_time = [one for one in pairs if work.is_met(*one)]
    assert (chosen is None) == (not in_time)
    if chosen:
        assert work.is_met(*chosen)
        assert all(work.gpu_seconds(*chosen) <= work.gpu_seconds(*one) for one in in_time)


@given(PAIRS, WORK)
def test_the_frontier_is_what_nothing_dominates(pairs: list[RatedCandidate], work: Work) -> None:
    def slowness(one: RatedCandidate) -> float:
        return work.duration_s(*one) or 1 / one[1]

    frontier = find_frontier(pairs, work)
    slow, cost = [slowness(one) for one in frontier], [work.gpu_seconds(*one) for one in frontier]
    assert slow == sorted(slow) and cost == sorted(cost, reverse=True)
    for one in pairs:
        assert any(slowness(f) <= slowness(one) and work.gpu_seconds(*f) <= work.gpu_seconds(*one) for f in frontier)
    chosen = choose(pairs, work)
    if chosen:  # the cheapest in time is one of them
        assert work.gpu_seconds(*chosen) in cost


def test_without_work_the_best_throughput_per_gpu_is_chosen() -> None:
    half, whole = Candidate(500), Candidate(1000)
    assert choose([(half, 60.0), (whole, 100.0)], Work()) == (half, 60.0)
    assert choose([(half, 60.0), (whole, 100.0)], Work(samples=1000, deadline_s=12)) == (whole, 100.0)
    assert choose([(half, 60.0), (whole, 100.0)], Work(samples=1000, deadline_s=9)) is None


def test_steps_are_of_a_batch_each() -> None:
    small, large = (Candidate(1000, "batch", (("batch", batch),)) for batch in (32, 64))
    work = Work(steps=100)
    assert (work.samples_of(small), work.samples_of(large)) == (3200, 6400)
    assert choose([(small, 40.0), (large, 60.0)], work) == (small, 40.0)
