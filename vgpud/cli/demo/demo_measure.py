"""Measurements of the demo: samples per second of each trainer, and its share of the device, phase by phase.

A share comes from the device's own busy log (simulated device) or from completed work relative to the same trainer
alone (real device), never from the arbiter's counters.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.simdevice.busy_log import RECORD, SECOND_NS, Span, busy_steps, mean_share, parse_busy_log

#: how far a share may be outside its limits, in percentage points of the device, over a whole phase
#: (a busy machine delays the trainers themselves; how exact shares are is what benchmarks/shares.py measures)
TOLERANCE_PP = 5.0
#: the same for a minimum beside a borrower, which is what a slice is for: `vgpu demo` fails if it is not kept
KEPT_TOLERANCE_PP = 1.0
PLOT_STEP_NS = 250_000_000
#: steps averaged in a point of the plot
PLOT_WINDOW_STEPS = 2


@dataclass(frozen=True)
class Wanted:
    """The promise to a tenant in a phase: its share is at least `min_share` and at most `max_share` (0..1), give or
    take `tolerance_pp` percentage points."""

    minimum: float
    maximum: float
    min_share: float
    max_share: float
    tolerance_pp: float = TOLERANCE_PP


@dataclass
class Trainer:
    """A trainer's pid (0 = not started yet) and its reports (time_ns, samples)."""

    name: str
    pid: int = 0
    device: str = ""
    training: bool = False
    reports: list[tuple[int, int]] = field(default_factory=list)

    def take(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Reads JSON lines of the trainer, as benchmarks/cifar/progress.py prints them."""
        for line in lines:
            self.pid = int(line["pid"])
            if line["event"] == "start":
                self.device = str(line["device"])
            elif line["event"] == "training":
                self.training = True
                self.reports.append((int(line["time_ns"]), 0))
            elif line["event"] in ("progress", "end"):
                self.reports.append((int(line["time_ns"]), int(line["samples"])))

    def samples_at(self, time_ns: int) -> float:
        """Samples completed at a time, between two reports by a straight line."""
        before = (self.reports[0][0], 0) if self.reports else (time_ns, 0)
        for at_ns, samples in self.reports:
            if at_ns >= time_ns:
                width = at_ns - before[0]
                part = (time_ns - before[0]) / width if width > 0 else 1.0
                return before[1] + (samples - before[1]) * max(0.0, part)
            before = (at_ns, samples)
        return before[1]

    def rate(self, begin_ns: int, end_ns: int) -> float:
        """Samples per second in [begin_ns, end_ns), as far as reports reach."""
        end_ns = min(end_ns, self.reports[-1][0]) if self.reports else begin_ns
        if end_ns <= begin_ns:
            return 0.0
        return (self.samples_at(end_ns) - self.samples_at(begin_ns)) * SECOND_NS / (end_ns - begin_ns)


class BusyTail:
    """Follows a growing busy log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spans: list[Span] = []
        self._read_bytes = 0

    def poll(self) -> None:
        """Reads what was appended since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            raw = file.read()
        self._read_bytes += len(raw) - len(raw) % RECORD.size
        self.spans += parse_busy_log(raw)

    def recent_share(self, pid: int, now_ns: int, width_ns: int = SECOND_NS) -> float:
        """Share of a process in the last width_ns."""
        first = len(self.spans)
        while first > 0 and self.spans[first - 1].end_ns > now_ns - 2 * width_ns:
            first -= 1
        return mean_share(self.spans[first:], pid, now_ns - width_ns, now_ns)


@dataclass(frozen=True)
class Row:
    """One line of the final table: a tenant in a phase. Shares 0..1, memory in bytes, rates in samples per second."""

    phase: str
    tenant: str
    target: Wanted
    share: float
    rate: float
    rate_alone: float
    memory_limit_bytes: int
    memory_peak_bytes: int
    #: processors that the host denied the demo's parts in the phase (demo_host.py); None: not known
    denied_part: float | None = None

    def off_pp(self) -> float:
        """How far the share is outside its limits, in percentage points (0 = within)."""
        return 100 * max(0.0, self.target.min_share - self.share, self.share - self.target.max_share)

    @property
    def is_off(self) -> bool:
        """The promise was not kept."""
        return self.off_pp() > self.target.tolerance_pp

    @property
    def is_hosts_doing(self) -> bool:
        """The promise was not kept, and the host denied the parts enough processor to be the cause."""
        return self.is_off and self.off_pp() - self.target.tolerance_pp <= 100 * (self.denied_part or 0.0)


def share_of_phase(
    trainer: Trainer, spans: Sequence[Span] | None, begin_ns: int, end_ns: int, rate_alone: float
) -> float:
    """Share of a trainer in a phase: by busy spans, or (spans None) by completed work relative to rate_alone."""
    if spans is not None:
        return mean_share(spans, trainer.pid, begin_ns, end_ns)
    return trainer.rate(begin_ns, end_ns) / rate_alone if rate_alone > 0 else 0.0


def series(
    trainer: Trainer, spans: Sequence[Span] | None, begin_ns: int, end_ns: int, rate_alone: float
) -> list[tuple[float, float]]:
    """(seconds since begin_ns, share) for the plot, each point a mean over PLOT_WINDOW_STEPS steps."""
    count = (end_ns - begin_ns) // PLOT_STEP_NS
    if spans is not None:
        own = [span for span in spans if span.pid == trainer.pid]
        steps = [busy / PLOT_STEP_NS for busy in busy_steps(own, begin_ns, end_ns, PLOT_STEP_NS)]
    else:
        edges = [begin_ns + index * PLOT_STEP_NS for index in range(count + 1)]
        done = [trainer.samples_at(edge) for edge in edges]
        scale = PLOT_STEP_NS / SECOND_NS * max(rate_alone, 1e-9)
        steps = [(after - before) / scale for before, after in itertools.pairwise(done)]
    points = []
    for index in range(PLOT_WINDOW_STEPS - 1, len(steps)):
        mean = sum(steps[index - PLOT_WINDOW_STEPS + 1 : index + 1]) / PLOT_WINDOW_STEPS
        points.append(((index + 1) * PLOT_STEP_NS / SECOND_NS, mean))
    return points
