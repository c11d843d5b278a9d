"""Programs whose streams wait, alone in slices: for each other, or for their own launches. Each ends, in about the time
that it may take.

Some of those of the benchmarks random_programs and dependent_streams, whose goals are much closer: where waiting is
charged as device time, most of these do not end, or take five times as long, each time. A busy machine spoils a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from benchmarks import dependent_streams, measured, random_programs
from tests.examples import combine_axes

RATIO_MOST = 4
#: a program that is stuck is so for ever; on a busy machine one that is not may take long
LIMIT_S = 60.0
RUNS_MAX = 4
#: of kernels that take an eighth of the time between two launches
SHORT_US = 2
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bench() -> Iterator[measured.Bench]:
    with measured.open_bench([SHORT_US, *random_programs.LENGTHS_US]) as made:
        yield made


def check(bench: measured.Bench, command: Sequence[str], maximum: float) -> None:
    """One run shows what it may take; in none is it stuck."""
    seen = []
    for _ in range(RUNS_MAX):
        unhooked = bench.run_unhooked(command, LIMIT_S)
        found = bench.compare(command, maximum, unhooked, LIMIT_S)
        seen.append(found.as_json())
        assert not found.run.stuck_text, seen
        if found.ratio < RATIO_MOST:
            return
    raise AssertionError(seen)


#: of one and two processes and devices, with streams that wait for each other implicitly, with many graphs
@pytest.mark.parametrize(("seed", "maximum"), combine_axes([1, 2, 39, 11], [0.1, 0.5]))
def test_a_random_program(bench: measured.Bench, seed: int, maximum: float) -> None:
    check(bench, random_programs.command(seed, 0.5), maximum)


@pytest.mark.parametrize(
    "program",
    [
        dependent_streams.Program("plain", threads=1),
        dependent_streams.Program("values", devices=2),
        dependent_streams.Program("values", processes=2, devices=2),
        dependent_streams.Program("events", threads=3),
        dependent_streams.Program("functions", processes=2),
        dependent_streams.Program("graphs"),
        dependent_streams.Program("producer", devices=2),
        dependent_streams.Program("after_value_and_kernel"),
        dependent_streams.Program("behind_event", rounds=20),
    ],
    ids=lambda program: program.name,
)
def test_streams_that_wait_for_each_other(bench: measured.Bench, program: dependent_streams.Program) -> None:
    check(bench, program.command, 0.25)


@pytest.mark.parametrize("waits_for", ["loop", "stream", "event", "copy"])
def test_kernels_that_are_shorter_than_their_launches(bench: measured.Bench, waits_for: str) -> None:
    program = dependent_streams.Program(f"short_{waits_for}", rounds=1000, kernel_us=SHORT_US)
    check(bench, program.command, 0.1)
