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
#: of its limit: allocations soon fail
FULL_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Alert:
    """key: the same as long as it is about the same. at_s: when it happened, in s since 1970; 0 = it is a state, and
    the console says since when it has seen it. uid: whose slice or job it is about; None = no one's."""

    level: str  # bad or warn
    text: str
    link: str
    key: str
    at_s: float = 0.0
    uid: int | None = None


def alerts(
    devices: Iterable[pb.Device], slices: Iterable[pb.Slice], events: Iterable[pb.Event], now_s: float
) -> list[Alert]:
    """All of them, the worst and then the newest first."""
    kept = list(events)
    found = [*_devices(devices, kept), *_slices(slices), *_events(kept, now_s)]
    found.sort(key=lambda alert: (alert.level != "bad", -alert.at_s))
    return found


def _devices(devices: Iterable[pb.Device], events: list[pb.Event]) -> Iterator[Alert]:
    drained_s = {e.device_uuid: float(e.create_time.seconds) for e in events if e.kind == "device.drained"}
    for device in devices:
        link, key = f"/device/{device.uuid}", f"device {device.uuid}"
        if device.drained:
            level = "bad" if device.drained_by_fault else "warn"
            text = f"device {device.index} is drained: {device.drained}"
            yield Alert(level, text, link, f"{key} {device.drained}", drained_s.get(device.uuid, 0.0))
        elif device.taken_by and not device.offered:
            text = f"device {device.index} is not offered: {not_offered(device.taken_by)}"
            yield Alert("bad", text, link, f"{key} taken")
        elif device.taken_by:
            yield Alert("warn", f"device {device.index} is also used by {device.taken_by}", link, f"{key} shared")


def _slices(slices: Iterable[pb.Slice]) -> Iterator[Alert]:
    for item in slices:
        owner = item.owner_uid if item.HasField("owner_uid") else None
        for part in item.devices:
            used, limit = format_bytes(part.mem_used_bytes), format_bytes(part.mem_max_bytes)
            where = f"slice {item.name} uses {used} of {limit} on device {part.device_index}"
            link, key = f"/slice/{item.name}", f"slice {item.uid} {part.device_uuid}"
            if part.mem_used_bytes > part.mem_max_bytes:
                yield Alert("bad", f"{where}: over its limit", link, f"{key} over", uid=owner)
            elif part.mem_max_bytes and part.mem_used_bytes > FULL_RATIO * part.mem_max_bytes:
                yield Alert("warn", f"{where}: allocations soon fail", link, f"{key} full", uid=owner)


def _events(events: Iterable[pb.Event], now_s: float) -> Iterator[Alert]:
    for event in events:
        if event.kind in EVENTS and now_s - event.create_time.seconds < EVENTS_S:
            owner = event.owner_uid if event.HasField("owner_uid") else None
            link = f"/slice/{event.slice}" if event.slice and event.kind != "slice.lost" else "/events"
            text, key = f"{event.kind}: {event.message}", f"event {event.sequence}"
            yield Alert(EVENTS[event.kind], text, link, key, float(event.create_time.seconds), owner)
