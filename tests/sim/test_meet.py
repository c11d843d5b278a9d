"""Kernels that spin for each other over two devices: they progress only while both run, and spinning is busy time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from vgpud.simdevice.busy_log import Span

from .conftest import MakeDevice, Running

Start = Callable[..., Running]
MEETING_NS = 1_000_000


def _busy_ns(spans: list[Span]) -> int:
    return sum(span.end_ns - span.begin_ns for span in spans)


def _wait_until(holds: Callable[[], bool]) -> None:
    """Logs are written some milliseconds late."""
    until = time.monotonic() + 10
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    assert holds()


@pytest.mark.parametrize("processes", [(), ("processes",)])
def test_the_first_one_spins(device: MakeDevice, start: Start, processes: tuple[str, ...]) -> None:
    """10 x (10 ms on device 0 alone, then 1 ms on both): device 1 is busy all the while, most of it spinning."""
    made = device(devices=2)
    one = start(made, "meet", 10, 10000, *processes)
    one.line()
    time.sleep(0.2)  # with two processes: the child has reached its first meeting
    one.go()
    said = one.line()
    assert one.end() == 0
    took_ns = said["end_ns"] - said["begin_ns"]
    assert took_ns >= 10 * (10_000_000 + MEETING_NS)
    busy_ns = 10 * (10_000_000 + MEETING_NS)
    _wait_until(lambda: _busy_ns(made.busy_log(0)) >= busy_ns)
    last_ns = max(s.end_ns for s in made.busy_log(0))
    _wait_until(lambda: max((s.end_ns for s in made.busy_log(1)), default=0) == last_ns)
    assert _busy_ns(made.busy_log(0)) == busy_ns
    own_ns = 0 if processes else 10_000_000  # one process launches on device 1 when it has launched on device 0
    assert _busy_ns(made.busy_log(1)) >= busy_ns - own_ns - MEETING_NS


def test_they_progress_only_while_both_run(device: MakeDevice, start: Start) -> None:
    """Beside a program that has half of device 0, a meeting takes twice its time on both devices."""
    made = device(devices=2)
    other = start(made, "saturate", 1000, 3)
    one = start(made, "meet", 100, 10)
    for each in (other, one):
        each.line()
    other.go()
    time.sleep(0.1)
    one.go()
    said = one.line()
    assert one.end() == 0
    assert said["end_ns"] - said["begin_ns"] >= 190 * MEETING_NS
    _wait_until(lambda: _busy_ns(made.busy_log(1)) >= 190 * MEETING_NS)
    assert other.line()
    assert other.end() == 0


def test_slices_of_two_devices_do_not_stay_together(device: MakeDevice, start: Start) -> None:
    """Of two pairs each has both devices at once in a quarter of the time, not always in half of it, or never."""
    made = device(devices=2)
    pairs = [start(made, "meet", 300, 10) for _ in range(2)]
    for pair in pairs:
        pair.line()
    for pair in pairs:
        pair.go()
    said = [pair.line() for pair in pairs]
    assert [pair.end() for pair in pairs] == [0, 0]
    took_ns = max(each["end_ns"] for each in said) - min(each["begin_ns"] for each in said)
    assert 700 * MEETING_NS < took_ns < 2000 * MEETING_NS


def test_one_whose_partner_never_comes_stops_no_other(device: MakeDevice, start: Start) -> None:
    """Half of a pair is killed; the other half spins, and a neighbour has its half of the device all the same."""
    made = device(devices=2)
    one = start(made, "meet", 1000, 10, "processes")
    one.line()
    one.go()
    time.sleep(0.2)
    one.process.kill()  # device 0's half; the child on device 1 is left
    time.sleep(0.2)
    other = start(made, "saturate", 1000, 1, CUDA_VISIBLE_DEVICES="1")
    other.line()
    other.go()
    said = other.line()
    assert other.end() == 0
    inside = [s for s in made.busy_log(1) if s.begin_ns >= said["begin_ns"] and s.end_ns <= said["end_ns"]]
    mine = _busy_ns([s for s in inside if s.pid == other.process.pid])
    assert 0.4 < mine / _busy_ns(inside) < 0.6
    spinning = {s.pid for s in inside} - {other.process.pid}
    assert len(spinning) == 1

    os.kill(spinning.pop(), signal.SIGKILL)
