"""W9: many tenants on one device, most of them idle.

64 slices with 1000 attached processes, each with a context; four slices have a saturating program among theirs. The
device's own change of context is set to cost nothing, so that what is seen is ours alone.

Hand-over beyond the drain: how long the device does nothing from one tenant's last work to the next one's first, by the
device's log; where the next one begins before the last one ends (overlap) that is nothing. Changes that follow each
other within a device's time slice or two are one hand-over. The daemon: CPU time over five seconds in which all are
idle, and resident memory, both of the whole process with its Python side.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.sharing.bench import START_TIMEOUT_S, Bench, Tenant, built
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import MS
from benchmarks.sharing.plan import Plan
from benchmarks.table import at_most
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.config import PROCESSES_MAX
from vgpud.simdevice.busy_log import Span

ACTIVE, IDLE = 4, 60
ATTACHED_BESIDE, ATTACHED_IDLE = 9, 16
MINIMUM = 0.015
IDLE_S = 5.0
AT_ONCE = 8
MIB = 1 << 20
#: changes closer to each other than this are one hand-over: the device's time slices during an overlap
ONE_HANDOVER_NS = 3 * MS


@dataclass(frozen=True)
class Beside(Tenant):
    """A load beside idle processes of its own slice."""

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        return [*_attached_command(ATTACHED_BESIDE), *super().command(rng, seconds, histogram)]

    def work(self, line: Mapping[str, Any]) -> tuple[int, int] | None:
        return None if line["event"] == "attached" else super().work(line)


def _attached_command(count: int) -> list[str]:
    return [str(built("tenants/attached.c")), str(count)]


def handovers_us(spans_by_tenant: dict[str, list[Span]]) -> list[float]:
    """Idle time of the device at each hand-over between tenants, us."""
    log = sorted((s.begin_ns, s.end_ns, name) for name, spans in spans_by_tenant.items() for s in spans)
    found: list[float] = []
    busy_until_ns, changed_ns = 0, -ONE_HANDOVER_NS
    for (_begin, end_ns, name), (begin_ns, _end, next_name) in pairwise(log):
        busy_until_ns = max(busy_until_ns, end_ns)
        if name == next_name:
            continue
        idle_us = max(0, begin_ns - busy_until_ns) / 1000
        if begin_ns < changed_ns + ONE_HANDOVER_NS:
            found[-1] += idle_us
        else:
            found.append(idle_us)
        changed_ns = begin_ns
    return found


def _crowd(own: OwnSystem) -> None:
    """The idle tenants."""
    waiting: list[Part] = []
    amounts = ["--gpus", f"{MINIMUM:g}", "--max", "1"]
    for index in range(IDLE):
        waiting.append(own.run(f"idle-{index}", amounts, _attached_command(ATTACHED_IDLE)))
        if len(waiting) == AT_ONCE or index == IDLE - 1:
            wait_for("the idle tenants", lambda: all(_is_there(part) for part in waiting), START_TIMEOUT_S)
            waiting.clear()


def _is_there(part: Part) -> bool:
    part.check()
    return part.output_file.stat().st_size > 0


def _daemon(own: OwnSystem) -> tuple[float, float]:
    """CPU time in percent of a core while all are idle, and resident memory in MiB."""
    assert own.daemon
    daemon = psutil.Process(own.daemon.process.pid)
    before, begin = daemon.cpu_times(), time.monotonic()
    time.sleep(IDLE_S)
    after, passed_s = daemon.cpu_times(), time.monotonic() - begin
    cpu = (after.user - before.user + after.system - before.system) / passed_s * 100
    return cpu, daemon.memory_info().rss / MIB


def _quantile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else float("nan")


def w9(plan: Plan) -> Iterator[SharingFigure]:
    """Hand-over among four saturating tenants of 64, and what the daemon needs."""
    case = f"{ACTIVE + IDLE} tenants, 1000 attached"
    tenants = [Beside(f"busy{index}", MINIMUM, 1) for index in range(ACTIVE)]
    config = harness.one_device() | {"switch_us": "0", "context_bytes": str(MIB)}
    found: list[float] = []
    with harness.system(config, [f"processes_per_user_max = {PROCESSES_MAX}"]) as own:
        _crowd(own)
        here = Bench(own, plan.seconds, False)
        for seed in range(1, plan.seeds + 1):
            found += handovers_us(plan.run_once(here, "W9", case, tenants, True, seed).spans)
        cpu, memory = _daemon(own)
    yield SharingFigure("W9", case, "hand-over beyond the drain, us, p50", _quantile(found, 50), at_most(35))
    yield SharingFigure("W9", case, "hand-over beyond the drain, us, p99", _quantile(found, 99), at_most(200))
    yield SharingFigure("W9", case, "hand-overs per second", len(found) / plan.seeds / plan.seconds)
    yield SharingFigure("W9", case, "daemon, all idle, % of a core", cpu, at_most(1))
    yield SharingFigure("W9", case, "daemon, resident MiB", memory, at_most(200))
