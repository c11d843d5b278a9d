"""Samples of devices, slices, jobs, queues and users from what slices use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import GIB, make_slice
from vgpud.core.history.points import Measured, Subject
from vgpud.core.history.sampling import DeviceNow, QueueBounds, Sampler, subject_of
from vgpud.core.model import ANYONE, Share, Slice
from vgpud.core.observed import SliceStats
from vgpud.core.origins import Job

S = 1_000_000_000
BOTH = (Share("GPU-0", 200, 500, GIB, 2 * GIB), Share("GPU-1", 300, 500, GIB, 2 * GIB))
DEFAULT = QueueBounds("default", "", 0, 0)


def stats(ratio: float, mem_used_bytes: int = 0, throttled_ns: int = 0) -> SliceStats:
    return SliceStats(share_10s_ratio=ratio, mem_used_bytes=mem_used_bytes, throttled_ns=throttled_ns)


def take(
    *slices: tuple[Slice, list[SliceStats]],
    sampler: Sampler | None = None,
    now_ns: int = S,
    devices: tuple[DeviceNow, ...] = (),
    queues: tuple[QueueBounds, ...] = (),
) -> dict[Subject, Measured]:
    found = (sampler or Sampler()).take(now_ns, devices, slices, queues)
    assert len({one.subject for one in found}) == len(found)
    return {one.subject: one for one in found}


def job_slice(member: int | None, uid: str) -> Slice:
    return make_slice("x", *BOTH, origin=Job(12, member), uid=uid, owner_uid=1000)


def test_a_slice_is_the_total_of_its_devices() -> None:
    found = take((make_slice("a", *BOTH), [stats(0.25, GIB), stats(0.5, GIB)]))[Subject("slice", "uid-a")]
    assert (found.name, found.owner_uid) == ("a", 0)
    assert found.point[:5] == (1, 750, 750, 500, 1000)
    assert found.point[6:] == (2 * GIB, 2 * GIB, 4 * GIB)


def test_waits_are_counted_between_two_samples() -> None:
    sampler, made = Sampler(), make_slice("a")
    first = take((made, [stats(0, throttled_ns=5 * S)]), sampler=sampler, now_ns=100 * S)
    second = take((made, [stats(0, throttled_ns=10 * S)]), sampler=sampler, now_ns=110 * S)
    again = take((made, [stats(0, throttled_ns=1 * S)]), sampler=sampler, now_ns=120 * S)
    subject = Subject("slice", "uid-a")
    assert [one[subject].point.waiting_milli for one in (first, second, again)] == [0, 500, 0]


def test_the_only_slice_of_a_job_is_recorded_as_the_job() -> None:
    found = take((job_slice(None, "u1"), [stats(0.5), stats(0.5)]))
    assert {subject.kind for subject in found} == {"job", "user"}
    assert found[Subject("job", "12")].point.used_milli == 1000
    assert found[Subject("job", "12")].owner_uid == 1000
    assert subject_of("slice", "j-12") == ("job", "12")


def test_members_of_a_job_are_recorded_one_by_one_and_in_total() -> None:
    two = (job_slice(0, "u1"), [stats(0.1), stats(0.1)]), (job_slice(1, "u2"), [stats(0.2), stats(0.2)])
    found = take(*two)
    assert found[Subject("job", "12")].point.used_milli == pytest.approx(600)
    assert found[Subject("slice", "j-12-0")].point.used_milli == pytest.approx(200)
    assert subject_of("slice", "j-12-0") == ("slice", "j-12-0"), "one series for all attempts"


def test_a_user_has_the_total_of_all_that_is_theirs() -> None:
    mine = [(make_slice(name, owner_uid=1000), [stats(0.2)]) for name in "ab"]
    found = take(*mine, (make_slice("c", owner_uid=ANYONE), [stats(0.9)]))
    assert found[Subject("user", "1000")].point.used_milli == pytest.approx(400)
    assert [subject.key for subject in found if subject.kind == "user"] == ["1000"]


def test_a_queue_has_what_is_in_it_and_below_it() -> None:
    queues = (DEFAULT, QueueBounds("team", "", 1000, 2000), QueueBounds("ann", "team", 0, 0))
    below = replace(make_slice("a"), queue="ann"), [stats(0.3)]
    direct = replace(make_slice("b"), queue="team"), [stats(0.2)]
    found = take(below, direct, queues=queues)
    points = {subject.key: one.point for subject, one in found.items() if subject.kind == "queue"}
    assert [points[name].used_milli for name in ("default", "team", "ann")] == [
        0,
        pytest.approx(500),
        pytest.approx(300),
    ]
    assert (points["team"].min_milli, points["team"].max_milli) == (1000, 2000)


def test_a_device_has_its_utilisation_or_what_slices_used() -> None:
    devices = DeviceNow("GPU-0", 0, 0.75, GIB, 80 * GIB), DeviceNow("GPU-1", 1, None, GIB, 80 * GIB)
    found = take((make_slice("a", *BOTH), [stats(0.1), stats(0.4)]), devices=devices)
    known, unknown = (found[Subject("device", f"GPU-{n}")] for n in range(2))
    assert (known.point.used_milli, known.point.min_milli, known.name) == (750, 200, "0")
    assert (unknown.point.used_milli, unknown.point.mem_max_bytes) == (400, 80 * GIB)
    node = found[Subject("node", "")].point
    assert (node.used_milli, node.min_milli, node.max_milli, node.mem_max_bytes) == (1150, 500, 2000, 160 * GIB)


def test_a_pending_slice_is_left_out() -> None:
    assert not take((replace(make_slice("a"), shares=()), []))
