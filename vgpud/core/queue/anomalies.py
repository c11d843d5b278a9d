"""Detectors of anomalies of a job: fed with what it does, they report once, in a sentence with numbers.

Each compares the job with its own past: its demand falls far below what it was (it is stuck, or starved of data), or no
step comes for far longer than any took before. Demand is device time used plus time waited at a closed gate, so
neighbours make no difference. An anomaly ends when half of the usual demand is back, and only then can it be reported
again. A fault of a device is reported once for each device and number.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.queue.reasons import duration

#: demand is measured over periods of this length
PART_NS = 20 * SECOND_NS
#: periods that make up its past; periods before it has one; low periods in a row before a report
PAST_PARTS = 45
ENOUGH_PARTS = 9
LOW_PARTS = 3
#: below a quarter of the usual demand a period is low, from half of it on the anomaly has ended; less usual demand than
#: this is not judged
LOW_MILLI, BACK_MILLI = 250, 500
WORTH_MILLI = 50
#: no step for this many times the longest that one took before, and for at least this long
SLOWER = 10
STILL_NS = 120 * SECOND_NS
#: steps before it has a past
ENOUGH_STEPS = 5
#: faults that are remembered
FAULTS_MAX = 64
_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """A job that runs, now. What counts from its start only grows."""

    at_ns: int
    used_ns: int  # device time, of all its devices together
    waited_ns: int = 0  # at closed gates
    devices: int = 1
    done: int = -1  # steps, samples or launches so far; -1 = not reported
    unit: str = "step"


@dataclass(slots=True)
class _Wants:
    """What it wants of its devices, in ppm of their time."""

    begins: Sample | None = None  # of the present part
    past: deque[int] = field(default_factory=lambda: deque(maxlen=PAST_PARTS))
    low: list[int] = field(default_factory=list)  # parts in a row that are
    since_ns: int = 0
    is_reported: bool = False

    def look(self, now: Sample) -> str:
        """The sentence, when it is to be reported."""
        first = self.begins
        if first is None or now.used_ns < first.used_ns or now.devices != first.devices:
            self.begins = now
            return ""
        took_ns = now.at_ns - first.at_ns
        if took_ns < PART_NS:
            return ""
        self.begins = now
        wanted_ns = now.used_ns - first.used_ns + max(0, now.waited_ns - first.waited_ns)
        return self._part(min(_PPM, wanted_ns * _PPM // (took_ns * max(1, now.devices))), first.at_ns, now.at_ns)

    def _part(self, wanted_ppm: int, since_ns: int, now_ns: int) -> str:
        usual_ppm = sorted(self.past)[len(self.past) // 2] if len(self.past) >= ENOUGH_PARTS else 0
        if usual_ppm < WORTH_MILLI * 1000 or wanted_ppm * 1000 >= usual_ppm * (
            BACK_MILLI if self.is_reported else LOW_MILLI
        ):
            self.past.append(wanted_ppm)
            self.low.clear()
            self.is_reported = False
            return ""
        if not self.low:
            self.since_ns = since_ns
        self.low = [*self.low[-LOW_PARTS:], wanted_ppm]
        if self.is_reported or len(self.low) < LOW_PARTS:
            return ""
        self.is_reported = True
        mean_ppm = sum(self.low) // len(self.low)
        return (
            f"for {duration(now_ns - self.since_ns)} it has wanted only {_percent(mean_ppm)} of its devices' time;"
            f" it usually wants {_percent(usual_ppm)}: is it stuck, or waiting for data?"
        )


def _percent(ppm: int) -> str:
    return f"{ppm // 10_000} %" if ppm >= 10_000 or not ppm else f"0.{ppm // 1000} %"


@dataclass(slots=True)
class _Steps:
    """Whether it makes progress."""

    done: int = -1
    grew_ns: int = 0
    longest_ns: int = 0
    step_count: int = 0
    is_reported: bool = False

    def look(self, now: Sample) -> str:
        if now.done < 0:
            return ""
        if now.done != self.done:
            if self.done >= 0 and now.done > self.done:
                gap_ns = now.at_ns - self.grew_ns
                self.longest_ns = max(self.longest_ns, gap_ns) if not self.is_reported else self.longest_ns
                self.step_count += 1
            self.done, self.grew_ns, self.is_reported = now.done, now.at_ns, False
            return ""
        still_ns = now.at_ns - self.grew_ns
        if self.is_reported or self.step_count < ENOUGH_STEPS or still_ns < max(STILL_NS, SLOWER * self.longest_ns):
            return ""
        self.is_reported = True
        usual = duration(self.longest_ns)
        return f"no {now.unit} for {duration(still_ns)}; each of the {self.done:,} before took at most {usual}"


class Anomalies:
    """The detectors of one job. They restart with each attempt and each new size, since its past does not count
    then."""

    def __init__(self) -> None:
        self._wants = _Wants()
        self._steps = _Steps()
        self._faults: set[tuple[str, int]] = set()
        self._last: dict[str, str] = {}

    @property
    def present(self) -> tuple[str, ...]:
        """Anomalies that were reported and have not ended."""
        parts = {"wants": self._wants.is_reported, "steps": self._steps.is_reported}
        return tuple(text for part, text in self._last.items() if parts[part])

    def reset_detectors(self) -> None:
        """The job begins, has another size, or resumes."""
        self._wants, self._steps = _Wants(), _Steps()

    def look(self, now: Sample) -> list[str]:
        """What is to be reported."""
        found = {"wants": self._wants.look(now), "steps": self._steps.look(now)}
        self._last |= {part: text for part, text in found.items() if text}
        return [text for text in found.values() if text]

    def fault(self, device: str, number: int, what: str) -> str:
        """The driver has reported a fault of a device that the job has: "" when that was reported before."""
        if (device, number) in self._faults or len(self._faults) >= FAULTS_MAX:
            return ""
        self._faults.add((device, number))
        return f"{device}, which it runs on, had XID {number} ({what}): its results there are not to be trusted"
