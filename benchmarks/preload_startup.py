"""What the preloaded hook costs a program that does not use CUDA: the start of /bin/true, with and without."""

from __future__ import annotations

import os
import statistics
import time

from benchmarks import harness, results
from vgpud import paths

GOAL_MS = 1.0
PROGRAM = "/bin/true"


def start_ms(environment: dict[str, str]) -> float:
    """Milliseconds from posix_spawn to the end of the program. Raises RuntimeError when it fails."""
    begin_ns = time.perf_counter_ns()
    pid = os.posix_spawn(PROGRAM, [PROGRAM], environment)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"{PROGRAM} ended with status {status}")
    return (time.perf_counter_ns() - begin_ns) / 1e6


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--pairs", type=int, default=500, help="pairs of starts (default: %(default)s)")
    args = made.parse_args()
    library = paths.lib_dir() / "libvgpu.so"
    plain = {"PATH": "/usr/bin:/bin"}
    hooked = {**plain, "LD_PRELOAD": str(library)}
    rows = {}
    for name, extra in (("lazy", {}), ("bind_now", {"LD_BIND_NOW": "1"})):
        with_ms: list[float] = []
        without_ms: list[float] = []
        for pair in range(args.pairs):
            order = (with_ms, hooked), (without_ms, plain)
            for found, environment in order if pair % 2 else reversed(order):
                found.append(start_ms({**environment, **extra}))
        differences = [a - b for a, b in zip(with_ms, without_ms, strict=True)]
        rows[name] = (statistics.median(with_ms), statistics.median(without_ms), statistics.median(differences))
    good = all(
        harness.verdict(
            f"start of {PROGRAM} with the hook preloaded ({n}), ms more", row[2], f"< {GOAL_MS:g}", row[2] < GOAL_MS
        )
        for n, row in rows.items()
    )
    path = results.write(
        "preload_startup",
        simulated=True,
        device="none needed (SIMULATED rows only)",
        parameters={"pairs": args.pairs, "program": PROGRAM, "library_bytes": library.stat().st_size},
        goals={"difference_ms": GOAL_MS},
        figures={f"{name}_difference_ms": round(row[2], 4) for name, row in rows.items()},
        raw={n: {"with_ms": row[0], "without_ms": row[1]} for n, row in rows.items()},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
