"""What a hostile tenant or user costs its neighbours: `python -m benchmarks.hostile` (make bench-hostile).

On the simulated device. Every case runs its victims beside one attacker that is honest and attacks in turn, phase by
phase, so that each attack is compared with the moment before it; once on a host that is otherwise quiet and once with
every processor busy. Shares and pauses come from the simulated device's own log, latencies from the neighbours' own
calls. An attack that moves a victim's share or the p99 of its pauses or calls by 5 % to its harm has missed the goal.
How far the honest phases lie apart among themselves is in the table: a movement below that is this machine's noise,
and decides nothing.

Exit code: 0 no goal missed, 1 a goal missed or a case failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness, results
from benchmarks.hostile import frame, host
from benchmarks.hostile.cases import CASES
from benchmarks.hostile.frame import Case, Plan
from benchmarks.hostile.phases import GOAL_PERCENT, HEADER, MISSED, NOISE, Figure, line, markdown

DEVICE = "SIMULATED device of vgpu-simd"
HOSTS = (host.QUIET, host.BUSY)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.hostile", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    width = max(map(len, CASES))
    made.epilog = "\n".join(f"{name:<{width}} {case.what}" for name, case in CASES.items())
    made.add_argument("cases", nargs="*", metavar="CASE", help=f"cases to run: {', '.join(CASES)} (default: all)")
    made.add_argument("--seconds", type=float, default=4.0, help="length of a phase (default: %(default)s)")
    made.add_argument("--pairs", type=int, default=4, help="pairs of phases (default: %(default)s)")
    made.add_argument("--host", choices=HOSTS, action="append", help="kind of host (default: both)")
    made.add_argument("--out", type=Path, help="folder for the JSON and the table (default: benchmarks/results)")
    args = made.parse_args(words)
    for name in args.cases:
        if name not in CASES:
            made.error(f"{name} is no case: choose from {', '.join(CASES)}")
    if args.seconds < 1 or args.pairs < 1:
        made.error("--seconds and --pairs must be at least 1")
    args.cases = list(dict.fromkeys(args.cases)) or list(CASES)
    args.host = list(dict.fromkeys(args.host or HOSTS))
    whole = set(args.cases) == set(CASES) and set(args.host) == set(HOSTS)
    args.out = args.out or (results.RESULTS if whole else harness.BUILD)
    return args


def measure(case: Case, kind: str, plan: Plan) -> list[Figure]:
    """The figures of a case; one that fails has missed its goal and costs the others nothing."""
    try:
        with host.load(kind, plan.total_s + 600):
            return frame.run(case, kind, plan)
    except Exception as error:
        traceback.print_exc()
        nan = float("nan")
        return [Figure(case.name, kind, f"failed: {type(error).__name__}: {error}", nan, nan, nan, nan, at_most=0)]


def write(figures: Sequence[Figure], skipped: dict[str, str], args: argparse.Namespace) -> list[Path]:
    """The JSON, and the table beside it. Raises ValueError when nothing was measured."""
    by_case: dict[str, dict[str, list[object]]] = {}
    for figure in figures:
        by_case.setdefault(figure.case, {}).setdefault(figure.host, []).append(figure.as_json())
    path = results.write(
        "hostile",
        simulated=True,
        device=DEVICE,
        parameters={"seconds": args.seconds, "pairs": args.pairs, "switch_s": frame.SWITCH_S, "cases": args.cases},
        goals={"moved_percent": GOAL_PERCENT},
        figures=by_case,
        raw={"skipped": skipped},
        folder=args.out,
    )
    page = path.with_suffix(".md")
    left_out = [f"- {name}: not measured: {why}" for name, why in skipped.items()]
    page.write_text("\n".join(["# What a hostile neighbour costs", "", *left_out, "", markdown(figures)]) + "\n")
    return [path, page]


def main() -> int:
    """Runs the cases and writes the result."""
    args = arguments()
    plan = Plan(args.seconds, args.pairs)
    skipped = {name: why for name in args.cases if (why := CASES[name].why_not())}
    for name, why in skipped.items():
        print(f"{name}: not measured: {why}", file=sys.stderr)
    figures: list[Figure] = []
    print(markdown([]), flush=True)
    for name in args.cases:
        for kind in args.host if name not in skipped else ():
            for figure in measure(CASES[name], kind, plan):
                figures.append(figure)
                print(line(figure.cells()), flush=True)
    if not figures:
        print("hostile: nothing was measured", file=sys.stderr)
        return 1
    assert len(HEADER) == len(figures[0].cells())
    missed, noise = (sum(figure.verdict == verdict for figure in figures) for verdict in (MISSED, NOISE))
    paths = ", ".join(map(str, write(figures, skipped, args)))
    print(f"{missed} goals missed, {noise} not decided for noise; {paths}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
