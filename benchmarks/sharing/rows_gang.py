"""G1: data-parallel tenants whose kernels spin for each other over two shared devices; see tenants/gang.c.

Two of them with half of each of two devices. Without a hook they make progress only while the hardware happens to give
both devices to the same one. Steps are counted by the programs; a tenant that makes none is deadlocked.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import harness
from benchmarks.sharing.bench import (
    END_TIMEOUT_S,
    SETTLE_S,
    START_TIMEOUT_S,
    WARM_UP_S,
    Process,
    Tenant,
    wait_for_devices,
)
from benchmarks.sharing.figures import SharingFigure, compare
from benchmarks.sharing.measure import completed_between
from benchmarks.sharing.plan import Plan, way_of
from benchmarks.table import at_least
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.simdevice.busy_log import SECOND_NS
from vgpud.simdevice.process import environment

OWN_US = 200
#: half of each of two devices
HALVES = ("--gpus", "1", "--spread", "2")
#: what the programs look like: one that feeds both devices, as many frameworks do, or one for each, as torchrun does
PROGRAMS = {"one process": 1, "a process per device": 2}


def g1(plan: Plan) -> Iterator[SharingFigure]:
    """Steps of two together against one alone without a hook, and of each."""
    program = str(harness.build("tenants/gang.c"))
    with harness.system({"devices": "2"}, lengths_us=(OWN_US,)) as own:
        for case, processes in PROGRAMS.items():
            runs = _Runs(plan, own, [program, "--processes", str(processes)], case)
            alone = max(runs.steps(1, is_hooked=False))
            free, ours = [runs.steps(2, is_hooked=False)], [runs.steps(2, is_hooked=True) for _ in range(plan.seeds)]
            sums = (statistics.median(map(sum, some)) / alone * 100 for some in (free, ours))
            yield compare("G1", case, "together, % of one alone", sums, at_least(90))
            least = (min(map(min, some)) / alone * 100 for some in (free, ours))
            yield compare("G1", case, "least, % of one alone", least, at_least(45))


class _Runs:
    """Runs of one case."""

    def __init__(self, plan: Plan, own: OwnSystem, command: list[str], case: str) -> None:
        self._plan, self._own, self._case = plan, own, case
        self._command = [*command, "--seconds", str(int(plan.seconds) + 120)]
        self._count = 0

    def steps(self, count: int, *, is_hooked: bool) -> list[float]:
        """Steps of each of so many tenants in the measured time."""
        name = ("G1", self._case, way_of(is_hooked, None), count)
        steps: list[float] = self._plan.keep(name, lambda: self._measure(count, is_hooked))
        kept = {"case": self._case, "hooked": is_hooked, "tenants": count, "steps": [round(n) for n in steps]}
        self._plan.raw.setdefault("G1", []).append(kept)
        return steps

    def _measure(self, count: int, is_hooked: bool) -> list[float]:
        self._count += 1
        if is_hooked:
            wait_for_devices(self._own)
        tenants = [self._start(f"g{self._case[0]}{self._count}{i}", is_hooked) for i in range(count)]
        try:
            wait_for("the tenants", lambda: all(tenant.ready() for tenant in tenants), START_TIMEOUT_S)
            begin_ns = time.monotonic_ns() + int(WARM_UP_S * 1e9)
            end_ns = begin_ns + int(self._plan.seconds * SECOND_NS)
            time.sleep((end_ns - time.monotonic_ns()) / SECOND_NS + SETTLE_S)
            for tenant in tenants:
                tenant.poll()
        finally:
            for tenant in tenants:
                self._end(tenant)
        return [_steps_between(tenant, begin_ns, end_ns) for tenant in tenants]

    def _start(self, name: str, is_hooked: bool) -> Process:
        own = self._own
        if is_hooked:
            part = own.run(name, HALVES, self._command)
        else:
            part = Part(name, self._command, environment(own.sim_dir, own.env), own.folder)
            own.tenants.append(part)
        return Process(Tenant(name, 1, 1), part, Path(os.devnull))

    def _end(self, tenant: Process) -> None:
        """A deadlocked one does not handle SIGTERM."""
        if tenant.part.running and tenant.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tenant.pid, signal.SIGKILL)
        tenant.part.stop(timeout_s=END_TIMEOUT_S)
        self._own.tenants.remove(tenant.part)


def _steps_between(tenant: Process, begin_ns: int, end_ns: int) -> float:
    """Steps in that time; a tenant that is stuck reports nothing any more."""
    last_ns, last = tenant.points[-1]
    return completed_between([*tenant.points, (max(last_ns, end_ns) + 1, last)], begin_ns, end_ns)
