"""Which jobs lose by sharing a device: speeds together and alone, how sure the watch must be, which one leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from vgpud.core.colocate.usage import utilisation_milli
from vgpud.core.colocate.watch import Patience, Seen, Watch
from vgpud.core.jobs.events import PairLoses
from vgpud.core.jobs.model import SECOND_NS


@dataclass
class Runner:
    """A job that runs: steps and device time grow evenly."""

    job_id: int
    kind: str = ""
    steps_per_s: int = 100
    used_milli: int = 400
    alone_milli: int = -1
    owner: int = 0
    unit: str = "steps"
    done: int = 0
    used_ns: int = 0
    started_ns: int = 0

    def observe_job(self) -> Seen:
        done = self.done if self.unit else -1
        return Seen(
            self.job_id, self.kind, self.started_ns, done, self.unit, self.used_ns, self.alone_milli, self.owner
        )


@dataclass
class Device:
    """Looked at every 5 seconds."""

    watch: Watch = field(default_factory=Watch)
    now_s: int = 0
    runners: list[Runner] = field(default_factory=list)
    reports: list[tuple[int, PairLoses]] = field(default_factory=list)

    def come(self, *runners: Runner) -> None:
        for runner in runners:
            runner.started_ns = self.now_s * SECOND_NS
            self.runners.append(runner)

    def sleep(self, seconds: int) -> list[PairLoses]:
        """What is said meanwhile."""
        before = len(self.reports)
        for _ in range(seconds // 5):
            self.now_s += 5
            for runner in self.runners:
                runner.done += 5 * runner.steps_per_s
                runner.used_ns += 5 * SECOND_NS * runner.used_milli // 1000
            found = self.watch.look("d", [runner.observe_job() for runner in self.runners], self.now_s * SECOND_NS)
            self.reports += [(self.now_s, one) for one in found]
        return [one for _, one in self.reports[before:]]


def alone_then_together(first: tuple[int, int], second: tuple[int, int], **of_second: object) -> Device:
    """Two jobs with (steps a second alone, beside the other); the second one's kind is known from another job."""
    device = Device()
    earlier, one = Runner(9, "b", second[0]), Runner(1, "a", first[0])
    device.come(earlier)
    device.sleep(90)
    device.runners.clear()
    device.watch.forget_job(9)
    device.come(one)
    device.sleep(90)
    one.steps_per_s = first[1]
    device.come(Runner(2, "b", second[1], **of_second))  # type: ignore[arg-type]
    return device


# ---- which job loses ----


@pytest.mark.parametrize(
    ("first", "second", "loses"),
    [
        ((100, 90), (40, 30), False),
        ((100, 50), (40, 20), False),
        ((100, 42), (40, 17), True),
        ((100, 10), (40, 30), True),
    ],
)
def test_a_pair_loses_when_one_after_the_other_would_be_quicker(
    first: tuple[int, int], second: tuple[int, int], loses: bool
) -> None:
    found = alone_then_together(first, second).sleep(200)
    assert [(one.job_id, one.other_id) for one in found] == [(2, 1)] * loses


def test_it_says_why() -> None:
    (found,) = alone_then_together((100, 45), (40, 10)).sleep(200)
    assert found.why == "job 1 at 45 % and job 2 at 25 % of their speed alone, 70 % together"


def test_a_little_below_one_is_noise() -> None:
    assert alone_then_together((100, 47), (40, 18)).sleep(600) == []


def test_it_takes_two_windows_after_they_have_settled() -> None:
    device = alone_then_together((100, 30), (40, 12))
    came = device.now_s
    device.sleep(300)
    patience = Patience()
    least_s = (patience.settle_ns + patience.windows * patience.window_ns) // SECOND_NS
    assert [at_s - came for at_s, _ in device.reports] == [pytest.approx(least_s, abs=10)]


def test_one_bad_minute_between_good_ones_is_forgiven() -> None:
    device = alone_then_together((100, 80), (40, 30))
    device.sleep(20)
    for _ in range(4):
        for runner, good in zip(device.runners, (80, 30), strict=True):
            runner.steps_per_s = good // 4
        assert device.sleep(60) == []
        for runner, good in zip(device.runners, (80, 30), strict=True):
            runner.steps_per_s = good
        assert device.sleep(120) == []


def test_who_stays_is_not_named_again_at_once() -> None:
    device = alone_then_together((100, 30), (40, 12))
    device.sleep(1000)
    first, second = (at_s for at_s, _ in device.reports)
    assert second - first >= Patience().again_ns // SECOND_NS


# ---- how fast a job is alone ----


def test_its_own_speed_alone_comes_before_its_similarity_classes() -> None:
    device = alone_then_together((100, 80), (40, 10))
    device.runners[0].kind = "b"  # such jobs make 40 steps a second, it makes 100 alone
    assert [one.job_id for one in device.sleep(200)] == []
    device = alone_then_together((100, 30), (40, 10))
    device.runners[0].kind = "b"  # by its kind it would be at 75 %, 100 % together
    assert [one.job_id for one in device.sleep(200)] == [2]


def test_where_it_is_not_known_it_is_estimated_by_device_time() -> None:
    device = Device()
    device.come(Runner(1, used_milli=200, alone_milli=500), Runner(2, used_milli=240, alone_milli=800))
    (found,) = device.sleep(200)
    assert found.why == "job 1 at 40 % and job 2 at 30 % of their speed alone, 70 % together"


def test_without_any_of_these_nothing_is_said() -> None:
    device = Device()
    device.come(Runner(1, used_milli=200, alone_milli=500), Runner(2, used_milli=240))
    assert device.sleep(600) == []


def test_another_unit_is_not_compared() -> None:
    device = alone_then_together((100, 1), (40, 1))
    for runner in device.runners:
        runner.unit = "samples"
    assert device.sleep(600) == []


def test_a_job_that_says_nothing_is_estimated_too() -> None:
    device = alone_then_together((100, 20), (40, 12), used_milli=100, alone_milli=400, unit="")
    (found,) = device.sleep(200)
    assert "job 2 at 25 %" in found.why


def test_a_job_that_waits_for_something_else_says_nothing_of_the_other() -> None:
    device = alone_then_together((100, 80), (40, 0))
    device.runners[1].used_milli = 0
    assert device.sleep(600) == []


def test_a_restarted_job_begins_again() -> None:
    device = alone_then_together((100, 30), (40, 12))
    for _ in range(10):
        device.sleep(100)
        device.runners[1].done = device.runners[1].used_ns = 0
        device.runners[1].started_ns = device.now_s * SECOND_NS
    assert device.reports == []


# ---- which job leaves ----


def test_who_came_later_leaves() -> None:
    """The queue knows whether it may be stopped: no other job leaves instead."""
    assert [(one.job_id, one.other_id) for one in alone_then_together((100, 30), (40, 12)).sleep(200)] == [(2, 1)]


@pytest.mark.parametrize("liar", [0, 1])
def test_what_a_program_says_of_itself_does_not_evict_another_users(liar: int) -> None:
    """One of two reports next to nothing, and gets as much of the device as before."""
    rates = [(100, 80), (40, 35)]
    rates[liar] = (rates[liar][0], 0)
    device = alone_then_together(*rates)
    device.runners[1].owner = 1000
    assert device.sleep(600) == []
    device = alone_then_together(*rates)
    assert device.sleep(600), "of one user it is believed"


def test_another_users_job_is_separated_from_when_the_device_says_so() -> None:
    """Both get a third of what they use alone, and come as far."""
    device = alone_then_together((100, 30), (40, 12))
    device.runners[1].owner = 1000
    for one in device.runners:
        one.used_milli, one.alone_milli = 300, 900
    assert [one.job_id for one in device.sleep(200)] == [2]


def test_of_three_the_last_leaves_and_the_slowest_is_what_it_does_not_go_with() -> None:
    device = Device()
    for number, (used, alone) in enumerate([(300, 600), (100, 800), (200, 1000)]):
        device.come(Runner(number, used_milli=used, alone_milli=alone))
        device.now_s += 5
    assert [(one.job_id, one.other_id) for one in device.sleep(200)] == [(2, 1)]


def test_shells_whose_time_jumps_learn_when_to_look() -> None:
    watch, seen = Watch(), [Seen(1, "k", 0, 0, "steps"), Seen(2, "k", 0, 0, "steps")]
    assert watch.next_look_ns("d") == 0
    watch.look("d", seen, 0)
    assert watch.next_look_ns("d") == 10 * SECOND_NS
    watch.look("d", seen, 10 * SECOND_NS)
    assert watch.next_look_ns("d") == 70 * SECOND_NS
    watch.look("d", [], 70 * SECOND_NS)
    assert watch.next_look_ns("d") == 0


def test_a_short_time_alone_is_enough_to_know_it() -> None:
    """A device that is much used is never a whole window with one job."""
    device = Device()
    for number in (1, 2):
        device.come(Runner(number, "k", 100))
        device.sleep(25)
        device.runners.clear()
    device.come(Runner(3, "k", 40), Runner(4, "k", 40))
    assert [one.job_id for one in device.sleep(200)] == [4]


# ---- what is measured ----


@pytest.mark.parametrize(
    ("used", "device", "predicted_milli", "measured_milli"),
    [
        (400, 400, 700, 400),  # alone
        (1000, 1000, 300, 1000),  # alone, and the device is full
        (400, 900, 700, 400),  # beside others, and there is time left
        (400, 960, 700, 700),  # on a full device it shows less than it would use
        (600, 980, 500, 600),
        (600, 980, -1, 1000),
        (0, 0, 500, 1),  # 0 is for what is not known
        (1004, 1004, -1, 1000),
    ],
)
def test_utilisation_from_a_minute(used: int, device: int, predicted_milli: int, measured_milli: int) -> None:
    assert utilisation_milli(used, device, predicted_milli) == measured_milli
