"""Finds jobs that lose by sharing a device, by comparing their speeds together and alone.

Gandiva (Xiao et al., OSDI'18) packs jobs by trial and undoes what turns out slower. Together two jobs are worth it when
their speeds, each as a part of that alone, add up to more than 1: one after the other they would make exactly 1. A
job's speed alone is known from a time when it was alone, else from others of its similarity class, else it is estimated
by the part of the device's time that it gets of what it uses alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vgpud.core.jobs.events import PairLoses
from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.units import MILLI_PER_DEVICE

#: a job that uses less of a device waits for something else: it says nothing about sharing
IDLE_MILLI = 10
#: similarity classes whose speed alone is remembered; the one seen longest ago is forgotten first
CLASSES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How sure it must be. Each change of the residents of a device restarts it."""

    settle_ns: int = 10 * SECOND_NS  # not measured: jobs start, load data, warm up
    window_ns: int = 60 * SECOND_NS  # one judgement
    windows: int = 2  # this many in a row must agree
    margin_milli: int = 100  # so much below 1 the sum must be, which noise alone is not
    again_ns: int = 600 * SECOND_NS  # a pair that was not separated is not named again for this long


@dataclass(frozen=True, slots=True)
class Seen:
    """A job on a device, now. `done` and `used_ns` only grow while it runs."""

    job_id: int
    kind: str
    started_ns: int  # the later job leaves
    done: int = -1  # steps, launches or samples so far; -1 = not known
    unit: str = ""  # which of these
    used_ns: int = 0  # of the device's time so far
    alone_milli: int = -1  # utilisation alone, as far as it is known
    owner: int = 0  # its user


@dataclass(slots=True)
class _Company:
    """The residents of a device, since they are the same."""

    since_ns: int
    latest: Sequence[Seen] = ()
    latest_ns: int = 0
    begins: Sequence[Seen] = ()  # of the present window
    begins_ns: int = -1  # -1 = they have not settled
    losing: int = 0  # windows in which they lost, without one between in which they gained
    named_ns: int = -1


@dataclass(slots=True)
class Watch:
    """Of one node. Call look() for each device periodically, and when its residents change."""

    patience: Patience = field(default_factory=Patience)
    _on: dict[str, _Company] = field(default_factory=dict)
    #: (job, unit) and (kind, unit) -> done in 1000 s, alone on a device
    _alone: dict[tuple[int, str], int] = field(default_factory=dict)
    _of_kind: dict[tuple[str, str], int] = field(default_factory=dict)

    def look(self, device: str, residents: Iterable[Seen], now_ns: int) -> list[PairLoses]:
        """All jobs that are on the device now. Returns the job that loses there and is to leave: at most one."""
        there = sorted(residents, key=lambda one: (one.started_ns, one.job_id))
        company = self._on.get(device)
        if company is None or not _same(company.latest, there):
            if company is not None:
                self._learn(company)
            self._on[device] = company = _Company(now_ns)
        company.latest, company.latest_ns = there, now_ns
        if company.begins_ns < 0:
            if now_ns >= company.since_ns + self.patience.settle_ns:
                company.begins, company.begins_ns = there, now_ns
            return []
        if now_ns < company.begins_ns + self.patience.window_ns:
            return []
        self._learn(company)
        found = self._judge(company, now_ns)
        company.begins, company.begins_ns = there, now_ns
        return found

    def forget_job(self, job_id: int) -> None:
        """It has ended."""
        for key in [key for key in self._alone if key[0] == job_id]:
            del self._alone[key]

    def next_look_ns(self, device: str) -> int:
        """When there is something to be learnt, for shells whose time jumps; 0 = the device is empty."""
        company = self._on.get(device)
        if company is None or not company.latest:
            return 0
        if company.begins_ns < 0:
            return company.since_ns + self.patience.settle_ns
        return company.begins_ns + self.patience.window_ns

    # ---- alone ----

    def _learn(self, company: _Company) -> None:
        """From a job that is alone, if it has been for long enough."""
        if len(company.begins) != 1 or company.latest_ns - company.begins_ns < self.patience.settle_ns:
            return
        before, now = company.begins[0], company.latest[0]
        rate = _rate(before, now, company.latest_ns - company.begins_ns)
        if rate <= 0:
            return  # it did nothing, or does not report: nothing to compare with
        self._alone[now.job_id, now.unit] = rate
        if now.kind:
            self._of_kind.pop((now.kind, now.unit), None)
            self._of_kind[now.kind, now.unit] = rate
            if len(self._of_kind) > CLASSES_MAX:
                del self._of_kind[next(iter(self._of_kind))]

    # ---- together ----

    def _judge(self, company: _Company, now_ns: int) -> list[PairLoses]:
        if len(company.latest) < 2:
            return []
        span_ns = now_ns - company.begins_ns
        pairs = list(zip(company.begins, company.latest, strict=True))
        mixed = len({now.owner for now in company.latest}) > 1
        speeds = [self._speed_milli(before, now, span_ns, mixed) for before, now in pairs]
        known = [speed for speed in speeds if speed is not None]
        if len(known) < len(speeds):
            return []  # for one of them the speed alone is not known
        if any(_used_milli(before, now, span_ns) < IDLE_MILLI for before, now in pairs):
            return []
        together = sum(known)
        if together >= MILLI_PER_DEVICE:
            company.losing = 0
        elif together < MILLI_PER_DEVICE - self.patience.margin_milli:
            company.losing += 1
        if company.losing < self.patience.windows:
            return []
        if company.named_ns >= 0 and now_ns < company.named_ns + self.patience.again_ns:
            return []
        company.named_ns = now_ns
        leaver = company.latest[-1]  # none, where the later one must not be stopped: the first one stays
        others = [(speed, one) for speed, one in zip(known, company.latest, strict=True) if one is not leaver]
        other = min(others, key=lambda found: found[0])[1]
        parts = [f"job {one.job_id} at {speed // 10} %" for one, speed in zip(company.latest, known, strict=True)]
        why = f"{' and '.join(parts)} of their speed alone, {together // 10} % together"
        return [PairLoses(leaver.job_id, other.job_id, why)]

    def _speed_milli(self, old_reading: Seen, now: Seen, span_ns: int, has_several_users: bool) -> int | None:
        """Part of its speed alone; None: not known.

        `has_several_users`: a false report could evict another user's job: it is believed down to half of what the
        job's device time implies.
        """
        alone = self._alone.get((now.job_id, now.unit)) or self._of_kind.get((now.kind, now.unit))
        rate = _rate(old_reading, now, span_ns)
        used_milli = _used_milli(old_reading, now, span_ns)
        if alone and rate >= 0:
            whole_milli = now.alone_milli if now.alone_milli > 0 else MILLI_PER_DEVICE
            least = used_milli * MILLI_PER_DEVICE // whole_milli // 2 if has_several_users else 0
            return min(MILLI_PER_DEVICE, max(least, rate * MILLI_PER_DEVICE // alone))
        if now.alone_milli <= 0:
            return None
        return min(MILLI_PER_DEVICE, used_milli * MILLI_PER_DEVICE // now.alone_milli)


def _same(old_readings: Sequence[Seen], now: Sequence[Seen]) -> bool:
    """Whether these are the same jobs, in the same runs."""
    return [(one.job_id, one.started_ns) for one in old_readings] == [(one.job_id, one.started_ns) for one in now]


def _used_milli(old_reading: Seen, now: Seen, span_ns: int) -> int:
    """Its part of the device's time."""
    return (now.used_ns - old_reading.used_ns) * MILLI_PER_DEVICE // span_ns


def _rate(old_reading: Seen, now: Seen, span_ns: int) -> int:
    """Done in 1000 s; -1 = not known."""
    if now.unit != old_reading.unit or not 0 <= old_reading.done <= now.done:
        return -1
    return (now.done - old_reading.done) * 1000 * SECOND_NS // span_ns
