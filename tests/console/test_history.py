"""The curves of the last hour."""

from __future__ import annotations

from vgpud.console.live.history import CURVES_MAX, POINTS_MAX, STEP_S, WINDOW_S, History
from vgpud.v1alpha1 import vgpud_pb2 as pb


def view(share: float = 0.5, throttled_ns: int = 0, uid: str = "u1") -> pb.Slice:
    part = pb.SliceDevice(device_uuid="d", share_ratio=share, mem_used_bytes=7, throttled_ns=throttled_ns)
    return pb.Slice(name="a", uid=uid, devices=[part])


DEVICE = pb.Device(uuid="d", utilization_ratio=0.25, mem_used_bytes=9)


def test_points_are_a_step_apart() -> None:
    history = History()
    for tick in range(20):
        history.add(float(tick), [view(tick / 20)], [DEVICE])
    assert list(history.curve("u1", "d").at_s) == [0, 5, 10, 15]
    assert list(history.curve("u1", "d").share) == [0, 0.25, 0.5, 0.75]
    assert list(history.curve("", "d").memory_bytes) == [9, 9, 9, 9]


def test_an_hour_is_kept() -> None:
    history = History()
    for n in range(2 * POINTS_MAX):
        history.add(n * STEP_S, [view()], [])
    curve = history.curve("u1", "d")
    assert POINTS_MAX - 2 <= len(curve.at_s) <= POINTS_MAX + 1
    assert curve.at_s[-1] - curve.at_s[0] <= WINDOW_S
    assert {len(column) for column in curve.columns} == {len(curve.at_s)}


def test_a_slice_that_has_ended_is_forgotten() -> None:
    history = History()
    history.add(0, [view()], [])
    history.add(10, [view(uid="u2")], [])
    assert len(history.curve("u1", "d").at_s) == 0
    assert len(history.curve("u2", "d").at_s) == 1


def test_waiting_is_a_rate() -> None:
    history = History()
    for at_s, throttled_ns in ((0, 0), (10, 5_000_000_000), (20, 5_000_000_000), (30, 0)):
        history.add(at_s, [view(throttled_ns=throttled_ns)], [])
    assert history.curve("u1", "d").waiting() == [None, 0.5, 0.0, None], "the daemon was restarted at last"


def test_a_clock_that_is_set_back_begins_again() -> None:
    history = History()
    history.add(1000, [view()], [])
    history.add(10, [view()], [])
    assert list(history.curve("u1", "d").at_s) == [10]


def test_curves_are_bounded() -> None:
    history = History()
    history.add(0, [view(uid=f"u{n}") for n in range(CURVES_MAX + 10)], [])
    assert len(history._curves) == CURVES_MAX
