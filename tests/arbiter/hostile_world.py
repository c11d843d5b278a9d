"""A world in which the pages of some slices say what their owner likes; nothing of those slices is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models.arbiter.model import CLOSED, Slice
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, NEVER, US, Load, Tenant, World, tenant

RING_NS = 100 * US
#: of one that only claims: it is attached, and nothing of it ever runs
NOTHING = Load(burst=0, attach_ns=0, begin_ns=NEVER)


def claim(s: Slice, _step: int, now_ns: int) -> None:
    """A thread waits at the gate, it says, and nothing is outstanding; every close is answered at once."""
    s.wants = s.noticed = True
    s.outstanding = s.gave_up_while_waiting = False
    s.running = 0
    s.quiet = not s.is_open
    s.drained_ns = now_ns
    s.active_total_ns += RING_NS


def toggle(s: Slice, step: int, now_ns: int) -> None:
    """The thread comes and goes."""
    claim(s, step, now_ns)
    s.wants = step % 2 == 0


def give_up(s: Slice, step: int, now_ns: int) -> None:
    """Gives up each word at once, and one of its threads waits all the same."""
    claim(s, step, now_ns)
    s.quiet = True
    s.gave_up_while_waiting = s.is_open


def tiny_kernel(s: Slice, step: int, now_ns: int) -> None:
    """One kernel of 1 us for each grant."""
    claim(s, step, now_ns)
    if s.is_open and step % 3 == 0:
        s.done_total_ns += US
        s.busy_total_ns += US


def outstanding(s: Slice, step: int, now_ns: int) -> None:
    """Work comes and goes, without ever being completed."""
    claim(s, step, now_ns)
    s.outstanding = s.is_open and step % 2 == 0
    s.running = int(s.outstanding)
    s.wants = not s.outstanding
    s.busy_total_ns += RING_NS * s.running


def busy_claim(s: Slice, step: int, now_ns: int) -> None:
    """Demands all of the device, so that it takes turns; gives each turn up."""
    claim(s, step, now_ns)
    s.busy_total_ns += RING_NS
    s.done_total_ns += RING_NS
    if s.is_open:
        s.quiet = s.gave_up_while_waiting = step % 2 == 0


def slow_toggle(s: Slice, step: int, now_ns: int) -> None:
    """The thread stays for 10 ms, and then away."""
    claim(s, step, now_ns)
    s.wants = now_ns // (10 * MS) % 2 == 0


def boast(claimed_part: float, processes: int = 1, busy: float = 1) -> Callable[[Slice, int, int], None]:
    """Each of its processes says that it has work outstanding for a part of the time, and completes so much of it."""
    seen_ns = 0

    def page(s: Slice, _step: int, now_ns: int) -> None:
        nonlocal seen_ns
        passed_ns, seen_ns = now_ns - (seen_ns or now_ns), now_ns
        s.outstanding = now_ns // MS % 10 < 10 * busy
        s.running = processes * s.outstanding
        s.wants = s.gave_up_while_waiting = False
        s.noticed = True
        s.quiet = not s.is_open and not s.outstanding
        s.drained_ns = now_ns
        s.busy_total_ns += passed_ns * s.running
        s.active_total_ns += passed_ns * s.running
        s.done_total_ns += int(passed_ns * s.running * claimed_part)

    return page


CLAIMS = {f.__name__: f for f in (claim, toggle, give_up, tiny_kernel, outstanding, busy_claim, slow_toggle)}


class HostileWorld(World):
    """pages: by the slice's ident, what its page says at each look. Their owners ring all the time."""

    def __init__(
        self, tenants: list[Tenant], pages: dict[int, Callable[[Slice, int, int], None]], **world: Any
    ) -> None:
        self.pages = pages
        super().__init__(tenants, Pair(), **world)
        self._at(MS, self._rings)

    def _rings(self) -> None:
        self._step_later(0)
        self._at(self.now_ns + RING_NS, self._rings)

    def _report(self, t: Tenant) -> None:
        page = self.pages.get(t.ident)
        if page is None:
            super()._report(t)
            return
        row = self._rows[t.ident]
        row.attached = True
        page(row, self.steps, self.now_ns)

    def row(self, ident: int) -> Slice:
        return self._rows[ident]

    def changes(self, ident: int, begin_ns: int, end_ns: int) -> int:
        """How often the gate of one has been closed."""
        return sum(at >= begin_ns and at < end_ns and who == ident and gate == CLOSED for at, who, gate in self.log)


def attacker(ident: int, minimum: int = 10, maximum: int = 1000, **params: Any) -> Tenant:
    return tenant(ident, minimum, maximum, NOTHING, **params)


__all__ = ["CLAIMS", "HostileWorld", "attacker", "boast"]
