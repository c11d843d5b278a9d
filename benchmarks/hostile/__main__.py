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
from benchmarks.hostile.phases import Harm, PhaseFigure
from benchmarks.rows import add_rows, choose_rows
from benchmarks.table import count_met, format_line, format_table

DEVICE = "SIMULATED device of vgpu-simd"
HOSTS = (host.QUIET, host.BUSY)


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options."""
    made = argparse.ArgumentParser(
        description=__doc__, prog="python -m benchmarks.hostile", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_rows(made, {name: case.what for name, case in CASES.items()}, "case")
    made.add_argument("--seconds", type=float, default=4.0, help="length of a phase (default: %(default)s)")
    made.add_argument("--pairs", type=int, default=4, help="pairs of phases (default: %(default)s)")
    made.add_argument("--host", choices=HOSTS, action="append", help="kind of host (default: both)")
    made.add_argument("--out", type=Path, help="folder for the JSON and the table (default: benchmarks/results)")
    args = made.parse_args(words)
    args.cases = choose_rows(made, args.cases, CASES, "case")
    if args.seconds < 1 or args.pairs < 1:
        made.error("--seconds and --pairs must be at least 1")
    args.host = list(dict.fromkeys(args.host or HOSTS))
    whole = set(args.cases) == set(CASES) and set(args.host) == set(HOSTS)
    args.out = args.out or (results.RESULTS if whole else harness.BUILD)
    return args


def measure(case: Case, kind: str, plan: Plan) -> list[PhaseFigure]:
    """The figures of a case; one that fails has missed its goal and costs the others nothing."""
    try:
        with host.load(kind, plan.total_s + 600):
            return frame.run(case, kind, plan)
    except Exception as error:
        traceback.print_exc()
        return [PhaseFigure(case.name, kind, f"failed: {type(error).__name__}: {error}", None, Harm(at_most=0))]


def write(figures: Sequence[PhaseFigure], skipped_cases: dict[str, str], args: argparse.Namespace) -> list[Path]:
    """The JSON, and the table beside it. Raises ValueError when nothing was measured."""
    ran = [(name, CASES[name].what) for name in args.cases if name not in skipped_cases]
    left_out = [f"{name}: not measured: {why}" for name, why in skipped_cases.items()]
    return results.write_figures(
        "hostile",
        figures,
        results.Page("What a hostile neighbour costs", left_out, ("case", "what the attacker does"), ran),
        is_simulated=True,
        device=DEVICE,
        parameters={"seconds": args.seconds, "pairs": args.pairs, "switch_s": frame.SWITCH_S, "cases": args.cases},
        raw={"skipped": skipped_cases},
        folder=args.out,
    )


def main() -> int:
    """Runs the cases and writes the result."""
    args = arguments()
    plan = Plan(args.seconds, args.pairs)
    skipped = {name: why for name in args.cases if (why := CASES[name].why_not())}
    for name, why in skipped.items():
        print(f"{name}: not measured: {why}", file=sys.stderr)
    figures: list[PhaseFigure] = []
    print(format_table(PhaseFigure.HEADER), flush=True)
    for name in args.cases:
        for kind in args.host if name not in skipped else ():
            for figure in measure(CASES[name], kind, plan):
                figures.append(figure)
                print(format_line(figure.cells()), flush=True)
    if not figures:
        print("hostile: nothing was measured", file=sys.stderr)
        return 1
    paths = ", ".join(map(str, write(figures, skipped, args)))
    print(f"{count_met(figures)}; {paths}")
    return 1 if any(figure.is_missed for figure in figures) else 0


if __name__ == "__main__":
    raise SystemExit(main())
