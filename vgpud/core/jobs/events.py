"""Events and commands of the queue's machine. Plain data: recorded and replayed."""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.core.jobs.model import NEVER_NS, Ask, How, Job, JobSpec, Node, Placement, QueueSpec, Reservation
from vgpud.core.model import Denied

# ---- events ----


@dataclass(frozen=True, slots=True)
class Submitted:
    """Checked by machine.check() before. `job_ids`: one for each job of an array, given by the shell."""

    job_ids: tuple[int, ...]
    spec: JobSpec
    held: bool = False
    indices: tuple[int, ...] = ()  # of an array, one for each job; () = from spec.index on
    # of a large array's part: the first job of the array, and when it was submitted. None starts before ArrayThere
    array: int = 0
    submitted_ns: int = 0


@dataclass(frozen=True, slots=True)
class ArrayThere:
    """All parts of an array have been submitted: these of its jobs may start."""

    job_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class Held:
    job_id: int


@dataclass(frozen=True, slots=True)
class Released:
    job_id: int


@dataclass(frozen=True, slots=True)
class Requeued:
    """By a user: it ends if it runs and starts from the beginning."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Idled:
    """A running job that may be preempted is paused, and stays so until it is used."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class Used:
    """A job that was paused because it was idle may continue."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Suspended:
    """By a user: a running job gives its GPUs to others until Resumed; its memory moves to the host if that goes."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """By a user: a job that they have suspended waits for its capacity again."""

    job_id: int


@dataclass(frozen=True, slots=True)
class Changed:
    """By a user: a job that waits has this specification from now on, another one its time limit and GPUs. Checked by
    machine.refusal() before."""

    job_id: int
    spec: JobSpec
    by_admin: bool = False


@dataclass(frozen=True, slots=True)
class JobEnded:
    """All processes of all members have ended, and the placement is free. `exit_code` as in a shell (128 + signal)."""

    job_id: int
    attempt: int
    exit_code: int
    why: str = ""  # what the exit code does not express


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """StopJob has been carried out, in the way `how`; the placement is free from now on (PAUSE: but for the memory)."""

    job_id: int
    how: How


@dataclass(frozen=True, slots=True)
class Started:
    """StartJob has been carried out: its programs run, or continue. Of machines that are to hear that
    (Machine.reports_starts); what has run before that is no progress."""

    job_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Nothing of it runs. `again`: later it may go well (the node was full after all), else the job has failed."""

    job_id: int
    attempt: int
    why: str
    again: bool


@dataclass(frozen=True, slots=True)
class RoomChanged:
    """Devices came, went, were drained or used by slices that are not jobs': this replaces what the cluster knows."""

    node: str
    #: by device UUID: (milli, bytes) that slices which are no jobs of the queue have reserved
    direct: tuple[tuple[str, int, int], ...]
    offered: tuple[str, ...]  # UUIDs that jobs may use
    #: what those slices hold of each queue's quota: (queue, milli, cpu_milli, ram_bytes)
    held: tuple[tuple[str, int, int, int], ...] = ()
    #: (device UUID, bytes, whether it is on the device or evicted) of each of those slices that has memory in turn:
    #: `direct` is without it
    in_turn: tuple[tuple[str, int, bool], ...] = ()
    swap_bytes: int = NEVER_NS  # RAM of the host for all memory in turn


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """Nodes came, went, or came back with other devices: these are all of them from now on.

    They are offered in full until RoomChanged says otherwise. Running jobs stay where they are.
    """

    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Located:
    """A running job has devices of this placement, not those that were chosen: an engine beneath has the last word."""

    job_id: int
    attempt: int
    placement: Placement


@dataclass(frozen=True, slots=True)
class Wished:
    """The target of an elastic job's autoscaler: as many workers as pay off, by its measurements."""

    job_id: int
    members: int
    why: str


@dataclass(frozen=True, slots=True)
class Resized:
    """ResizeJob has been carried out, or not (`why`): this is all that the job has now."""

    job_id: int
    attempt: int
    placement: Placement
    why: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job that runs really uses of each of its devices: from now on it counts instead of what was predicted."""

    job_id: int
    utilisation_milli: int


@dataclass(frozen=True, slots=True)
class PairLoses:
    """Two jobs that share a device slow each other down by more than they gain: the first one leaves.

    Jobs of their similarity classes do not share a device again.
    """

    job_id: int
    other_id: int
    why: str


@dataclass(frozen=True, slots=True)
class PairsKnown:
    """After a restart: pairs of similarity classes whose jobs slow each other down."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JobDuration:
    """A job that has ended, for estimates."""

    kinds: tuple[str, ...]
    ran_ns: int
    ended: bool  # it was done; else its time was up


@dataclass(frozen=True, slots=True)
class DurationsKnown:
    """After a restart: how long jobs ran that have ended, in this order."""

    known: tuple[JobDuration, ...]


@dataclass(frozen=True, slots=True)
class AsksKnown:
    """After a restart: what the newest jobs asked for, the oldest of these first."""

    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class QueuesChanged:
    queues: tuple[QueueSpec, ...]


@dataclass(frozen=True, slots=True)
class ReservationsChanged:
    """All of them; each new one was checked by check_reservation() before."""

    reservations: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class Woken:
    """Time has passed: what Wake asked for."""


Event = (
    Submitted
    | ArrayThere
    | Cancelled
    | Held
    | Released
    | Requeued
    | Idled
    | Used
    | Suspended
    | Resumed
    | Changed
    | JobEnded
    | JobSuspended
    | Started
    | StartFailed
    | RoomChanged
    | NodesChanged
    | Located
    | Wished
    | Resized
    | Measured
    | PairLoses
    | PairsKnown
    | DurationsKnown
    | AsksKnown
    | QueuesChanged
    | ReservationsChanged
    | Woken
)

# ---- commands ----


@dataclass(frozen=True, slots=True)
class SaveJob:
    """The store shall have it before what follows is carried out."""

    job: Job


@dataclass(frozen=True, slots=True)
class StartJob:
    """Starts `attempt` there, or resumes it there if it was suspended (`resume`). Answered by JobEnded or
    StartFailed."""

    job_id: int
    attempt: int
    placement: Placement
    resume: bool = False


@dataclass(frozen=True, slots=True)
class StopJob:
    """Answered by JobSuspended (`how` given) or JobEnded (how = None: cancelled, timed out or requeued by a user)."""

    job_id: int
    how: How | None
    why: str


@dataclass(frozen=True, slots=True)
class SignalJob:
    """The processes of this attempt get the signal that its user has asked for. Not answered; may get lost with the
    daemon."""

    job_id: int
    attempt: int


@dataclass(frozen=True, slots=True)
class ResizeJob:
    """Changes the size of a running job: other numbers on the same devices, or more or fewer members (remaining ones
    keep their order and place). Answered by Resized; more capacity is its own from now on, less is another job's from
    then on."""

    job_id: int
    attempt: int
    placement: Placement
    why: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Send Woken then; replaces an earlier one. Not needed when another event comes before."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of the event log that users read."""

    kind: str  # job.started, job.preempted, ...
    job_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Notify:
    """Notifies the job's user, as they asked for: `event` is one of NOTICES. May get lost with the daemon."""

    job_id: int
    event: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """These reservations are in force from now on, and no others: slices that are no jobs' keep to them as well."""

    active: tuple[Reservation, ...]


Command = SaveJob | StartJob | StopJob | SignalJob | ResizeJob | Wake | Note | Notify | Reserve

Check = Denied | None
