"""Usage of devices by jobs that share them, as the daemon's hooks would measure it, for the daemon's own watch.

A device is busy as long as one of its jobs has work for it; jobs that together have more than it can do each get their
part of it. How much they slow each other down is decided in interference.py, which this does not use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.core.colocate.usage import FIRST_LOOK_NS, utilisation_milli
from vgpud.core.colocate.watch import Seen, Watch
from vgpud.core.jobs import events
from vgpud.core.jobs.model import Job
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import interference
from vgpud.simulate.trace import TraceJob

#: what a job has done is counted in ns of work, whatever its kind
_UNIT = "work"


@dataclass(slots=True)
class _Meter:
    """Device time, in milli-ns."""

    at_ns: int
    rate_milli: int = 0
    total: int = 0

    def advance(self, now_ns: int, rate_milli: int) -> None:
        self.total += (now_ns - self.at_ns) * self.rate_milli
        self.at_ns, self.rate_milli = now_ns, rate_milli


@dataclass(frozen=True, slots=True)
class Resident:
    """A job on a device: what it is, and the work that it has done in this run."""

    job: Job
    trace_job: TraceJob
    done_ns: int


class SharingMonitor:
    """For one simulation. Rates are constant between two changes, so a few looks after each change suffice."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch or Watch()
        self._jobs: dict[tuple[int, str], _Meter] = {}
        self._devices: dict[str, _Meter] = {}
        self._looks: dict[str, int] = {}  # left until the next change
        self._firsts: dict[int, tuple[int, int, int]] = {}  # of a job: begin, its own meter and its device's then
        self._due: defaultdict[str, list[int]] = defaultdict(list)  # by device, when a job has run for a minute
        self.separation_count = 0

    def begin_change(self, device: str, residents: Sequence[Resident], now_ns: int) -> None:
        """The jobs on this device are about to change."""
        self._look(device, residents, now_ns)
        for resident in residents:
            self._jobs[resident.job.job_id, device].advance(now_ns, 0)  # also of the one that leaves

    def end_change(self, device: str, residents: Sequence[Resident], now_ns: int) -> None:
        """The jobs on this device have changed."""
        self._looks[device] = 1 + self._watch.patience.windows
        self._look(device, residents, now_ns)
        for resident in residents:
            if resident.job.job_id not in self._firsts:
                used, busy = self._jobs[resident.job.job_id, device], self._devices[device]
                self._firsts[resident.job.job_id] = now_ns, used.total, busy.total
                self._due[device].append(now_ns + FIRST_LOOK_NS)

    def look(self, device: str, residents: Sequence[Resident], now_ns: int) -> list[events.Event]:
        """Time has passed: next_look_ns()."""
        known: list[events.Event] = []
        if now_ns == self._watch_ns(device):
            self._looks[device] -= 1
        found = self._look(device, residents, now_ns)
        self._due[device] = [at_ns for at_ns in self._due[device] if at_ns > now_ns]
        for resident in residents:
            if self._firsts[resident.job.job_id][0] + FIRST_LOOK_NS == now_ns:
                known.append(self._measure_job(device, resident))
        return known + list(found)

    def next_look_ns(self, device: str) -> int:
        """0 = nothing more is to be learned until jobs start or leave there."""
        times = [at_ns for at_ns in (self._watch_ns(device), *self._due[device][:1]) if at_ns]
        return min(times, default=0)

    def _watch_ns(self, device: str) -> int:
        return self._watch.next_look_ns(device) if self._looks[device] > 0 else 0

    def _measure_job(self, device: str, resident: Resident) -> events.Measured:
        """Of a job that began a minute ago."""
        job_id = resident.job.job_id
        _, used, busy = self._firsts[job_id]
        used_milli = (self._jobs[job_id, device].total - used) // FIRST_LOOK_NS
        device_milli = (self._devices[device].total - busy) // FIRST_LOOK_NS
        return events.Measured(
            job_id, utilisation_milli(used_milli, device_milli, resident.job.spec.ask.utilisation_milli)
        )

    def forget_job(self, job_id: int, device: str) -> None:
        """It has ended."""
        self._watch.forget_job(job_id)
        self._jobs.pop((job_id, device), None)

    def busy_ns(self) -> int:
        """Device time so far in which devices had work."""
        return sum(meter.total for meter in self._devices.values()) // MILLI_PER_DEVICE

    # ---- meters ----

    def _meter(self, device: str, residents: Sequence[Resident], now_ns: int) -> None:
        wants = [interference.utilisation_milli(resident.trace_job) for resident in residents]
        total = max(MILLI_PER_DEVICE, sum(wants))
        for resident, milli in zip(residents, wants, strict=True):
            meter = self._jobs.setdefault((resident.job.job_id, device), _Meter(now_ns))
            meter.advance(now_ns, milli * MILLI_PER_DEVICE // total)
        self._devices.setdefault(device, _Meter(now_ns)).advance(now_ns, min(MILLI_PER_DEVICE, sum(wants)))

    def _look(self, device: str, residents: Sequence[Resident], now_ns: int) -> list[events.PairLoses]:
        self._meter(device, residents, now_ns)
        found = self._watch.look(device, [self._observe_job(device, resident) for resident in residents], now_ns)
        self.separation_count += len(found)
        return found

    def _observe_job(self, device: str, resident: Resident) -> Seen:
        spec = resident.job.spec
        return Seen(
            resident.job.job_id,
            spec.ask.kind,
            resident.job.started_ns,
            resident.done_ns,
            _UNIT,
            self._jobs[resident.job.job_id, device].total // MILLI_PER_DEVICE,
            spec.ask.utilisation_milli,
        )
