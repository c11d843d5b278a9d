"""Elastic training against a fake coordinator: real processes, real process groups, a real stream."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.fake_coordinator import Coordinator, wait_for
from tests.elastic.forked import Forked

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

STEPS = "100"
PROGRAM = ["--batch", "30", "--width", "4", "--records", "200", "--double"]
IDLE_MAX_S = 20.0  # a hang is a failure; how short it is, the benchmark says


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Coordinator]:
    with Coordinator(tmp_path, [*PROGRAM, "--steps", STEPS, "--pause", "0.05"]) as coordinator:
        yield coordinator


def begin(peers: Coordinator, count: int, spare_count: int = 0) -> list[int]:
    """So many workers that work together, and some more that are ready; the numbers of these."""
    numbers = peers.start(count + spare_count)
    peers.wait_ready(numbers)
    peers.wait_joined(peers.set(numbers[:count]))
    return numbers[count:]


def steps_of(peers: Coordinator, number: int) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in peers.lines(number)]
    return [line for line in lines if line["event"] == "step"]


def last_step(peers: Coordinator, number: int) -> int:
    done = steps_of(peers, number)
    return int(done[-1]["step"]) if done else -1


def curve(peers: Coordinator, numbers: Sequence[int]) -> dict[int, float]:
    """Loss by step; all who have done a step must say the same."""
    found: dict[int, float] = {}
    for number in numbers:
        for line in steps_of(peers, number):
            assert found.setdefault(line["step"], line["loss"]) == pytest.approx(line["loss"], rel=1e-12), line
    return found


def train_alone(tmp_path: Path, *options: str) -> dict[int, float]:
    """The same training by one worker, without a daemon."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VGPU_")}
    out = tmp_path / "alone.out"
    assert Forked([*PROGRAM, *options], env, out, tmp_path / "alone.err").wait(120) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["event"] == "step"}


def check_same_losses(losses: dict[int, float], reference: dict[int, float]) -> None:
    assert sorted(losses) == sorted(reference)
    assert [losses[step] for step in sorted(losses)] == pytest.approx(
        [reference[s] for s in sorted(reference)], rel=1e-9
    )


def test_grows_and_shrinks_with_the_curve_of_one(peers: Coordinator, tmp_path: Path) -> None:
    newcomers = begin(peers, 1, spare_count=3)
    pids = {number: process.pid for number, process in peers.processes.items()}
    grown = peers.set([0, *newcomers])
    joined = peers.wait_joined(grown)
    at = last_step(peers, 0)
    wait_for("some steps of four", lambda: last_step(peers, 0) > at + 5)
    shrunk = peers.set([0, 1])
    peers.wait_joined(shrunk)
    assert peers.wait_ended([2, 3]) == [0, 0]
    assert peers.wait_ended([0, 1]) == [0, 0]
    check_same_losses(curve(peers, range(4)), train_alone(tmp_path, "--steps", STEPS))
    assert all({line["pid"] for line in steps_of(peers, n)} == {pids[n]} for n in range(4))
    assert {line["workers"] for line in steps_of(peers, 0)} == {1, 4, 2}
    assert all(r.idle_seconds == 0 for r in joined if r.worker)
    assert 0 < next(r.idle_seconds for r in joined if r.worker == 0) < IDLE_MAX_S


def test_a_worker_that_is_killed_costs_no_step(peers: Coordinator, tmp_path: Path) -> None:
    begin(peers, 3)
    wait_for("some steps", lambda: last_step(peers, 0) > 5)
    peers.processes[1].kill()
    peers.processes[1].wait()
    again = peers.replace_dead()
    peers.wait_joined(again)
    assert peers.wait_ended([0, 2]) == [0, 0]
    assert {r.worker for r in peers.messages(1, "lost")} <= {0, 2}
    check_same_losses(curve(peers, [0, 2]), train_alone(tmp_path, "--steps", STEPS))


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_a_worker_that_waits_only_for_survivors_hears_of_a_death_too(
    peers: Coordinator, tmp_path: Path, rank: int
) -> None:
    begin(peers, 4)
    wait_for("some steps", lambda: last_step(peers, 0) > 3)
    os.kill(peers.processes[rank].pid, signal.SIGSTOP)
    time.sleep(0.5)  # until all stand in an exchange
    peers.processes[rank].kill()
    peers.processes[rank].wait()
    peers.wait_joined(peers.replace_dead())
    left = [number for number in range(4) if number != rank]
    assert peers.wait_ended(left) == [0, 0, 0]
    check_same_losses(curve(peers, range(4)), train_alone(tmp_path, "--steps", STEPS))


def test_the_first_dies_before_its_store_is_known(peers: Coordinator, tmp_path: Path) -> None:
    newcomers = begin(peers, 2, spare_count=1)
    peers.withholds_store = True
    peers.set([0, 1, *newcomers])
    peers.processes[0].kill()
    peers.processes[0].wait()
    peers.withholds_store = False
    peers.wait_joined(peers.replace_dead())
    assert peers.wait_ended([1, 2]) == [0, 0]
    check_same_losses(curve(peers, [0, 1, 2]), train_alone(tmp_path, "--steps", STEPS))


def test_a_newcomer_dies_while_others_wait_for_it(peers: Coordinator, tmp_path: Path) -> None:
    (newcomer,) = begin(peers, 2, spare_count=1)
    os.kill(peers.processes[newcomer].pid, signal.SIGSTOP)  # so it never joins the meeting
    peers.set([0, 1, newcomer])
    time.sleep(1.0)
    peers.processes[newcomer].kill()
    peers.processes[newcomer].wait()
    peers.wait_joined(peers.replace_dead())
    assert peers.wait_ended([0, 1]) == [0, 0]
    check_same_losses(curve(peers, [0, 1]), train_alone(tmp_path, "--steps", STEPS))


def test_training_continues_while_the_daemon_is_away(peers: Coordinator, tmp_path: Path) -> None:
    begin(peers, 2)
    peers.stop()
    at = last_step(peers, 0)
    wait_for("steps without a daemon", lambda: last_step(peers, 0) > at + 10)
    peers.requests.clear()
    peers.serve()
    wait_for("both are back", lambda: {r.worker for r in peers.requests} == {0, 1})
    assert {r.generation for r in peers.requests[:1]} == {1}, "says what it works in"
    peers.wait_joined(peers.set([1]))
    assert peers.wait_ended([0, 1]) == [0, 0]
    check_same_losses(curve(peers, [0, 1]), train_alone(tmp_path, "--steps", STEPS))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_the_curve_is_that_of_one(peers: Coordinator, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ready = begin(peers, 2, spare_count=6)
    for _ in range(6):
        at = last_step(peers, peers.memberships[-1].workers[0])
        steps = chance.randrange(4)  # 0: while the change before is under way
        wait_for(f"{steps} steps", lambda at=at, n=steps: last_step(peers, peers.memberships[-1].workers[0]) >= at + n)
        there = list(peers.memberships[-1].workers)
        if chance.random() < 0.3 and len(there) > 1:
            dead = peers.processes[chance.choice(there)]
            dead.kill()
            dead.wait()
            peers.replace_dead()
        else:
            kept = sorted(chance.sample(there, chance.randint(1, len(there))), key=there.index)
            come = [ready.pop() for _ in range(min(len(ready), chance.randrange(3)))]
            peers.set([*kept, *come])
    last = list(peers.memberships[-1].workers)
    assert peers.wait_ended(last) == [0] * len(last)
    check_same_losses(curve(peers, range(8)), train_alone(tmp_path, "--steps", STEPS))


def test_a_batch_of_the_daemons(tmp_path: Path) -> None:
    with Coordinator(tmp_path, [*PROGRAM, "--steps", "20"]) as peers:
        peers.batch = 45
        begin(peers, 2)
        assert peers.wait_ended([0, 1]) == [0, 0]
        assert json.loads(peers.lines(0)[-1])["samples"] == 20 * 45


def test_a_batch_that_grows_with_the_workers(peers: Coordinator) -> None:
    ready = begin(peers, 1, spare_count=2)
    peers.batch = 90
    peers.wait_joined(peers.set([0, *ready]))
    assert peers.wait_ended([0, *ready]) == [0, 0, 0]
    ends = [json.loads(peers.lines(number)[-1]) for number in range(3)]
    small = sum(line["workers"] == 1 for line in steps_of(peers, 0))
    assert 0 < small < int(STEPS)
    assert {end["samples"] for end in ends} == {30 * small + 90 * (int(STEPS) - small)}
    assert len({end["checksum"] for end in ends}) == 1, "all have the same model"


def test_more_workers_than_samples(tmp_path: Path) -> None:
    with Coordinator(tmp_path, [*PROGRAM, "--steps", "8", "--batch", "2"]) as peers:
        begin(peers, 3)
        assert peers.wait_ended([0, 1, 2]) == [0, 0, 0]
        check_same_losses(curve(peers, range(3)), train_alone(tmp_path, "--steps", "8", "--batch", "2"))


def test_a_straggler_shows_in_what_the_others_wait(tmp_path: Path) -> None:
    steps, slow_s = 12, 0.4
    command = [*PROGRAM, "--steps", str(steps), "--pause", "0.05", "--slow", "1", "--slow-s", str(slow_s)]
    with Coordinator(tmp_path, command) as peers:
        begin(peers, 2)
        assert peers.wait_ended([0, 1]) == [0, 0]
        work_s = {}
        for number in (0, 1):
            said = [r for r in peers.messages(1, "steps") if r.worker == number]
            assert all(0 <= r.waited_seconds <= r.seconds for r in said)
            work_s[number] = sum(r.seconds - r.waited_seconds for r in said) / sum(r.steps for r in said)
            assert sum(r.steps for r in said) == steps - 1, "all but the first"
            assert sum(r.samples for r in said) == (steps - 1) * 15
        assert work_s[1] - work_s[0] > slow_s / 2, "both waited for a processor, and only one slept"


def test_a_job_that_is_not_known_ends_with_a_line(tmp_path: Path) -> None:
    with Coordinator(tmp_path, [*PROGRAM, "--steps", "5"]) as peers:
        peers.answers = False
        peers.start(1)
        assert peers.wait_ended([0]) == [1]
        assert "there is no job 7" in peers.err_path(0).read_text().splitlines()[-1]
