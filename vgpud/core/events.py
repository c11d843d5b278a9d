"""Events, which go into step(), and commands, which come out. Plain frozen data: easy to record and to replay."""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.core.model import (
    ROOT,
    Asker,
    Container,
    Denied,
    Device,
    Drain,
    Origin,
    Process,
    Quota,
    Remembered,
    Share,
    SiteLimits,
    Slice,
    Spec,
    Taken,
)
from vgpud.core.origins import KubernetesOrigin

# ---- events ----


@dataclass(frozen=True, slots=True)
class Started:
    """First event: the contents of the store. Slices get new serials; ephemeral ones get a grace to be attached to
    again."""

    policy: SiteLimits
    devices: tuple[Device, ...]
    slices: tuple[Slice, ...]
    requests: tuple[tuple[str, Remembered], ...]  # their until_ns is set again
    containers: tuple[Container, ...] = ()  # the shell then reports which of them have ended meanwhile
    drains: tuple[Drain, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    policy: SiteLimits


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    quotas: tuple[Quota, ...]  # all of them


@dataclass(frozen=True, slots=True)
class DevicesReserved:
    """Reservations that are in force now: (device UUID, its queue or "" for none, what it is)."""

    reserved: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class CreateSlice:
    request_id: str  # "" = not idempotent
    origin: Origin  # what has a CDI device, or is pending, is ephemeral as well
    spec: Spec
    owner_uid: int
    uid: str
    wall_ns: int
    queue: str = ""  # "" = the default one of `asker`
    asker: Asker = ROOT
    shares: tuple[Share, ...] = ()  # as the queue or Kubernetes decided; () = the fullest devices that fit
    tolerates_drain: bool = False  # also on drained devices
    pending: bool = False  # it gets the devices that its first program names


@dataclass(frozen=True, slots=True)
class PrepareClaim:
    """The DRA driver asks for a claim's slice, for the first time or again."""

    claim: KubernetesOrigin
    service_class: str
    weight: int
    priority: int
    uid: str  # of a new slice
    wall_ns: int
    tolerates_drain: bool = False  # also on drained devices


@dataclass(frozen=True, slots=True)
class UnprepareClaim:
    claim_uid: str


@dataclass(frozen=True, slots=True)
class UpdateSlice:
    """The named fields of the spec become those of `patch`; None, 0 and () there are their defaults."""

    request_id: str
    name: str
    patch: Spec
    fields: tuple[str, ...]  # sorted
    job_id: int = 0  # a job's slice is resized by the queue, and only so: its machine has decided on
    shares: tuple[Share, ...] = ()  # them, on the devices where it is
    asker_uid: int = 0  # user who chose request_id


@dataclass(frozen=True, slots=True)
class DeleteSlice:
    request_id: str
    name: str
    force: bool
    job_id: int = 0  # a job's slice ends with the job, and only so
    asker_uid: int = 0  # user who chose request_id


@dataclass(frozen=True, slots=True)
class SuspendSlice:
    """One step of suspending a slice, or of resuming it (suspend.STEPS)."""

    name: str
    to: str  # as Slice.suspended is to be
    why: str = ""
    job_id: int = 0  # a job's slice is suspended by the queue, and only so
    wall_ns: int = 0


@dataclass(frozen=True, slots=True)
class MoveMemory:
    """Steps of slices whose memory the daemon moves, taken together: (slice, Slice.residency after it)."""

    steps: tuple[tuple[str, str], ...]
    wall_ns: int = 0
    falls_asleep: bool = False  # it leaves because it is idle, not for another one


@dataclass(frozen=True, slots=True)
class ProcessAttached:
    """A validated attach message.

    `held`: bytes per device UUID that a resuming process claims to hold. `free_bytes`: what the slice may still hold
    there according to the arbiter. `is_admitted`: it has its answer, and its places were counted
    (core/slices/attach_rules.py). `named_uuids`: the devices that it names by UUID, to which a pending slice is bound.
    """

    process: Process
    held: tuple[tuple[str, int], ...] = ()
    free_bytes: tuple[tuple[str, int], ...] = ()
    is_admitted: bool = False
    named_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessGone:
    process_id: int


@dataclass(frozen=True, slots=True)
class ProcessDisconnected:
    """A program closed its connection and lives on: its place is free, its memory stays charged."""

    process_id: int


@dataclass(frozen=True, slots=True)
class ContainerCreated:
    """An engine creates a container that asks for a slice of its own (`spec`) or to join one (`join`)."""

    container_id: str
    spec: Spec | None
    join: str
    origin: Origin  # of its own slice
    caller_uid: int  # user of the engine, who must be allowed to use the slice
    pid: int  # of the low-level runtime
    pid_start: int
    uid: str  # of its own slice
    wall_ns: int
    queue: str = ""  # of its own slice; "" = the caller's default one
    open_queue: bool = False  # named by the environment (perhaps the image's): every user must have access to it
    pod: str = ""  # uid of the pod whose cgroup it is in; "" outside Kubernetes
    engine_name: str = ""  # for people; "" = not known
    owner_uid: int | None = None  # of its own slice; None = its caller
    engine_dir: str = ""  # where docker keeps what it knows of it; "" = another engine
    owner: Asker | None = None  # whom its slice is for, with that user's rights; None: `owner_uid`


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """Its first process is there. `cgroup` "": it has none of its own."""

    container_id: str
    pid: int
    pid_start: int
    cgroup: str


@dataclass(frozen=True, slots=True)
class ContainerEnded:
    container_id: str
    why: str
    restarts: bool = False  # its engine starts it again


@dataclass(frozen=True, slots=True)
class DrainDevice:
    device: str  # UUID or index
    reason: str
    by_fault: bool = False


@dataclass(frozen=True, slots=True)
class UndrainDevice:
    device: str  # UUID or index


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """What programs outside slices have of the devices now, of all devices."""

    taken_devices: tuple[Taken, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event = (
    Started
    | PolicyChanged
    | QuotasChanged
    | DevicesReserved
    | CreateSlice
    | UpdateSlice
    | DeleteSlice
    | SuspendSlice
    | MoveMemory
    | PrepareClaim
    | UnprepareClaim
    | ProcessAttached
    | ProcessGone
    | ProcessDisconnected
    | ContainerCreated
    | ContainerStarted
    | ContainerEnded
    | DrainDevice
    | UndrainDevice
    | DevicesTaken
    | Tick
)

# ---- commands ----


@dataclass(frozen=True, slots=True)
class Answer:
    """To the sender of the event: exactly one per CreateSlice, UpdateSlice, DeleteSlice, DrainDevice, UndrainDevice,
    ContainerCreated, ContainerStarted and refused ProcessAttached."""

    result: Slice | Denied | None


@dataclass(frozen=True, slots=True)
class SaveSlice:
    slice: Slice


@dataclass(frozen=True, slots=True)
class ForgetSlice:
    uid: str


@dataclass(frozen=True, slots=True)
class SaveContainer:
    container: Container


@dataclass(frozen=True, slots=True)
class ForgetContainer:
    """It is not watched any more, and its own files go."""

    container_id: str


@dataclass(frozen=True, slots=True)
class SaveDrain:
    drain: Drain


@dataclass(frozen=True, slots=True)
class ForgetDrain:
    device_uuid: str


@dataclass(frozen=True, slots=True)
class OpenDevice:
    """Write the one-time CDI device of this slice, again when its devices have changed."""

    slice_name: str


@dataclass(frozen=True, slots=True)
class CloseDevice:
    slice_name: str


@dataclass(frozen=True, slots=True)
class SaveRequest:
    request_id: str
    record: Remembered


@dataclass(frozen=True, slots=True)
class ApplySlice:
    """The arbiters of the slice's devices shall know these numbers; `dropped_uuids`: devices it no longer has."""

    slice: Slice
    dropped_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveSlice:
    slice: Slice


@dataclass(frozen=True, slots=True)
class OpenSocket:
    slice_name: str


@dataclass(frozen=True, slots=True)
class CloseSocket:
    slice_name: str


@dataclass(frozen=True, slots=True)
class AdmitProcess:
    """Give the process its pages; `held` is what the arbiters shall believe it holds."""

    process: Process
    slice: Slice
    held: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DropProcess:
    """Take the process from the arbiters and close its connection."""

    process_id: int


@dataclass(frozen=True, slots=True)
class Log:
    """An entry of the event log that users read."""

    kind: str
    message: str
    slice_name: str = ""
    device_uuid: str = ""
    process_id: int = 0
    owner_uid: int | None = None  # user who is shown it; None = the owner of the slice, without a slice admins only


Command = (
    Answer
    | SaveSlice
    | ForgetSlice
    | SaveContainer
    | ForgetContainer
    | SaveDrain
    | ForgetDrain
    | OpenDevice
    | CloseDevice
    | SaveRequest
    | ApplySlice
    | RemoveSlice
    | OpenSocket
    | CloseSocket
    | AdmitProcess
    | DropProcess
    | Log
)
