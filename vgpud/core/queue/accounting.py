"""What slices and jobs asked for, were granted, used and copied: rows of at most an hour, and their sums. Pure.

Amounts of time are milli-GPU x ns. Asked: what the user asked for, while the job waited and while it ran. Granted: what
was reserved for the user. Used: device time, by the arbiter's account. Copies are bytes, by the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from vgpud.core.jobs.facts import UsageRow
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.model import Slice
from vgpud.core.slices.queue_quota import width_milli

#: a row is no longer than this, so that sums since a time are right to a few minutes
ROW_NS = 3600 * 1_000_000_000
BYS = ("job", "user", "queue", "namespace", "pod")


#: sums over slices of Kubernetes claims
OF_PODS = ("namespace", "pod")


class Counts(NamedTuple):
    """What the arbiters have counted of a slice since they began, on all its devices together."""

    used_ns: int = 0
    copy_to_device_bytes: int = 0
    copy_from_device_bytes: int = 0


NOTHING = Counts()


class Amounts(NamedTuple):
    """What of rows is summed up, as a Row and a UsageRow name it."""

    requested_service: int = 0
    granted: int = 0
    used: int = 0
    copy_to_device_bytes: int = 0
    copy_from_device_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A slice for some time, or a job that waited (`slice` is "")."""

    slice_uid: str  # of a job that waited: job-ID
    begin_ns: int  # of the queue's clock
    end_ns: int
    slice: str
    job_id: int  # 0: the slice was made otherwise
    queue: str
    uid: int
    requested_service: int
    granted: int
    used: int
    namespace: str = ""  # of the slice of a Kubernetes claim, and its pod
    pod: str = ""
    copy_to_device_bytes: int = 0
    copy_from_device_bytes: int = 0

    @property
    def amounts(self) -> Amounts:
        copies = (self.copy_to_device_bytes, self.copy_from_device_bytes)
        return Amounts(self.requested_service, self.granted, self.used, *copies)

    def get_amounts_between(self, since_ns: int, until_ns: int) -> Amounts:
        """Those of the part that lies in this time."""
        length = self.end_ns - self.begin_ns
        part = min(self.end_ns, until_ns) - max(self.begin_ns, since_ns)
        if part >= length:
            return self.amounts
        part = max(0, part)
        return Amounts(*(amount * part // length for amount in self.amounts))


@dataclass(slots=True)
class _Open:
    """A slice that exists: its last row, and its properties as of the last call of see()."""

    row: Row
    slice_: Slice
    counts: Counts  # as they were then


class Ledger:
    """The rows of the slices that are there. What it returns is to be kept, in place of the row of the same begin."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def open(self, slice_: Slice, since_ns: int, counts: Counts = NOTHING) -> None:
        """A slice is there since then; the arbiters count what it uses from `counts` on."""
        whose = (slice_.name, slice_.origin.queue_job_id, slice_.queue, slice_.owner_uid)
        row = Row(slice_.uid, since_ns, since_ns, *whose, 0, 0, 0, *slice_.origin.name_pod())
        self._open[slice_.uid] = _Open(row, slice_, counts)

    def knows(self, slice_uid: str) -> bool:
        return slice_uid in self._open

    def see(self, slice_: Slice, counts: Counts, now_ns: int) -> Row:
        """Counts the time since the last call, in which the slice was as it was then; from now on it is as given."""
        known = self._open[slice_.uid]
        row = known.row
        passed_ns = max(0, now_ns - row.end_ns)
        namespace, pod = known.slice_.origin.name_pod()
        is_anothers = (namespace, pod) != (row.namespace, row.pod) and row.end_ns > row.begin_ns
        more = Counts(*(max(0, count - before) for count, before in zip(counts, known.counts, strict=True)))
        if is_anothers or row.end_ns - row.begin_ns >= ROW_NS:
            row = replace(row, begin_ns=row.end_ns, **Amounts()._asdict())
        known.row = replace(
            row,
            end_ns=row.end_ns + passed_ns,
            requested_service=row.requested_service + known.slice_.spec.gpus_milli * passed_ns,
            granted=row.granted + width_milli(known.slice_) * passed_ns,
            used=row.used + more.used_ns * 1000,
            copy_to_device_bytes=row.copy_to_device_bytes + more.copy_to_device_bytes,
            copy_from_device_bytes=row.copy_from_device_bytes + more.copy_from_device_bytes,
            namespace=namespace,
            pod=pod,
        )
        known.slice_, known.counts = slice_, counts
        return known.row

    def close(self, slice_: Slice, counts: Counts, now_ns: int) -> Row:
        """It goes; its last row."""
        row = self.see(slice_, counts, now_ns)
        del self._open[slice_.uid]
        return row

    def row_of(self, slice_uid: str) -> Row | None:
        """Its current row, as of the last call of see()."""
        known = self._open.get(slice_uid)
        return known.row if known else None


def make_waiting_row(job: Job, until_ns: int) -> Row | None:
    """The row of a job that has waited since `waiting_since_ns`; None where it has not."""
    begin_ns = job.waiting_since_ns
    if until_ns <= begin_ns:
        return None
    asked = job.spec.ask.spec.gpus_milli * job.spec.members * (until_ns - begin_ns)
    spec = job.spec
    return Row(f"job-{job.job_id}", begin_ns, until_ns, "", job.job_id, spec.queue, spec.uid, asked, 0, 0)


def _key(row: Row, by: str) -> tuple[object, ...]:
    if by == "queue":
        return (row.queue,)
    if by == "user":
        return (row.uid,)
    if by in OF_PODS:
        return (row.namespace,) if by == "namespace" else (row.namespace, row.pod)
    return (row.job_id,) if row.job_id else (0, row.slice_uid)


class Sums:
    """One for each job (and slice made otherwise), user, queue, namespace or pod with usage in this period. Sums of the
    last two are over slices of Kubernetes claims alone."""

    def __init__(self, by: str, since_ns: int, until_ns: int) -> None:
        self._by, self._since_ns, self._until_ns = by, since_ns, until_ns
        self._found: dict[tuple[object, ...], list[int]] = {}
        self._first: dict[tuple[object, ...], Row] = {}
        self._ids: dict[tuple[object, ...], set[int]] = {}

    def add(self, row: Row) -> None:
        if row.end_ns <= self._since_ns or row.begin_ns >= self._until_ns:
            return
        if self._by in OF_PODS and not row.namespace:
            return
        key = _key(row, self._by)
        self._first.setdefault(key, row)
        total = self._found.setdefault(key, [0] * len(Amounts._fields))
        for place, amount in enumerate(row.get_amounts_between(self._since_ns, self._until_ns)):
            total[place] += amount
        self._ids.setdefault(key, set()).update({row.job_id} - {0})

    def rows(self, jobs: dict[int, Job]) -> Iterator[UsageRow]:
        """In a fixed order. `jobs`: ids of the jobs whose own times are included."""
        for key in sorted(self._found, key=lambda key: _order(self._first[key], self._by)):
            first, ids = self._first[key], self._ids[key]
            amounts = Amounts(*self._found[key])
            yield _usage(first, self._by, amounts, len(ids), jobs.get(first.job_id), self._until_ns)


def sums(rows: Iterable[Row], jobs: dict[int, Job], by: str, since_ns: int, until_ns: int) -> list[UsageRow]:
    """All of them at once."""
    found = Sums(by, since_ns, until_ns)
    for row in rows:
        found.add(row)
    return list(found.rows(jobs))


def _order(row: Row, by: str) -> tuple[object, ...]:
    if by == "queue":
        return (row.queue,)
    if by in OF_PODS:
        return (row.namespace, row.pod)
    return (row.uid,) if by == "user" else (row.job_id, row.slice, row.slice_uid)


def _usage(row: Row, by: str, amounts: Amounts, jobs: int, job: Job | None, now_ns: int) -> UsageRow:
    total = amounts._asdict()
    if by == "queue":
        return UsageRow(row.queue, -1, jobs=jobs, **total)
    if by == "user":
        return UsageRow("", row.uid, jobs=jobs, **total)
    if by in OF_PODS:
        pod = row.pod if by == "pod" else ""
        return UsageRow("", -1, jobs=jobs, namespace=row.namespace, pod=pod, **total)
    name = "" if row.job_id else row.slice
    made = UsageRow(row.queue, row.uid, jobs=jobs, job_id=row.job_id, slice=name, **total)
    made = replace(made, namespace=row.namespace, pod=row.pod)
    return made if job is None else replace(made, **_times(job, now_ns))


def _times(job: Job, now_ns: int) -> dict[str, Any]:
    ran_ns = job.executed_at(now_ns) if job.state is JobState.RUNNING else job.executed_ns
    return {
        "submitted_ns": job.submitted_ns,
        "started_ns": job.first_started_ns,
        "ended_ns": job.ended_ns,
        "gpus_milli": job.spec.ask.spec.gpus_milli,
        "members": job.spec.members,
        "ran_ns": ran_ns,
        "state": job.state.value,
    }
