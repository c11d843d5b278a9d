"""The generator of random programs: the same seed is the same program, and each ends without a hook."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import measured, random_programs
from vgpud.cli.demo.private_system import PartError
from vgpud.simdevice.process import SimulatedDevice, environment

SEEDS = range(1, 61)


@pytest.fixture(scope="module")
def program() -> Path:
    return measured.build(*random_programs.SOURCES)


def print_program(program: Path, seed: int, *options: str) -> str:
    command = [str(program), "--seed", str(seed), *options, "--print"]
    env = environment(Path("/nonexistent"))
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60).stdout


def test_a_seed_is_one_program(program: Path) -> None:
    first = [print_program(program, seed) for seed in SEEDS]
    assert first == [print_program(program, seed) for seed in SEEDS]
    assert len(set(first)) == len(SEEDS)


def test_the_seeds_have_all_there_is(program: Path) -> None:
    """Each kind of operation, of stream and of shape is in many of them."""
    seen = Counter[str]()
    words = [
        "2 processes",
        "2 devices",
        "(captured)",
        "legacy",
        "per-thread",
        "(blocking",
        "wait for signal",
        "callback",
    ]
    words += ["wait for word", "batch", "wait for event", "host function", "host write", "copy", "memset", "graph #"]
    words += [
        "poll",
        "burst",
        "waves",
        "synchronize context",
        "synchronize event",
        "query",
        ", batch",
        ", wait for event",
    ]
    for seed in SEEDS:
        seen.update(word for word in words if word in print_program(program, seed))
    assert {word: count for word, count in seen.items() if count < 5} == {}
    assert set(seen) == set(words)


def test_waits_are_for_what_comes_earlier(program: Path) -> None:
    """In the sequence that the program was drawn as, whatever the order of its calls."""
    for seed in SEEDS:
        for line in print_program(program, seed).splitlines():
            number, _, rest = line.partition(": ")
            if number.isdigit() and " for word " in rest:
                writer = int(rest.rpartition(" of ")[2].split()[0])
                assert writer < int(number), (seed, line)


@pytest.mark.slow
def test_programs_end_without_a_hook_and_compute_what_they_say(program: Path, tmp_path: Path) -> None:
    model = measured.write_model(tmp_path / "kernels.model", random_programs.LENGTHS_US)
    with SimulatedDevice(tmp_path / "sim", {"devices": 2}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(model)}
        for seed in list(SEEDS)[:12]:
            command = [str(program), "--seed", str(seed), "--stay", "100"]
            line, said = measured.execute(command, env, tmp_path, 60)
            assert line, said
            for index, kernels_ns in enumerate(line["kernels_ns"]):
                busy_ns = sum(s.end_ns - s.begin_ns for s in device.busy_log(index) if s.begin_ns >= line["begin_ns"])
                # memsets compute, too, and take a fraction of a millisecond each
                assert kernels_ns * 0.999 <= busy_ns <= kernels_ns * 1.1 + 5e6, (seed, index)


def test_a_program_that_is_stuck_says_where(program: Path, tmp_path: Path) -> None:
    with SimulatedDevice(tmp_path / "sim", {"devices": 2}) as device:
        command = [str(program), "--seed", "1", "--scale", "100"]
        line, said = measured.execute(command, device.environment(), tmp_path, 0.3)
    assert line is None
    assert "process 0 is not done after 0.3 s" in said and "thread 0 of process 0" in said


def test_a_program_that_fails_is_no_figure(program: Path, tmp_path: Path) -> None:
    with (
        SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device,
        pytest.raises(PartError, match="cuDeviceGet"),  # seed 1 has two
    ):
        measured.execute([str(program), "--seed", "1"], device.environment(), tmp_path, 20)


def outcome(seconds: float, device_s: float, got_pp: float = 0, stuck_text: str = "") -> measured.Outcome:
    return measured.Outcome(seconds, 1, (device_s, 0.0), got_pp, stuck_text)


@pytest.mark.parametrize(
    ("comparison", "why"),
    [
        (measured.Comparison(0.5, 1.0, outcome(1.2, 0.3)), ""),
        (measured.Comparison(0.1, 1.0, outcome(1.2, 0.3)), "180 ms beyond its maximum"),
        (measured.Comparison(0.1, 1.0, outcome(3.5, 0.3)), ""),  # 3 s of its maximum
        (measured.Comparison(0.1, 1.0, outcome(4.5, 0.3)), "ratio 1.50"),
        (measured.Comparison(0.1, 1.0, outcome(4.5, 0.3), 4.2, 4.0), ""),  # it could not save up so much
        (measured.Comparison(0.1, 1.0, outcome(4.5, 0.3), 3.1, 4.0), "ratio 1.45"),
        (measured.Comparison(0.5, 1.0, outcome(1.0, 0.3, -3)), "GOT -3.0 points"),
        (measured.Comparison(0.5, 1.0, outcome(20.0, 0.3, 0, "thread 0")), "stuck"),
    ],
)
def test_why_a_run_misses(comparison: measured.Comparison, why: str) -> None:
    assert random_programs.Found(random_programs.Case(1, comparison.maximum), comparison, 1).why_missed == why


def test_a_replay_saves_up_little() -> None:
    def run(seconds: float, *devices: list[tuple[float, float]]) -> measured.Outcome:
        return measured.Outcome(seconds, len(devices), (), busy=tuple(map(tuple, devices)))

    assert measured.replay_s(run(1.0, [(0, 1)]), 1) == pytest.approx(1)
    assert measured.replay_s(run(1.0, [(0, 1)]), 0.5) == pytest.approx(2 - 0.015)  # saved before the begin
    assert measured.replay_s(run(2.0, [(1, 2)]), 0.5) == pytest.approx(3 - 0.015)  # and no more by waiting
    assert measured.replay_s(run(1.0), 0.1) == 1
    in_turn = [(n * 0.002, n * 0.002 + 0.001) for n in range(100)]
    other = [(n * 0.002 + 0.001, n * 0.002 + 0.002) for n in range(100)]
    assert measured.replay_s(run(0.2, in_turn, other), 0.5) == pytest.approx(0.2)
    assert measured.replay_s(run(0.2, in_turn, in_turn), 0.25) == pytest.approx((0.1 - 0.015 * 0.25) / 0.25, abs=0.002)


def test_a_sample_is_the_same_each_time_and_keeps_seeds_together() -> None:
    cases = random_programs.draw_cases(random_programs.arguments(["--sample", "30"]))
    assert cases == random_programs.draw_cases(random_programs.arguments(["--sample", "30"]))
    assert len(set(cases)) == 30 and [case.seed for case in cases] == sorted(case.seed for case in cases)
    assert cases != random_programs.draw_cases(random_programs.arguments(["--sample", "30", "--draw", "2"]))
