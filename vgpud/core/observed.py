"""What the shells observe and users are shown: counters and the event log. No decision of the core reads these."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import NamedTuple

from vgpud.core.units import INT64_MAX

#: how a device is shared: from no slice on it to turns by lease
REGIMES = ("idle", "solo", "open", "throttled", "arbitrated")
#: buckets of the histogram of waits at the closed gate
WAIT_BUCKETS = 16


def wait_ends_ns() -> tuple[int, ...]:
    """Upper ends of the buckets; the last bucket, which has none, counts all longer waits."""
    return tuple(16_000 << i for i in range(WAIT_BUCKETS - 1))


def compute_link_ns(copy_bytes: int, link_bytes_per_s: int) -> int | None:
    """How long a link would carry so many bytes at its rate, in one direction; None: its rate (0) is not known."""
    return min(INT64_MAX, copy_bytes * 1_000_000_000 // link_bytes_per_s) if link_bytes_per_s else None


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What a slice is asked to give back of a device's memory, and what came of the last request."""

    remaining_bytes: int = 0  # of the open request: what has not come back yet; 0: none is open
    asked_bytes: int = 0  # by it
    begin_ns: int = 0  # CLOCK_MONOTONIC
    deadline_ns: int = 0
    end_count: int = 0  # requests that have ended
    was_late: bool = False  # the time of the last one was up before all had come back
    last_asked_bytes: int = 0
    last_returned_bytes: int = 0
    last_took_ns: int = 0
    shortages: int = 0  # times that others held a part of its minimum when it asked for that
    last_short_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SliceStats:
    """A slice on one device; times in ns since the daemon started, memory in bytes."""

    share_ratio: float = 0.0  # device time in the last second, 0..1
    share_10s_ratio: float = 0.0
    share_60s_ratio: float = 0.0
    entitlement_milli: int = 0  # due to it now, by the limits, weights and demands of all
    lag_ns: int = 0  # entitlement minus usage; negative: overdrawn
    charged_ns: int = 0  # at the solo gate by the driver's reading of the device
    borrowed_ns: int = 0  # of charged_ns, beyond the guarantee
    throttled_ns: int = 0  # at the closed gate, summed over the threads
    wait_counts: tuple[int, ...] = (0,) * WAIT_BUCKETS  # see wait_ends_ns
    grants: int = 0
    early_releases: int = 0
    overruns: int = 0
    drains: int = 0  # how often its gate was closed on work that was still running
    drain_total_ns: int = 0  # time until that work had completed
    drain_max_ns: int = 0
    launches: int = 0
    mem_held_bytes: int = 0
    mem_used_bytes: int = 0
    mem_unattributed_bytes: int = 0  # of both: by the driver's account alone, not by the ledger's
    mem_peak_bytes: int = 0
    mem_denied: int = 0
    reclaim: Reclaim = Reclaim()
    processes: int = 0
    # of a slice that rotates
    last_work_ns: int = 0  # monotonic: when its launches, outstanding work or calls were last seen to change
    waiting_calls: int = 0  # since it leaves: threads that wait for its memory
    processes_in_driver: int = 0  # of processes: threads of theirs may be in the driver, so it cannot be locked yet
    moves: int = 0  # of its memory, to the host or back
    moved_bytes: int = 0
    # of one whose program moves it itself
    moved_word: int = 0  # the last request that it has answered
    moved_state: int = 0  # where its memory is, VG_MOVED_*
    stays_reason: int = 0  # why it is not where it was asked for, VG_STAYS_*
    movable_bytes: int = 0  # of mem_used_bytes: what leaves the device, or has left it
    # copied between host and device, and what it may copy now of each, in bytes per second; 0 = that is not paced
    copy_to_device_bytes: int = 0
    copy_from_device_bytes: int = 0
    copy_to_device_bytes_per_s: int = 0
    copy_from_device_bytes_per_s: int = 0
    copy_to_device_ns: int | None = None  # see compute_link_ns()
    copy_from_device_ns: int | None = None
    pinned_bytes: int = 0  # of host memory
    pinned_denied: int = 0  # how often programs that are attached were refused more of it
    gate: str = ""  # closed, count, solo; "" when no process is attached
    regime: str = ""  # of the device: one of REGIMES


#: how an arbiter's thread is scheduled, best last, as the kernel has granted it
SCHEDULING = ("normal", "nice", "fifo")


@dataclass(frozen=True, slots=True)
class Standing:
    """How the arbiter's thread of a device stands with the kernel, and how late it has run."""

    scheduling: str = "normal"  # one of SCHEDULING
    steps_down: int = 0  # times that SCHED_FIFO was given back for a second, for too much use of a processor
    locked_bytes: int = 0  # memory that it uses, kept in RAM
    unlocked_bytes: int = 0  # the same, where RLIMIT_MEMLOCK does not allow that
    late: int = 0  # times that it ran more than 0.2 ms later than it had asked for
    late_max_ns: int = 0


class Credit(NamedTuple):
    """What of a device's memory a process may use, used or not: how much it holds now, and has been given in all."""

    held_bytes: int = 0
    granted_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """A process on one device."""

    launches: int = 0
    throttled_ns: int = 0
    busy_ns: int = 0
    mem_held_bytes: int = 0
    mem_used_bytes: int = 0
    mem_peak_bytes: int = 0
    mem_unattributed_bytes: int = 0  # not in mem_used_bytes: what the driver counts beyond the ledger
    mem_denied: int = 0
    contexts: int = 0


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An observation or decision of a device's arbiter; `kind` as in the TraceEvent of the API."""

    time_ns: int  # CLOCK_MONOTONIC
    device_uuid: str
    serial: int  # of the slice, 0: of the device
    kind: str
    value: int = 0  # depends on kind; 0 where `text` is set
    text: str = ""  # open and close: the gate; regime: its name
    lost_count: int = 0  # events lost before this one


ADMINS = -2  # Entry.owner_uid: for admins alone


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the event log. `wall_ns`: since 1970, for display only; order is by sequence."""

    sequence: int
    wall_ns: int
    kind: str
    slice_name: str
    device_uuid: str
    process_id: int
    message: str
    owner_uid: int = ADMINS  # user who is shown it besides admins; model.ANYONE = every user


@dataclass(frozen=True, slots=True)
class Reading:
    """Present usage of a device; None where NVML does not report it."""

    used_bytes: int | None
    utilization_ratio: float | None  # 0..1
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None
    power_limit_milliwatts: int | None = None
    xids: tuple[tuple[int, int], ...] = ()  # (fault, how often) since the daemon started, the latest fault last


@dataclass(frozen=True, slots=True)
class Seen:
    """A process that the driver lists."""

    program: str
    cgroups: tuple[str, ...]
    uid: int = -1  # real uid (of a setuid program its caller's); -1: it has ended, or is not visible from here
    is_stopped: bool = False  # by a signal, or with its cgroup
    start_ticks: int = 0  # clock ticks since boot; 0: as for uid


@dataclass(frozen=True, slots=True)
class DeviceSample:
    uuid: str
    index: int
    name: str
    is_simulated: bool
    memory_total_bytes: int
    memory_used_bytes: int | None
    utilization_ratio: float | None
    allocated_gpus: float  # sum of the minima
    arbiter: Standing = Standing()
    health: Reading = Reading(None, None)


@dataclass(frozen=True, slots=True)
class SliceSample:
    """One slice on one device."""

    slice_name: str
    uuid: str
    index: int
    min_gpus: float
    max_gpus: float
    memory_limit_bytes: int
    now: SliceStats
    owner_uid: int = -1
    queue: str = ""
    service_class: str = ""
    #: of a Kubernetes claim's slice its namespace, pod and container: as many as there is only one of
    pod_labels: tuple[str, ...] = ()
    is_resident: bool = True  # its memory is on the device


#: upper ends of the histogram of jobs' waits, in seconds: from a free device to days of a full queue
JOB_WAIT_ENDS_S = (1, 10, 60, 300, 1_800, 3_600, 14_400, 43_200, 86_400, 259_200)


@dataclass(frozen=True, slots=True)
class JobWaits:
    """Times from submission to the first start: jobs per bucket of JOB_WAIT_ENDS_S, the last one for longer waits."""

    counts: tuple[int, ...] = (0,) * (len(JOB_WAIT_ENDS_S) + 1)
    total_ns: int = 0

    def plus(self, wait_ns: int) -> JobWaits:
        bucket = bisect.bisect_left(JOB_WAIT_ENDS_S, wait_ns / 1e9)
        counts = tuple(count + (index == bucket) for index, count in enumerate(self.counts))
        return JobWaits(counts, self.total_ns + wait_ns)


@dataclass(frozen=True, slots=True)
class QueueSample:
    name: str
    used_gpus: float  # by its jobs and by slices made otherwise; without its children's
    guarantee_gpus: float
    limit_gpus: float | None
    jobs: tuple[tuple[str, int], ...] = ()  # jobs that have not ended, by state
    ended_jobs: tuple[tuple[str, int], ...] = ()  # the others, since the daemon started
    waits: JobWaits = JobWaits()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a scrape shows, taken at one moment."""

    node: str = ""
    version: str = ""
    devices: tuple[DeviceSample, ...] = ()
    slices: tuple[SliceSample, ...] = ()
    slice_count: int = 0
    client_count: int = 0
    containers: tuple[tuple[str, int], ...] = ()  # containers by slice, of slices that any uses
    queues: tuple[QueueSample, ...] = ()
