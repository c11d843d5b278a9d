"""A world whose arbiter stands still for a while, as when the daemon is stopped: processes follow their timetables
meanwhile, and come back when the arbiter continues.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from models.arbiter.model import STALLED_NS
from tests.arbiter.sharing_world import MS, NEVER, US, Process, Tenant, World
from tests.arbiter.timetable import PERIOD_US, Spans, make_timetable

PERIOD_NS = PERIOD_US * US
#: until a helper thread sees that the heartbeat is late, and until one that is woken sees that there is one again
LOST_NS, BACK_NS = STALLED_NS + 20 * MS, 50 * US
COAST_LOOK_NS = MS
SETTLING_NS = 100 * MS


class StoppedWorld(World):
    """leaves_out: as arbiter/pages.c takes over what processes did while the arbiter stood still; without it, the
    arbiter gets all of it in its first step, and has to leave it out itself."""

    def __init__(self, tenants: list[Tenant], arbiter: Any, *, leaves_out: bool = True, **world: Any) -> None:
        self.leaves_out = leaves_out
        self._coasts: set[Process] = set()
        self._looks: dict[Process, int] = {}  # a thread in the timetable's wait: when it looks again
        self._spans: Spans = {}
        self._left_out: dict[Process, dict[str, int]] = {}
        self._settled_ns = 0
        self._read_at_ns: dict[Process, int] = {}
        super().__init__(tenants, arbiter, **world)

    # ---- coasting ----

    def stand_still(self, for_ns: int) -> int:
        """The arbiter stands still for so long from now on; returns when it continues, which the world is run to."""
        self.stall(for_ns)
        end_ns = self.now_ns + for_ns
        if for_ns > LOST_NS:
            self._at(self.now_ns + LOST_NS, self._lose_arbiter)
        self._at(end_ns, self._continues)
        self.run(end_ns)
        return end_ns

    def _lose_arbiter(self) -> None:
        live = [p for p in self.everyone if p.is_attached and not p.has_ended]
        self._spans = make_timetable({t.ident: t.params for t in self.tenants if any(p in live for p in t.processes)})
        for p in live:
            self._coasts.add(p)
            if p.waiting:  # it waits for its time instead, which it does not report as waiting
                p.waiting = False
                self._issue(p)

    def _continues(self) -> None:
        self._step_later(0)
        for p in self._coasts:
            self._call_later(p, self.now_ns + BACK_NS, partial(self._come_back, p))

    def _come_back(self, p: Process) -> None:
        self._coasts.discard(p)
        if self._looks.pop(p, None):
            self._issue(p)
        p.drained = -1  # what was launched meanwhile is drained once more
        if not p.is_open:
            self._notice_close(p, p.word)

    def _look_again(self, p: Process, at_ns: int) -> None:
        if self._looks.get(p) == at_ns:
            del self._looks[p]
            self._issue(p)

    def _coast_until(self, p: Process) -> int:
        """0: it may launch; else when to look again."""
        begin_ns, end_ns = (us * US for us in self._spans[p.tenant.ident])
        start_ns = self.now_ns - self.now_ns % PERIOD_NS
        if not start_ns + begin_ns <= self.now_ns < start_ns + end_ns:
            return start_ns + begin_ns + (PERIOD_NS if self.now_ns >= start_ns + begin_ns else 0)
        self._settle()
        fits = self.now_ns + p.left_ns < start_ns + end_ns
        return 0 if fits else min(self.now_ns + COAST_LOOK_NS, start_ns + end_ns)

    def _issue(self, p: Process) -> None:
        while p in self._coasts and p.launch_count < p.load.burst:
            at_ns = self._coast_until(p)
            if at_ns:
                self._looks[p] = at_ns
                self._call_later(p, at_ns, partial(self._look_again, p, at_ns))
                return
            self._submit(p)
        super()._issue(p)

    def _ran_dry(self, p: Process) -> None:
        if p in self._coasts:  # seen by the thread that looks whether it may launch
            self._call_later(p, self.now_ns + self.wake_ns, partial(self._dry_seen, p))
        else:
            super()._ran_dry(p)

    def _dry_seen(self, p: Process) -> None:
        self._settle()
        if p.left_ns == 0:
            self._edge(p, False)

    def _end_look(self, p: Process) -> None:
        if p in self._coasts:
            p.looking = False
            self._dry_seen(p)
        else:
            super()._end_look(p)

    # ---- reading ----

    def _read(self, p: Process) -> None:
        """Of a gap, neither time nor work is counted, see arbiter/pages.c; of what it settles by, only the clock's."""
        since_ns = self._read_at_ns.get(p, NEVER)
        self._read_at_ns[p] = self.now_ns
        if not self.leaves_out:
            super()._read(p)
            return
        if self.now_ns - min(since_ns, self.now_ns) > STALLED_NS:
            p.read_ns = self.now_ns
            self._settled_ns = self.now_ns + SETTLING_NS
        left_out = self._left_out.setdefault(p, {})
        values: dict[str, int] = {}

        def subtract(name: str, value_ns: int) -> int:
            values[name] = value_ns
            return max(0, value_ns - left_out.get(name, 0))

        honest = p.load.lie
        p.load.lie = subtract
        super()._read(p)
        p.load.lie = honest
        if self.now_ns < self._settled_ns:
            for name, value_ns in values.items():
                left_out[name] = value_ns - p.counted_ns[name]
