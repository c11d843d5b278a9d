"""Programs that start at once in one slice: how long until all have a context and memory, and have ended again?

Each is a C program (tenants/together.c): cuInit, the primary context, one allocation, which takes some milliseconds
without a hook. An interpreter's start, a hundred times as long, would hide what a hook adds. Batches with the hook and
without alternate, in one environment but for LD_PRELOAD, and each begins when the daemon has nothing left to do for the
one before; of each pair of batches the ratio counts. One program alone is measured in the same way. What cuInit alone
takes is shown, too: with the hook it attaches to the daemon.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.libraries import simulated

GOAL_RATIO = 1.2
GOAL_ALONE_MS = 0.5
PAUSE_S = 0.2  # the daemon enters ends and attachments into its books a tenth of a second later at most
ALONE_TIMES = 5  # programs that are measured alone, for each batch


def environment(own: OwnSystem, minimum: str = "0.5", maximum: str = "") -> dict[str, str]:
    """What a program has in a slice, without the CUDA libraries that a slice of a real device has not: the hook is what
    is measured."""
    own.vgpu("slice", "create", "together", "--gpus", minimum, *(("--max", maximum) if maximum else ()))
    words = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    part = own.run("together", (), words)
    wait_for("the environment of a program", lambda: not part.running)
    made: dict[str, str] = json.loads(part.output_file.read_text())
    if not made.get("LD_PRELOAD"):
        raise PartError("a program in a slice has no LD_PRELOAD: both batches would be without the hook")
    entries = made["LD_PRELOAD"].split(":")
    return made | {"LD_PRELOAD": ":".join(entry for entry in entries if not simulated.is_cuda_library(entry))}


def batch(count: int, env: Mapping[str, str], timeout_s: float | None = None) -> dict[str, Any]:
    """Starts so many and waits for all. Raises PartError when one has failed, TimeoutExpired when one does not end."""
    command = [str(harness.build("tenants/together.c")), str(count)]
    if "LD_PRELOAD" in env:
        command.append(env["LD_PRELOAD"])
    try:
        done = subprocess.run(
            command,
            env=harness.without_hook(env),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise PartError(f"a program that started with {count - 1} others failed: {error.stderr.strip()}") from None
    batch_ms, *init_ms = (int(word) / 1e6 for word in done.stdout.split())
    return {"batch_ms": batch_ms, "init_ms": init_ms}


def pairs(count: int, times: int, hooked_env: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Batches with the hook and without, in turn."""
    runs: dict[str, list[dict[str, Any]]] = {"hooked": [], "unhooked": []}
    for pair in range(-1, times):
        order = [("hooked", hooked_env), ("unhooked", harness.without_hook(hooked_env))]
        for name, env in order if pair % 2 else reversed(order):
            time.sleep(PAUSE_S)
            run = batch(count, env)
            if pair >= 0:
                runs[name].append(run)
    return runs


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    harness.add_load(made)
    made.add_argument("--programs", type=int, default=20, help="at once (default: %(default)s)")
    made.add_argument("--pairs", type=int, default=30, help="of batches (default: %(default)s)")
    args = made.parse_args()
    with harness.system(None if args.real else harness.one_device()) as own:
        hooked = environment(own)
        with harness.load_processors(args.load):
            runs = pairs(args.programs, args.pairs, hooked)
            alone = pairs(1, args.pairs * ALONE_TIMES, hooked)
        device = own.device_name()
    both = zip(runs["hooked"], runs["unhooked"], strict=True)
    figures = {"ratio": statistics.median(a["batch_ms"] / b["batch_ms"] for a, b in both)}
    both = zip(alone["hooked"], alone["unhooked"], strict=True)
    figures["alone_difference_ms"] = statistics.median(a["batch_ms"] - b["batch_ms"] for a, b in both)
    for name, found in runs.items():
        figures[f"{name}_batch_median_ms"] = statistics.median(run["batch_ms"] for run in found)
        figures[f"{name}_init_median_ms"] = statistics.median(ms for run in found for ms in run["init_ms"])
        figures[f"{name}_alone_median_ms"] = statistics.median(run["batch_ms"] for run in alone[name])
    for name, value in figures.items():
        print(f"  {name:<28} {value:12.3f}")
    ratio, alone_ms = figures["ratio"], figures["alone_difference_ms"]
    label = f"{args.programs} programs at once, over without a hook"
    good = judge(label, ratio, at_most(GOAL_RATIO))
    good &= judge("one program, ms over without a hook", alone_ms, at_most(GOAL_ALONE_MS))
    path = results.write(
        harness.loaded_name("start_together", args.load),
        is_simulated=not args.real,
        device=device,
        parameters={"programs": args.programs, "pairs": args.pairs, "load": args.load, "program": "tenants/together.c"},
        goals={"ratio": GOAL_RATIO, "alone_difference_ms": GOAL_ALONE_MS},
        figures=figures,
        raw={**runs, **{f"alone_{name}": found for name, found in alone.items()}},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
