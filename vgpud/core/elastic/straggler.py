"""Stragglers (MLSys'20): workers whose throughput over the median's, smoothed, is below 0.8.

The worker of rank 0 is never considered a straggler, since it holds the state. A straggler is removed after its
replacement has joined, so that the group does not shrink; one at a time, and at most PER_HOUR: where every replacement
is slow too, the device is to blame.
"""

from __future__ import annotations

from dataclasses import dataclass

PPM = 1_000_000
#: of the paper: weight of the newest value (one part in this many), and the bound for the smoothed one
ALPHA_INVERSE = 10
LEAST_PPM = 800_000
#: reports before a worker is judged
REPORTS_MIN = 20
#: an outlier counts no more than twice the median
MOST_PPM = 2 * PPM
HOUR_NS = 3600 * 10**9
PER_HOUR = 3
#: it has been named and is still there: named again
AGAIN_NS = 300 * 10**9


@dataclass(frozen=True, slots=True)
class Straggler:
    """To be replaced, and to be removed when its replacement works."""

    worker: int
    why: str


class Stragglers:
    """Fed with what each worker does by itself, without waiting for the others; returns which are too slow."""

    def __init__(self) -> None:
        self._workers: tuple[int, ...] = ()
        self._rates: dict[int, int] = {}  # the latest
        self._smoothed: dict[int, int] = {}  # of the median's, ppm
        self._reports: dict[int, int] = {}
        self.named_ns: list[int] = []  # replacements of the last hour; outlives the shell
        self._under_way: tuple[int, int] | None = None  # worker, when it was named

    def set_workers(self, workers: tuple[int, ...]) -> None:
        """The members in order of rank. What is known of remaining ones is kept."""
        self._workers = workers
        for kept in (self._rates, self._smoothed, self._reports):
            for worker in kept.keys() - set(workers):
                del kept[worker]
        if self._under_way and self._under_way[0] not in workers:
            self._under_way = None

    def add_report(self, worker: int, rate: int) -> None:
        self._rates[worker] = rate
        part = min(MOST_PPM, rate * PPM // _median(list(self._rates.values())))
        before = self._smoothed.get(worker, part)
        self._smoothed[worker] = (part + (ALPHA_INVERSE - 1) * before) // ALPHA_INVERSE
        self._reports[worker] = self._reports.get(worker, 0) + 1

    def due(self, now_ns: int) -> tuple[Straggler, ...]:
        """The worker to be replaced now, the slowest: named once, and again if it is still there after AGAIN_NS."""
        self.named_ns = [at_ns for at_ns in self.named_ns if now_ns - at_ns < HOUR_NS]
        waiting = self._under_way is not None and now_ns - self._under_way[1] < AGAIN_NS
        slow = [
            worker
            for worker in self._workers[1:]
            if self._reports.get(worker, 0) >= REPORTS_MIN and self._smoothed[worker] < LEAST_PPM
        ]
        if waiting or not slow or len(self.named_ns) >= PER_HOUR:
            return ()
        worst = min(slow, key=lambda worker: self._smoothed[worker])
        self._under_way = (worst, now_ns)
        self.named_ns.append(now_ns)
        part = self._smoothed[worst] // 10_000
        why = f"worker {worst} does {part} % of what the median worker does, over {self._reports[worst]} reports"
        return (Straggler(worst, f"{why}: less than {LEAST_PPM // 10_000} % is a straggler"),)


def _median(values: list[int]) -> int:
    """At least 1; of two in the middle their mean."""
    values.sort()
    return max(1, (values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2)
