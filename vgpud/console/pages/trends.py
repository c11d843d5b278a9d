"""The course of the last hour beside a figure, and who has used the devices most. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a small curve, in its own units
WIDTH, HEIGHT = 100, 24
#: users that the overview lists
TOP_MAX = 8


@dataclass(frozen=True, slots=True)
class Trend:
    """A small curve of the last hour. points: of an SVG polyline; first: the value an hour ago, None = not known."""

    points: str
    first: float | None


@dataclass(frozen=True, slots=True)
class UserUse:
    """What one user has now, and was granted in the last day."""

    uid: int
    now_milli: int
    mem_bytes: int
    jobs: int
    granted_s: float  # GPU-seconds
    used_s: float


def trend(history: pb.History, field: str, total: float, since_s: float) -> Trend:
    """Of a field of the history's points since a moment, in s since 1970, as a part of `total`."""
    shown = [p for p in history.points if p.begin_time.seconds >= since_s]
    if len(shown) < 2 or total <= 0:
        return Trend("", None)
    first_s = max(since_s, shown[0].begin_time.seconds)
    span_s = max(1.0, shown[-1].begin_time.seconds - first_s)
    places = []
    for point in shown:
        part = min(1.0, getattr(point, field) / total)
        x, y = WIDTH * (point.begin_time.seconds - first_s) / span_s, HEIGHT - 1 - (HEIGHT - 2) * part
        places.append(f"{x:.1f},{y:.1f}")
    return Trend(" ".join(places), getattr(shown[0], field) / total)


def top_users(usage: Iterable[pb.Usage], slices: Iterable[pb.Slice]) -> list[UserUse]:
    """Who was granted most GPU time in the last day; those with slices now are in it, too."""
    now: dict[int, tuple[int, int]] = {}
    for item in slices:
        if item.HasField("owner_uid"):
            milli, used_bytes = now.get(item.owner_uid, (0, 0))
            milli += sum(part.min_milli for part in item.devices)
            now[item.owner_uid] = milli, used_bytes + sum(part.mem_used_bytes for part in item.devices)
    rows = {row.uid: row for row in usage if row.HasField("uid")}
    found = [_use(uid, now.get(uid, (0, 0)), rows.get(uid)) for uid in {*rows, *now}]
    found.sort(key=lambda use: (-use.granted_s, -use.now_milli, use.uid))
    return found[:TOP_MAX]


def _use(uid: int, now: tuple[int, int], row: pb.Usage | None) -> UserUse:
    if row is None:
        return UserUse(uid, *now, 0, 0.0, 0.0)
    return UserUse(uid, *now, row.jobs, row.gpu_seconds_granted, row.gpu_seconds_used)


def node_trends(history: pb.History, devices: Sequence[pb.Device], since_s: float) -> dict[str, Trend]:
    """Of all devices together: what was used, guaranteed, and in memory."""
    milli = len(devices) * MILLI_PER_DEVICE
    memory = sum(device.mem_total_bytes for device in devices)
    fields = (("used", "used_milli", milli), ("allocated", "min_milli", milli), ("memory", "mem_used_bytes", memory))
    return {name: trend(history, field, most, since_s) for name, field, most in fields}
