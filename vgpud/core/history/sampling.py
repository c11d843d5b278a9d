"""Samples of all subjects from what slices and devices use now. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpud.core.history.points import DEVICE, JOB, NODE, QUEUE, SLICE, USER, Measured, Point, Subject, add, sample
from vgpud.core.model import ANYONE, Slice
from vgpud.core.observed import SliceStats
from vgpud.core.origins import Job
from vgpud.core.units import MILLI_PER_DEVICE


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """`utilization_ratio`: the mean since the sample before; None: the device does not report it, and what slices used
    of it counts."""

    uuid: str
    index: int
    utilization_ratio: float | None
    mem_used_bytes: int
    mem_total_bytes: int


@dataclass(frozen=True, slots=True)
class QueueBounds:
    """A queue's own figures; limit 0 = none."""

    name: str
    parent: str
    guarantee_milli: int
    limit_milli: int


def subject_of(kind: str, name: str) -> tuple[str, str]:
    """(kind, name) under which a user's words are recorded: a job's only slice is recorded as the job."""
    if kind == NODE:
        return NODE, ""
    if kind == SLICE and Job.owns_name(name) and name.count("-") == 1:
        return JOB, name.partition("-")[2]
    return kind, name


class Sampler:
    """Remembers how long the threads of each slice had waited at the sample before."""

    def __init__(self) -> None:
        self._at_ns = 0
        self._throttled_ns: dict[str, int] = {}

    def take(
        self,
        now_ns: int,
        devices: Iterable[DeviceNow],
        slices: Iterable[tuple[Slice, Sequence[SliceStats]]],
        queues: Sequence[QueueBounds],
    ) -> list[Measured]:
        """`now_ns`: monotonic. `slices` with their counters, one for each share; pending ones have none."""
        passed_ns, self._at_ns = now_ns - self._at_ns if self._at_ns else 0, now_ns
        before, self._throttled_ns = self._throttled_ns, {}
        found: list[Measured] = []
        jobs: dict[int, tuple[int, Point]] = {}
        users: dict[int, Point] = {}
        by_queue: dict[str, Point] = {}
        minima: dict[str, int] = {}
        used: dict[str, float] = {}
        for made, stats in slices:
            if made.pending:
                continue
            for share, now in zip(made.shares, stats, strict=True):
                minima[share.device_uuid] = minima.get(share.device_uuid, 0) + share.min_milli
                used[share.device_uuid] = used.get(share.device_uuid, 0.0) + now.share_10s_ratio
            throttled_ns = self._throttled_ns[made.uid] = sum(now.throttled_ns for now in stats)
            more_ns = throttled_ns - before.get(made.uid, throttled_ns)
            waiting_milli = max(0.0, 1000 * more_ns / passed_ns) if passed_ns > 0 else 0.0
            point = _point_of(made, stats, waiting_milli)
            job_id = made.origin.queue_job_id
            if job_id:
                jobs[job_id] = made.owner_uid, add(jobs[job_id][1] if job_id in jobs else None, point)
            if subject_of(SLICE, made.name)[0] == SLICE:
                key = made.name if job_id else made.uid  # one series for all attempts of a job
                found.append(Measured(Subject(SLICE, key), made.name, made.owner_uid, point))
            if made.owner_uid != ANYONE:
                users[made.owner_uid] = add(users.get(made.owner_uid), point)
            by_queue[made.queue] = add(by_queue.get(made.queue), point)
        found += (Measured(Subject(JOB, str(n)), str(n), owner, point) for n, (owner, point) in jobs.items())
        found += (Measured(Subject(USER, str(uid)), str(uid), uid, point) for uid, point in users.items())
        found += _measure_queues(queues, by_queue)
        total: Point | None = None
        for device in devices:
            measured = _measure_device(device, minima.get(device.uuid, 0), used.get(device.uuid, 0.0))
            found.append(measured)
            total = add(total, measured.point)
        if total:
            found.append(Measured(Subject(*subject_of(NODE, "")), "", ANYONE, total))
        return found


def _point_of(slice_: Slice, stats: Sequence[SliceStats], waiting_milli: float) -> Point:
    return sample(
        sum(now.share_10s_ratio for now in stats) * MILLI_PER_DEVICE,
        sum(share.min_milli for share in slice_.shares),
        sum(share.max_milli for share in slice_.shares),
        waiting_milli,
        sum(now.mem_used_bytes for now in stats),
        sum(share.mem_max_bytes for share in slice_.shares),
    )


def _measure_queues(queues: Sequence[QueueBounds], by_queue: dict[str, Point]) -> Iterable[Measured]:
    """Each queue with those below it, as the API shows their use; queues without a slice use nothing."""
    totals: dict[str, Point] = {}
    for queue in queues:
        if queue.name in by_queue:
            for name in filter(None, (queue.name, queue.parent)):
                totals[name] = add(totals.get(name), by_queue[queue.name])
    nothing = sample(0, 0, 0, 0, 0, 0)
    for queue in queues:
        own = {"min_milli": queue.guarantee_milli, "max_milli": queue.limit_milli}
        point = totals.get(queue.name, nothing)._replace(**own)
        yield Measured(Subject(QUEUE, queue.name), queue.name, ANYONE, point)


def _measure_device(device: DeviceNow, minima_milli: int, slices_ratio: float) -> Measured:
    ratio = slices_ratio if device.utilization_ratio is None else device.utilization_ratio
    memory = device.mem_used_bytes, device.mem_total_bytes
    point = sample(ratio * MILLI_PER_DEVICE, minima_milli, MILLI_PER_DEVICE, 0.0, *memory)
    return Measured(Subject(DEVICE, device.uuid), str(device.index), ANYONE, point)
