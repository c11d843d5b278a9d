"""Two plain ways to share a device, to compare the arbiter with.

They are kept inside the load program (tenants/baseline.h) and need no hook:

- FIXED: time is cut into cycles; each tenant has one slot of every cycle, as long as its minimum says, and launches
  only while the slot lasts. No tenant uses a slot that is not its own, or waits for what an earlier slot left
  behind: what was launched runs to its end in the next tenant's slot. Schedulers with a static timetable of
  slices work so. The cycle is long against what a tenant keeps queued (some 10 ms), which favours the shares and
  costs the latency.
- RATE: each process has a bucket of device time. A launch takes what it is thought to cost out of it, or sleeps for
  10 ms and looks again while the bucket is overdrawn. Every 120 ms a loop reads the utilisation that NVML has sampled
  for the process and moves the refill up or down by how far it is from the maximum. Limiters in libraries that
  interpose on the driver work so.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

CYCLE_US = 100_000


class Plain(enum.Enum):
    """The values head their columns of the table."""

    FIXED = "fixed slices"
    RATE = "rate limit"


NO_HOOK, ARBITER = "no hook", "vgpud"
#: all ways in which the tenants of a run share the device, in the order of the table's columns
WAYS = (NO_HOOK, ARBITER, *(way.value for way in Plain))


class Portion(Protocol):
    """A tenant, as far as the plain ways know it."""

    @property
    def name(self) -> str: ...
    @property
    def minimum(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def processes(self) -> int: ...


def options(plain: Plain | None, tenants: Sequence[Portion]) -> dict[str, list[str]]:
    """load.c's options by tenant; None: none. FIXED: slots one behind the other, in the order given."""
    found: dict[str, list[str]] = {tenant.name: [] for tenant in tenants}
    begin_us = 0
    for tenant in tenants:
        if plain is Plain.FIXED:
            end_us = begin_us + round(tenant.minimum * CYCLE_US)
            found[tenant.name] = ["--baseline", f"fixed:{begin_us}:{end_us}:{CYCLE_US}"]
            begin_us = end_us
        elif plain is Plain.RATE:
            found[tenant.name] = ["--baseline", f"rate:{round(tenant.maximum * 1000 / tenant.processes)}"]
    return found
