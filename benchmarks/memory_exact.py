"""Is memory exact? A slice's free memory after its context, everything of it, one granule more, and after kill -9.

Simulated and real device alike: a C program in a slice asks the driver; the limit, the context's cost and the granule
are what the daemon says. The holder is then killed with SIGKILL, and a second process of the slice, which has its
context already, measures when the memory is free again.
"""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for
from vgpud.client import calls

GOAL_BACK_MS = 100.0
LIMIT = 4 << 30
SLICE = "held"


class Lines:
    """The events of one tenant by name."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.by_event: dict[str, dict[str, Any]] = {}

    def wait(self, event: str, timeout_s: float = 20) -> dict[str, Any]:
        """The event, as soon as it is there. Raises PartError when it does not come."""

        def is_there() -> bool:
            for line in self.part.lines():
                self.by_event[line["event"]] = line
            if event not in self.by_event:
                self.part.check()
            return event in self.by_event

        wait_for(f"{self.part.name}: {event}", is_there, timeout_s)
        return self.by_event[event]


def fill_and_kill(own: OwnSystem, context_bytes: int, granule: int) -> dict[str, Any]:
    """One round: fill the slice, kill the holder, wait for the memory. Returns the figures."""
    program = str(harness.build("tenants/memory.c"))
    own.vgpu("slice", "create", SLICE, "--gpus", "0.5", "--mem", str(LIMIT))
    expected = LIMIT - 2 * context_bytes  # two processes, a context each
    watcher = Lines(own.run(SLICE, (), [program, "watch", str(expected)], talk=True))
    first = watcher.wait("context")
    holder = Lines(own.run(SLICE, (), [program, "fill", str(granule)], talk=True))
    context, filled, held = (holder.wait(event) for event in ("context", "filled", "held"))
    again = holder.wait("again")
    stdin = watcher.part.process.stdin
    assert stdin
    stdin.write(b"g")
    stdin.flush()
    time.sleep(0.1)
    killed_ns = time.monotonic_ns()
    os.kill(int(held["pid"]), signal.SIGKILL)
    back, taken = watcher.wait("back"), watcher.wait("taken")
    holder.part.stop()
    watcher.part.stop()
    own.vgpu("slice", "rm", SLICE)
    return {
        "limit_bytes": LIMIT,
        "context_bytes": context_bytes,
        "granule_bytes": granule,
        "total_shown_bytes": first["total_bytes"],
        "device_total_shown_bytes": first["device_total_bytes"],
        "free_after_first_context_bytes": first["free_bytes"],
        "free_after_second_context_bytes": context["free_bytes"],
        "taken_bytes": filled["taken_bytes"],
        "one_granule_more_code": filled["one_more_code"],
        "one_byte_more_code": filled["one_byte_more_code"],
        "refused_after_us": filled["refused_after_us"],
        "again_code": again["code"],
        "free_when_full_bytes": held["free_bytes"],
        "back_after_kill_ms": (back["time_ns"] - killed_ns) / 1e6,
        "taken_after_kill_ms": (taken["time_ns"] - killed_ns) / 1e6,
        "taken_after_kill_code": taken["code"],
    }


def smallest_limit(own: OwnSystem) -> dict[str, Any]:
    """A limit below a context's cost must be refused with the smallest that works, and that one must work."""
    try:
        own.vgpu("slice", "create", "tiny", "--gpus", "0.1", "--mem", "100M")
    except PartError as error:
        message = str(error)
    else:
        return {"refused": False, "message": "", "smallest_works": False}
    sizes = re.findall(r"\d+(?:\.\d+)? ?[KMGT]i?B?\b|\d{6,}", message.partition(":")[2])
    for size in sizes:
        try:
            own.vgpu("slice", "create", "tiny", "--gpus", "0.1", "--mem", size.replace(" ", ""))
        except PartError:
            continue
        own.vgpu("slice", "rm", "tiny")
        return {"refused": True, "message": message, "smallest": size, "smallest_works": True}
    return {"refused": True, "message": message, "smallest_works": False}


def problems(figures: dict[str, Any], tiny: dict[str, Any]) -> list[str]:
    """What is not as promised, in words; empty when memory is exact."""
    wanted = {
        "total_shown_bytes": LIMIT,
        "device_total_shown_bytes": LIMIT,
        "free_after_first_context_bytes": LIMIT - figures["context_bytes"],
        "free_after_second_context_bytes": LIMIT - 2 * figures["context_bytes"],
        "taken_bytes": LIMIT - 2 * figures["context_bytes"],
        "one_granule_more_code": 2,
        "one_byte_more_code": 2,
        "again_code": 0,
        "free_when_full_bytes": 0,
        "taken_after_kill_code": 0,
    }
    wrong = [f"{key} is {figures[key]}, not {value}" for key, value in wanted.items() if figures[key] != value]
    if figures["back_after_kill_ms"] > GOAL_BACK_MS:
        wrong.append(
            f"memory was back {figures['back_after_kill_ms']:.1f} ms after kill -9, not within {GOAL_BACK_MS:g}"
        )
    if not (tiny["refused"] and tiny["smallest_works"]):
        wrong.append(f"a limit below the context's cost: {tiny}")
    return wrong


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when memory is not exact."""
    made = harness.parser(__doc__)
    made.add_argument("--rounds", type=int, default=5, help="times to fill and kill (default: %(default)s)")
    args = made.parse_args()
    with harness.system(None if args.real else harness.one_device()) as own:
        with own.client() as client:
            device = client.all(calls.devices())[0]
        rounds = [fill_and_kill(own, device.context_bytes, device.granule_bytes) for _ in range(args.rounds)]
        tiny = smallest_limit(own)
    found = max(rounds, key=lambda one: one["back_after_kill_ms"])
    wrong = [problem for one in rounds for problem in problems(one, tiny)]
    judge("memory back after kill -9, ms", found["back_after_kill_ms"], at_most(GOAL_BACK_MS))
    for problem in dict.fromkeys(wrong):
        print("  NOT EXACT:", problem)
    path = results.write(
        "memory_exact",
        is_simulated=device.simulated,
        device=device.name,
        parameters={"rounds": args.rounds, "limit_bytes": LIMIT},
        goals={"back_after_kill_ms": GOAL_BACK_MS, "problems": 0},
        figures={**found, "problems": wrong, "limit_below_overhead": tiny},
        raw={"rounds": rounds},
        folder=args.results,
    )
    print(path)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
