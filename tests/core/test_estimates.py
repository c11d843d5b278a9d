"""Estimates of durations: quantiles, the choice of the class, bounds of memory, and what the queue does with them."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.queue.world import Shell, gpus, queue, shell
from vgpud.core import estimates
from vgpud.core.estimates import HIGH_PPM, JOBS_MAX, LOW_PPM, MEDIAN_PPM, Estimates, quantiles
from vgpud.core.jobs.events import Cancelled, DurationsKnown, JobDuration
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, JobSpec
from vgpud.core.queue.record import from_plain, to_plain

WANTED = (LOW_PPM, MEDIAN_PPM, HIGH_PPM)
SEEN = st.lists(st.tuples(st.integers(1, 10**15), st.booleans()), min_size=1, max_size=JOBS_MAX)


def make_estimates(*rows: tuple[str, int], has_completed: bool = True) -> Estimates:
    found = Estimates()
    for kind, seconds in rows:
        found.learn((kind,), seconds, has_completed=has_completed)
    return found


# ---- quantiles ----


@given(SEEN)
def test_quantiles_rise_and_are_durations_that_were_seen_or_twice_the_longest(samples: list[tuple[int, bool]]) -> None:
    low, middle, high = quantiles(samples, WANTED)
    rising = [ns or 1 << 80 for ns in (low, middle, high)]
    assert all(early <= late for early, late in pairwise(rising))
    ended = {ns for ns, done in samples if done}
    longest = max(ns for ns, _ in samples)
    assert {low, middle, high} <= ended | {0, 2 * longest}
    if all(done for _, done in samples):
        assert 0 not in (low, middle, high)


@given(SEEN, st.integers(2, 1000))
def test_quantiles_have_no_unit(samples: list[tuple[int, bool]], factor: int) -> None:
    assert quantiles([(ns * factor, done) for ns, done in samples], WANTED) == [
        ns * factor for ns in quantiles(samples, WANTED)
    ]


@pytest.mark.parametrize("count", [3, 5, 9, 20, JOBS_MAX])
def test_the_next_one_is_below_a_quantile_as_often_as_that_says(count: int) -> None:
    """Of any distribution, when jobs come in no order: here one in which some take a thousand times as long."""
    draw = random.Random(count)
    below = [0, 0, 0]
    tries = 2000
    for _ in range(tries):
        *seen, following = (int(2 ** (draw.random() * 10) * 1000) for _ in range(count + 1))
        for which, ns in enumerate(quantiles([(ns, True) for ns in seen], WANTED)):
            below[which] += following <= ns
    low, middle, high = (number / tries for number in below)
    assert low <= 0.32  # of three the least is as low as can be said
    assert 0.45 <= middle <= 0.63
    assert (0.85 if count >= 9 else 0.75) <= high <= 0.97, "few: twice the longest is taken for it"


def test_newer_ones_count_more() -> None:
    old, new = [(10, True)] * 16, [(1000, True)] * 15
    assert quantiles(old + new, (MEDIAN_PPM,)) == [1000]
    assert quantiles(new + old, (MEDIAN_PPM,)) == [10]


def test_who_ran_out_of_time_says_at_least() -> None:
    done, cut = [(10, True), (20, True), (30, True)], [(30, False)] * 3
    assert quantiles(done, (MEDIAN_PPM,)) == [20]
    assert quantiles(done + cut, (MEDIAN_PPM,)) == [0], "half of them take longer than 30, nobody knows how long"
    found = make_estimates(*[("a", 30)] * 3, has_completed=False).of(("a",), 0)
    assert found is not None and (found.median_ns, found.high_ns, found.least_ns) == (0, 0, 30)


# ---- classes ----


def test_the_narrowest_class_with_enough_jobs_wins() -> None:
    rows = [("narrow", 10), ("narrow", 10), ("wide", 50), ("wide", 50), ("wide", 50)]
    found = make_estimates(*rows)
    wide = found.of(("narrow", "wide"), 0)
    assert wide is not None and (wide.class_name, wide.jobs, wide.median_ns) == ("wide", 3, 50)
    found.learn(("narrow",), 10, has_completed=True)
    narrow = found.of(("narrow", "wide"), 0)
    assert narrow is not None and (narrow.class_name, narrow.jobs, narrow.median_ns) == ("narrow", 3, 10)
    assert found.of((), 0) is None
    assert found.of(("unknown",), 0) is None


def test_memory_is_bounded_and_the_last_used_classes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "CLASSES_MAX", 10)
    found = make_estimates(*[("kept", 7)] * 1000)
    kept = found.of(("kept",), 0)
    assert kept is not None and kept.jobs == JOBS_MAX
    for number in range(100):
        found.learn((f"other {number}", "kept"), 7, has_completed=True)
    assert found.of(("kept",), 0) is not None
    for number in range(100):
        found.learn((f"other {number}",), 7, has_completed=True)
    assert found.of(("kept",), 0) is None


# ---- what the queue does with them ----


def ran(at: Shell, spec: JobSpec, seconds: float, times: int = 3, code: int = 0) -> None:
    """Such jobs have run so long."""
    for _ in range(times):
        job_id = at.submit(spec)
        at.sleep(seconds)
        at.end(job_id, code)


def expected_s(at: Shell, job_id: int) -> tuple[int, int]:
    return at.job(job_id).median_ns // SECOND_NS, at.job(job_id).expected_ns // SECOND_NS


def test_a_job_is_expected_to_take_as_long_as_those_like_it() -> None:
    at = shell(1)
    spec = gpus(1, kinds=("train", "all"))
    ran(at, spec, 100)
    job_id = at.submit(spec)
    assert expected_s(at, job_id) == (100, 200)
    found = at.machine.estimate(job_id, at.now_ns)
    assert found is not None and (found.class_name, found.jobs) == ("train", 3)
    waiting = at.submit(spec)
    at.sleep(30)
    assert at.machine.estimated_start(waiting, at.now_ns) - at.now_ns == 70 * SECOND_NS, "the median"
    at.sleep(120)
    assert at.machine.estimated_start(waiting, at.now_ns) == NEVER_NS, "it has lost its estimate"
    assert at.state(job_id) == "running", "and nothing else"


def test_beyond_the_median_the_high_quantile_counts() -> None:
    at = shell(1)
    spec = gpus(1, kinds=("train",))
    for seconds in (90, 100, 100, 100, 100, 100, 100, 100, 100, 400, 400):
        ran(at, spec, seconds, 1)
    at.submit(spec)
    waiting = at.submit(spec)
    for passed_s, left_s in ((0, 100), (50, 50), (60, 690)):
        at.sleep(passed_s)
        assert at.machine.estimated_start(waiting, at.now_ns) - at.now_ns == left_s * SECOND_NS


def test_jobs_that_still_run_say_at_least() -> None:
    """Of ten that began together three have ended: the others take longer, it is not known how long."""
    at = shell(10)
    spec = gpus(1, kinds=("train",))
    first = at.submit(spec, 10)
    at.sleep(600)
    for job_id in range(first, first + 3):
        at.end(job_id)
    at.sleep(600)
    found = at.machine.estimate(first + 9, at.now_ns)
    assert found is not None
    assert (found.median_ns, found.high_ns) == (600 * SECOND_NS, 0), "three took so long; nobody can rely on that"
    assert found.least_ns == 1200 * SECOND_NS
    for job_id in range(first + 3, first + 10):
        at.end(job_id)
    found = at.machine.estimate(first, at.now_ns)
    assert found is not None and (found.median_ns, found.least_ns) == (1200 * SECOND_NS, 0)
    assert not any(known.running for known in at.machine._world.estimates._classes.values())


def test_a_job_that_is_stopped_and_continues_counts_what_it_ran() -> None:
    at = shell(1, queue(policy="priority"))
    low = at.submit(gpus(1, kinds=("train",)))
    at.sleep(60)
    high = at.submit(gpus(1, priority=5))
    classes = at.machine._world.estimates._classes
    assert at.state(low) == "suspended" and not classes["train"].running
    at.sleep(1000)
    at.end(high)
    assert classes["train"].running == {low: at.now_ns - 60 * SECOND_NS}


@pytest.mark.parametrize("asks", [False, True])
def test_an_answer_does_not_depend_on_who_asked_before(asks: bool) -> None:
    found = make_estimates(*[("train", 600 * SECOND_NS)] * 3)
    found.add_running_job(1, ("train",), 10 * SECOND_NS)
    for seconds in range(700, 795, 5) if asks else ():
        found.of(("train",), seconds * SECOND_NS)
    last = found.of(("train",), 800 * SECOND_NS)
    assert last is not None and (last.median_ns, last.least_ns) == (600 * SECOND_NS, 770 * SECOND_NS)


def test_what_ran_badly_says_nothing() -> None:
    at = shell(1)
    spec = gpus(1, kinds=("train",))
    ran(at, spec, 100, code=1)
    for _ in range(3):
        job_id = at.submit(spec)
        at.sleep(10)
        at.send(Cancelled(job_id, "enough"))
        at.running.discard(job_id)
    assert at.machine.estimate(at.submit(spec), at.now_ns) is None


def test_a_job_whose_time_was_up_says_at_least() -> None:
    at = shell(1)
    spec = gpus(1, kinds=("train",), time_limit_ns=60 * SECOND_NS)
    for _ in range(3):
        job_id = at.submit(spec)
        at.sleep(61)
        assert at.state(job_id) == "timed_out"
    found = at.machine.estimate(at.submit(spec), at.now_ns)
    assert found is not None and (found.median_ns, found.least_ns // SECOND_NS) == (0, 60)


def test_what_the_user_says_overrides() -> None:
    at = shell(1)
    ran(at, gpus(1, kinds=("train",)), 100)
    at.submit(gpus(1, kinds=("train",), duration_ns=10 * SECOND_NS))
    waiting = at.submit(gpus(1, kinds=("train",)))
    assert expected_s(at, waiting - 1) == (0, 0)
    assert at.machine.estimated_start(waiting, at.now_ns) - at.now_ns == 10 * SECOND_NS


def test_jobs_that_wait_learn_from_those_that_end_meanwhile() -> None:
    """An array without a past: its first ones say when the last one starts."""
    at = shell(1)
    first = at.submit(gpus(1, kinds=("array",)), 5)
    assert at.machine.estimated_start(first + 4, at.now_ns) == NEVER_NS
    for job_id in range(first, first + 3):
        at.sleep(50)
        at.end(job_id)
    assert expected_s(at, first + 3) == (50, 100)
    assert at.machine.estimated_start(first + 4, at.now_ns) - at.now_ns == 50 * SECOND_NS


@pytest.mark.parametrize(("short_s", "passes"), [(20, True), (60, False)])
def test_backfill_goes_by_the_high_quantile(short_s: int, passes: bool) -> None:
    """A wide job waits for one that ends in at most 100 s; twice what the short ones took is 40 or 120."""
    at = shell(2, queue(strict=True, backfill=True))
    short = gpus(1, kinds=("short",))
    ran(at, short, short_s)
    at.submit(gpus(1, time_limit_ns=100 * SECOND_NS))
    wide = at.submit(gpus(2))
    job_id = at.submit(short)
    assert (at.state(wide), at.state(job_id)) == ("pending", "running" if passes else "pending")


def test_what_a_former_daemon_learnt_is_reported_and_recorded() -> None:
    at = shell(1)
    event = DurationsKnown(tuple(JobDuration(("train", "all"), seconds * SECOND_NS, True) for seconds in (10, 20, 30)))
    assert from_plain(to_plain(event)) == event
    at.send(event)
    assert expected_s(at, at.submit(gpus(1, kinds=("new", "all")))) == (20, 60)


def test_jobs_without_classes_have_no_estimate() -> None:
    at = shell(1)
    ran(at, gpus(1), 100)
    job_id = at.submit(gpus(1))
    assert (at.machine.estimate(job_id, at.now_ns), expected_s(at, job_id)) == (None, (0, 0))
