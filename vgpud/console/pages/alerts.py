"""What a person on call must know, worst first; each with the page that shows more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vgpud.core.units import format_bytes
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slice_tables import not_offered

#: events that someone should look at -> how bad
EVENTS = {
    "device.xid": "bad",
    "device.lost": "bad",
    "device.stranger": "warn",
    "slice.broken": "bad",
    "slice.lost": "bad",
    "attach.refused": "warn",
    "container.refused": "warn",
    "job.anomaly": "warn",
    "job.lost": "bad",
    "job.start_failed": "warn",
    "job.straggler": "warn",
    "job.worker_failed": "warn",
}
#: for this long after they happened
EVENTS_S = 3600
EVENTS_MAX = 5
SHOWN_MAX = 12
#: of its limit: allocations soon fail
FULL_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Alert:
    level: str  # bad or warn
    text: str
    link: str


def alerts(
    devices: Iterable[pb.Device], slices: Iterable[pb.Slice], events: Iterable[pb.Event], now_s: float
) -> list[Alert]:
    found = [*_devices(devices), *_slices(slices), *_events(events, now_s)]
    found.sort(key=lambda alert: alert.level != "bad")
    more = len(found) - SHOWN_MAX
    return found if more <= 0 else [*found[:SHOWN_MAX], Alert("warn", f"{more} more", "/events")]


def _devices(devices: Iterable[pb.Device]) -> Iterator[Alert]:
    for device in devices:
        link = f"/device/{device.uuid}"
        if device.drained:
            level = "bad" if device.drained_by_fault else "warn"
            yield Alert(level, f"device {device.index} is drained: {device.drained}", link)
        elif device.taken_by and not device.offered:
            yield Alert("bad", f"device {device.index} is not offered: {not_offered(device.taken_by)}", link)
        elif device.taken_by:
            yield Alert("warn", f"device {device.index} is also used by {device.taken_by}", link)


def _slices(slices: Iterable[pb.Slice]) -> Iterator[Alert]:
    for item in slices:
        for part in item.devices:
            used, limit = format_bytes(part.mem_used_bytes), format_bytes(part.mem_max_bytes)
            where = f"slice {item.name} uses {used} of {limit} on device {part.device_index}"
            if part.mem_used_bytes > part.mem_max_bytes:
                yield Alert("bad", f"{where}: over its limit", f"/slice/{item.name}")
            elif part.mem_max_bytes and part.mem_used_bytes > FULL_RATIO * part.mem_max_bytes:
                yield Alert("warn", f"{where}: allocations soon fail", f"/slice/{item.name}")


def _events(events: Iterable[pb.Event], now_s: float) -> Iterator[Alert]:
    recent = [e for e in events if e.kind in EVENTS and now_s - e.create_time.seconds < EVENTS_S]
    for event in reversed(recent[-EVENTS_MAX:]):
        yield Alert(EVENTS[event.kind], f"{event.kind}: {event.message}", "/events")
