"""What is reported of jobs that go wrong: once, with the numbers, and not of those that are well."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.queue.anomalies import ENOUGH_PARTS, PART_NS, Anomalies, Sample

PART_S = PART_NS // SECOND_NS


@dataclass
class Job:
    """One job, reported every second."""

    watch: Anomalies
    now: Sample = field(default_factory=lambda: Sample(0, 0, done=0))

    def run(self, seconds: int, *, used: float = 0, waited_part: float = 0, steps: float = 0) -> list[str]:
        """So many parts of each second used and waited for, so many steps."""
        texts = []
        begin = self.now
        for second in range(1, seconds + 1):
            self.now = Sample(
                begin.at_ns + second * SECOND_NS,
                begin.used_ns + int(second * used * SECOND_NS),
                begin.waited_ns + int(second * waited_part * SECOND_NS),
                done=begin.done + int(second * steps),
            )
            texts += self.watch.look(self.now)
        return texts


def job() -> Job:
    return Job(Anomalies())


def test_use_that_collapses_is_reported_once_with_the_numbers() -> None:
    one = job()
    assert one.run(600, used=0.61) == []
    (text,) = one.run(600, used=0.02)
    assert text == (
        "for 1 min it has wanted only 2 % of its devices' time; it usually wants 61 %:"
        " is it stuck, or waiting for data?"
    )
    assert one.watch.present == (text,)


def test_it_is_reported_again_after_it_was_well() -> None:
    one = job()
    one.run(600, used=0.6)
    assert len(one.run(200, used=0.02)) == 1
    assert one.run(60, used=0.2) == [], "still less than half"
    assert len(one.watch.present) == 1
    assert one.run(100, used=0.5) == []
    assert one.watch.present == ()
    assert len(one.run(200, used=0.02)) == 1


def test_a_slice_that_waits_at_its_gate_wants_as_much_as_before() -> None:
    one = job()
    one.run(600, used=0.9)
    assert one.run(600, used=0.1, waited_part=0.8) == [], "a neighbour has come"


@pytest.mark.parametrize("used", [0.0, 0.02, 0.04])
def test_who_never_used_much_is_not_judged(used: float) -> None:
    one = job()
    assert one.run(1200, used=used) == []
    assert one.run(1200, used=0) == []


def test_a_short_pause_is_nothing() -> None:
    one = job()
    for _ in range(20):
        assert one.run(5 * PART_S, used=0.9) == []
        assert one.run(2 * PART_S, used=0) == [], "an evaluation, a checkpoint"


def test_before_there_is_a_past_nothing_is_reported() -> None:
    one = job()
    one.run((ENOUGH_PARTS - 2) * PART_S, used=0.9)
    assert one.run(5 * PART_S, used=0) == []


def test_another_size_begins_again() -> None:
    one = job()
    one.run(600, used=0.9)
    one.watch.reset_detectors()
    assert one.run(600, used=0.05) == []


def test_no_step_for_far_longer_than_any_took() -> None:
    one = job()
    assert one.run(300, used=0.5, steps=2) == []
    texts = one.run(600, used=0.5)
    assert texts == ["no step for 2 min; each of the 600 before took at most 1 s"]
    assert one.watch.present == tuple(texts)
    one.run(1, used=0.5, steps=1)
    assert one.watch.present == ()
    assert len(one.run(600, used=0.5)) == 1


def test_slow_steps_have_their_time() -> None:
    one = job()
    for _ in range(8):
        assert one.run(99, used=0.5) == []
        one.run(1, used=0.5, steps=1)
    assert one.run(990, used=0.5) == []
    assert len(one.run(20, used=0.5)) == 1


def test_faults_are_reported_once_each_and_no_more_than_so_many() -> None:
    watch = Anomalies()
    assert watch.fault("device 1", 79, "off the bus") == (
        "device 1, which it runs on, had XID 79 (off the bus): its results there are not to be trusted"
    )
    assert watch.fault("device 1", 79, "off the bus") == ""
    assert watch.fault("device 0", 79, "off the bus")
    assert sum(bool(watch.fault("device 2", number, "")) for number in range(1000)) < 100


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**14), st.integers(-1, 10**9)), max_size=60))
def test_whatever_it_is_fed_with_it_says_a_line_or_nothing(rows: list[tuple[int, int, int]]) -> None:
    """Clocks that stand, counters that go back, no devices."""
    watch, at_ns = Anomalies(), 0
    for gap_ns, used_ns, done in rows:
        at_ns += gap_ns
        for text in watch.look(Sample(at_ns, used_ns, used_ns // 2, used_ns % 3, done)):
            assert "\n" not in text and text
