"""Streams that wait for each other, in slices: `python -m benchmarks.dependent_streams [ROW...]`.

Threads and processes, on one device and on two, whose streams wait for each other's values, events, host functions and
copies, round after round; programs that wait for something that computes nothing, then work; and programs whose streams
wait for the next launch, since their kernels are shorter than what is between two launches. Each is compared with
itself without a hook, as measured.py describes. Simulated device only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks import measured, rows
from benchmarks.rows import Raw, Row
from benchmarks.table import Figure, at_most

MAXIMA = (0.1, 0.25, 0.5)
GOALS = measured.Goals(ratio=1.2, got_pp=1.0)
LIMIT_S = 15.0
SHORT_KERNEL_US = 5


@dataclass(frozen=True)
class Program:
    """A case of tenants/dependent_streams.c."""

    case: str
    threads: int = 2
    processes: int = 1
    devices: int = 1
    rounds: int = 100
    kernel_us: int = 1000

    @property
    def name(self) -> str:
        """For the table."""
        who = f"{self.processes} processes" if self.processes > 1 else f"{self.threads} threads"
        if self.case in ONE_THREAD:
            who = "1 thread"
        where = f"{self.devices} devices" if self.devices > 1 else "1 device"
        return f"{self.case.replace('_', ' ')}, {who}, {where}"

    @property
    def command(self) -> list[str]:
        """Its command line."""
        numbers = {
            "--threads": self.threads,
            "--processes": self.processes,
            "--devices": self.devices,
            "--rounds": self.rounds,
            "--us": self.kernel_us,
        }
        words = [word for name, number in numbers.items() for word in (name, str(number))]
        return [str(measured.build("tenants/dependent_streams.c")), "--case", self.case, *words]


#: cases in which one thread makes all calls
ONE_THREAD = {
    "plain",
    "values_by_one",
    "stages",
    "after_value",
    "after_value_and_kernel",
    "after_function",
    "after_kernel_and_function",
    "behind_function",
    "behind_copy",
    "behind_event",
    "behind_sleep",
    "short_loop",
    "short_stream",
    "short_event",
    "short_copy",
}


def _everywhere(case: str, **options: int) -> tuple[Program, ...]:
    """Two threads and two processes, on one device and on two."""
    return tuple(
        Program(case, processes=processes, devices=devices, **options) for processes in (1, 2) for devices in (1, 2)
    )


#: by name of a row: what its programs do
PROGRAMS: dict[str, tuple[str, tuple[Program, ...]]] = {
    "plain": ("one stream of kernels, for comparison", (Program("plain", threads=1),)),
    "values": (
        "streams that wait for each other's values",
        (*_everywhere("values"), Program("values_by_one"), Program("values_by_one", devices=2)),
    ),
    "events": (
        "streams that wait for each other's events",
        tuple(Program("events", devices=devices) for devices in (1, 2)),
    ),
    "functions": ("streams that wait for values of each other's host functions", _everywhere("functions")),
    "batches": ("the same with cuStreamBatchMemOp", _everywhere("batches")),
    "graphs": ("the same with graphs of a wait, a kernel and a write", _everywhere("graphs")),
    "rings": (
        "three and four threads in a ring",
        tuple(
            Program(case, threads, devices=devices, rounds=50)
            for case in ("values", "events", "functions")
            for threads, devices in ((3, 1), (4, 1), (4, 2))
        ),
    ),
    "pipelines": (
        "copies, kernels and copies of two threads or processes, and of three streams",
        (*_everywhere("producer"), Program("stages", threads=3), Program("stages", threads=3, devices=2)),
    ),
    "after": (
        "a stream waits for half a second, then kernels of another one come one at a time",
        tuple(Program(f"after_{what}") for what in ("value", "value_and_kernel", "function", "kernel_and_function")),
    ),
    "short": (
        "kernels that are shorter than the time between their launches: a third of the device",
        tuple(
            Program(f"short_{what}", rounds=1000, kernel_us=SHORT_KERNEL_US)
            for what in ("loop", "stream", "event", "copy")
        ),
    ),
    "behind": (
        "two kernels behind 20 ms of something that computes nothing, again and again",
        tuple(Program(f"behind_{what}", rounds=30) for what in ("function", "copy", "event", "sleep")),
    ),
}


def figures(name: str, raw: Raw) -> Iterator[Figure]:
    """Those of a row: how much longer than legitimate each program takes in each slice, and what it is charged."""
    kernels_us = sorted({program.kernel_us for program in PROGRAMS[name][1]})
    runs = raw.setdefault("runs", [])
    with measured.open_bench(kernels_us) as bench:
        for program in PROGRAMS[name][1]:
            unhooked = bench.run_unhooked(program.command, LIMIT_S)
            for maximum in MAXIMA:
                tries = bench.try_twice(program.command, maximum, unhooked, LIMIT_S, GOALS)
                runs.append({"case": program.name, "tries": len(tries), **tries[0].as_json()})
                yield from _figures_of(name, f"{program.name}, {maximum:g}", tries[0])


def _figures_of(row: str, case: str, best: measured.Comparison) -> Iterator[Figure]:
    stuck = bool(best.run.stuck_text)
    yield Figure(row, case, "time over what is legitimate", None if stuck else best.ratio, at_most(GOALS.ratio))
    yield Figure(row, case, "over unhooked, or device time / maximum", None if stuck else best.simple_ratio)
    yield Figure(row, case, "GOT minus the log, pp", best.run.got_pp)
    got_pp = None if best.run.got_pp is None else abs(best.run.got_pp)
    yield Figure(row, case, "distance, pp", got_pp, at_most(GOALS.got_pp))
    beyond = at_most(measured.BEYOND_S * 1000 + measured.BEYOND_PART * max(best.run.device_s, default=0) * 1000)
    yield Figure(row, case, "computed beyond its maximum, ms", None if stuck else best.beyond_s * 1000, beyond)


def _row(name: str) -> Row:
    return Row(PROGRAMS[name][0], lambda raw: figures(name, raw))


BENCH = rows.Bench(
    "dependent_streams",
    "Streams that wait for each other, in slices",
    __doc__ or "",
    "SIMULATED H200",
    f"Each program runs alone in a slice of {', '.join(map(str, MAXIMA))} of each of its devices (the last number of a "
    "case). What is legitimate: without a hook; the device time over the maximum; what cannot be saved up (benchmarks/"
    "measured.py). A value that is missing: the program did not end.",
    {name: _row(name) for name in PROGRAMS},
)


def main() -> int:
    """Runs the rows and writes the result. Exit code 1 when a goal is missed."""
    return rows.main(BENCH)


if __name__ == "__main__":
    raise SystemExit(main())
