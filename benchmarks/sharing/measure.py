"""What is worked out from busy spans, progress reports and latency histograms. Pure.

Everything comes from the device's own log of busy times or from the tenants' programs, nothing from the arbiter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vgpud.simdevice.busy_log import STEP_NS, WINDOW_NS, Span, busy_steps, sliding

MS = 1_000_000


@dataclass(frozen=True)
class Histogram:
    """Latencies of bursts: (upper bound of the bucket in ns, count), ascending; skipped_periods: those overrun."""

    buckets: tuple[tuple[int, int], ...]
    skipped_periods: int = 0

    @property
    def count(self) -> int:
        return sum(count for _upper_ns, count in self.buckets)

    def percentile_ns(self, fraction: float) -> float:
        """The smallest bound that at least this fraction of the bursts kept; NaN without any burst."""
        wanted, seen = fraction * self.count, 0
        for upper_ns, count in self.buckets:
            seen += count
            if seen >= wanted:
                return upper_ns
        return float("nan")


def merge_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram over several runs."""
    counts: dict[int, int] = {}
    skipped = 0
    for one in histograms:
        skipped += one.skipped_periods
        for upper_ns, count in one.buckets:
            counts[upper_ns] = counts.get(upper_ns, 0) + count
    return Histogram(tuple(sorted(counts.items())), skipped)


def spans_by_tenant(spans: Iterable[Span], pids: Mapping[str, Sequence[int]]) -> dict[str, list[Span]]:
    """Tenant -> the device time of all its processes, by time."""
    tenant_of = {pid: name for name, several in pids.items() for pid in several}
    found: dict[str, list[Span]] = {name: [] for name in pids}
    for span in spans:
        if span.pid in tenant_of:
            found[tenant_of[span.pid]].append(span)
    for mine in found.values():
        mine.sort(key=lambda span: span.begin_ns)
    return found


def window_shares(spans: Iterable[Span], begin_ns: int, end_ns: int, window_ns: int = WINDOW_NS) -> list[float]:
    """Share in every window of [begin_ns, end_ns), every 100 ms."""
    return sliding(busy_steps(spans, begin_ns, end_ns), window_ns)


def spans_of_work(points: Sequence[tuple[int, int]], cost_ns: float, pid: int) -> list[Span]:
    """Device time by reports of completed work: as much as was completed between two of them (time_ns,
    completed), taken to lie just before the second.
    """
    return [Span(t1 - round((c1 - c0) * cost_ns), t1, pid) for (_t0, c0), (t1, c1) in pairwise(points) if c1 > c0]


def share(spans: Iterable[Span], begin_ns: int, end_ns: int) -> float:
    """Share over the whole of [begin_ns, end_ns); 0 when it is empty."""
    busy = sum(max(0, min(s.end_ns, end_ns) - max(s.begin_ns, begin_ns)) for s in spans)
    return busy / (end_ns - begin_ns) if end_ns > begin_ns else 0.0


@dataclass(frozen=True)
class ProcessorTime:
    """All processors' time since boot, and what of it the host of a virtual machine took, both in seconds."""

    time_ns: int
    total_s: float
    stolen_s: float


def stolen_windows(samples: Sequence[ProcessorTime], begin_ns: int, end_ns: int, window_ns: int) -> list[float]:
    """Which part of the processors' time the host took in each of window_shares()'s windows, 0..1.

    Straight lines between the samples; no windows without samples.
    """
    if len(samples) < 2:
        return []
    totals = [(sample.time_ns, sample.total_s) for sample in samples]
    stolen = [(sample.time_ns, sample.stolen_s) for sample in samples]

    def at_sample(points: Sequence[tuple[int, float]], at_ns: int) -> float:
        return _at(points, min(max(at_ns, points[0][0]), points[-1][0] - 1))

    found = []
    for at_ns in range(begin_ns, end_ns - window_ns + 1, STEP_NS):
        total_s = at_sample(totals, at_ns + window_ns) - at_sample(totals, at_ns)
        taken_s = at_sample(stolen, at_ns + window_ns) - at_sample(stolen, at_ns)
        found.append(taken_s / total_s if total_s > 0 else 0.0)
    return found


#: of the processors' time in a window: where the host took more, the window is shown and not judged
STOLEN_JUDGED = 0.10


@dataclass(frozen=True)
class WorstWindow:
    """The worst window that is judged, and what part of the processors' time the host took in it.

    worse_window: the same of the worst window that is not judged, if it is worse.
    """

    value: float
    stolen: float
    worse_window: tuple[float, float] | None = None


def worst_window(windows: Iterable[tuple[float, float]]) -> WorstWindow:
    """windows: (error, stolen) of each. If the host took more than STOLEN_JUDGED of all of them, the worst of all.

    Raises ValueError when there is none.
    """
    every = list(windows)
    judged = [one for one in every if one[1] <= STOLEN_JUDGED]
    value, stolen = max(judged or every)
    beyond = max((one for one in every if one[1] > STOLEN_JUDGED and one[0] > value), default=None)
    return WorstWindow(value, stolen, beyond)


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness, 1/n..1 (Jain, Chiu, Hawe 1984); NaN when all values are 0."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else float("nan")


def completed_between(points: Sequence[tuple[int, int]], begin_ns: int, end_ns: int) -> float:
    """Completed kernels in [begin_ns, end_ns), straight lines between the reports (time_ns, completed).

    Raises ValueError when the reports do not reach over the whole time.
    """
    return _at(points, end_ns) - _at(points, begin_ns)


def _at(points: Sequence[tuple[int, float]], time_ns: int) -> float:
    index = bisect_right(points, (time_ns, 1 << 63))
    if index in (0, len(points)):
        raise ValueError("the reports do not reach over the measured time")
    (t0, c0), (t1, c1) = points[index - 1], points[index]
    return c0 + (c1 - c0) * (time_ns - t0) / (t1 - t0)


def first_ms_with_share(
    spans: Sequence[Span], from_ns: int, until_ns: int, window_ns: int, least_share: float
) -> float:
    """After how many milliseconds from from_ns a window begins in which the share is at least `least_share`.

    Windows lie wholly before until_ns and begin every millisecond. Infinite when there is none.
    """
    return first_ms_within([(spans, least_share, float("inf"))], from_ns, until_ns, window_ns)


def first_ms_within(
    bands: Iterable[tuple[Sequence[Span], float, float]], from_ns: int, until_ns: int, window_ns: int
) -> float:
    """The same for several at once, in the same window: (spans, least share, greatest share) each."""
    kept = [
        [least <= got <= most for got in sliding(busy_steps(spans, from_ns, until_ns, MS), window_ns, MS)]
        for spans, least, most in bands
    ]
    return next((float(index) for index, all_of in enumerate(zip(*kept, strict=True)) if all(all_of)), float("inf"))


def pairs(points: Iterable[tuple[int, str]], begin: str, end: str) -> list[tuple[int, int]]:
    """The times between an event `begin` and the next event `end`: (time_ns, time_ns)."""
    found: list[tuple[int, int]] = []
    opened: int | None = None
    for time_ns, name in points:
        if name == begin:
            opened = time_ns
        elif name == end and opened is not None:
            found.append((opened, time_ns))
            opened = None
    return found
