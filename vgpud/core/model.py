"""What the daemon knows: devices, slices, processes. All of it frozen but State, which only machine.step() changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from vgpud.core.units import MILLI_PER_DEVICE

ANYONE = -1  # Slice.owner_uid: every user may attach
UID_MAX = (1 << 32) - 1
BATCH = "batch"
LATENCY = "latency"  # its guarantee is served at once, before others'
CLASSES = (BATCH, LATENCY)
#: of borrowed time, of a slice
WEIGHT_MAX, PRIORITY_MAX = 10_000, 1_000
#: slices of a node: the arbiters hold this many (shim/arbiter/arbiter.h)
SLICES_MAX = 128
#: devices that a node publishes to Kubernetes' scheduler, fixed parts of GPUs among them
PUBLISHED_MAX = 1024
DEFAULT_QUEUE = "default"
NO_LIMIT = 1 << 62
#: Slice.suspended; the last two while the driver is at it
PAUSED, EVICTED, EVICTING, RESTORING = "paused", "evicted", "evicting", "restoring"
#: of these: its memory is on the host, or on its way
EVICTION = (EVICTING, EVICTED, RESTORING)
#: Slice.residency, "" = resident; the first and the last while the driver is at it (residency.py)
LEAVING, AWAY, COMING = "leaving", "away", "coming"
#: how memory leaves a device: the driver moves it, or the program's hook, or whichever can
BY_CHECKPOINT, BY_HOOK, BY_EITHER = "checkpoint", "hook", "auto"
MEMORY_MOVES = (BY_EITHER, BY_CHECKPOINT, BY_HOOK)
#: what becomes of slices that are made otherwise than for jobs: counted, held to their queue's limit, or refused
ALLOW, QUOTA, DENY = "allow", "quota", "deny"
DIRECTS = (ALLOW, QUOTA, DENY)
#: indices of MIG instances begin here, those of GPUs are below
INSTANCES_FROM = 100
#: in Policy.kubernetes_devices
ALL_DEVICES = "all"


class Reason(Enum):
    """Why something was refused; the value is the machine-readable name that API clients see."""

    INVALID = "INVALID"
    NOT_FOUND = "NOT_FOUND"
    EXISTS = "EXISTS"
    NO_CAPACITY = "NO_CAPACITY"
    PRECONDITION = "PRECONDITION"
    DENIED = "DENIED"
    UNAUTHENTICATED = "UNAUTHENTICATED"  # the caller's certificate or token is not valid
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class Denied:
    """A refusal: an expected outcome, so a value. `message` is one line naming the value and the fix."""

    reason: Reason
    message: str
    field: str = ""  # which field of the request is wrong
    subject: str = ""  # the device or slice that is full


@dataclass(frozen=True, slots=True)
class Device:
    """One device as NVML lists it, with what sharing it costs."""

    uuid: str
    index: int
    name: str
    pci_bus_id: str
    memory_bytes: int  # what tenants can have: without the driver's own reserve
    sm_count: int
    is_simulated: bool
    context_bytes: int  # what one context of one process costs
    granule_bytes: int
    link_bytes_per_s: int = 0  # between host and device, in each direction; 0 = not known
    compute_capability: str = ""  # CUDA's, "9.0"; "" = not known
    #: lowest index among the devices that NVLink joins with it, also through others; None: it joins none here
    nvlink_group: int | None = None
    #: of a MIG instance: the GPU that it is a part of, and its size as NVIDIA names it ("1g.18gb"); "" = it is a GPU
    parent_uuid: str = ""
    profile: str = ""

    @property
    def names(self) -> frozenset[str]:
        """What the site's configuration may call it: UUID or index, of a MIG instance its GPU's as well."""
        own = {self.uuid, str(self.index)}
        return frozenset(own | {self.parent_uuid, gpu_of(self.index)[0]} if self.profile else own)


def instance_index(gpu: int, number: int) -> int:
    """The index of a MIG instance, from which both can be read: 203 is number 3 of GPU 1. Raises ValueError for a
    number that would be another GPU's."""
    if number >= INSTANCES_FROM:
        raise ValueError(f"MIG instance {number} of GPU {gpu}: a GPU has at most {INSTANCES_FROM} that can be named")
    return INSTANCES_FROM * (gpu + 1) + number


def gpu_of(index: int) -> tuple[str, str]:
    """(index of the GPU, number of the MIG instance on it) as texts; the number is "" for a GPU."""
    gpu, number = divmod(index, INSTANCES_FROM)
    return (str(gpu - 1), str(number)) if gpu else (str(number), "")


@dataclass(frozen=True, slots=True)
class Spec:
    """What was asked for; None takes the default (docs/cli.md). Totals over the slice's devices."""

    gpus_milli: int
    min_milli: int | None = None
    max_milli: int | None = None
    mem_min_bytes: int | None = None
    mem_max_bytes: int | None = None
    weight: int = 0  # of borrowed time; 0 = by the minimum
    priority: int = 0  # borrowed time goes to the highest first
    device_uuids: tuple[str, ...] = ()
    service_class: str = BATCH
    spread: int = 0  # number of devices to divide it over equally; 0 = as few as possible
    mem_swap: bool = False  # its memory may be moved to the host while others' is on the device (rotation.py)
    idle_after_ns: int | None = None  # without work for so long it gives its memory back; 0 = never, None = the site's
    copy_min_milli: int = 0  # of each device's link to the host, in each direction
    copy_max_milli: int = 0  # 0 = all of it

    @property
    def pieces(self) -> list[int]:
        """The parts, one per device: 2500 is [1000, 1000, 500], over four devices [625, 625, 625, 625]."""
        if self.spread:
            part, rest = divmod(self.gpus_milli, self.spread)
            return [part + 1] * rest + [part] * (self.spread - rest)
        whole, rest = divmod(self.gpus_milli, MILLI_PER_DEVICE)
        return [MILLI_PER_DEVICE] * whole + ([rest] if rest else [])


@dataclass(frozen=True, slots=True)
class Share:
    """The four resolved numbers on one device."""

    device_uuid: str
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int


class Origin(Protocol):
    """For whom a slice is made: origins.py has them all, here is what is true of most."""

    __slots__ = ()

    def slice_name(self) -> str: ...

    @property
    def ephemeral(self) -> bool:
        """Whether the slice ends with its last program or container."""
        return False

    @property
    def cdi_device(self) -> bool:
        """Whether the slice has a CDI device."""
        return False

    @property
    def queue_job_id(self) -> int:
        """The job of the queue that the slice is for, and that counts it; 0: of none."""
        return 0

    @property
    def is_from_kubernetes(self) -> bool:
        """Whether Kubernetes has chosen its devices, and counts it."""
        return False

    def name_pod(self) -> tuple[str, str]:
        """(namespace, pod) that the slice is counted for: no pod ("") when it has several, or one whose name is not
        known; neither when it is no claim's."""
        return "", ""

    def find_reserved_shares(self, shares: tuple[Share, ...]) -> tuple[Share, ...]:
        """What is kept free for the slice, which has these shares now."""
        return shares

    def refuse_name(self) -> Denied | None:
        """Why the slice cannot have its name, or None."""
        return None

    def refuse_change(self, by_job_id: int) -> Denied | None:
        """Why the slice is not resized at the request of a user (0), or by the queue for this job; None: it may be."""
        return None

    def refuse_suspension(self, by_job_id: int) -> Denied | None:
        """The same for pausing, evicting and resuming it."""
        return None

    def refuse_end(self, by_job_id: int) -> Denied | None:
        """The same for removing it."""
        return None

    def refuse_shares(self, old_shares: Iterable[Share], new_shares: Iterable[Share]) -> Denied | None:
        """Why the slice does not get these shares for those that it has, or None."""
        return None


@dataclass(frozen=True, slots=True)
class Slice:
    origin: Origin
    uid: str  # unique for ever
    serial: int  # the arbiters' number for it, unique while this daemon lives
    spec: Spec
    shares: tuple[Share, ...]  # by device index; () while it is pending
    owner_uid: int
    created_wall_ns: int  # display only
    revision: int = 1
    queue: str = DEFAULT_QUEUE  # queue whose quota it counts against
    suspended: str = ""  # PAUSED: its gates are shut; EVICTED: its device memory is on the host, too
    residency: str = ""  # LEAVING, AWAY, COMING: the daemon moves its memory by itself; "": it is on the device
    asleep_wall_ns: int = 0  # display only: since when it is away because it was idle; 0: it is not
    away_wall_ns: int = 0  # display only: since when its memory is on the host; 0: it is not
    name: str = field(init=False)  # its origin's

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.origin.slice_name())

    @property
    def pending(self) -> bool:
        """Whether it has no device yet: see pending.py."""
        return not self.shares

    def share(self, device_uuid: str) -> Share | None:
        return next((s for s in self.shares if s.device_uuid == device_uuid), None)

    def find_reserved_share(self, device_uuid: str) -> Share | None:
        """The share whose minima are kept free for it."""
        kept = self.origin.find_reserved_shares(self.shares)
        return next((s for s in kept if s.device_uuid == device_uuid), None)

    @property
    def rotates(self) -> bool:
        """Whether the daemon may move its memory to the host and back by itself, so that its work must be counted."""
        return self.spec.mem_swap or bool(self.spec.idle_after_ns) or bool(self.residency)

    @property
    def keeps_time(self) -> bool:
        """Whether its guaranteed time stays reserved."""
        return self.suspended in ("", RESTORING)

    @property
    def keeps_memory(self) -> bool:
        return self.suspended != EVICTED


@dataclass(frozen=True, slots=True)
class Process:
    """An attached process. A holder keeps its slice alive and has no pages (`vgpu run` while its command lives)."""

    process_id: int
    slice_name: str
    pid: int
    uid: int
    program: str
    attached_wall_ns: int
    is_resumed: bool
    holder: bool = False
    container_id: str = ""  # container whose cgroup it is in
    account: str = "uid 0"  # user who is charged its places, see bounds.account()
    #: when it closed its connection, monotonic; it lives on and its memory stays charged. 0: it is attached
    disconnected_ns: int = 0


@dataclass(frozen=True, slots=True)
class Container:
    """A container that uses a slice: known from its creation by the engine on, started when its first process exists.

    `pid` stands for it: the low-level runtime until it has started, its first process from then on. Pids are reused, so
    the start time belongs to it.
    """

    container_id: str
    slice_name: str
    own_slice: bool  # made for it: ends with it
    pid: int  # host pid
    pid_start: int  # start time of that process in clock ticks since boot (proc(5), stat field 22)
    cgroup: str  # by which its programs are known; "" until it has started, or when it has none of its own
    created_wall_ns: int  # display only
    started: bool = False
    engine_name: str = ""  # for people; "" = not known
    engine_dir: str = ""  # where docker keeps its restart policy and state; "" = another engine


@dataclass(frozen=True, slots=True)
class Restart:
    """A container that its engine starts again. `used_ns`: for how long its slice was kept for it, not counting now."""

    used_ns: int
    since_ns: int  # when it ended, or was created again
    is_away: bool


@dataclass(frozen=True, slots=True)
class Asker:
    """The user on whose behalf something is requested. `gids`: the first is the primary group."""

    uid: int
    gids: tuple[int, ...] = ()
    admin: bool = False


ROOT = Asker(0, admin=True)


@dataclass(frozen=True, slots=True)
class Quota:
    """A queue, as far as slices that are made otherwise than by it are concerned."""

    name: str
    parent: str = ""
    limit_milli: int = NO_LIMIT
    members: tuple[str, ...] = ()  # uid:1000, gid:1000


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing new is placed on this device until an operator undrains it."""

    device_uuid: str
    reason: str
    by_fault: bool = False  # of the device, as its driver reports them


@dataclass(frozen=True, slots=True)
class Taken:
    """What others than slices have of a device: all of it, or so much memory. `is_lost`: it is not there."""

    device_uuid: str
    why: str
    is_whole_device: bool = True
    memory_bytes: int = 0
    is_lost: bool = False

    def __str__(self) -> str:
        return self.why if self.is_lost else f"taken by {self.why}"


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """What the site has decided; every limit of the core is here."""

    default_max: str = "same"  # or "device": how far a slice without a maximum may borrow
    slices_max: int = 1024
    slices_per_user_max: int = 1024  # of a user who is no admin, slices of jobs not counted
    processes_per_slice_max: int = 256
    processes_per_user_max: int = 512  # on one device
    processes_per_device_max: int = 1024  # capacity of an arbiter
    attach_descriptors_max: int = 1 << 20  # of the daemon, for programs' connections
    containers_max: int = 1024
    name_bytes_max: int = 40
    daemon_uid: int = 0
    grace_ns: int = 60_000_000_000  # an ephemeral slice to which no process attaches ends after this
    restart_grace_ns: int = 60_000_000_000  # the slice of a container that its engine starts again is kept for this
    request_memory_ns: int = 600_000_000_000  # how long a request_id is known
    requests_max: int = 4096
    #: what is done (one of enforce.VERBS) about a program that uses a device and is attached to no slice, and about one
    #: through which its slice uses more than its limit, past the ledger
    on_stranger: str = "log"
    on_excess: str = "log"
    direct: str = ALLOW  # one of DIRECTS
    idle_after_ns: int = 0  # for slices that do not say; 0 = never
    swap_bytes: int = NO_LIMIT  # RAM of the host for the memory of slices with mem_swap
    swap_fault: str = ""  # why no slice's memory can be moved to the host; "" = it can
    kubernetes_devices: tuple[str, ...] = ()  # UUIDs or indices, or ALL_DEVICES: only claims are placed there

    def of_kubernetes(self, device: Device) -> bool:
        """Whether only claims of Kubernetes are placed on a device."""
        named = self.kubernetes_devices
        return bool(named) and not (device.names | {ALL_DEVICES}).isdisjoint(named)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The answer that a repeated request_id gets."""

    fingerprint: str  # of the request's content: another request under the same id is refused
    answer: Slice | None  # None: a deletion
    until_ns: int


@dataclass(slots=True)
class State:
    """Everything that step() reads and writes. Never change it elsewhere."""

    policy: SiteLimits = field(default_factory=SiteLimits)
    devices: dict[str, Device] = field(default_factory=dict)  # by UUID, in index order
    slices: dict[str, Slice] = field(default_factory=dict)  # by name
    processes: dict[int, Process] = field(default_factory=dict)  # by process_id
    containers: dict[str, Container] = field(default_factory=dict)  # by the engine's id
    #: ephemeral slices to which no process has attached yet -> when they end
    grace_ns: dict[str, int] = field(default_factory=dict)
    #: containers that their engine starts again, or has started again
    restarts: dict[str, Restart] = field(default_factory=dict)
    #: slices whose devices are missing or have become smaller: kept, but without reservation, arbiter or socket
    waiting: set[str] = field(default_factory=set)
    requests: OrderedDict[str, Remembered] = field(default_factory=OrderedDict)  # oldest first
    quotas: dict[str, Quota] = field(default_factory=dict)  # by the queue's name
    drains: dict[str, Drain] = field(default_factory=dict)  # by the device's UUID, as are:
    taken_devices: dict[str, Taken] = field(default_factory=dict)
    reservations: dict[str, tuple[str, str]] = field(default_factory=dict)  # (queue, what it is), while in force
    next_serial: int = 1

    def copy(self) -> State:
        """A draft: what it holds is frozen, so only the tables are copied."""
        return replace(
            self,
            devices=dict(self.devices),
            slices=dict(self.slices),
            processes=dict(self.processes),
            containers=dict(self.containers),
            grace_ns=dict(self.grace_ns),
            restarts=dict(self.restarts),
            waiting=set(self.waiting),
            requests=OrderedDict(self.requests),
            quotas=dict(self.quotas),
            drains=dict(self.drains),
            taken_devices=dict(self.taken_devices),
            reservations=dict(self.reservations),
        )

    def closed(self, device_uuid: str, *, claim: bool = False, tolerates_drain: bool = False) -> str:
        """Why nothing new is placed on a device: "drained: ...", "lost: ...", "taken by ...", "given to Kubernetes...";
        "" when it is offered. claim: what is placed is that of a claim of Kubernetes; tolerates_drain: also where it is
        drained."""
        drain, taken = self.drains.get(device_uuid), self.taken_devices.get(device_uuid)
        if drain and not tolerates_drain:
            return f"drained: {drain.reason}"
        if taken and taken.is_whole_device:
            return str(taken)
        given = self.of_kubernetes(device_uuid)
        if given and not claim:
            return "given to Kubernetes (devices.kubernetes)"
        return "not given to Kubernetes (devices.kubernetes)" if claim and not given else ""

    def seen_by(self, queue: str) -> State:
        """The state as a slice of this queue finds it: devices that are reserved for others are drained."""
        quota = self.quotas.get(queue)
        own = {queue, quota.parent if quota else ""} - {""}
        others = {uuid: what for uuid, (whose, what) in self.reservations.items() if whose not in own}
        return replace(self, drains={**{uuid: Drain(uuid, what) for uuid, what in others.items()}, **self.drains})

    def of_kubernetes(self, device_uuid: str) -> bool:
        """Whether only claims of Kubernetes are placed on a device."""
        device = self.devices.get(device_uuid)
        return device is not None and self.policy.of_kubernetes(device)

    def foreign_bytes(self, device_uuid: str) -> int:
        """Memory that others than slices hold of a device."""
        taken = self.taken_devices.get(device_uuid)
        return taken.memory_bytes if taken else 0

    def reserved(self, device_uuid: str, excluded_slice: str = "", *, mem_swap: bool = False) -> tuple[int, int]:
        """(milli, bytes) of all minima on a device, without `excluded_slice`, waiting slices, and what suspended
        slices gave up. Of the slices with mem_swap, which have the memory in turn, the largest counts; mem_swap: none,
        since it is for another one of these."""
        counted = [s for s in self.slices.values() if s.name != excluded_slice and s.name not in self.waiting]
        held = [(made, share) for made in counted if (share := made.find_reserved_share(device_uuid))]
        milli = sum(share.min_milli for made, share in held if made.keeps_time)
        kept = [(made.spec.mem_swap, share.mem_min_bytes) for made, share in held if made.keeps_memory]
        in_turn = 0 if mem_swap else max((size for swaps, size in kept if swaps), default=0)
        return milli, in_turn + sum(size for swaps, size in kept if not swaps)

    def reserved_link_milli(self, device_uuid: str, excluded_slice: str = "") -> int:
        """All minima of a device's link to the host, without `excluded_slice` and waiting slices."""
        counted = [s for s in self.slices.values() if s.name != excluded_slice and s.name not in self.waiting]
        return sum(s.spec.copy_min_milli for s in counted if s.share(device_uuid))

    def processes_of(self, slice_name: str, *, holders: bool = False) -> list[Process]:
        """The processes of a slice; with `holders` also those that only keep it open."""
        return [p for p in self.processes.values() if p.slice_name == slice_name and (holders or not p.holder)]

    def containers_of(self, slice_name: str) -> list[Container]:
        """The containers that use a slice, oldest first."""
        return [c for c in self.containers.values() if c.slice_name == slice_name]
