"""Trace events as a Chrome trace (JSON object format), which Perfetto and chrome://tracing show. Pure.

A device is a process. Its first track shows the regime, then each slice has one: bars for the time its gate was open
and for its drains (an overlap inside), and counters: launches, outstanding work, threads at the gate, device time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1.words import TRACE_EVENT_KIND

Event = dict[str, Any]

_REGIME_TRACK = 1
_FIRST_SLICE_TRACK = 2
#: kind -> name of its counter, and units per unit of the counter; counted from the beginning of the trace
_TOTALS = {"launches": ("launches", 1), "charged": ("device time (ms)", 1e6)}
_LEVELS = {"waits": "waiting threads", "outstanding": "outstanding work"}


@dataclass
class _Bar:
    """A bar that has begun and not ended."""

    name: str
    since_ns: int


class _Track:
    """A slice on a device, or (slice "") the device's regime."""

    def __init__(self, process: int, thread: int, name: str, begin_ns: int) -> None:
        self.process, self.thread, self.name = process, thread, name
        self.bar: _Bar | None = None  # the open gate, the regime
        self.ended_ns = begin_ns  # the last bar; nothing is known before it
        self.drained = False  # since the gate was open
        self.overlap_ns: int | None = None  # overlaps since then
        self.first: dict[str, int] = {}


class _Traces:
    """Turns events, in any order between devices, into trace events with times in ns."""

    def __init__(self, slice_name: str, begin_ns: int) -> None:
        self.slice_name, self.begin_ns = slice_name, begin_ns
        self.tracks: dict[tuple[int, str], _Track] = {}
        self.trace_events: list[Event] = []

    def take(self, event: pb.TraceEvent) -> None:
        track = self._track(event.device_index, event.slice)
        if event.lost:
            self._point(track, event.time_ns, f"{event.lost} events lost before this point")
        kind = TRACE_EVENT_KIND.to_word(event.kind)
        if kind == "regime":
            self._begin(track, event.text, event.time_ns)
        elif kind == "open":
            self._begin(track, f"gate {event.text}", event.time_ns)
        elif kind == "close":
            self._begin(track, None, event.time_ns)
        elif kind == "drained":
            self._drain(track, event.time_ns - event.value, event.time_ns)
        elif kind == "overlap":
            track.overlap_ns = None if track.drained else event.time_ns
        elif kind == "late":
            self._point(track, event.time_ns, f"the arbiter runs {event.value / 1e6:.1f} ms late")
        elif kind in _LEVELS:
            self._count(track, event.time_ns, _LEVELS[kind], event.value)
        elif kind in _TOTALS:
            name, unit = _TOTALS[kind]
            since = event.value - track.first.setdefault(kind, event.value)
            self._count(track, event.time_ns, name, since / unit)

    def finish(self, end_ns: int) -> None:
        """Ends the open bars here."""
        for track in self.tracks.values():
            self._begin(track, None, end_ns)
            self._end_overlap(track, end_ns)

    def _track(self, device: int, name: str) -> _Track:
        """Tracks have numbers from 1, because some viewers ignore process 0 and thread 0."""
        thread = _FIRST_SLICE_TRACK + sum(d == device and n != "" for d, n in self.tracks) if name else _REGIME_TRACK
        return self.tracks.setdefault((device, name), _Track(device + 1, thread, name or "regime", self.begin_ns))

    def _begin(self, track: _Track, name: str | None, at_ns: int) -> None:
        """Begins the gate's (or the regime's) bar of this name, unless it is open, and ends the bar before it."""
        if name and track.bar and track.bar.name == name:
            return
        if track.bar:
            self._bar(track, track.bar.name, track.bar.since_ns, at_ns)
        track.bar = _Bar(name, at_ns) if name else None
        if name:
            self._end_overlap(track, at_ns)
            track.drained = False

    def _end_overlap(self, track: _Track, at_ns: int) -> None:
        if track.overlap_ns is not None:
            self._bar(track, "overlap", max(track.overlap_ns, track.ended_ns), at_ns)
            track.overlap_ns = None

    def _drain(self, track: _Track, since_ns: int, end_ns: int) -> None:
        """An overlap, reported at its end; it may begin a little before the closing, or reach into the next opening."""
        if track.bar and track.bar.since_ns < since_ns:
            self._begin(track, None, since_ns)
        elif track.bar:
            end_ns = min(end_ns, track.bar.since_ns)
        track.drained = track.bar is None
        since_ns = max(since_ns, track.ended_ns)
        self._bar(track, "drain", since_ns, end_ns)
        if track.overlap_ns is not None:
            self._bar(track, "overlap", max(since_ns, track.overlap_ns), end_ns)
            track.overlap_ns = None

    def _bar(self, track: _Track, name: str, since_ns: int, end_ns: int) -> None:
        if end_ns > since_ns:
            dur_us = (end_ns - since_ns) / 1000
            self.trace_events.append({"ph": "X", "name": name, "ts": since_ns, "dur": dur_us, **_place(track)})
            track.ended_ns = end_ns

    def _point(self, track: _Track, at_ns: int, name: str) -> None:
        self.trace_events.append({"ph": "i", "name": name, "ts": at_ns, "s": "p", **_place(track)})

    def _count(self, track: _Track, at_ns: int, name: str, value: float) -> None:
        """Counters belong to processes, so they carry the slice's name."""
        args = {"value": value}
        self.trace_events.append(
            {"ph": "C", "name": f"{track.name}: {name}", "ts": at_ns, "args": args, **_place(track)}
        )


def _place(track: _Track) -> dict[str, int]:
    return {"pid": track.process, "tid": track.thread}


def chrome_trace(
    events: Iterable[pb.TraceEvent], slice_name: str, devices: Mapping[int, str], end_ns: int = 0
) -> dict[str, Any]:
    """The trace as a document for json. slice_name: the slice of the first track; devices: their names by index.

    end_ns: end of the recording, by the events' clock; open bars are drawn up to it.
    """
    in_order = sorted(events, key=lambda event: event.time_ns)
    begin_ns = in_order[0].time_ns if in_order else 0
    traces = _Traces(slice_name, begin_ns)
    for event in in_order:
        traces.take(event)
    if in_order:
        traces.finish(max(end_ns, in_order[-1].time_ns))
    found = sorted(traces.trace_events, key=lambda made: (made["ts"], -made.get("dur", 0)))
    for made in found:
        made["ts"] = (made["ts"] - begin_ns) / 1000
    return {
        "traceEvents": [*_names(traces, devices), *found],
        "displayTimeUnit": "ms",
        "otherData": {"slice": slice_name, "begin_monotonic_ns": str(begin_ns)},
    }


def _names(traces: _Traces, devices: Mapping[int, str]) -> list[Event]:
    """Names of the tracks, and their order in viewers: the regime, the slice, its neighbours."""
    found: list[Event] = []

    def name(track: _Track, kind: str, **args: Any) -> None:
        found.append({"ph": "M", "name": kind, "ts": 0, "args": args, **_place(track)})

    for (device, slice_name), track in sorted(traces.tracks.items()):
        if track.process not in {made["pid"] for made in found}:
            name(track, "process_name", name=devices.get(device, f"device {device}"))
        name(track, "thread_name", name=track.name)
        order = 0 if not slice_name else 1 if slice_name == traces.slice_name else track.thread
        name(track, "thread_sort_index", sort_index=order)
    return found
