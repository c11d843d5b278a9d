"""Two slices with half of each of two devices, whose kernels meet across them: neither waits on one device for what the
other has. Progress is counted in completed meetings, against what one alone gets in the same test.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from benchmarks import harness
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

from .conftest import wait_for_work

HALVES = ("--gpus", "1", "--spread", "2", "--mem", "2G")
SECONDS = 1.0
WINDOWS = 30
Gang = Callable[..., Part]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The benchmarks' gang, which knows nothing of slices."""
    return str(harness.build("tenants/gang.c", output=str(tmp_path_factory.mktemp("gang") / "gang")))


@pytest.fixture
def gang(request: pytest.FixtureRequest, system: OwnSystem, program: str) -> Gang:
    """Starts a gang in a slice of its own, with a process per device unless the test says one for both: then one thread
    at one gate keeps both devices in step. A meeting takes 100 us, and there is 1 ms of other kernels before it."""
    processes = getattr(request, "param", 2)

    def start(name: str, *options: str, max_gpus: str = "2") -> Part:
        work = ("--own", "4", "--own-us", "250", "--report-ms", "20", "--seconds", "600")
        return system.run(name, (*HALVES, "--max", max_gpus), [program, *work, "--processes", str(processes), *options])

    return start


@pytest.fixture
def pair(gang: Gang) -> tuple[Part, Part, int]:
    """Two that run, and what the first one completed in SECONDS before the second one came."""
    one = gang("one")
    (alone,) = meetings(one)
    two = gang("two")
    wait_for_work(two)
    return one, two, alone


def meetings(*gangs: Part) -> list[int]:
    """What each of them completes in the next SECONDS."""
    before = [wait_for_work(part)["completed"] for part in gangs]
    time.sleep(SECONDS)
    return [wait_for_work(part)["completed"] - first for part, first in zip(gangs, before, strict=True)]


def check_shares(is_enough: Callable[[list[int]], bool], *gangs: Part) -> None:
    """Waits for SECONDS of which `is_enough` is true: a busy machine starves them for longer than that."""
    seen = []
    for _ in range(WINDOWS):
        seen.append(meetings(*gangs))
        if is_enough(seen[-1]):
            return
    raise AssertionError(seen)


def they_share(solo_count: int, *gangs: Part) -> None:
    """Wide, since test machines are busy: 0.5 each is what is to be had."""
    check_shares(lambda done: sum(done) > 0.6 * solo_count and min(done) > 0.25 * solo_count, *gangs)


def tell(system: OwnSystem, slice_name: str, number: signal.Signals) -> None:
    """A signal to all programs of a slice."""
    with system.client() as client:
        for process in client.all(calls.processes(slice_name)):
            os.kill(process.pid, number)


@pytest.mark.parametrize("gang", [1, 2], indirect=True)
def test_two_share_what_one_alone_gets(pair: tuple[Part, Part, int]) -> None:
    one, two, alone = pair
    they_share(alone, one, two)


def check_unknown_shares(part: float, gang: Gang, **amounts: str) -> None:
    """Kernels of no known name meet at least this part as often as those of a known one."""
    known = gang("known", **amounts)
    (before,) = meetings(known)
    known.stop()
    check_shares(lambda done: done[0] > part * before, gang("unknown", "--unknown", "1", **amounts))


def test_kernels_of_no_known_name_meet_within_a_maximum(gang: Gang) -> None:
    """Its gates close all the time. They met a hundredth as often."""
    check_unknown_shares(0.6, gang, max_gpus="1")


def test_kernels_of_no_known_name_meet_beside_others(system: OwnSystem, gang: Gang, programs: dict[str, str]) -> None:
    """A saturating slice on each device. They met a tenth as often."""
    for device in ("0", "1"):
        name = f"on{device}"
        system.vgpu("slice", "create", name, "--gpus", "0.5", "--max", "1", "--mem", "2G", "--device", device)
        wait_for_work(system.run(name, (), [programs["tenant"], "250"]))
    check_unknown_shares(0.4, gang)


def test_one_that_is_stopped_leaves_the_other_its_half_and_continues(
    system: OwnSystem, pair: tuple[Part, Part, int]
) -> None:
    """A kernel of the stopped one may spin on one device, as nothing launches its partner."""
    one, two, alone = pair
    tell(system, "one", signal.SIGSTOP)
    try:
        check_shares(lambda done: done[0] > 0.3 * alone, two)
    finally:
        tell(system, "one", signal.SIGCONT)
    they_share(alone, one, two)


def test_one_that_is_killed_leaves_both_devices_to_the_other(
    system: OwnSystem, gang: Gang, pair: tuple[Part, Part, int]
) -> None:
    _, two, alone = pair
    tell(system, "one", signal.SIGKILL)
    check_shares(lambda done: done[0] > 0.5 * alone, two)
    with system.client() as client:
        wait_for("the slice's end", lambda: [s.name for s in client.all(calls.slices())] == ["two"])
    third = gang("third")
    they_share(alone, two, third)


def test_a_live_change_reaches_both_devices(system: OwnSystem, pair: tuple[Part, Part, int]) -> None:
    one, two, alone = pair
    system.vgpu("slice", "set", "one", "--gpus", "0.4", "--max", "2")
    system.vgpu("slice", "set", "two", "--gpus", "1.6", "--max", "2")
    check_shares(lambda done: sum(done) > 0.6 * alone and 2 * done[0] < done[1] < 8 * done[0], one, two)


def test_one_of_the_latency_class_leaves_the_other_its_minimum(system: OwnSystem, pair: tuple[Part, Part, int]) -> None:
    one, two, alone = pair
    system.vgpu("slice", "set", "one", "--gpus", "0.4", "--max", "0.8")
    system.vgpu("slice", "set", "two", "--class", "latency")
    time.sleep(6)  # what it had at once was not a guarantee: it was starved after seconds
    check_shares(lambda done: done[0] > 0.1 * alone and done[1] > 0.2 * alone, one, two)


def test_two_go_on_without_the_daemon_and_with_the_next_one(system: OwnSystem, pair: tuple[Part, Part, int]) -> None:
    one, two, alone = pair
    assert system.daemon
    system.daemon.kill()
    check_shares(lambda done: sum(done) > 0.4 * alone and min(done) > 0.1 * alone, one, two)
    system.start_daemon()
    with system.client() as client:
        wait_for(
            "their return",
            lambda: all(p.resumed for p in client.all(calls.processes())) and len(client.all(calls.processes())) > 1,
        )
    they_share(alone, one, two)
