"""Programs that start at once in one slice: how long until all have a context and memory, and have ended again?

Each is a Python program that calls the driver by ctypes, as a worker of a framework does: cuInit, the primary context,
one allocation. Batches with the hook and without alternate, in one environment but for LD_PRELOAD; of each pair of
batches the ratio counts. What cuInit alone takes in them is shown, too: with the hook it attaches to the daemon.
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
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for

GOAL_RATIO = 1.1
PROGRAM = """
import ctypes, time
driver = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
begin_ns = time.monotonic_ns()
codes = [driver.cuInit(0)]
took_ns = time.monotonic_ns() - begin_ns
codes += [driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)]
codes += [driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 << 20))]
print(took_ns if not any(codes) else -1)
"""


def environment(own: OwnSystem) -> dict[str, str]:
    """What a program has in a slice."""
    own.vgpu("slice", "create", "together", "--gpus", "0.5")
    words = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    part = own.run("together", (), words)
    wait_for("the environment of a program", lambda: not part.running)
    made: dict[str, str] = json.loads(part.out.read_text())
    if not made.get("LD_PRELOAD"):
        raise PartError("a program in a slice has no LD_PRELOAD: both batches would be without the hook")
    return made


def batch(count: int, env: Mapping[str, str], timeout_s: float | None = None) -> dict[str, Any]:
    """Starts so many and waits for all. Raises PartError when one has failed, TimeoutExpired when one does not end."""
    begin = time.monotonic()
    command = [sys.executable, "-c", PROGRAM]
    started = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        said = [process.communicate(timeout=timeout_s)[0] for process in started]
    finally:
        for process in started:
            process.kill()  # one that has not ended
            process.wait()
    took_ms = (time.monotonic() - begin) * 1000
    if any(process.returncode for process in started) or "-1\n" in said:
        raise PartError(f"a program that started with {count - 1} others failed: {said}")
    return {"batch_ms": took_ms, "init_ms": [int(line) / 1e6 for line in said]}


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--programs", type=int, default=20, help="at once (default: %(default)s)")
    made.add_argument("--pairs", type=int, default=30, help="of batches (default: %(default)s)")
    args = made.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {"hooked": [], "unhooked": []}
    with harness.system(None if args.real else harness.one_device()) as own:
        hooked = environment(own)
        unhooked = {name: value for name, value in hooked.items() if name != "LD_PRELOAD"}
        for pair in range(-1, args.pairs):
            order = [("hooked", hooked), ("unhooked", unhooked)]
            for name, env in order if pair % 2 else reversed(order):
                run = batch(args.programs, env)
                if pair >= 0:
                    runs[name].append(run)
        device = own.device_name()
    pairs = zip(runs["hooked"], runs["unhooked"], strict=True)
    figures = {"ratio": statistics.median(a["batch_ms"] / b["batch_ms"] for a, b in pairs)}
    for name, found in runs.items():
        figures[f"{name}_batch_median_ms"] = statistics.median(run["batch_ms"] for run in found)
        figures[f"{name}_init_median_ms"] = statistics.median(ms for run in found for ms in run["init_ms"])
    for name, value in figures.items():
        print(f"  {name:<28} {value:12.3f}")
    good = harness.verdict(
        f"{args.programs} programs at once, over without a hook",
        figures["ratio"],
        f"<= {GOAL_RATIO:g}",
        figures["ratio"] <= GOAL_RATIO,
    )
    path = results.write(
        "start_together",
        simulated=not args.real,
        device=device,
        parameters={"programs": args.programs, "pairs": args.pairs, "program": PROGRAM},
        goals={"ratio": GOAL_RATIO},
        figures=figures,
        raw=runs,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
