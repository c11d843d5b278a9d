"""Is the ledger right under stress? Random operations on all families of memory, 4 processes of 4 threads, and kills.

Two slices on one simulated device, two processes each. After each round all threads meet and everything is
synchronised; then what the daemon says of each process must be what the device counts for it, to the byte, and so for
the slices. At any time what the device counts for a slice's processes is no more than its limit: `samples_above` counts
the moments at which it was more, which are wrong when they last. Processes are killed with SIGKILL at random moments
and started again; nothing of them may be left.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.table import equal_to, judge
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for
from vgpud.client import calls
from vgpud.simdevice import state_page

SLICES = {"one": 1536 << 20, "two": 1024 << 20}
PROCESSES = 4
THREADS = 4
DEVICE = {"devices": "1", "memory_bytes": "4G", "context_bytes": "64M"}
CONTEXT_BYTES = 64 << 20
SETTLE_S = 5.0
#: the ledger asks the driver whether an allocation fits into what is taken already, and undoes it if it did not
UNDONE_S = 0.1
SOURCES = ("families", "handles", "graphs", "contexts", "shared")


def build() -> Path:
    """Compiles the stress program; it is linked to libcuda.so.1 as a user's would be."""
    others = [str(harness.ROOT / f"benchmarks/tenants/ledger_{name}.c") for name in SOURCES]
    flags = ["-iquote", str(harness.ROOT / "shim"), *others, str(paths.sim_lib_dir() / "libcuda.so.1")]
    return harness.build("tenants/ledger.c", *flags)


@dataclass
class Tenant:
    """One process under stress: started, given work, killed at times."""

    slice: str
    part: Part
    pid: int = 0
    quiet: dict[str, Any] = field(default_factory=dict)
    has_answered: bool = False

    def order(self, operations: int) -> None:
        """Has each of its threads do so many operations."""
        self.has_answered = False
        assert self.part.process.stdin
        self.part.process.stdin.write(f"{operations}\n".encode())
        self.part.process.stdin.flush()

    def is_quiet(self) -> bool:
        """True when it has reached its quiet point. Raises PartError when it has ended."""
        for line in self.part.lines():
            self.quiet, self.pid, self.has_answered = line, line["pid"], True
        if not self.has_answered:
            self.part.check()
        return self.has_answered


@dataclass
class Found:
    """What a run has found."""

    operations: int = 0
    refused: int = 0
    unsupported: int = 0
    opened: int = 0
    resets: int = 0
    quiet_points: int = 0
    kills: int = 0
    samples: int = 0
    samples_above: int = 0
    worst_part_of_limit: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Stress:
    """The system under stress. The sampler's thread and the rounds share `tenants` under `lock`."""

    def __init__(self, own: OwnSystem, seed: int, families: Sequence[str] = ()) -> None:
        self.own = own
        self.random = random.Random(seed)
        self.seed = seed
        self.families = families
        self.program = str(build())
        self.page = own.sim_dir / state_page.PAGE_NAME
        self.lock = threading.Lock()
        self.tenants: list[Tenant] = []
        self.findings = Found()
        self.above_since_s: dict[str, float] = {}
        self._stop = threading.Event()

    def start(self) -> None:
        """Makes the slices and the processes."""
        for name, limit in SLICES.items():
            self.own.vgpu("slice", "create", name, "--gpus", "0.5", "--mem", str(limit))
        fresh = [self._new(list(SLICES)[i % len(SLICES)]) for i in range(PROCESSES)]
        for tenant in fresh:
            wait_for("a process under stress", tenant.is_quiet)
        self.tenants = fresh

    def _new(self, slice_name: str) -> Tenant:
        self.seed += 1
        words = [self.program, str(THREADS), str(self.seed), *self.families]
        shelf = {"LEDGER_SHELF": str(self.own.folder / f"shelf-{slice_name}")}
        return Tenant(slice_name, self.own.run(slice_name, (), words, shelf, talk=True))

    # ---- what the device counts ----

    def count_by_pid(self) -> dict[int, int]:
        """The simulated device's own count: pid -> bytes."""
        while True:
            before, after = (state_page.read(self.page).devices[0] for _ in range(2))
            if before.sequence == after.sequence and not before.sequence & 1:
                return before.process_used_bytes

    def sample(self) -> None:
        """Once: is every slice within its limit?"""
        with self.lock:
            tenants = list(self.tenants)
        counted = self.count_by_pid()
        for name, limit in SLICES.items():
            used = sum(counted.get(tenant.pid, 0) for tenant in tenants if tenant.slice == name)
            self.findings.worst_part_of_limit = max(self.findings.worst_part_of_limit, used / limit)
            if used <= limit:
                self.above_since_s.pop(name, None)
                continue
            self.findings.samples_above += 1
            since_s = self.above_since_s.setdefault(name, time.monotonic())
            if time.monotonic() - since_s > UNDONE_S:
                self.findings.wrong.append(f"slice {name} uses {used} bytes, its limit is {limit}")
        self.findings.samples += 1

    def _sampler(self) -> None:
        while not self._stop.wait(0.001):
            self.sample()

    # ---- rounds ----

    def run(self, operations: int, rounds: int) -> Found:
        """So many operations in all, in rounds; every other round a process is killed."""
        sampler = threading.Thread(target=self._sampler)
        sampler.start()
        try:
            for number in range(rounds):
                self._round(max(1, operations // (rounds * PROCESSES * THREADS)), kill=number % 2 == 1)
        finally:
            self._stop.set()
            sampler.join()
        for tenant in self.tenants:
            self._count(tenant)
        return self.findings

    def _round(self, operations: int, kill: bool) -> None:
        for tenant in self.tenants:
            tenant.order(operations)
        if kill:
            self._kill(self.random.choice(self.tenants))
        for tenant in self.tenants:
            wait_for("a quiet point", tenant.is_quiet, 300)
        self.findings.quiet_points += 1
        self._compare()

    def _count(self, tenant: Tenant) -> None:
        for name in ("operations", "refused", "unsupported", "opened", "resets"):
            setattr(self.findings, name, getattr(self.findings, name) + tenant.quiet[name])

    def _kill(self, victim: Tenant) -> None:
        time.sleep(self.random.random() * 0.05)
        self._count(victim)
        with self.lock:
            self.tenants.remove(victim)
        os.kill(victim.pid, signal.SIGKILL)
        victim.part.process.wait()
        self.findings.kills += 1
        fresh = self._new(victim.slice)
        wait_for("a process after a kill", fresh.is_quiet)
        with self.lock:
            self.tenants.append(fresh)

    def _difference(self) -> str:
        counted = self.count_by_pid()
        with self.own.client() as client:
            reported_bytes = {p.pid: sum(d.mem_used_bytes for d in p.devices) for p in client.all(calls.processes())}
            sums = {s.name: sum(d.mem_used_bytes for d in s.devices) for s in client.all(calls.slices())}
        if counted != reported_bytes:
            return f"the device counts {counted}, the daemon says {reported_bytes}"
        expected = {n: sum(counted.get(t.pid, 0) for t in self.tenants if t.slice == n) for n in SLICES}
        return "" if sums == expected else f"the device counts {expected} for the slices, the daemon says {sums}"

    def _compare(self) -> None:
        """The daemon shows what it last looked at, so it has a moment to look."""
        end = time.monotonic() + SETTLE_S
        while difference := self._difference():
            if time.monotonic() > end:
                self.findings.wrong.append(difference)
                return
            time.sleep(0.02)


def stress(own: OwnSystem, operations: int, rounds: int, seed: int, families: Sequence[str] = ()) -> Found:
    """One run on a started system (one device as in DEVICE)."""
    under = Stress(own, seed, families)
    under.start()
    return under.run(operations, rounds)


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the ledger was wrong."""
    made = harness.parser(__doc__)
    made.add_argument(
        "--operations", type=int, default=1_250_000, help="in all, also of the killed (default: %(default)s)"
    )
    made.add_argument("--rounds", type=int, default=100, help="quiet points (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the random operations (default: %(default)s)")
    made.add_argument("--families", nargs="*", default=(), help="of memory (default: all)")
    args = made.parse_args()
    if args.real:
        made.error("the stress is put against the simulated device's own count")
    begin_s = time.monotonic()
    try:
        with harness.system(DEVICE) as own:
            found = stress(own, args.operations, args.rounds, args.seed, args.families)
            device = own.device_name()
    except PartError as error:
        print(error, file=sys.stderr)
        return 1
    seconds = time.monotonic() - begin_s
    good = judge("quiet points or samples at which the ledger was wrong", len(found.wrong), equal_to(0))
    above = f"samples of {found.samples:,} that saw a slice above its limit"
    good &= judge(above, found.samples_above, equal_to(0))
    print(f"  {found.operations:,} operations told of, {found.kills} kills, {found.resets} resets of contexts")
    for problem in found.wrong[:10]:
        print("  WRONG:", problem)
    path = results.write(
        "ledger",
        is_simulated=True,
        device=device,
        parameters={
            "operations": args.operations,
            "rounds": args.rounds,
            "seed": args.seed,
            "families": list(args.families),
            "slices": SLICES,
        },
        goals={"wrong": 0, "samples_above": 0},
        figures={**vars(found), "seconds": seconds},
        raw={},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
