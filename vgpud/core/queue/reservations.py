"""Devices that are reserved for a time: for a queue, or for no job at all (maintenance). Pure.

While a reservation is in force, only jobs of its queue are placed on its devices. Before that, jobs that are known to
end later are not, nor jobs of an unknown duration that cannot be preempted; the others are requeued when it begins.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vgpud.core.jobs.model import NEVER_NS, Job, Placement, Reservation
from vgpud.core.model import Denied, Reason

#: of one node; and how long one may last
RESERVATIONS_MAX, SPAN_MAX_NS = 100, 366 * 86_400 * 1_000_000_000
NAME_BYTES_MAX, REASON_BYTES_MAX = 40, 200


class Reservations:
    """Those that have not ended."""

    def __init__(self) -> None:
        self.all: tuple[Reservation, ...] = ()

    def prune(self, now_ns: int) -> None:
        self.all = tuple(one for one in self.all if one.end_ns > now_ns)

    def active(self, now_ns: int) -> tuple[Reservation, ...]:
        return tuple(one for one in self.all if one.begin_ns <= now_ns < one.end_ns)

    def next_ns(self, now_ns: int) -> int:
        """When the next one begins or ends."""
        times = (at_ns for one in self.all for at_ns in (one.begin_ns, one.end_ns) if at_ns > now_ns)
        return min(times, default=NEVER_NS)

    def against(self, job: Job, queues: Collection[str], ends_ns: int, now_ns: int) -> list[Reservation]:
        """Those that keep a job from their devices. `queues`: its own and the one above; `ends_ns`: its latest end if
        it starts now, NEVER_NS = not known."""
        return [one for one in self.all if one.queue not in queues and _in_the_way(one, job, ends_ns, now_ns)]


def _in_the_way(one: Reservation, job: Job, ends_ns: int, now_ns: int) -> bool:
    if now_ns >= one.end_ns:
        return False
    if now_ns >= one.begin_ns:
        return True
    return ends_ns > one.begin_ns if ends_ns < NEVER_NS else not job.spec.preemptible


def devices_of(reservations: Collection[Reservation]) -> frozenset[str]:
    return frozenset(uuid for one in reservations for uuid in one.device_uuids)


def touches(placement: Placement, devices: Collection[str]) -> bool:
    return any(share.device_uuid in devices for place in placement for share in place.shares)


def check(reservations: Sequence[Reservation], queues: Collection[str], now_ns: int) -> Denied | None:
    """Why these cannot be the reservations: the last one is new, the others are there already."""
    if len(reservations) > RESERVATIONS_MAX:
        text = f"there are {RESERVATIONS_MAX} reservations, which is the limit: remove one (vgpu reserve rm)"
        return Denied(Reason.NO_CAPACITY, text)
    new = reservations[-1]
    wrong = _check_words(new) or _check_times(new, now_ns)
    if wrong:
        return wrong
    if new.queue and new.queue not in queues:
        text = f"there is no queue {new.queue!r}: choose one of {', '.join(sorted(queues))}"
        return Denied(Reason.NOT_FOUND, text, field="queue")
    for other in reservations[:-1]:
        if other.name == new.name:
            text = f"there is a reservation {new.name!r} already: choose another name, or remove it first"
            return Denied(Reason.EXISTS, text, field="name")
        both = set(other.device_uuids) & set(new.device_uuids)
        if both and new.begin_ns < other.end_ns and other.begin_ns < new.end_ns:
            text = f"reservation {other.name!r} has {len(both)} of these devices at that time: choose another time"
            return Denied(Reason.PRECONDITION, f"{text} or other devices", field="begin_time")
    return None


def _check_words(new: Reservation) -> Denied | None:
    name = new.name
    if not name or len(name.encode()) > NAME_BYTES_MAX or not all(c.isalnum() or c in "-_." for c in name):
        text = f"{name[:60]!r} is not a name: write 1 to {NAME_BYTES_MAX} letters, digits, -, _ or ."
        return _invalid(text, "name")
    if len(new.reason.encode()) > REASON_BYTES_MAX or not new.reason.isprintable():
        text = f"reason {new.reason[:60]!r} is not one line of at most {REASON_BYTES_MAX} bytes: shorten it"
        return _invalid(text, "reason")
    if not new.device_uuids:
        return _invalid(f"reservation {name!r} has no device: name at least one", "device_uuids")
    return None


def _check_times(new: Reservation, now_ns: int) -> Denied | None:
    if new.end_ns <= new.begin_ns:
        return _invalid(f"reservation {new.name!r} ends before it begins: exchange the times", "end_time")
    if new.end_ns <= now_ns:
        return _invalid(f"reservation {new.name!r} has ended already: choose a later end", "end_time")
    if new.end_ns - max(new.begin_ns, now_ns) > SPAN_MAX_NS:
        days = (new.end_ns - new.begin_ns) // (86_400 * 1_000_000_000)
        text = f"reservation {new.name!r} lasts {days} days: at most a year is possible, drain the devices instead"
        return _invalid(text, "end_time")
    return None


def _invalid(message: str, field: str) -> Denied:
    return Denied(Reason.INVALID, message, field=field)
