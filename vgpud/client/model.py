"""What the client gives and takes: one dataclass for each message of the API, with its comments.

Made from vgpud.proto by tools/api.py: change that one, and run `make gen`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

#: What tenants do while no daemon runs. Empty: not known.
TenantMode = Literal["", "coast", "open", "closed"]

#: How the kernel schedules a thread. Empty: not known.
Scheduling = Literal["", "fifo", "nice", "normal"]

#: What the gate of a slice lets pass on a device. Empty: no process is attached.
Gate = Literal["", "closed", "count", "solo"]

#: How a device is divided. Empty: not known.
Regime = Literal["", "idle", "solo", "open", "throttled", "arbitrated"]

#: Whose guarantee comes first. Empty: batch.
ServiceClass = Literal["", "batch", "latency"]

#: Whether the memory of a slice is on its device. The daemon moves it; calls of its programs wait meanwhile. Empty:
#: it is on the device.
Residency = Literal["", "leaving", "away", "coming"]

#: Whether a slice is suspended. Empty: it is not suspended.
Suspension = Literal["", "paused", "evicting", "evicted", "restoring"]

#: What an arbiter saw or did. Empty: not known.
TraceEventKind = Literal[
    "", "open", "close", "drained", "overlap", "waits", "outstanding", "launches", "charged", "regime", "late"
]

#: An event of a job that its user can be notified of. Empty: none.
NotificationEvent = Literal["", "start", "end", "failure"]

#: The state of a job. Empty: not known.
JobState = Literal["", "pending", "held", "running", "suspended", "completed", "failed", "cancelled", "timed_out"]

#: What a fact is about. Empty: not known.
FactKind = Literal[
    "", "queue", "help", "anomaly", "device", "neighbour", "size", "resize", "prediction", "estimate", "rotation"
]

#: What usage is summed by. Empty: by user.
UsageBy = Literal["", "job", "user", "queue", "namespace", "pod"]

#: What a history is about. Empty: not known.
HistoryKind = Literal["", "device", "slice", "job", "queue", "user", "node"]


@dataclass(frozen=True, kw_only=True)
class Device:
    """A physical (or simulated) device: a GPU, or a MIG instance of one."""

    #: name of the node
    node: str = ""
    #: the driver's number for it; for a MIG instance 100 x (1 + number of its GPU) + its own number: 203 is 3 on GPU
    #: 1
    index: int = 0
    #: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, of a MIG instance MIG-...
    uuid: str = ""
    #: the model's name
    name: str = ""
    #: domain:bus:device.function
    pci_bus_id: str = ""
    #: memory of the whole device
    mem_total_bytes: int = 0
    #: memory that all programs use, as the driver reports it
    mem_used_bytes: int = 0
    #: sum of the slices' minima
    mem_reserved_bytes: int = 0
    #: sum of the slices' minima
    reserved_milli: int = 0
    #: streaming multiprocessors
    sm_count: int = 0
    #: not a real device
    simulated: bool = False
    #: memory that one context of one process takes
    context_bytes: int = 0
    #: allocations are charged in multiples of this
    granule_bytes: int = 0
    #: 0..1; unset for a MIG instance: NVML does not report it
    utilization_ratio: float | None = None
    #: reason why nothing new is placed here; empty = not drained
    drained: str = ""
    #: drained by an Xid of the device, not by an admin
    drained_by_fault: bool = False
    #: other users of the device: MIG, exclusive mode, MPS, programs outside slices, or "lost: ..." (the device has
    #: gone); empty = none
    taken_by: str = ""
    #: new slices and jobs are placed here, except in memory that programs outside slices hold
    offered: bool = False
    #: given to Kubernetes (kubernetes_devices): only claims are placed here
    kubernetes: bool = False
    #: unset = NVML does not report it; the same holds for the next two fields
    temperature_celsius: int | None = None
    #: drawn now
    power_milliwatts: int | None = None
    #: limit in force; unset = not known
    power_limit_milliwatts: int | None = None
    #: faults that the driver has reported since the daemon started
    xids: int = 0
    #: the latest of them; unset = none
    last_xid: int | None = None
    #: CUDA's, "9.0"; empty = not known
    compute_capability: str = ""
    #: the lowest index in this device's NVLink group, so it is the same for all devices of the group. A group is all
    #: devices that NVLink joins, directly or through others. Unset = no device of the node is linked, or NVML does
    #: not report it
    nvlink_group: int | None = None
    #: UUID of the GPU that a MIG instance is a part of; empty = the device is a GPU
    parent_uuid: str = ""
    #: size of a MIG instance as NVIDIA names it, "1g.18gb"; empty = the device is a GPU
    profile: str = ""
    #: rate of its link to the host, in each direction; 0 = not known
    link_bytes_per_s: int = 0


@dataclass(frozen=True, kw_only=True)
class Node:
    """The machine that the daemon runs on."""

    #: name of the node in every response
    name: str = ""
    #: version of vgpud
    version: str = ""
    #: version of NVIDIA's driver
    driver_version: str = ""
    #: the devices are simulated
    simulated: bool = False
    #: version of the attach messages and shared pages
    abi_version: int = 0
    #: what tenants do while no daemon runs
    mode: TenantMode = ""
    #: start of this daemon
    start_time: datetime | None = None
    #: directory of its sockets
    runtime_dir: str = ""
    #: directory of the simulated devices, empty with real ones: VGPU_SIM_DIR of programs on them
    sim_dir: str = ""
    #: the libcuda in use, a path: VGPU_DRIVER of programs in slices
    driver: str = ""
    #: the libnvidia-ml in use: VGPU_NVML
    nvml: str = ""
    #: socket that vgpu-runtime uses for containers
    runtime_socket: str = ""
    #: directory of vgpud's CDI files, empty = none are written
    cdi_dir: str = ""
    #: the daemon is not in the host's pid namespace: strangers are not detected
    unwatched: bool = False
    #: one per device
    arbiters: tuple[ArbiterThread, ...] = ()
    #: the driver's memory limits stand behind the ledger, on the cgroups of slices
    memory_fence: bool = False
    #: why they do not, or which slice has none; empty = all is well
    memory_fence_problem: str = ""
    #: devices that are to have other time slices than the driver's default ones
    time_slices: tuple[TimeSlice, ...] = ()
    #: how memory leaves a device: "checkpoint" or "hook", as Rotation.moved_by
    memory_moves: str = ""
    #: why it does not; empty = it does
    memory_moves_problem: str = ""


@dataclass(frozen=True, kw_only=True)
class TimeSlice:
    """The length of a device's time slices, as the driver's own scheduler has them."""

    #: UUID of the device
    device_uuid: str = ""
    #: "short", "medium" or "long", as configured
    length: str = ""
    #: why it has the default ones; empty = it has these
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class ArbiterThread:
    """The thread that opens and closes the gates of a device, and what the kernel has granted it."""

    #: UUID of the device
    device_uuid: str = ""
    #: how the kernel schedules it
    scheduling: Scheduling = ""
    #: memory that it uses, kept in RAM
    locked_bytes: int = 0
    #: memory that it uses, not kept in RAM because RLIMIT_MEMLOCK does not allow that
    unlocked_bytes: int = 0
    #: times that it ran more than 0.2 ms later than it had asked for
    late: int = 0
    #: the longest of these delays
    late_max_ns: int = 0
    #: times that it gave back its real-time class for a second because it had used too much of a processor
    steps_down: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryReclaim:
    """The last request to a slice to give back memory that it uses beyond its minimum."""

    #: that all its programs together are to give back
    asked_bytes: int = 0
    #: of it: what has not come back yet; 0 = the request has ended
    remaining_bytes: int = 0
    #: what came back, once the request has ended
    returned_bytes: int = 0
    #: since it was made, or until it ended
    duration_ns: int = 0
    #: its time was up before all had come back
    late: bool = False


@dataclass(frozen=True, kw_only=True)
class SliceDevice:
    """The four resolved numbers on one device."""

    #: name of the node
    node: str = ""
    #: UUID of the device
    device_uuid: str = ""
    #: index of the device on its node
    device_index: int = 0
    #: guaranteed SM time
    min_milli: int = 0
    #: limit of SM time
    max_milli: int = 0
    #: guaranteed memory
    mem_min_bytes: int = 0
    #: limit of memory
    mem_max_bytes: int = 0
    #: memory in use at present
    mem_used_bytes: int = 0
    #: highest use since creation
    mem_peak_bytes: int = 0
    #: share of device time received in the last second, 0..1
    share_ratio: float = 0.0
    #: device time since creation
    charged_ns: int = 0
    #: time that threads waited at the closed gate, summed
    throttled_ns: int = 0
    #: times that its gate was opened
    grants: int = 0
    #: leases whose holder had not drained overrun_ns after the end
    overruns: int = 0
    #: what the gate lets pass at present
    gate: Gate = ""
    #: how the device is divided at present
    regime: Regime = ""
    #: from the limits, weights and present demands of all slices
    entitlement_milli: int = 0
    #: share_ratio over the last 10 seconds
    share_10s_ratio: float = 0.0
    #: share_ratio over the last 60 seconds
    share_60s_ratio: float = 0.0
    #: entitlement minus usage, in device time; negative: overdrawn
    lag_ns: int = 0
    #: part of charged_ns beyond the guarantee
    borrowed_ns: int = 0
    #: leases returned before their end
    early_releases: int = 0
    #: times that its gate was closed while its work was running
    drains: int = 0
    #: time until that work had completed, summed
    drain_total_ns: int = 0
    #: the longest of these times
    drain_max_ns: int = 0
    #: counts of waits at the closed gate: bucket i has those below 2^i * 16 us, the last one all longer ones
    wait_counts: tuple[int, ...] = ()
    #: launches of kernels and graphs since creation
    launches: int = 0
    #: allocations refused
    mem_denied: int = 0
    #: part of mem_used_bytes that the driver counts beyond the ledger
    mem_unattributed_bytes: int = 0
    #: copied from the host to the device since creation
    copy_to_device_bytes: int = 0
    #: copied from the device to the host since creation
    copy_from_device_bytes: int = 0
    #: what it may copy to the device now; 0 = that is not paced
    copy_to_device_bytes_per_s: int = 0
    #: what it may copy from the device now; 0 = that is not paced
    copy_from_device_bytes_per_s: int = 0
    #: host memory that its programs have pinned
    pinned_bytes: int = 0
    #: how often its present programs were refused more of it (pinned_bytes_max)
    pinned_denied: int = 0
    #: how long the link carries copy_to_device_bytes at its rate, which is computed and not measured; unset = the
    #: rate is not known
    copy_to_device_ns: int | None = None
    #: how long the link carries copy_from_device_bytes at its rate, which is computed and not measured; unset = the
    #: rate is not known
    copy_from_device_ns: int | None = None
    #: the last request to give memory back; unset = there was none
    reclaim: MemoryReclaim | None = None


@dataclass(frozen=True, kw_only=True)
class SliceSpec:
    """A request for capacity. Unset optional fields take the defaults: minimum = maximum = gpus_milli, and the
    same part of the memory."""

    #: 500 = half a device, 2500 = two and a half
    gpus_milli: int = 0
    #: guarantee in total; unset = gpus_milli
    min_milli: int | None = None
    #: limit in total; unset = by the site's default_max
    max_milli: int | None = None
    #: guaranteed memory, total over the devices; unset = the same part as gpus_milli of a device
    mem_min_bytes: int | None = None
    #: limit of memory, total over the devices; unset = the same part as max_milli of a device
    mem_max_bytes: int | None = None
    #: weight among those that borrow time; 0 = by minimum
    weight: int = 0
    #: borrowed time goes to the highest first, by weight among equals; guarantees are untouched
    priority: int = 0
    #: only these devices (or indices); empty = the daemon chooses
    device_uuids: tuple[str, ...] = ()
    #: latency: its guarantee is served first
    service_class: ServiceClass = ""
    #: divide equally over this many devices; 0 = whole devices and the rest: 2500 is 1000, 1000, 500
    spread: int = 0
    #: its memory may be moved to the host while that of others is on the device: they take turns
    mem_swap: bool = False
    #: without work for so long it gives its memory back; 0 = never, unset = the site's
    idle_after_ns: int | None = None
    #: guaranteed part of each device's link to the host, in each direction: 300 = .3
    copy_min_milli: int = 0
    #: limit of it; 0 = the whole link
    copy_max_milli: int = 0


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """What it costs that the memory of slices on one device is together more than the device has."""

    #: memory of all slices that take turns, together
    claims_bytes: int = 0
    #: what the device has for them
    capacity_bytes: int = 0
    #: how long the longest turn lasts; 0 = all fit, and none takes turns
    quantum_ns: int = 0
    #: part of the time that is lost in moves, at most
    lost_ratio: float = 0.0
    #: RAM of the host that they need
    host_bytes: int = 0
    #: rate of this slice's moves off the device; before one that says it, an assumption
    bytes_per_second: int = 0
    #: moves of this slice since the daemon started
    moves: int = 0
    #: bytes of these moves
    moved_bytes: int = 0
    #: who moves its memory: "checkpoint" (the driver) or "hook" (the library in its program)
    moved_by: str = ""
    #: what stays on the device while it is away: nothing with the driver
    stays_bytes: int = 0
    #: threads of its programs that wait for its memory now
    waiting_calls: int = 0


@dataclass(frozen=True, kw_only=True)
class Slice:
    """A guaranteed minimum and a maximum of SM time and of memory, on one device or several."""

    #: name of the node
    node: str = ""
    #: unique on the node
    name: str = ""
    #: never reused, unlike the name
    uid: str = ""
    #: the request
    spec: SliceSpec | None = None
    #: devices with limits and use; none while it is pending
    devices: tuple[SliceDevice, ...] = ()
    #: ends with its last process (created by `vgpu run`)
    ephemeral: bool = False
    #: user who may attach besides root; unset = every user
    owner_uid: int | None = None
    #: path of the socket that its programs attach to
    attach_socket: str = ""
    #: number of attached processes
    processes: int = 0
    #: time of creation, by the node's clock
    create_time: datetime | None = None
    #: grows with every change
    revision: int = 0
    #: containers that use this slice
    containers: tuple[Container, ...] = ()
    #: vgpu.dev/gpu=NAME: one container may use it by --device; empty = none
    cdi_device: str = ""
    #: queue whose quota it counts against
    queue: str = ""
    #: job that it was created for; unset = none
    job_id: int | None = None
    #: whether it is suspended, and how
    suspended: Suspension = ""
    #: ResourceClaim of Kubernetes that it was created for; unset = none
    claim: Claim | None = None
    #: name of the job; empty = none
    job_name: str = ""
    #: whether its memory is on the device
    residency: Residency = ""
    #: since when it is away because it was idle; unset = it is not
    asleep_time: datetime | None = None
    #: what its turns cost; unset = its memory is never moved
    rotation: Rotation | None = None
    #: since when its memory is on the host; unset = it is not
    away_time: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A ResourceClaim of Kubernetes, or devices of kubelet's device plugin that were allocated to a container.
    Its slice is named k-UID and ends with it."""

    #: UID of the claim in Kubernetes
    uid: str = ""
    #: namespace of the claim
    namespace: str = ""
    #: name of the claim
    name: str = ""
    #: pods whose containers may use the slice
    pod_uids: tuple[str, ...] = ()
    #: what the scheduler allocated: the minima are never raised above it
    granted: tuple[ClaimShare, ...] = ()
    #: id of the boot (random/boot_id) during which it was prepared last; output only
    boot_id: str = ""
    #: Ids of kubelet's device plugin; empty for a ResourceClaim. The slice belongs to the first pod whose container
    #: uses it. When ids are allocated again, slices with these ids end, except those that no pod has used yet
    device_ids: tuple[str, ...] = ()
    #: names of these pods, as far as they are known; their order has nothing to do with that of pod_uids
    pod_names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClaimShare:
    """What a claim has on one device."""

    #: UUID of the device
    device_uuid: str = ""
    #: guaranteed SM time
    min_milli: int = 0
    #: limit of SM time
    max_milli: int = 0
    #: guaranteed memory
    mem_min_bytes: int = 0
    #: limit of memory
    mem_max_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that uses a slice."""

    #: name of the node
    node: str = ""
    #: the engine's id
    id: str = ""
    #: host pid of its first process; unset while it is being created
    pid: int | None = None
    #: identifies its processes; empty while it is being created
    cgroup: str = ""
    #: time of creation, by the node's clock
    create_time: datetime | None = None
    #: name as the engine shows it, POD/NAME for a container of a pod; empty = not known
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process that is attached to a slice."""

    #: name of the node
    node: str = ""
    #: slice that it is attached to
    slice: str = ""
    #: the daemon's number for it
    process_id: int = 0
    #: host pid
    pid: int = 0
    #: uid of its user
    uid: int = 0
    #: name of its executable, as it says itself
    program: str = ""
    #: time of the attach, by the node's clock
    attach_time: datetime | None = None
    #: attached again after a restart of the daemon
    resumed: bool = False
    #: use of each device
    devices: tuple[ProcessDevice, ...] = ()
    #: id of the container that it runs in, empty outside
    container: str = ""
    #: name of that container; empty where it is not known
    container_name: str = ""


@dataclass(frozen=True, kw_only=True)
class ProcessDevice:
    """A process's use of one device."""

    #: name of the node
    node: str = ""
    #: UUID of the device
    device_uuid: str = ""
    #: index of the device on its node
    device_index: int = 0
    #: memory in use at present, by the ledger
    mem_used_bytes: int = 0
    #: highest use
    mem_peak_bytes: int = 0
    #: credit that it holds, used or not
    mem_held_bytes: int = 0
    #: launches of kernels and graphs
    launches: int = 0
    #: time that its threads waited at the closed gate, summed
    throttled_ns: int = 0
    #: allocations refused
    denied: int = 0
    #: not in mem_used_bytes: memory that the driver counts beyond the ledger
    mem_unattributed_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Event:
    """An entry of the event log."""

    #: name of the node
    node: str = ""
    #: grows with every event of the node
    sequence: int = 0
    #: time of creation, by the node's clock
    create_time: datetime | None = None
    #: slice.created, process.attached, container.started, attach.refused, device.stranger, ...
    kind: str = ""
    #: slice that it is about; empty = none
    slice: str = ""
    #: device that it is about; empty = none
    device_uuid: str = ""
    #: process that it is about (Process.process_id); unset = none
    process_id: int | None = None
    #: one sentence
    message: str = ""
    #: owner of the slice or job; unset = of the node, shown to every user
    owner_uid: int | None = None
    #: shown to admins only; it has no owner
    admins_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All slices and devices at one moment."""

    #: all of them
    slices: tuple[Slice, ...] = ()
    #: all of them
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What Kubernetes' scheduler sees of the node's devices: the newest generation of its ResourceSlices, as
    the API server has them, or what kubelet's device plugin counts."""

    #: name of the node; output only
    node: str = ""
    #: name of the pool of ResourceSlices; empty = there is none
    pool: str = ""
    #: generation of the pool
    generation: int = 0
    #: at most 1024
    devices: tuple[PublishedDevice, ...] = ()
    #: why nothing is published, or not what should be; empty = all is well
    problem: str = ""
    #: name of the resource that kubelet's device plugin counts; empty = ResourceSlices are published
    resource: str = ""
    #: when a driver said this; unset = none has since the daemon started; output only
    report_time: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedDevice:
    """A device as Kubernetes' scheduler sees it: a GPU that claims share, or a fixed part of one."""

    #: name in the ResourceSlice
    name: str = ""
    #: UUID of the device that it is, or is a part of; empty = not known
    device_uuid: str = ""
    #: several claims have parts of it at a time (allowMultipleAllocations)
    shareable: bool = False
    #: by name
    capacities: tuple[PublishedCapacity, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PublishedCapacity:
    """One capacity of such a device, in Kubernetes' quantities. The last four fields say what a claim may ask
    for; empty = a claim gets all of it, or that is not bounded."""

    #: name of the capacity: sm, memory, ...
    name: str = ""
    #: what there is in all
    value: str = ""
    #: what a claim gets that does not ask
    default_value: str = ""
    #: least that a claim can ask for
    min_value: str = ""
    #: most that a claim can ask for
    max_value: str = ""
    #: a claim gets min_value and a multiple of this
    step_value: str = ""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job's request. `command` or `image`, or both: the command is run in the image."""

    #: slice of each member
    slice: SliceSpec | None = None
    #: size of the gang: all members start together or none does; 0 = 1
    members: int = 0
    #: empty = the script's, module's or program's name: train of `python train.py`
    name: str = ""
    #: empty = the caller's default queue
    queue: str = ""
    #: higher ones start first, in the same queue
    priority: int = 0
    #: unset = none
    time_limit: timedelta | None = None
    #: unset = not known
    expected_duration: timedelta | None = None
    #: times that it is started again after a failure
    retries: int = 0
    #: jobs that must have completed
    after: tuple[int, ...] = ()
    #: the jobs of `after` need only have ended, with any result
    after_any: bool = False
    #: it starts only when it is released
    hold: bool = False
    #: 0 = no limit
    cpu_milli: int = 0
    #: 0 = no limit
    ram_bytes: int = 0
    #: program and arguments; no shell
    command: tuple[str, ...] = ()
    #: image of a container; empty = none
    image: str = ""
    #: working directory, absolute
    directory: str = ""
    #: environment of its processes
    environment: Mapping[str, str] = field(default_factory=dict)
    #: umask of its processes; unset = 077: what they write is for their user alone
    umask: int | None = None
    #: never above the caller's own
    limits: tuple[ResourceLimit, ...] = ()
    #: output file, absolute or below `directory`; %j: the job's id, %a: its index; empty = vgpu-%j.log
    log: str = ""
    #: fraction of its traffic that its largest tensor makes up, 0..1; 0 = not known
    skew: float = 0.0
    #: it is never stopped for another job
    not_preemptible: bool = False
    #: unset = fixed size
    elastic: ElasticSpec | None = None
    #: unset = none
    prediction: Prediction | None = None
    #: an array: one job for each; empty = a single job
    array_indices: tuple[int, ...] = ()
    #: jobs of the array that run at once; 0 = all
    array_limit: int = 0
    #: unset = none
    notification: Notification | None = None
    #: does not start before; unset = as soon as there is capacity
    begin_time: datetime | None = None
    #: it runs at a terminal, which AttachJob joins; for one member, neither array nor elastic workers
    terminal: bool = False
    #: jobs that must have ended without completing: failed, timed out or cancelled
    after_fail: tuple[int, ...] = ()
    #: jobs that must have ended, with any result
    after_end: tuple[int, ...] = ()
    #: sent to its processes once in each attempt, signal_lead before the time limit: HUP, INT, QUIT, USR1, USR2,
    #: TERM, CONT, ALRM or XCPU; empty = none
    signal: str = ""
    #: less than the time limit
    signal_lead: timedelta | None = None
    #: from SIGTERM to SIGKILL, at most job_grace_max_s; unset = the site's job_grace_s
    grace: timedelta | None = None
    #: what it serves: jupyter, code, rstudio or web, or shell, a terminal; balancer or replica: of a service, without
    #: an image; empty = it is no session; for one member
    session: str = ""
    #: a session that is not used for so long is ended, or paused if it may be preempted; unset = never
    idle_after: timedelta | None = None
    #: names of further ports for the session's programs, at most 8
    session_ports: tuple[str, ...] = ()
    #: of the site's list, whose values hold for what is unset here; empty = none
    environment_name: str = ""
    #: directories and files of the node for its container: HOST:CONTAINER or HOST:CONTAINER:ro; at most 16, each
    #: below one that the site allows, and reached with the user's own rights
    volumes: tuple[str, ...] = ()
    #: of its container, published on the node: HOST:CONTAINER or both as one number; at most 16
    ports: tuple[str, ...] = ()
    #: credentials to pull its image: a name of the site's list, or the absolute path of a file of the user's; empty =
    #: none
    registry: str = ""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """One of the site's list: what a job that names it runs, unless the job says otherwise."""

    #: its node
    node: str = ""
    #: unique on its node
    name: str = ""
    #: one line; empty = none
    description: str = ""
    #: values of its jobs: image, command, size, limits, queue, variables, volumes, ports, registry
    defaults: JobSpec | None = None
    #: who may use it, as the site has written it; empty = every user
    members: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Notification:
    """Sent at events of a job, at most 100 in an hour for all jobs of a user. At least one of mail, webhook and
    command is set. All are carried out as the job's user, without a shell, within 30 seconds."""

    #: at which it is sent; empty = at its end
    events: tuple[NotificationEvent, ...] = ()
    #: address, for the node's sendmail
    mail: str = ""
    #: http or https URL, which gets a POST of JSON
    webhook: str = ""
    #: program and arguments; the job's fields are in its environment
    command: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ElasticSpec:
    """Bounds within which a job is resized while it runs, without a restart: an elastic slice, or elastic
    workers."""

    #: lower bound of its one member; both 0 = fixed
    gpus_milli_min: int = 0
    #: upper bound
    gpus_milli_max: int = 0
    #: members, each a process with its own slice; both 0 = fixed
    workers_min: int = 0
    #: upper bound
    workers_max: int = 0
    #: decides how many workers pay off; empty = the default
    heuristic: str = ""
    #: global batch; 0 = left to the program
    batch: int = 0
    #: the batch grows with the workers up to this; 0 = fixed
    batch_max: int = 0


@dataclass(frozen=True, kw_only=True)
class Range:
    """A predicted value and its interval."""

    #: the most likely one
    value: float = 0.0
    #: lower end of the interval
    low: float = 0.0
    #: upper end of the interval
    high: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The client's prediction for the model that the job trains."""

    #: name that the user gave the model
    model: str = ""
    #: device model of the prediction
    device: str = ""
    #: utilisation of one device, 0..1
    utilisation: Range | None = None
    #: 0..1
    sm_activity: Range | None = None
    #: memory of the whole process
    mem_bytes: Range | None = None
    #: the model is outside the predictor's training data: only `features` are usable
    out_of_range: bool = False
    #: features of the model's graph, by name
    features: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ResourceLimit:
    """As setrlimit(2)."""

    #: nofile, memlock, ...
    name: str = ""
    #: limit in force; unset = unlimited
    soft: int | None = None
    #: limit up to which the program may raise the soft one; unset = unlimited
    hard: int | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of the queue."""

    #: name of the node
    node: str = ""
    #: never reused
    job_id: int = 0
    #: environment: in GetJob only, and only for the job's owner
    spec: JobSpec | None = None
    #: uid of its user
    uid: int = 0
    #: present state
    state: JobState = ""
    #: reason why it waits, or how it ended: one sentence
    reason: str = ""
    #: time of the submission, by the node's clock
    submit_time: datetime | None = None
    #: start of the present or last attempt; a resume does not start an attempt
    start_time: datetime | None = None
    #: unset = it has not ended
    end_time: datetime | None = None
    #: unset = not known
    estimated_start_time: datetime | None = None
    #: exit code as a shell reports it (128+N for signal N); unset = none yet
    exit_code: int | None = None
    #: number of starts from the beginning
    attempt: int = 0
    #: times that it was stopped for other jobs
    preemptions: int = 0
    #: first job of its array; unset = not in an array
    array_id: int | None = None
    #: index in its array; unset = not in an array
    array_index: int | None = None
    #: slices of its members, while it runs
    slices: tuple[str, ...] = ()
    #: indices of its devices, while it runs
    device_indices: tuple[int, ...] = ()
    #: resolved path
    log: str = ""
    #: GPUs times time with devices
    gpu_seconds_granted: float = 0.0
    #: device time, by the arbiter
    gpu_seconds_used: float = 0.0
    #: place in its queue, from 1; unset = not waiting
    position: int | None = None
    #: processor time of all its processes
    cpu_seconds: float = 0.0
    #: highest use of all its processes
    ram_peak_bytes: int = 0
    #: present number
    workers: int = 0
    #: present size of each worker
    gpus_milli: int = 0
    #: reported by the program, or else launches counted by the hook; unset = not known
    samples_per_second: float | None = None
    #: from similar jobs; unset = not known
    estimated_duration: timedelta | None = None
    #: use of its devices by this job alone, 0..1: measured, or else predicted; unset = not known
    utilisation: float | None = None
    #: `utilisation` was measured, not predicted
    utilisation_measured: bool = False
    #: port of 127.0.0.1 that a session was given; unset = no session, or it does not run
    session_port: int | None = None
    #: last use of a session that has idle_after and runs; unset = not known
    use_time: datetime | None = None
    #: further ports of the session by name, while it runs
    named_ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A reason, or a decision that was made."""

    #: time of the decision; unset = holds now
    decision_time: datetime | None = None
    #: what it is about
    kind: FactKind = ""
    #: one sentence, with the numbers that decided
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class TerminalSize:
    """The size of a terminal's window in characters, each 1 to 65535."""

    #: lines
    rows: int = 0
    #: characters in a line
    columns: int = 0


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The queue of a team, or of a user of a team. Amounts are milli-GPU. In SetQueue unset fields stay unless
    the mask names them."""

    #: unique
    name: str = ""
    #: queue that it is part of, one level; empty = none
    parent: str = ""
    #: preemptible jobs of other queues are stopped for it
    guarantee_milli: int | None = None
    #: unset = none
    limit_milli: int | None = None
    #: weight in what is shared beyond the guarantees
    weight: int | None = None
    #: fifo, 2d-las(3250,7200), ...
    policy: str | None = None
    #: best-fit, worst-fit, fgd, tiresias, colocate(120,2)
    placement: str | None = None
    #: jobs are spread over nodes and devices instead of packed
    spread: bool | None = None
    #: a job that does not fit keeps those behind it waiting
    strict: bool | None = None
    #: with strict: jobs that end in time may overtake the first one
    backfill: bool | None = None
    #: no job is preempted earlier
    min_run: timedelta | None = None
    #: unset = none
    cpu_limit_milli: int | None = None
    #: unset = none
    ram_limit_bytes: int | None = None
    #: uid:1000, gid:1000: users whose default queue it is
    members: tuple[str, ...] = ()
    #: elastic jobs shrink for a job that has waited longer
    elastic_wait: timedelta | None = None
    #: elastic jobs grow when nothing has changed for this long
    elastic_idle: timedelta | None = None
    #: elastic jobs take all they can use before others start; false: others start first
    elastic_eager: bool | None = None
    #: present use by jobs and by other slices; output only
    used_milli: int = 0
    #: number of running jobs; output only
    running: int = 0
    #: number of pending jobs; output only
    pending: int = 0
    #: past use, halved every half-life; output only
    history_gpu_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Devices that are only for one queue, or for none, for a time. Before it begins, jobs known to run into it
    are not started there; other preemptible jobs are requeued when it begins."""

    #: unique on the node
    name: str = ""
    #: whose devices they are; empty or the name of this daemon
    node: str = ""
    #: UUIDs of the devices, or indices
    device_uuids: tuple[str, ...] = ()
    #: unset = now
    begin_time: datetime | None = None
    #: at most a year after begin_time
    end_time: datetime | None = None
    #: queue whose jobs and slices, and those of the queues below it, may be there; empty = none (maintenance)
    queue: str = ""
    #: one line
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """GPU time of a job, a slice or a sum: asked for (GPUs requested x time waited and run), granted (GPUs held
    x time with devices) and used (device time); and what it has copied."""

    #: queue of the job, the slice or the sum
    queue: str = ""
    #: uid of the user of the job, the slice or the sum; unset = a sum that is not by user
    uid: int | None = None
    #: number of the job; unset = a slice without a job, or a sum
    job_id: int | None = None
    #: without a job; empty otherwise
    slice: str = ""
    #: GPUs requested times time waited and run
    gpu_seconds_asked: float = 0.0
    #: GPUs held times time
    gpu_seconds_granted: float = 0.0
    #: device time, by the arbiter
    gpu_seconds_used: float = 0.0
    #: number of jobs in it
    jobs: int = 0
    #: node of the slice
    node: str = ""
    #: set for a single job only
    submit_time: datetime | None = None
    #: start of the first run
    start_time: datetime | None = None
    #: unset = it has not ended
    end_time: datetime | None = None
    #: size of each member
    gpus_milli: int = 0
    #: size of its gang
    members: int = 0
    #: all its runs together
    run_duration: timedelta | None = None
    #: state of the job; unset = a sum
    state: JobState = ""
    #: namespace of a Kubernetes claim's slice, or of a sum by namespace or pod; empty = none
    namespace: str = ""
    #: pod of the same; empty = none, or several pods have the claim
    pod: str = ""
    #: copied from the host to devices
    copy_to_device_bytes: int = 0
    #: copied from devices to the host
    copy_from_device_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class HistoryPoint:
    """A span of time, as long as the history's step."""

    #: begin of the span
    begin_time: datetime | None = None
    #: SM time used, mean; of a device its utilisation
    used_milli: int = 0
    #: the highest of the values every 10 s
    used_peak_milli: int = 0
    #: guaranteed SM time at its end; of a device the sum of the slices' minima
    min_milli: int = 0
    #: limit of SM time at its end; 0 = none
    max_milli: int = 0
    #: time that threads waited at the closed gate: 1000 = one thread all the time
    waiting_milli: int = 0
    #: memory in use, mean
    mem_used_bytes: int = 0
    #: the highest of the values every 10 s
    mem_peak_bytes: int = 0
    #: limit of memory at its end; 0 = none
    mem_max_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class History:
    """A part of what was recorded."""

    #: name of the slice or the queue, index of the device, number of the job, uid of the user, name of the node
    name: str = ""
    #: name of the node
    node: str = ""
    #: time between points
    step: timedelta | None = None
    #: points in order of time; spans without a value are left out
    points: tuple[HistoryPoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Token:
    """A valid token. All tokens end with the daemon."""

    #: names it in lists and in the log; no secret
    token_id: str = ""
    #: user whose calls are made with it
    user: str = ""
    #: uid of this user
    uid: int = 0
    #: what it is for, as its maker wrote it
    note: str = ""
    #: time of creation, by the daemon's clock
    create_time: datetime | None = None
    #: it is refused from then on
    expire_time: datetime | None = None
