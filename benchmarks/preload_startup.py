"""What the preloaded hook adds to the start of a program: one that uses no device, and one that attaches, by step.

The steps of a program that uses the device (tenants/start.c): until main() (loading, relocations, constructors), the
driver's dlopen, cuInit (with the hook: attach, pages, helper thread), the primary context, and the end. Hooked and
unhooked starts alternate; of each pair the difference counts.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping

from benchmarks import harness, results
from benchmarks.start_together import environment
from benchmarks.table import at_most, judge
from vgpud import paths

GOAL_MS = 0.5
PROGRAM = "/bin/true"
STEPS = ("main", "load", "init", "context", "end", "all")


def start_ms(environment: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds from posix_spawn to the end of the program. Raises RuntimeError when it fails."""
    begin_ns = time.perf_counter_ns()
    pid = os.posix_spawn(PROGRAM, [PROGRAM], environment)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"{PROGRAM} ended with status {status}")
    return {"all": (time.perf_counter_ns() - begin_ns) / 1e6}


def steps_ms(program: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds of each step of a program that uses the device. Raises RuntimeError when it fails."""
    reader, writer = os.pipe()
    to_pipe = [(os.POSIX_SPAWN_DUP2, writer, 1)]
    begin_ns = time.monotonic_ns()
    pid = os.posix_spawn(program, [program, str(begin_ns)], environment, file_actions=to_pipe)
    _, status = os.waitpid(pid, 0)
    all_ms = (time.monotonic_ns() - begin_ns) / 1e6
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    if status:
        raise RuntimeError(f"{program} ended with status {status}")
    steps = [int(word) / 1e6 for word in text.split()]
    return dict(zip(STEPS, [*steps, all_ms - sum(steps), all_ms], strict=True))


def pairs(
    count: int, start: Callable[[Mapping[str, str]], dict[str, float]], hooked_env: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Medians by step, of hooked and unhooked starts and of the differences."""
    unhooked = harness.without_hook(hooked_env)
    with_ms: list[dict[str, float]] = []
    without_ms: list[dict[str, float]] = []
    for pair in range(-5, count):
        order = (with_ms, hooked_env), (without_ms, unhooked)
        for rows, env in order if pair % 2 else reversed(order):
            took = start(env)
            if pair >= 0:
                rows.append(took)
    found = list(zip(with_ms, without_ms, strict=True))
    return {
        step: {
            "with_ms": statistics.median(a[step] for a, _ in found),
            "without_ms": statistics.median(b[step] for _, b in found),
            "difference_ms": statistics.median(a[step] - b[step] for a, b in found),
        }
        for step in with_ms[0]
    }


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--pairs", type=int, default=500, help="pairs of starts (default: %(default)s)")
    harness.add_load(made)
    args = made.parse_args()
    library = paths.lib_dir() / "libvgpu.so"
    plain = {"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(library)}
    program = str(harness.build("tenants/start.c"))
    with harness.system(None if args.real else harness.one_device()) as own, harness.load_processors(args.load):
        rows = {
            "lazy": pairs(args.pairs, start_ms, plain)["all"],
            "bind_now": pairs(args.pairs, start_ms, {**plain, "LD_BIND_NOW": "1"})["all"],
        }
        attached = pairs(args.pairs, lambda env: steps_ms(program, env), environment(own))
        device = own.device_name()
    print(f"  {'step of a program that attaches, ms':<58} {'with':>9} {'without':>9} {'more':>9}")
    for step, row in attached.items():
        print(f"  {step:<58} {row['with_ms']:9.3f} {row['without_ms']:9.3f} {row['difference_ms']:9.3f}")
    rows["attached"] = attached["all"]
    good = True
    for name, row in rows.items():
        what = "of a program that attaches" if name == "attached" else f"of {PROGRAM} ({name})"
        more_ms = row["difference_ms"]
        good &= judge(f"start {what} with the hook, ms more", more_ms, at_most(GOAL_MS))
    path = results.write(
        harness.loaded_name("preload_startup", args.load),
        is_simulated=not args.real,
        device=device,
        parameters={
            "pairs": args.pairs,
            "program": PROGRAM,
            "library_bytes": library.stat().st_size,
            "load": args.load,
        },
        goals={"difference_ms": GOAL_MS},
        figures={f"{name}_difference_ms": round(row["difference_ms"], 4) for name, row in rows.items()}
        | {f"{step}_difference_ms": round(row["difference_ms"], 4) for step, row in attached.items()},
        raw={**rows, "steps": attached},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
