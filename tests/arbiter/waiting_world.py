"""A world in which launched work waits in its stream: for a time, or for work of another process of its slice.

What waits is outstanding and does not run, so its page does not report it (DESIGN D18, shim/gate/stream_wait.c).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from models.arbiter.model import MILLI, SliceParams
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, Load, Process, Tenant, World

SAMPLE_NS = MS // 4
#: within this a helper thread sees that nothing runs any more
LOOK_NS = MS // 2
#: what a device that is idle may keep a gate closed for: a lease
QUANTUM_NS = 7 * MS


@dataclass
class WaitingLoad(Load):
    """wait_ns: each burst runs so long after its launch; or (ring) when the process before it in the slice has
    completed its own burst of that number."""

    wait_ns: int = 0
    ring: bool = False


class WaitingWorld(World):
    """closed_ns: the longest time for which an idle device kept the gate of a slice closed that had computed less than
    its maximum."""

    def __init__(self, tenants: list[Tenant], **world: Any) -> None:
        self.held_ns: dict[Process, int] = {}
        self.closed_ns: dict[int, int] = {}
        self._since_ns: dict[int, int] = {}
        self._level_ns: dict[int, float] = {}
        self._computed_ns: dict[int, int] = {}
        super().__init__(tenants, Pair(), **world)
        self._at(SAMPLE_NS, self._sample)

    # ---- streams ----

    def _submit(self, p: Process) -> None:
        load = p.load
        if not isinstance(load, WaitingLoad) or self._may_run(p):
            super()._submit(p)
            return
        p.launch_count += 1
        if not self.held_ns.get(p) and not load.ring:
            self._call_later(p, self.now_ns + load.wait_ns, partial(self._release, p))
        self.held_ns[p] = self.held_ns.get(p, 0) + load.kernel_ns

    def _may_run(self, p: Process) -> bool:
        load = p.load
        assert isinstance(load, WaitingLoad)
        if not load.ring:
            return not load.wait_ns
        index = p.tenant.processes.index(p)
        before = p.tenant.processes[index - 1]
        done = before.executed_ns // (before.load.kernel_ns * before.load.burst)
        return done >= p.bursts - (index == 0)

    def _release(self, p: Process) -> None:
        """Behind a closed gate it is a drain that begins again."""
        held_ns = self.held_ns.pop(p, 0)
        launched = p.launch_count
        for _ in range(held_ns // p.load.kernel_ns):
            super()._submit(p)
        p.launch_count = launched
        if not p.is_open:
            p.drained = -1
            self._step_later(self.late_ns)

    def _burst_done(self, p: Process) -> None:
        for other in p.tenant.processes:
            ring = isinstance(other.load, WaitingLoad) and other.load.ring
            if ring and self.held_ns.get(other) and self._may_run(other):
                self._release(other)
        super()._burst_done(p)

    # ---- the invariant ----

    def _sample(self) -> None:
        self._settle()
        idle = all(p.left_ns == 0 for p in self.everyone)
        for t in self.tenants:
            computed_ns = sum(p.executed_ns for p in t.processes)
            self._fill(t, computed_ns)
            row = self._rows[t.ident]
            kept = idle and any(p.waiting and not p.is_open for p in t.processes)
            needed_ns = min(MS, 15 * MS * t.params.max_milli // MILLI // 2) + LOOK_NS * len(t.processes)
            if not (kept and self._level_ns[t.ident] > needed_ns and row.attached):
                self._since_ns.pop(t.ident, None)
                continue
            since_ns = self._since_ns.setdefault(t.ident, self.now_ns)
            self.closed_ns[t.ident] = max(self.closed_ns.get(t.ident, 0), self.now_ns - since_ns)
        self._at(self.now_ns + SAMPLE_NS, self._sample)

    def _fill(self, t: Tenant, computed_ns: int) -> None:
        """The token bucket of its maximum, by what it has really computed."""
        depth_ns = 15 * MS * t.params.max_milli / MILLI
        level_ns = self._level_ns.get(t.ident, depth_ns) - (computed_ns - self._computed_ns.get(t.ident, 0))
        self._level_ns[t.ident] = min(depth_ns, level_ns + SAMPLE_NS * t.params.max_milli / MILLI)
        self._computed_ns[t.ident] = computed_ns


def waiting_tenant(ident: int, minimum: int, maximum: int, *loads: Load) -> Tenant:
    return Tenant(ident, SliceParams(minimum, maximum), list(loads))


__all__ = ["QUANTUM_NS", "WaitingLoad", "WaitingWorld", "waiting_tenant"]
