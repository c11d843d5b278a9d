"""The arbiters' times, as admins change them until the next start or reload."""

from __future__ import annotations

from vgpud.config import check_arbiter
from vgpud.core import events as ev
from vgpud.core.model import Denied, Reason
from vgpud.daemon.slices.events import EventRecorder
from vgpud.devices.arbiters import Arbiters
from vgpud.errors import ConfigError


class ArbiterTimes:
    def __init__(self, arbiters: Arbiters, events: EventRecorder) -> None:
        self._arbiters = arbiters
        self._events = events

    def change(self, changes: dict[str, int]) -> dict[str, int] | Denied:
        """All times as they are then; without changes, as they are."""
        try:
            for name, value_ns in changes.items():
                check_arbiter(name, value_ns)
        except ConfigError as error:
            return Denied(Reason.INVALID, str(error), field="params")
        try:
            self._arbiters.set_times(changes)
        except OSError as error:
            return Denied(Reason.INVALID, f"the arbiter refuses {changes}: {error.strerror}", field="params")
        if changes:
            text = ", ".join(f"{name} {value}" for name, value in changes.items())
            self._events.note(ev.Log("arbiter.changed", f"arbiter: {text}"))
        return self._arbiters.times_ns
