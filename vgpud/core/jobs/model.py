"""What the queue knows: asks, jobs, queues, nodes. Shared by the machine, the policies and the placements.

Times are ns of one clock that never goes back (the daemon: wall time, so that they outlive a restart; the simulator:
its own). Service is milli-GPU x ns, so that a half of a device counts half.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from vgpud.core.devices.rates import Speeds
from vgpud.core.model import DEFAULT_QUEUE as DEFAULT_QUEUE
from vgpud.core.model import Device, Share, Spec

NEVER_NS = 1 << 62
#: events of a job that its user can be notified of: the start of an attempt, any end, and an end that is a failure
START, END, FAILURE = "start", "end", "failure"
NOTICES = (START, END, FAILURE)
SECOND_NS = 1_000_000_000
#: service of one whole device for a second
GPU_SECOND = 1000 * SECOND_NS


class JobState(Enum):
    """The values are the words that users see."""

    PENDING = "pending"  # waits for capacity, a dependency or its backoff: `reason` says which
    HELD = "held"  # until a user releases it
    RUNNING = "running"  # placed; from the decision to start it to the end of its last process
    SUSPENDED = "suspended"  # preempted, its memory kept (paused) or on the host (evicted)
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    @property
    def is_final(self) -> bool:
        return self in (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT)


class UserWait(Enum):
    """What a suspended job waits for, beside capacity."""

    USE = "use"  # it was not used: its next use
    RESUME = "resume"  # its user has suspended it: that is taken back


class How(Enum):
    """How a running job gives up its placement, from the cheapest for its user; the policy knows the cost of each."""

    PAUSE = "pause"  # gates shut: compute is free at once, memory stays and is counted
    EVICT = "evict"  # the driver's checkpoint: memory goes to the host as well
    REQUEUE = "requeue"  # SIGTERM, grace, SIGKILL; it starts from the beginning


@dataclass(frozen=True, slots=True)
class Ask:
    """What one member of a job wants. Hashable: jobs with equal asks are one shape to placement."""

    spec: Spec  # GPUs, memory, named devices; gpus_milli = 0: none
    cpu_milli: int = 0
    ram_bytes: int = 0
    gpu_models: tuple[str, ...] = ()  # on one of these only; empty = any
    #: for placements that share devices by what jobs use: of each device, alone, predicted or measured; -1 = not known
    utilisation_milli: int = -1
    kind: str = ""  # its similarity class (similarity.sharing), where placement goes by it
    rates: Speeds = ()  # its speed by model of GPU, where a placement goes by it

    @property
    def width_milli(self) -> int:
        """GPUs it occupies: what it is guaranteed, which is what others cannot have."""
        return self.spec.gpus_milli if self.spec.min_milli is None else self.spec.min_milli


@dataclass(frozen=True, slots=True)
class Elastic:
    """Bounds of the size of an elastic job: the GPUs of its one member, or its number of members (workers)."""

    least_milli: int = 0  # 0 = its GPUs stay as they are
    most_milli: int = 0
    least_members: int = 0  # 0 = its members stay as many as they are
    most_members: int = 0
    heuristic: str = ""  # how many workers are worth it: a name of elastic.registry; "" = its default


def _has(ascending: Sequence[int], job_id: int) -> bool:
    """A job may depend on ten thousand others, each of which asks."""
    index = bisect_left(ascending, job_id)
    return index < len(ascending) and ascending[index] == job_id


@dataclass(frozen=True, slots=True)
class JobSpec:
    """As submitted, but that an elastic job's `ask.spec` and `members` are what it has, and `ask.utilisation_milli` is

    what is known of it. `run` is what the daemon starts and nothing that the core looks into.
    """

    ask: Ask
    members: int = 1  # of a gang: all start or none
    one_per_node: bool = False  # each member is on another node, as Slurm's --nodes has it
    name: str = ""
    queue: str = DEFAULT_QUEUE
    uid: int = 0
    priority: int = 0  # higher first
    time_limit_ns: int = NEVER_NS
    begin_ns: int = 0  # does not start before; 0 = as soon as there is capacity
    duration_ns: int = 0  # as known (simulation) or expected by the user; 0 = not known
    signal_lead_ns: int = 0  # before its time limit its processes get the signal of `run`; 0 = they get none
    retries: int = 0
    after: tuple[int, ...] = ()  # in ascending order: jobs that must have completed, but for those below
    after_any: bool = False  # ... or ended in whatever way
    after_fail: tuple[int, ...] = ()  # those of `after`, in the same order, that must have ended without completing
    after_end: tuple[int, ...] = ()  # those that must have ended in whatever way
    array: int = 0  # id of the first job of its array, 0 = of none
    index: int = 0  # in the array
    array_limit: int = 0  # jobs of its array that run at once; 0 = all
    model: str = ""  # profile for consolidation
    skew_ppm: int = -1  # of its largest tensor in all traffic; -1 = not known: not consolidated
    preemptible: bool = True
    elastic: Elastic | None = None
    notify: tuple[str, ...] = ()  # events that its user is notified of: words of NOTICES
    kinds: tuple[str, ...] = ()  # classes of similar jobs, the narrowest first: what estimates are learnt by
    run: object = None

    def waits_for_failure(self, job_id: int) -> bool:
        """Whether this job of `after` must have ended without completing."""
        return _has(self.after_fail, job_id)

    def waits_for_end(self, job_id: int) -> bool:
        """Whether any end of this job of `after` will do."""
        return _has(self.after_end, job_id) or (self.after_any and not self.waits_for_failure(job_id))

    def is_satisfied_by(self, job_id: int, state: JobState) -> bool:
        """Whether this end of a job of `after` is one that it waits for."""
        if self.waits_for_end(job_id):
            return True
        return (state is JobState.COMPLETED) != self.waits_for_failure(job_id)

    @property
    def width_milli(self) -> int:
        return self.ask.width_milli * self.members

    @property
    def least_width_milli(self) -> int:
        """What only a stop takes from it. Orders go by this: they would turn with each change of size."""
        if self.elastic is None:
            return self.width_milli
        return self.elastic.least_milli or self.elastic.least_members * self.ask.width_milli


@dataclass(frozen=True, slots=True)
class Place:
    """Where one member is: its node, the four numbers on each of its devices there, and what else it takes."""

    node: str
    shares: tuple[Share, ...]
    cpu_milli: int = 0
    ram_bytes: int = 0
    #: utilisation of each of its devices, from the ask, where placement goes by it; 0 = not known, -1 = it is paused
    utilisation_milli: int = 0
    kind: str = ""
    in_turn: bool = False  # it has its memory in turn with others (Spec.mem_swap): the largest of these counts
    #: of a member in turn that is evicted, by device UUID: bytes that the host holds for it
    host_sizes: tuple[tuple[str, int], ...] = ()


Placement = tuple[Place, ...]  # one for each member
#: a job on a device, as rules that share devices see it: what it uses alone, milli of the device, and its similarity
#: class
Resident = tuple[int, str]


@dataclass(slots=True, eq=False)
class Job:
    """A job and what became of it. Only the queue's machine changes it."""

    job_id: int  # in the order of submission, unique for ever
    spec: JobSpec
    submitted_ns: int
    state: JobState = JobState.PENDING
    reason: str = ""  # why it waits, or how it ended: one sentence
    placement: Placement = ()
    started_ns: int = -1  # of the present run
    first_started_ns: int = -1
    waiting_since_ns: int = 0
    ended_ns: int = -1
    exit_code: int = -1  # as in a shell; -1 = none
    executed_ns: int = 0  # in earlier runs
    overhead_ns: int = 0  # of executed_ns: while it was being started or resumed
    #: end of that in the present run; NEVER_NS = it is not reported yet; before started_ns = it takes no time
    working_since_ns: int = -1
    attained: int = 0  # service (width x executed) in earlier runs
    attempt: int = 0  # starts from the beginning
    preemptions: int = 0
    lost_runs: int = 0  # of these: those after which it had to start from the beginning
    not_before_ns: int = 0  # backoff, or JobSpec.begin_ns
    level: int = 0  # for policies with levels
    level_since_ns: int = 0
    promoted_executed_ns: int = 0  # executed_ns and attained at its last promotion: policies count from there
    promoted_attained: int = 0
    stopping: str = ""  # why it was ordered to end
    stop_to: JobState | None = None  # and what it will be when it has gone
    suspended_how: How | None = None
    failures: int = 0  # runs that ended badly, which its retries count
    start_failures: int = 0  # in a row
    resizing: Placement = ()  # the size that it was ordered to become
    resized_ns: int = -1  # when it last became another size; -1 = never
    wished_members: int = 0  # target of its autoscaler; 0 = none yet
    expected_ns: int = 0  # how long jobs like it took, for backfill; 0 = not known
    median_ns: int = 0  # the same, as often longer as shorter: for estimated starts
    signal_attempt: int = 0  # the last attempt whose processes have got their signal
    user_wait: UserWait | None = None  # it is suspended, or about to be, and does not continue before a user does this
    changed: bool = False  # its specification is no longer as it was submitted: a user has changed it

    @property
    def waits_for_user(self) -> bool:
        """It does not continue before a user asks for that: others may have what it keeps."""
        return self.user_wait is not None

    @property
    def width_milli(self) -> int:
        return self.spec.width_milli

    @property
    def began_ns(self) -> int:
        """When its present or last attempt began, -1 = none: a resume begins none. Of a later attempt than the first
        that was suspended, as long ago as it has run."""
        if self.attempt <= 1:
            return self.first_started_ns
        return self.started_ns - self.executed_ns

    def executed_at(self, now_ns: int) -> int:
        """ns that it has run so far, all runs together."""
        return self.executed_ns + (now_ns - self.started_ns if self.state is JobState.RUNNING else 0)

    @property
    def makes_progress(self) -> bool:
        """It runs, and is not being started or resumed."""
        return self.state is JobState.RUNNING and self.working_since_ns < NEVER_NS

    def progress_at(self, now_ns: int) -> int:
        """ns that it has run so far, without the time that starting and resuming it took."""
        since_ns = max(self.started_ns, self.working_since_ns)
        return self.executed_ns - self.overhead_ns + (now_ns - since_ns if self.makes_progress else 0)

    def attained_at(self, now_ns: int) -> int:
        """Service so far, milli-GPU x ns."""
        return self.attained + ((now_ns - self.started_ns) * self.width_milli if self.state is JobState.RUNNING else 0)

    def waited_at(self, now_ns: int) -> int:
        """ns since it last began to wait, 0 while it runs."""
        return now_ns - self.waiting_since_ns if self.state in (JobState.PENDING, JobState.SUSPENDED) else 0


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A queue: a team, or a user of one (`parent`, one level). Amounts are milli-GPU."""

    name: str
    parent: str = ""
    guarantee_milli: int = 0  # guaranteed GPUs: preemptible jobs of other queues are preempted for it
    limit_milli: int = NEVER_NS
    weight: int = 1  # of what is shared beyond the guarantees
    #: a name of policy.registry, with its parameters: "2d-las(3250,7200)". New queues have policy.registry.NEW_QUEUE; a
    #: file that does not name one means fifo
    policy: str = "fifo"
    placement: str = "best-fit"
    spread: bool = False  # between nodes and devices instead of packing
    strict: bool = False  # the first that does not fit keeps the others waiting
    backfill: bool = True  # with `strict`: jobs that end before the first one can start may be backfilled
    min_run_ns: int = 60 * SECOND_NS  # no job is preempted earlier
    cpu_limit_milli: int = NEVER_NS
    ram_limit_bytes: int = NEVER_NS
    elastic_wait_ns: int = 30 * SECOND_NS  # running elastic jobs shrink for a job that waits longer (DRAGON)
    elastic_idle_ns: int = 60 * SECOND_NS  # elastic jobs grow when no job waits and nothing was done for this long
    elastic_eager: bool = False  # elastic jobs start as large as possible, before later jobs; else at their minimum

    @property
    def lent_after_ns(self) -> int:
        """After waiting this long, a job has elastic jobs shrink for it; in an eager queue never."""
        return NEVER_NS if self.elastic_eager else self.elastic_wait_ns


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices that for a time are only for one queue and those below it, or for none: a maintenance window."""

    name: str
    node: str
    device_uuids: tuple[str, ...]
    begin_ns: int
    end_ns: int
    queue: str = ""  # "" = no job is placed there
    reason: str = ""

    @property
    def what(self) -> str:
        """For sentences: reservation NAME, with its queue or reason."""
        whose = f"for queue {self.queue}" if self.queue else "for no job"
        return f"reservation {self.name} ({whose}{f': {self.reason}' if self.reason else ''})"


@dataclass(slots=True, eq=False)
class Node:
    """A machine of the cluster and what is free on it. Only placement.cluster.Cluster changes it."""

    name: str
    devices: tuple[Device, ...]
    cpu_milli: int = NEVER_NS
    ram_bytes: int = NEVER_NS
    gpu_model: str = ""
    groups: tuple[int, ...] = ()  # of each device: devices of one group are linked (NVLink), or of one NUMA node
    index: int = 0
    kind: int = 0  # the same for nodes with equal devices: set by the cluster
    free_milli: list[int] = field(default_factory=list)  # by device
    free_bytes: list[int] = field(default_factory=list)
    free_cpu_milli: int = 0
    free_ram_bytes: int = 0
    offered: list[bool] = field(default_factory=list)  # by device: neither drained nor excluded nor held by others
    version: int = 0  # grows with every change
    residents: list[tuple[Resident, ...]] = field(default_factory=list)  # by device
    switches: tuple[str, ...] = ()  # of its network, from its own to the uppermost; () = not known
    #: memory of each of its devices for sentences, where placement counts with an assumed one: 0 = not known
    told_bytes: int | None = None
    #: RAM of the host for the memory of jobs in turn; the rest as placement.turns has it
    swap_bytes: int = NEVER_NS
    swapped_bytes: int = 0  # what these need of it
    turns: list[tuple[int, ...]] = field(default_factory=list)  # by device: their sizes, ascending; [] = there are none
    host_sizes: list[tuple[int, ...]] = field(default_factory=list)  # the same of those that are evicted
