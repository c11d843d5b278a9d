"""Periodic work of the daemon, each piece by itself: one that fails keeps none of the others from being done."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vgpud.core.events import Log

log = logging.getLogger("vgpud")

#: work that keeps failing for the same reason is reported after this long, then after twice that, and so on
TELL_AFTER_NS = 10_000_000_000
TELL_AFTER_MAX_NS = 3_600_000_000_000


@dataclass(slots=True)
class _Fault:
    cause: str
    tell_ns: int  # when it is reported again
    interval_ns: int


class PeriodicTasks:
    """Does periodic work and reports failures: once for each cause, then at growing intervals, and when it works
    again."""

    def __init__(self, note: Callable[[Log], None], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._note = note
        self._clock_ns = clock_ns
        self._faults: dict[str, _Fault] = {}

    async def do(self, what: str, work: Callable[[], Any]) -> None:
        """`what`: the work as it is put in messages; it is tried again whenever it is asked for. Never raises."""
        try:
            result = work()
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            self._failed(what, error)
        else:
            if self._faults.pop(what, None):
                self._note(Log("upkeep.worked", f"{what}: works again"))

    def _failed(self, what: str, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        now_ns, known = self._clock_ns(), self._faults.get(what)
        if known is None or known.cause != cause:
            log.error("%s failed", what, exc_info=error)
            interval_ns = TELL_AFTER_NS
        elif now_ns < known.tell_ns:
            return
        else:
            interval_ns = min(2 * known.interval_ns, TELL_AFTER_MAX_NS)
        self._faults[what] = _Fault(cause, now_ns + interval_ns, interval_ns)
        self._note(Log("upkeep.failed", f"{what} failed ({cause}): it is tried again; everything else works"))
