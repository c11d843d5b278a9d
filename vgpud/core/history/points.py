"""What is recorded of a subject in a span of time, and how spans become longer ones. Pure."""

from __future__ import annotations

from typing import NamedTuple

DEVICE, SLICE, JOB, QUEUE, USER, NODE = ("device", "slice", "job", "queue", "user", "node")


class Subject(NamedTuple):
    """What a series is about. `key` is never reused: a device's UUID, a slice's uid, a job's number, ..."""

    kind: str
    key: str


class Point(NamedTuple):
    """`samples`: how many are in it, 0 = none. Of used, waiting and memory the mean, of the peaks the highest sample,
    of the limits the last one."""

    samples: int
    used_milli: float = 0.0
    used_peak_milli: float = 0.0
    min_milli: float = 0.0
    max_milli: float = 0.0  # 0 = no limit
    waiting_milli: float = 0.0  # 1000: one thread waited at the closed gate all the time
    mem_used_bytes: float = 0.0
    mem_peak_bytes: float = 0.0
    mem_max_bytes: float = 0.0  # 0 = no limit


class Measured(NamedTuple):
    """A sample, with the name and the owner that its subject has now."""

    subject: Subject
    name: str
    owner_uid: int
    point: Point


def sample(
    used_milli: float,
    min_milli: float,
    max_milli: float,
    waiting_milli: float,
    mem_used_bytes: float,
    mem_max_bytes: float,
) -> Point:
    """The point of one sample."""
    memory = mem_used_bytes, mem_used_bytes, mem_max_bytes
    return Point(1, used_milli, used_milli, min_milli, max_milli, waiting_milli, *memory)


def join(first: Point | None, second: Point) -> Point:
    """Both as one point."""
    if first is None or not first.samples:
        return second
    if not second.samples:
        return first
    count = first.samples + second.samples
    a, b = first.samples / count, second.samples / count
    return Point(
        count,
        a * first.used_milli + b * second.used_milli,
        max(first.used_peak_milli, second.used_peak_milli),
        second.min_milli,
        second.max_milli,
        a * first.waiting_milli + b * second.waiting_milli,
        a * first.mem_used_bytes + b * second.mem_used_bytes,
        max(first.mem_peak_bytes, second.mem_peak_bytes),
        second.mem_max_bytes,
    )


def add(one: Point | None, other: Point) -> Point:
    """The sum of two samples of the same moment, of which a total consists. No limit of one is none of both."""
    if one is None:
        return other
    has_limit = one.max_milli and other.max_milli
    has_memory_limit = one.mem_max_bytes and other.mem_max_bytes
    return sample(
        one.used_milli + other.used_milli,
        one.min_milli + other.min_milli,
        one.max_milli + other.max_milli if has_limit else 0.0,
        one.waiting_milli + other.waiting_milli,
        one.mem_used_bytes + other.mem_used_bytes,
        one.mem_max_bytes + other.mem_max_bytes if has_memory_limit else 0.0,
    )
