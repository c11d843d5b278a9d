"""Slices in turn (--mem-swap), asleep (--idle-after): what of the device's time is left, how long the way back is.

turns-N: N slices of the whole memory each, each launching without a break: device time against what the moves leave by
the link's rate. managed: two of them without vgpud and with the driver's managed memory, whose kernels wait for what is
not there (shim/simgpu/server/managed.c): kernels against those in turn. trainers: those of tinygrad and PyTorch in turn
(rotation_trainers.py). out and back: `vgpu slice evict` and `resume`. by the hook: a slice sleeps and wakes, the driver
has no checkpoint; the host's own copying and its page faults count. allocations: one and its freeing there, and
elsewhere. sleepers: seven slices, of which one calls again and again after sleeping, beside two at work: the time of
its first call, and whether the others' shares stay what they are.

Sizes and the link's rate are those of an 80 GiB device over PCIe, both divided by --scale: moves take as long, and the
host need not have half a terabyte of RAM.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import harness, results, rotation_trainers
from benchmarks.table import at_least, at_most, judge
from benchmarks.windows import shares_by_tenant
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls
from vgpud.simdevice import process
from vgpud.simdevice.busy_log import SECOND_NS, read_busy_log
from vgpud.v1alpha1 import vgpud_pb2 as pb

MIB, GIB = 1 << 20, 1 << 30
#: of the device that is scaled
DEVICE_BYTES, LINK_BYTES_PER_S, CONTEXT_BYTES = 80 * GIB, 50_000_000_000, 512 * MIB
KERNEL_US = 500
GOAL_SUM, GOAL_MOVE, GOAL_SPARE_S, GOAL_SHARE_PP = 0.9, 1.2, 0.3, 1.0
DEADLINE_S = 120.0
MANAGED_S = 30.0
ALLOCATIONS_MIB = (2, 64, 1024)
#: what a fault of the simulated device costs beside the transfer: SIM_MANAGED_FAULT_NS
FAULT_NS = 20_000
#: of managed memory that a kernel uses: sleeper.c
PIECE_BYTES = 4 * MIB
FRAMEWORKS = ("tinygrad", "torch")
SLEEPERS, SLEEPER_BYTES, OUT_BYTES = 7, 16 * GIB, 10 * GIB


def sim_config(scale: int, device_bytes: int = DEVICE_BYTES) -> dict[str, str]:
    return {
        "devices": "1",
        "memory_bytes": f"{device_bytes // scale // MIB}M",
        "context_bytes": f"{max(2, CONTEXT_BYTES // scale // MIB)}M",
        "link_bytes_per_us": str(LINK_BYTES_PER_S // scale // 1_000_000),
    }


class Bench:
    """A daemon and a device, and programs in slices of theirs."""

    def __init__(self, own: OwnSystem, scale: int) -> None:
        self.own, self._scale = own, scale
        self._program = str(harness.build("tenants/sleeper.c"))
        self._lines: dict[str, list[dict[str, Any]]] = {}
        self.parts: dict[str, Part] = {}
        self.context_mib = max(2, CONTEXT_BYTES // scale // MIB)

    def mib(self, size_bytes: int) -> int:
        """Of a size before scaling."""
        return size_bytes // self._scale // MIB

    def start(self, name: str, size_bytes: int, how: str, *options: str) -> None:
        """A slice of this memory, and a program that has all of it."""
        mib = self.mib(size_bytes)
        self.own.vgpu("slice", "create", name, "--mem", f"{mib}M", *options)
        held = mib - self.context_mib - 4
        self.run(name, str(held - held % 2), how)

    def run(self, name: str, mib: str, how: str) -> None:
        """A program in a slice that there is."""
        self._lines[name] = []
        self.parts[name] = self.own.run(name, (), [self._program, mib, str(KERNEL_US), how], talk=True)

    def run_without_hook(self, name: str, size_bytes: int, how: str) -> None:
        """The same program with this memory, in no slice."""
        self._lines[name] = []
        env = process.environment(self.own.sim_dir, self.own.env)
        held = self.mib(size_bytes) - self.context_mib - 4
        command = [self._program, str(held - held % 2), str(KERNEL_US), how]
        part = self.parts[name] = Part(f"plain-{name}", command, env, self.own.folder)
        self.own.tenants.append(part)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        self.parts[name].check()
        self._lines[name] += self.parts[name].lines()
        return self._lines[name]

    def wait_for_all(self, limit_s: float) -> None:
        for name in self.parts:
            wait_for(f"program {name}", lambda name=name: bool(self.read_lines(name)), limit_s)  # type: ignore[misc]

    def slice(self, name: str) -> pb.Slice:
        with self.own.client() as client:
            found: pb.Slice = client.send(calls.get_slice(name))
        return found

    def completed(self) -> int:
        """Kernels of all programs, by their last reports."""
        return sum(self.read_lines(name)[-1].get("completed", 0) for name in self.parts)

    def call(self, name: str) -> float:
        """Seconds of one call of a program that waits for its line."""
        before = len(self.read_lines(name))
        stdin = self.parts[name].process.stdin
        assert stdin
        stdin.write(b"\n")
        stdin.flush()
        wait_for(f"call of {name}", lambda: len(self.read_lines(name)) > before, 120)
        return float(self.read_lines(name)[-1]["call_ns"]) / 1e9

    def stop(self) -> None:
        for part in self.parts.values():
            part.stop()


def measure_turns(scale: int, count: int, seconds: float) -> dict[str, Any]:
    with harness.system(sim_config(scale), lengths_us=[KERNEL_US]) as own:
        bench = Bench(own, scale)
        names = [f"s{number}" for number in range(count)]
        for name in names:
            bench.start(name, DEVICE_BYTES, "busy", "--gpus", f"{1 / count:g}", "--max", "1", "--mem-swap")
        bench.wait_for_all(600)
        begin_ns, before = time.monotonic_ns(), [bench.slice(name) for name in names]
        kernels = bench.completed()
        time.sleep(seconds)
        end_ns, after = time.monotonic_ns(), [bench.slice(name) for name in names]
        kernels = bench.completed() - kernels
        spans = [s for s in read_busy_log(own.busy_log()) if begin_ns <= s.begin_ns and s.end_ns <= end_ns]
        bench.stop()
    moved = sum(b.rotation.moved_bytes - a.rotation.moved_bytes for a, b in zip(before, after, strict=True))
    moves = sum(b.rotation.moves - a.rotation.moves for a, b in zip(before, after, strict=True))
    wall_s, moving_s = (end_ns - begin_ns) / 1e9, moved / (LINK_BYTES_PER_S / scale)
    busy_s = sum(span.end_ns - span.begin_ns for span in spans) / 1e9
    return {
        "seconds": wall_s,
        "busy_seconds": busy_s,
        "moves": moves,
        "moved_bytes": moved,
        "link_seconds": moving_s,
        "quantum_seconds": max(one.rotation.quantum_ns for one in after) / 1e9,
        "busy_of_wall": busy_s / wall_s,
        "kernels_per_second": kernels / wall_s,
        "sum_of_ideal": busy_s / (wall_s - moving_s),
    }


def measure_managed(scale: int, count: int, seconds: float, in_turn_per_s: float) -> dict[str, Any]:
    """in_turn_per_s: kernels of the same programs in turn. A block of the scaled device stands for `scale` blocks: its
    fault costs as much as theirs."""
    fault_ns = FAULT_NS * scale
    with harness.system(sim_config(scale) | {"managed_fault_ns": str(fault_ns)}, lengths_us=[KERNEL_US]) as own:
        bench = Bench(own, scale)
        for number in range(count):
            bench.run_without_hook(f"m{number}", DEVICE_BYTES, "managed")
        bench.wait_for_all(120)
        begin_ns, before = time.monotonic_ns(), bench.completed()
        time.sleep(seconds)
        end_ns, kernels = time.monotonic_ns(), bench.completed() - before
        bench.stop()
    per_s = kernels * 1e9 / (end_ns - begin_ns)
    return {
        "seconds": (end_ns - begin_ns) / 1e9,
        "kernels_per_second": per_s,
        "of_turns": per_s / in_turn_per_s,
        "piece_bytes": PIECE_BYTES * scale,
        "fault_ns": FAULT_NS,
    }


def measure_way(scale: int, times: int) -> dict[str, Any]:
    with harness.system(sim_config(scale), lengths_us=[KERNEL_US]) as own:
        bench = Bench(own, scale)
        bench.start("s", OUT_BYTES, "call", "--gpus", "0.5")
        bench.wait_for_all(60)
        found = []
        for _ in range(times):
            begin_ns = time.monotonic_ns()
            with own.client() as client:
                client.send(calls.suspend_slice("s", evict=True, deadline_s=DEADLINE_S))
                client.send(calls.resume_slice("s", DEADLINE_S))
            found.append((time.monotonic_ns() - begin_ns) / 1e9)
        used = bench.slice("s").devices[0].mem_used_bytes
        bench.stop()
    link_s = 2 * used / (LINK_BYTES_PER_S / scale)
    median_s = statistics.median(found)
    return {"seconds": found, "bytes": used, "link_seconds": link_s, "median_of_link": median_s / link_s}


def measure_hook(scale: int, times: int) -> dict[str, Any]:
    """By the daemon's own account of its last move: from its request to the program's answer."""
    with harness.system(sim_config(scale) | {"checkpoint": "0"}, lengths_us=[KERNEL_US]) as own:
        bench = Bench(own, scale)
        bench.start("s", OUT_BYTES, "call", "--gpus", "0.5", "--idle-after", "1s")
        bench.wait_for_all(60)
        found = []
        moved = bench.slice("s").rotation.moves
        for _ in range(times):
            seconds = 0.0
            for residency in (pb.RESIDENCY_AWAY, pb.RESIDENCY_UNSPECIFIED):
                if residency != pb.RESIDENCY_AWAY:
                    bench.call("s")
                wait_for("its move", lambda to=residency: bench.slice("s").residency == to, 60)  # type: ignore[misc]
                rotation = bench.slice("s").rotation
                size = (rotation.moved_bytes) // rotation.moves
                seconds += size / rotation.bytes_per_second
            found.append(seconds)
        moved = bench.slice("s").rotation.moves - moved
        bench.stop()
    link_s = 2 * size / (LINK_BYTES_PER_S / scale)
    median_s = statistics.median(found)
    return {
        "seconds": found,
        "bytes": size,
        "moves": moved,
        "link_seconds": link_s,
        "median_of_link": median_s / link_s,
    }


def measure_allocation(own: OwnSystem, mib: int, options: Sequence[str]) -> int:
    bench, name = Bench(own, 1), f"s{mib}"
    own.vgpu("slice", "create", name, "--mem", "4G", "--gpus", "0.2", *options)
    bench.run(name, str(mib), "allocate")
    wait_for("its answer", lambda: len(bench.read_lines(name)) > 1, 60)
    found = int(bench.read_lines(name)[1]["allocation_ns"])
    bench.stop()
    return found


def measure_allocations(sizes_mib: Sequence[int]) -> dict[str, Any]:
    """An allocation and its freeing, in ns: in a slice whose program moves its memory, and in one that stays."""
    found: dict[str, Any] = {}
    for way, options in (("plain", ()), ("hook", ("--idle-after", "1h"))):
        with harness.system({"devices": "1", "checkpoint": "0"}, lengths_us=[KERNEL_US]) as own:
            found |= {f"{way}_{mib}_mib_ns": measure_allocation(own, mib, options) for mib in sizes_mib}
    return found


def measure_sleepers(scale: int, wakes: int) -> dict[str, Any]:
    # all fit: what is measured is sleep, not turns
    device_bytes = (SLEEPERS + 2) * SLEEPER_BYTES
    with harness.system(sim_config(scale, device_bytes), lengths_us=[KERNEL_US]) as own:
        bench = Bench(own, scale)
        for name in ("x", "y"):
            bench.start(name, SLEEPER_BYTES, "busy", "--gpus", "0.4")
        sleepers = [f"s{number}" for number in range(SLEEPERS)]
        for name in sleepers:
            bench.start(name, SLEEPER_BYTES, "call", "--gpus", "0.02", "--idle-after", "1s")
        bench.wait_for_all(120)
        away = pb.RESIDENCY_AWAY
        wait_for("their sleep", lambda: all(bench.slice(name).residency == away for name in sleepers), 120)
        pids = {name: int(bench.read_lines(name)[0]["pid"]) for name in ("x", "y")}
        quiet_ns = time.monotonic_ns()
        time.sleep(6)
        begin_ns, times = time.monotonic_ns(), []
        for number in range(wakes):
            name = sleepers[number % SLEEPERS]
            wait_for("their sleep", lambda: all(bench.slice(name).residency == away for name in sleepers), 120)
            times.append(bench.call(name))
        end_ns = time.monotonic_ns()
        used = bench.slice(sleepers[0]).devices[0].mem_used_bytes
        spans = read_busy_log(own.busy_log())
        bench.stop()
    before = shares_by_tenant(spans, pids, quiet_ns + SECOND_NS, begin_ns - SECOND_NS // 4)
    while_waking = shares_by_tenant(spans, pids, begin_ns, end_ns - SECOND_NS // 4)
    link_s = used / (LINK_BYTES_PER_S / scale)
    p95_s = sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]
    change_pp = max(
        abs(statistics.mean(while_waking[name]) - statistics.mean(before[name])) * 100 for name in ("x", "y")
    )
    return {
        "seconds": times,
        "bytes": used,
        "link_seconds": link_s,
        "p95_seconds": p95_s,
        "bound_seconds": GOAL_MOVE * link_s + GOAL_SPARE_S,
        "shares_before": {name: statistics.mean(found) for name, found in before.items()},
        "shares_while_waking": {name: statistics.mean(found) for name, found in while_waking.items()},
        "change_pp": change_pp,
    }


def judge_trainers(figures: dict[str, Any], names: Sequence[str], turns: float) -> bool:
    """Measures them, too. What cannot be measured here misses no goal."""
    good = True
    for name in names:
        found = figures[f"trainers_{name}"] = rotation_trainers.measure(name, (2, 4), turns)
        if "skipped" in found:
            print(f"trainers of {name} are left out: {found['skipped']}")
            continue
        for count in (2, 4):
            text = f"{count} trainers of {name} of 100 %, samples of ideal turns"
            good &= judge(text, found[str(count)]["sum_of_ideal"], at_least(GOAL_SUM))
    return good


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--scale", type=int, default=16, help="divides sizes and rates (default: %(default)s)")
    made.add_argument("--turns", type=float, default=1.5, help="turns of each slice (default: %(default)s)")
    made.add_argument(
        "--trainers", nargs="*", choices=FRAMEWORKS, default=FRAMEWORKS, help="of these frameworks (default: all)"
    )
    made.add_argument("--wakes", type=int, default=21, help="calls after a sleep (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("the device's own log and the link's rate are those of the simulated device")
    turn_s = 20 * 2 * DEVICE_BYTES / LINK_BYTES_PER_S
    figures: dict[str, Any] = {}
    good = True
    for count in (2, 4):
        found = figures[f"turns_{count}"] = measure_turns(args.scale, count, args.turns * count * turn_s)
        good &= judge(f"{count} slices of 100 %, device time of ideal turns", found["sum_of_ideal"], at_least(GOAL_SUM))
    in_turn_per_s = figures["turns_2"]["kernels_per_second"]
    found = figures["managed_2"] = measure_managed(args.scale, 2, MANAGED_S, in_turn_per_s)
    print(f"2 programs with managed memory, kernels of those in turn: {found['of_turns']:.3f}")
    good &= judge_trainers(figures, args.trainers, args.turns)
    found = figures["out_and_back"] = measure_way(args.scale, 5)
    good &= judge("10 GiB out and back, times the link's", found["median_of_link"], at_most(GOAL_MOVE))
    found = figures["by_the_hook"] = measure_hook(args.scale, 5)
    good &= judge("10 GiB out and back by the hook, times the link's", found["median_of_link"], at_most(GOAL_MOVE))
    figures["allocations"] = measure_allocations(ALLOCATIONS_MIB)
    found = figures["sleepers"] = measure_sleepers(args.scale, args.wakes)
    good &= judge("first call of a sleeper, p95, s", found["p95_seconds"], at_most(found["bound_seconds"]))
    good &= judge("shares of the others, change in pp", found["change_pp"], at_most(GOAL_SHARE_PP))
    path = results.write(
        "rotation",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={"scale": args.scale, "turns": args.turns, "wakes": args.wakes, "trainers": list(args.trainers)},
        goals={"sum_of_ideal": GOAL_SUM, "of_link": GOAL_MOVE, "spare_s": GOAL_SPARE_S, "change_pp": GOAL_SHARE_PP},
        figures=figures,
        raw={},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
