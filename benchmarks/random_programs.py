"""Random programs in slices: does a slice get what it may, whatever its streams wait for, and is it charged for that?

Each seed is a program (tenants/random_program.c) of one or two processes, up to three threads each with up to four
streams, on one or two devices, that wait for each other's values, events, semaphores, host functions, copies and
graphs. It runs without a hook, then alone in slices of the given maxima. A run misses when it takes more than 1.3 times
what is legitimate (see measured.py), when what the slice is said to have used (GOT) is more than a point of the elapsed
time from the device's log, when it computes beyond its maximum, or when it does not end. What misses by figures is
tried once more, since this machine may have been busy; what is stuck is not. Results of named seeds and of samples are
kept in build/bench.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import harness, measured, results
from benchmarks.spinning import spinning
from benchmarks.table import at_most, equal_to, judge
from vgpud.cli.demo.private_system import PartError

SOURCES = ("tenants/random_program.c", "tenants/random_program_make.c")
#: those of KERNEL_LENGTHS_US in tenants/random_program.h
LENGTHS_US = (20, 50, 100, 200, 500, 1000, 2000, 5000)
GOALS = measured.Goals(ratio=1.3, got_pp=1.0)


@dataclass(frozen=True)
class Case:
    """A program in a slice."""

    seed: int
    maximum: float

    @property
    def rerun_command(self) -> str:
        """How to run it alone."""
        return f"python -m benchmarks.random_programs --seeds {self.seed} --gpus {self.maximum:g}"


@dataclass(frozen=True)
class Found:
    """A case and its best run, of so many."""

    case: Case
    best: measured.Comparison
    tries: int

    @property
    def why_missed(self) -> str:
        """Empty: it met the goals."""
        return GOALS.why_missed(self.best)


def command(seed: int, scale: float) -> list[str]:
    """The program of a seed."""
    return [str(measured.build(*SOURCES)), "--seed", str(seed), "--scale", f"{scale:g}"]


def run_cases(bench: measured.Bench, cases: Sequence[Case], args: argparse.Namespace) -> Iterator[Found]:
    """One after the other; cases of one seed lie together and share its run without a hook."""
    unhooked: dict[int, measured.Outcome] = {}
    for case in cases:
        if case.seed not in unhooked:
            unhooked[case.seed] = bench.run_unhooked(command(case.seed, args.scale), args.limit)
        program = command(case.seed, args.scale)
        tries = bench.try_twice(program, case.maximum, unhooked[case.seed], args.limit, GOALS)
        yield Found(case, tries[0], len(tries))


def figures_of(outcomes: Sequence[Found]) -> dict[str, Any]:
    """The summary."""
    ended = [one.best for one in outcomes if not one.best.run.stuck_text]
    ratios = [one.ratio for one in ended]
    worst_got = max(ended, key=lambda one: abs(one.run.got_pp or 0), default=None)
    return {
        "cases": len(outcomes),
        "stuck": len(outcomes) - len(ended),
        "ratio_median": statistics.median(ratios) if ratios else None,
        "ratio_worst": max(ratios, default=None),
        "simple_ratio_median": statistics.median(one.simple_ratio for one in ended) if ended else None,
        "simple_ratio_worst": max((one.simple_ratio for one in ended), default=None),
        "got_worst_pp": worst_got.run.got_pp if worst_got else None,
        "missed": sum(bool(one.why_missed) for one in outcomes),
    }


def draw_cases(args: argparse.Namespace) -> list[Case]:
    """All pairs of a seed and a maximum, or so many of them."""
    seeds = args.seeds or range(args.first_seed, args.first_seed + args.programs)
    cases = [Case(seed, maximum) for seed in seeds for maximum in args.gpus]
    if args.sample and args.sample < len(cases):
        cases = sorted(random.Random(args.draw).sample(cases, args.sample), key=lambda case: case.seed)
    return cases


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _seeds(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    made = harness.parser(__doc__)
    made.add_argument("--programs", type=int, default=200, metavar="N", help="so many seeds (default: %(default)s)")
    made.add_argument("--first-seed", type=int, default=1, metavar="N", help="default: %(default)s")
    made.add_argument("--seeds", type=_seeds, metavar="N,N...", help="these seeds instead")
    made.add_argument(
        "--gpus", type=_numbers, default=[0.1, 0.25, 0.5], metavar="F,F...", help="maxima (default: 0.1,0.25,0.5)"
    )
    made.add_argument("--sample", type=int, metavar="N", help="only so many pairs of a seed and a maximum, at random")
    made.add_argument("--draw", type=int, default=1, metavar="N", help="which sample (default: %(default)s)")
    made.add_argument("--scale", type=float, default=1, metavar="F", help="size of the programs (default: %(default)g)")
    made.add_argument(
        "--load", type=int, default=0, metavar="N", help="beside so many processes that spin (default: 0)"
    )
    made.add_argument(
        "--limit",
        type=float,
        default=15,
        metavar="SECONDS",
        help="stuck is what takes so much longer than five times what it may (default: %(default)g)",
    )
    args = made.parse_args(words)
    if args.real:
        made.error("--real: kernels of known lengths and a log are needed, which only the simulated device has")
    if (args.seeds or args.sample) and args.results == results.RESULTS:
        args.results = harness.BUILD
    if any(not 0 < maximum <= 1 for maximum in args.gpus):
        made.error("--gpus: fractions of a device, above 0 and at most 1")
    return args


def print_case(number: int, count: int, outcome: Found) -> None:
    """One line as soon as it is known."""
    best, case = outcome.best, outcome.case
    got = "" if best.run.got_pp is None else f", GOT {best.run.got_pp:+5.2f} pp"
    print(
        f"{number:>4} of {count}: seed {case.seed:>4} in {case.maximum:<4g}: {best.run.seconds:6.2f} s, without a hook "
        f"{best.unhooked_s:5.2f} s, device {max(best.run.device_s, default=0):5.3f} s, ratio {best.ratio:5.2f}"
        f"{got}{'  MISSED: ' + outcome.why_missed if outcome.why_missed else ''}",
        flush=True,
    )


def judge_cases(figures: dict[str, Any], missed_cases: Sequence[Found]) -> bool:
    """Prints the summary. Returns whether all goals are met."""
    print(f"{figures['cases']} cases, ratio {figures['ratio_median'] or float('nan'):.2f} in the median")
    ratio = figures["ratio_worst"] or float("inf")
    good = judge("worst ratio", ratio, at_most(GOALS.ratio))
    got_pp = abs(figures["got_worst_pp"] or 0)
    good &= judge("GOT minus the log, points", got_pp, at_most(GOALS.got_pp))
    good &= judge("stuck", figures["stuck"], equal_to(0))
    for one in missed_cases:
        print(f"  seed {one.case.seed} in {one.case.maximum:g}: {one.why_missed}\n    {one.case.rerun_command}")
        if one.best.run.stuck_text:
            print("    " + one.best.run.stuck_text.replace("\n", "\n    "))
    return good and not missed_cases


def main() -> int:
    """Runs the cases and writes the result. Exit code 1 when one misses."""
    args = arguments()
    cases = draw_cases(args)
    found: list[Found] = []
    begin = time.monotonic()
    with measured.open_bench(LENGTHS_US) as bench, spinning(args.load, 24 * 3600):
        device = bench.device_name
        try:
            for one in run_cases(bench, cases, args):
                found.append(one)
                print_case(len(found), len(cases), one)
        except PartError as error:
            print(f"given up: {error}", file=sys.stderr)
            return 1
    figures = figures_of(found)
    missed = [one for one in found if one.why_missed]
    good = judge_cases(figures, missed)
    path = results.write(
        "random_programs",
        is_simulated=True,
        device=device,
        parameters={
            "seeds": sorted({case.seed for case in cases}),
            "gpus": args.gpus,
            "sample": args.sample,
            "scale": args.scale,
            "load": args.load,
            "seconds": round(time.monotonic() - begin),
        },
        goals={"ratio": GOALS.ratio, "got_pp": GOALS.got_pp, "stuck": 0},
        figures=figures,
        raw={"cases": [{"seed": one.case.seed, "tries": one.tries, **one.best.as_json()} for one in found]},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
