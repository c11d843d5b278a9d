"""A tenant-and-device model around the real arbiter core (C, loaded through cffi) with a fake clock.

The device gives its time in equal parts to every tenant that has work outstanding (processor sharing, as hardware time
slices do); a tenant launches kernels of one length while its gate is open and less than the bound is outstanding.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import cffi

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ("vg_abi.h", "arbiter.h", "arbiter_core.h", "arbiter_memory.h")
SOURCES = ("arbiter_core.c", "arbiter_memory.c")
MS = 1_000_000
NEVER = 2**64 - 1
CLOSED, OPEN, DRAINING, OVERLAP = range(4)
MAY_WAIT = 2  # VG_NEIGHBOUR_MAY_WAIT


def _cdef() -> str:
    keep = re.compile(r"#define\s+\w+\s+\d+\s*(/\*.*\*/)?$")
    text: list[str] = []
    for name in HEADERS:
        for line in (ROOT / "shim" / name).read_text().splitlines():
            if not line.startswith("#") or keep.match(line):
                text.append(line)
    return "\n".join(text)


@lru_cache(maxsize=1)
def load() -> tuple[Any, Any]:
    """(ffi, lib) of a library made of the pure arbiter sources, with sanitizers off and asserts on."""
    ffi = cffi.FFI()
    ffi.cdef(_cdef())
    out = Path(tempfile.mkdtemp(prefix="vgpu-core-")) / "libcore.so"
    sources = [str(ROOT / "shim" / name) for name in SOURCES]
    subprocess.run(
        ["gcc", "-O1", "-g", "-std=gnu11", "-shared", "-fPIC", f"-I{ROOT}/shim", "-o", str(out), *sources], check=True
    )
    return ffi, ffi.dlopen(str(out))


def default_params(**changes: int) -> dict[str, int]:
    params = {
        "quantum_ns": 10 * MS,
        "quantum_min_ns": 1 * MS,
        "bound_ns": 2 * MS,
        "open_bound_ns": 20 * MS,
        "overrun_ns": 2 * MS,
        "patience_ns": 2 * MS,
        "lookahead_ns": MS // 4,
        "guarantee_depth_ns": 50 * MS,
        "cap_depth_ns": 15 * MS,
        "heartbeat_ns": 20 * MS,
        "memory_total_bytes": 1 << 40,
    }
    return params | changes


@dataclass
class Tenant:
    """min/max in milli; every kernel takes kernel_ns. With burst_ns it is launch-bound: after each burst of so much
    work it waits for the device and then thinks for pause_ns before it launches again."""

    ident: int
    min_milli: int
    max_milli: int
    kernel_ns: int = 200_000
    begin_ns: int = 0
    end_ns: int = NEVER
    weight: int = 0
    burst_ns: int = 0
    pause_ns: int = 0
    burst_left_ns: int = 0
    thinks_until_ns: int = 0
    queue_ns: float = 0.0
    got_ns: float = 0.0
    busy_total_ns: int = 0
    drained_ns: int = 0
    quiet: bool = False
    stopped: bool = False
    attached: bool = True
    word: int = 0
    trace: list[float] = field(default_factory=list)

    def outstanding_ns(self) -> int:
        """As the shim sees it: a kernel counts in full until it has completed."""
        return math.ceil(self.queue_ns / self.kernel_ns) * self.kernel_ns

    def active(self, now_ns: int) -> bool:
        if not self.begin_ns <= now_ns < self.end_ns or now_ns < self.thinks_until_ns:
            return False
        return not self.burst_ns or self.burst_left_ns > 0 or self.queue_ns == 0


class World:
    """Tenants on one device; tick_ns is the model's resolution."""

    def __init__(self, tenants: list[Tenant], tick_ns: int = 50_000, **params: int) -> None:
        self.ffi, self.lib = load()
        self.core = self.ffi.new("struct vg_core *")
        self.params = default_params(**params)
        self.lib.vg_core_init(self.core, self.ffi.new("struct vg_arbiter_params *", self.params), 0)
        self.tenants = tenants
        self.tick_ns = tick_ns
        self.now_ns = 0
        self.deadline_ns = 0
        self.log: list[tuple[int, int, int]] = []
        for tenant in tenants:
            self.set(tenant)

    def set(self, tenant: Tenant) -> None:
        params = {"min_milli": tenant.min_milli, "max_milli": tenant.max_milli, "weight": tenant.weight}
        row = self.lib.vg_core_set(self.core, tenant.ident, self.ffi.new("struct vg_slice_params *", params))
        assert row != self.ffi.NULL

    def row(self, tenant: Tenant) -> Any:
        return self.lib.vg_core_find(self.core, tenant.ident)

    def _launch(self, tenant: Tenant) -> None:
        bound_ns = self.row(tenant).bound_ns
        while tenant.active(self.now_ns) and tenant.outstanding_ns() < bound_ns and not tenant.stopped:
            if tenant.burst_ns and tenant.burst_left_ns <= 0:
                tenant.burst_left_ns = tenant.burst_ns
            tenant.queue_ns += tenant.kernel_ns
            tenant.burst_left_ns -= tenant.kernel_ns

    def _run_device(self) -> None:
        busy = [t for t in self.tenants if t.queue_ns > 0]
        for tenant in busy:
            part_ns = min(tenant.queue_ns, self.tick_ns / len(busy))
            tenant.queue_ns -= part_ns
            tenant.got_ns += part_ns
            tenant.busy_total_ns += self.tick_ns
            if tenant.queue_ns < 1:
                tenant.queue_ns = 0
                if tenant.burst_ns and tenant.burst_left_ns <= 0:
                    tenant.thinks_until_ns = self.now_ns + self.tick_ns + tenant.pause_ns
                tenant.drained_ns = self.now_ns + self.tick_ns

    def _step(self) -> None:
        for tenant in self.tenants:
            row = self.row(tenant)
            is_open = (tenant.word & 3) != 0
            row.attached = tenant.attached
            row.wants = tenant.active(self.now_ns) and not is_open
            row.outstanding = tenant.queue_ns > 0
            gives_up = not tenant.active(self.now_ns) and row.neighbour_waits != MAY_WAIT
            row.quiet = tenant.queue_ns == 0 and (not is_open or gives_up) and not tenant.stopped
            row.noticed = not tenant.stopped
            row.drained_ns = tenant.drained_ns
            row.busy_total_ns = tenant.busy_total_ns
        self.deadline_ns = self.lib.vg_core_step(self.core, self.now_ns)
        for tenant in self.tenants:
            word = self.row(tenant).word
            if word != tenant.word:
                self.log.append((self.now_ns, tenant.ident, word & 3))
            tenant.word = word

    def run(self, until_ns: int) -> None:
        """Advances to until_ns; the arbiter is called whenever its deadline passed or a tenant has news."""
        while self.now_ns < until_ns:
            self._step()
            for tenant in self.tenants:
                if (tenant.word & 3) != 0:
                    self._launch(tenant)
            self._run_device()
            self.now_ns += self.tick_ns
            if self.now_ns % (10 * MS) < self.tick_ns:
                for tenant in self.tenants:
                    tenant.trace.append(tenant.got_ns)

    def shares(self, begin_ns: int, end_ns: int) -> list[float]:
        """Each tenant's part of the device between two moments (multiples of 10 ms that have been run)."""
        first, last = begin_ns // (10 * MS), end_ns // (10 * MS)
        return [(t.trace[last - 1] - t.trace[first - 1]) / (end_ns - begin_ns) for t in self.tenants]

    def worst_second(self, tenant: int, wanted: float, begin_ns: int) -> float:
        """The worst error of a tenant's share over sliding windows of one second, every 100 ms."""
        trace = self.tenants[tenant].trace
        first = begin_ns // (10 * MS)
        windows = [(trace[i + 100] - trace[i]) / 1e9 for i in range(first, len(trace) - 100, 10)]
        return max(abs(share - wanted) for share in windows)
