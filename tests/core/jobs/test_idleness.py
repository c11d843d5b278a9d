"""When sessions were last used, on a fake clock."""

from __future__ import annotations

from vgpud.core.jobs.idleness import GAP_NS, GRACE_NS, LOOK_NS, SAVE_NS, Idleness
from vgpud.core.jobs.model import SECOND_NS

HALF_HOUR_NS = 1800 * SECOND_NS
START_NS = 10**18


def look_until(idleness: Idleness, from_ns: int, until_ns: int) -> list[tuple[int, int]]:
    """(job, when) of all that are found to be idle, each at the first look."""
    found: dict[int, int] = {}
    for now_ns in range(from_ns, until_ns + 1, LOOK_NS):
        for job_id in idleness.look(now_ns):
            found.setdefault(job_id, now_ns)
            idleness.forget(job_id)
    return list(found.items())


def test_a_session_is_idle_when_it_was_not_used_for_its_time() -> None:
    known = Idleness()
    known.watch(7, 1, HALF_HOUR_NS, START_NS)
    known.watch(8, 1, 2 * HALF_HOUR_NS, START_NS)
    assert look_until(known, START_NS, START_NS + HALF_HOUR_NS - LOOK_NS) == []
    known.use(7, START_NS + HALF_HOUR_NS - LOOK_NS)
    end_ns = START_NS + 2 * HALF_HOUR_NS
    assert look_until(known, START_NS + HALF_HOUR_NS, end_ns) == [(7, end_ns - LOOK_NS), (8, end_ns)]


def test_a_launch_is_a_use() -> None:
    known = Idleness()
    known.watch(7, 1, HALF_HOUR_NS, START_NS)
    known.note_launches(7, 50, START_NS)
    assert known.last_use_ns(7) == START_NS, "the first look has nothing to compare with"
    known.note_launches(7, 50, START_NS + 5)
    assert known.last_use_ns(7) == START_NS
    known.note_launches(7, 51, START_NS + 9)
    assert known.last_use_ns(7) == START_NS + 9
    known.note_launches(7, 0, START_NS + 10)
    assert known.last_use_ns(7) == START_NS + 10, "counters that begin again"


def test_time_in_which_no_daemon_looked_does_not_count() -> None:
    """The machine slept, or the daemon was stuck: a use would not have been seen."""
    known = Idleness()
    known.watch(7, 1, HALF_HOUR_NS, START_NS)
    known.look(START_NS)
    known.look(START_NS + 10 * SECOND_NS)
    asleep_ns = 8 * 3600 * SECOND_NS
    assert known.look(START_NS + asleep_ns) == []
    assert asleep_ns - GAP_NS < known.last_use_ns(7) - START_NS <= asleep_ns
    assert look_until(known, START_NS + asleep_ns, START_NS + asleep_ns + 2 * HALF_HOUR_NS)


def test_a_clock_that_goes_back_uses_nothing() -> None:
    known = Idleness()
    known.watch(7, 1, HALF_HOUR_NS, START_NS)
    known.look(START_NS + 1000)
    assert known.look(START_NS - 10**12) == []
    known.use(7, START_NS - 10**12)
    assert known.last_use_ns(7) == START_NS


def test_a_restarted_daemon_knows_the_last_use() -> None:
    known = Idleness()
    now_ns = START_NS + HALF_HOUR_NS
    known.watch(7, 1, HALF_HOUR_NS, now_ns, saved_ns=now_ns - HALF_HOUR_NS // 2)
    assert known.last_use_ns(7) == now_ns - HALF_HOUR_NS // 2
    known.watch(8, 1, HALF_HOUR_NS, now_ns, saved_ns=START_NS - 5 * HALF_HOUR_NS)
    assert look_until(known, now_ns, now_ns + GRACE_NS) == [(8, now_ns + GRACE_NS)], "uses meanwhile were not seen"


def test_another_run_begins_again() -> None:
    known = Idleness()
    known.watch(7, 1, HALF_HOUR_NS, START_NS)
    known.watch(7, 1, HALF_HOUR_NS, START_NS + 5)
    assert known.last_use_ns(7) == START_NS
    known.watch(7, 2, HALF_HOUR_NS, START_NS + 9)
    assert known.last_use_ns(7) == START_NS + 9
    known.forget(7)
    assert known.last_use_ns(7) == -1 and not [*known]
    known.use(7, START_NS)


def test_uses_are_saved_now_and_then() -> None:
    known = Idleness()
    for job_id in (7, 8, 9):
        known.watch(job_id, 1, HALF_HOUR_NS, START_NS)
    assert [*known.take_unsaved(9)] == []
    later_ns = START_NS + HALF_HOUR_NS // 2
    for job_id in (7, 8, 9):
        known.use(job_id, later_ns)
    assert [*known.take_unsaved(2)] == [(7, later_ns), (8, later_ns)]
    assert [*known.take_unsaved(2)] == [(9, later_ns)]
    known.use(7, later_ns + SAVE_NS - 1)
    assert [*known.take_unsaved(2)] == []
