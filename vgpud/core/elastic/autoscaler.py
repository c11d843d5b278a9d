"""The target size of one elastic job: fed with its workers' reports (MLSys'20).

It lives as long as its job, over all attempts. The shell feeds it memberships and reports, and passes its targets on to
the queue's machine, which decides: the autoscaler measures with whatever number of workers there is. Nothing that a
program reports can do more than request another size within the user's bounds, at a bounded rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud.core.elastic import registry
from vgpud.core.elastic.heuristics import Outlook, Seen, Target
from vgpud.core.elastic.measures import Mean
from vgpud.core.elastic.straggler import Straggler, Stragglers
from vgpud.core.jobs.model import SECOND_NS, Elastic

MICRO = 10**6
#: what one report can be about; more than that is nonsense
SAMPLES_MAX = 10**12
STEPS_MAX = 10**9
TIME_MIN_NS = 1_000
TIME_MAX_NS = 7 * 24 * 3600 * SECOND_NS
RATE_MAX = 10**18
#: a report this many times above or below those of the other workers is ignored, unless this many in a row agree
JUMP = 20
JUMPS_MAX = 8
#: workers that do not report for this long, while others do, are not waited for
SILENT_NS = 30 * SECOND_NS
#: after settling, two windows in a row of this many batches that are off by this much start a new search; after a rest
#: that doubles each time
DRIFT_PERCENT = 20
DRIFT_STEPS = 200
REST_NS = 600 * SECOND_NS
REST_MAX_NS = 24 * 3600 * SECOND_NS
#: numbers of an Autoscaler that outlive the shell
KEPT = ("untold", "began_ns", "done", "each", "each_of", "settled_rate", "rest_ns", "rest_until_ns")


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    members: int
    why: str


def nanoseconds(seconds: float) -> int:
    """From the wire. -1 for what is no time, which add_report() refuses."""
    return round(seconds * SECOND_NS) if math.isfinite(seconds) and 0 <= seconds <= TIME_MAX_NS else -1


class _Part:
    """What one worker did since all were last put together."""

    __slots__ = ("ns", "samples", "steps")

    def __init__(self) -> None:
        self.samples = self.ns = self.steps = 0

    @property
    def rate(self) -> int:
        return _rate(self.samples, self.ns)


class Autoscaler:
    """See the module. Times are the shell's, ns that never go back."""

    def __init__(self, elastic: Elastic) -> None:
        self.last_request: WorkerTarget | None = None  # the last one
        self.rate_milli = 0  # the job's, samples in 1000 s; 0 = not known
        self._elastic = elastic
        self._heuristic = registry.make(elastic.heuristic)
        self._means: dict[int, Mean] = {}
        self._target: Target | None = None
        self._untold = 0  # 1: take_new_target() has not returned it yet
        self._stragglers = Stragglers()
        self._began_ns = -1
        self._done = 0
        # the present membership
        self._workers: tuple[int, ...] = ()
        self._first: set[int] = set()  # workers whose next report is about their first step
        self._parts: dict[int, _Part] = {}
        self._opened_ns = -1
        self._each = 0  # rate of a worker, the latest
        self._each_of = 0  # number of workers then
        self._jumps = 0
        # settled
        self._settled_rate = 0
        self._recent = Mean()
        self._off = 0  # windows in a row: above (positive) or below
        self._rest_ns = REST_NS
        self._rest_until_ns = 0

    # ---- in ----

    def set_workers(self, workers: tuple[int, ...], now_ns: int) -> None:
        """Another membership, in order of rank; () = none."""
        if self._began_ns < 0 and workers:
            self._began_ns = now_ns
        self._workers = workers
        self._first = set(workers)
        self._stragglers.set_workers(workers)
        self._open(-1)
        self._recent = Mean()
        if self._target is None and workers:
            self._aim(self._heuristic.target(self._observe(now_ns)))

    def add_report(
        self, worker: int, samples: int, seconds_ns: int, steps: int, now_ns: int, waited_ns: int = 0
    ) -> str:
        """What a worker did since its report before. Returns "", or why it is ignored.

        `waited_ns`: of these, for others. `steps` 0: not known.
        """
        if worker not in self._workers:
            return f"worker {worker} is none of the {len(self._workers)} that work"
        if not (1 <= samples <= SAMPLES_MAX and TIME_MIN_NS <= seconds_ns <= TIME_MAX_NS and 0 <= steps <= STEPS_MAX):
            return f"{samples} samples and {steps} steps in {seconds_ns} ns are nothing that a worker does"
        rate = _rate(samples, seconds_ns)
        if not 1 <= rate <= RATE_MAX:
            return f"{samples} samples in {seconds_ns} ns are a rate that no worker has"
        if worker in self._first:
            self._first.discard(worker)
            self._done += samples
            return ""
        own_ns = seconds_ns - waited_ns if 0 <= waited_ns < seconds_ns else seconds_ns
        self._stragglers.add_report(worker, _rate(samples, own_ns))
        if self._is_jump(rate):
            self._jumps += 1
            if self._jumps < JUMPS_MAX or not self._restart_search(now_ns):
                return f"{rate / MICRO:,.3g} samples/s of one worker, where {self._each / MICRO:,.3g} were usual"
        self._jumps = 0
        self._done += samples
        part = self._parts.setdefault(worker, _Part())
        part.samples, part.ns, part.steps = part.samples + samples, part.ns + seconds_ns, part.steps + max(1, steps)
        if self._opened_ns < 0:
            self._opened_ns = now_ns
        if len(self._parts) == len(self._workers) or now_ns - self._opened_ns >= SILENT_NS:
            self._close(now_ns)
        return ""

    def _is_jump(self, rate: int) -> bool:
        """Far from what each did, whether all of them together scale with their number or do not at all."""
        if not self._each:
            return False
        most, least = max(self._each_of, len(self._workers)), min(self._each_of, len(self._workers))
        together = self._each * self._each_of
        return rate * JUMP * most < together or rate * least > together * JUMP

    def _open(self, at_ns: int) -> None:
        self._parts = {}
        self._opened_ns = at_ns

    def _close(self, now_ns: int) -> None:
        """All workers have reported: that is one value of this size."""
        rates = [part.rate for part in self._parts.values()]
        rate, steps = sum(rates), min(part.steps for part in self._parts.values())
        self._open(-1)
        self._each, self._each_of = max(1, rate // len(rates)), len(rates)
        self.rate_milli = rate // 1000
        size = len(self._workers)
        self._means.setdefault(size, Mean()).add(rate, steps)
        target = self._target
        if target is not None and target.steps == 0:
            if size == target.members:
                self._watch(rate, steps, now_ns)
        elif target is None or (size == target.members and self._means[size].steps >= target.steps):
            self._aim(self._heuristic.target(self._observe(now_ns)))

    def _observe(self, now_ns: int) -> Seen:
        least, most = max(1, self._elastic.least_members), max(1, self._elastic.most_members)
        return Seen(self._means, len(self._workers), least, most, Outlook(now_ns - self._began_ns, self._done))

    def _aim(self, target: Target) -> None:
        self._target = target
        if self.last_request is None or self.last_request.members != target.members or target.steps == 0:
            self.last_request, self._untold = WorkerTarget(target.members, target.why), 1
        if target.steps == 0 and target.members in self._means:
            self._settled_rate, self._off, self._recent = self._means[target.members].rate, 0, Mean()

    # ---- when it has settled ----

    def _watch(self, rate: int, steps: int, now_ns: int) -> None:
        """Is what it settled by still so?"""
        self._settled_rate = self._settled_rate or rate
        self._recent.add(rate, steps)
        if self._recent.steps < DRIFT_STEPS:
            return
        now, before = self._recent.rate, self._settled_rate
        above = (now - before) * 100 > DRIFT_PERCENT * before
        below = (before - now) * 100 > DRIFT_PERCENT * before
        self._off = max(self._off, 0) + 1 if above else min(self._off, 0) - 1 if below else 0
        recent, self._recent = self._recent, Mean()
        if abs(self._off) >= 2 and self._restart_search(now_ns):
            self._means[len(self._workers)] = recent
            self._aim(self._heuristic.target(self._observe(now_ns)))

    def _restart_search(self, now_ns: int) -> bool:
        """Forget what was measured, unless that has been done too lately."""
        if now_ns < self._rest_until_ns:
            return False
        self._rest_until_ns = now_ns + self._rest_ns
        self._rest_ns = min(2 * self._rest_ns, REST_MAX_NS)
        self._means, self._target, self._each, self._off = {}, None, 0, 0
        return True

    # ---- out ----

    def take_new_target(self, now_ns: int) -> WorkerTarget | None:
        """A new target, or that the present size is to stay; None: nothing new."""
        new, self._untold = self._untold, 0
        return self.last_request if new else None

    @property
    def measures(self) -> bool:
        """Whether the reports of now decide its next target: it searches, and has the size that it asked for."""
        target = self._target
        return target is None or (target.steps > 0 and target.members == len(self._workers))

    def stragglers(self, now_ns: int) -> tuple[Straggler, ...]:
        """Workers to be replaced now: each is named once."""
        return self._stragglers.due(now_ns)

    # ---- over a restart of the shell ----

    def state(self) -> dict[str, Any]:
        """Plain data, for from_state(). Without the membership: set_workers() sets it again."""
        target = self._target
        return {
            "heuristic": self._heuristic.name,
            "means": [[size, *mean.plain()] for size, mean in sorted(self._means.items())],
            "target": [] if target is None else [target.members, target.steps, target.why],
            "wished": [] if self.last_request is None else [self.last_request.members, self.last_request.why],
            "numbers": [getattr(self, f"_{name}") for name in KEPT],
            "named_ns": self._stragglers.named_ns,
        }

    @classmethod
    def from_state(cls, elastic: Elastic, state: Mapping[str, Any]) -> Autoscaler:
        """As it was. Raises ValueError for what is no state of a job with this heuristic."""
        made = cls(elastic)
        try:
            if state["heuristic"] != made._heuristic.name:
                raise ValueError(f"it is of the heuristic {state['heuristic']!r}, not {made._heuristic.name!r}")
            made._means = {int(size): Mean(*map(int, sums)) for size, *sums in state["means"]}
            if target := state["target"]:
                made._target = Target(int(target[0]), int(target[1]), str(target[2]))
            if last_target := state["wished"]:
                made.last_request = WorkerTarget(int(last_target[0]), str(last_target[1]))
            for name, number in zip(KEPT, state["numbers"], strict=True):
                setattr(made, f"_{name}", int(number))
            made._stragglers.named_ns = [int(at_ns) for at_ns in state["named_ns"]]
            if any(mean.steps < 1 or mean.rate < 1 or mean.values < 1 for mean in made._means.values()):
                raise ValueError("it has a size that was never measured")
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a state of this autoscaler: {error}") from error
        return made


def _rate(samples: int, ns: int) -> int:
    return samples * MICRO * SECOND_NS // ns
