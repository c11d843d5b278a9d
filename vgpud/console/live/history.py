"""The last hour of each slice on each device, and of each device, from the answers of WatchSlices. Pure: the time is an
argument. The daemon keeps no curves, so they begin when the user has logged in."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgpud.v1alpha1 import vgpud_pb2 as pb

WINDOW_S, STEP_S = 3600, 5
POINTS_MAX = WINDOW_S // STEP_S
#: curves of one user: a point takes 32 bytes
CURVES_MAX = 4096

Key = tuple[str, str]  # the slice's uid ("" = the device itself) and the device's


@dataclass
class Curve:
    """Times in seconds since 1970, and what was measured then."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    share: array[float] = field(default_factory=lambda: array("d"))  # of the device, 0..1
    memory_bytes: array[float] = field(default_factory=lambda: array("d"))
    throttled_ns: array[float] = field(default_factory=lambda: array("d"))  # so far

    def add(self, at_s: float, share: float, memory_bytes: int, throttled_ns: int) -> None:
        for values, value in zip(self.columns, (at_s, share, memory_bytes, throttled_ns), strict=True):
            values.append(value)
        old = sum(1 for moment in self.at_s[:2] if moment < at_s - WINDOW_S) or (len(self.at_s) > POINTS_MAX)
        if old:
            for values in self.columns:
                del values[:old]

    @property
    def columns(self) -> tuple[array[float], ...]:
        return self.at_s, self.share, self.memory_bytes, self.throttled_ns

    def waiting(self) -> list[float | None]:
        """The part of time that threads waited at the closed gate, between each point and the one before."""
        found: list[float | None] = [None] if self.at_s else []
        for n in range(1, len(self.at_s)):
            span_ns = (self.at_s[n] - self.at_s[n - 1]) * 1e9
            more_ns = self.throttled_ns[n] - self.throttled_ns[n - 1]
            found.append(more_ns / span_ns if span_ns > 0 and more_ns >= 0 else None)
        return found


class History:
    """Curves by slice and device."""

    def __init__(self) -> None:
        self._curves: dict[Key, Curve] = {}
        self._last_s = float("-inf")

    def add(self, at_s: float, slices: Sequence[pb.Slice], devices: Sequence[pb.Device]) -> None:
        """Adds a point to each curve when STEP_S have passed. Curves of slices that have ended are forgotten."""
        if at_s < self._last_s:  # the clock was set back
            self._curves.clear()
        elif at_s - self._last_s < STEP_S:
            return
        self._last_s = at_s
        old, self._curves = self._curves, {}
        for device in devices:
            curve = self._curves[("", device.uuid)] = old.get(("", device.uuid)) or Curve()
            curve.add(at_s, device.utilization_ratio, device.mem_used_bytes, 0)
        for item in slices:
            for part in item.devices:
                if len(self._curves) >= CURVES_MAX:
                    return
                key = (item.uid, part.device_uuid)
                curve = self._curves[key] = old.get(key) or Curve()
                curve.add(at_s, part.share_ratio, part.mem_used_bytes, part.throttled_ns)

    def curve(self, slice_uid: str, device_uuid: str) -> Curve:
        """Empty if there is none yet."""
        return self._curves.get((slice_uid, device_uuid)) or Curve()
