"""What is known of Slurm's jobs and nodes, as its programs show them, and the orders to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

from vgpud.core.devices.rates import Speeds


class Phase(Enum):
    """What a state of Slurm means to the queue."""

    WAITS = "waits"
    RUNS = "runs"  # it has its nodes: it is being set up, runs, is suspended there, or its last processes are ending
    ENDED = "ended"


#: squeue's words -> phase; every other word means that it has its nodes: taking those away is never an accident
PHASES = {
    "PENDING": Phase.WAITS,
    "REQUEUED": Phase.WAITS,
    "REQUEUE_HOLD": Phase.WAITS,
    "REQUEUE_FED": Phase.WAITS,
    "SPECIAL_EXIT": Phase.WAITS,
    "RESV_DEL_HOLD": Phase.WAITS,
    "BOOT_FAIL": Phase.ENDED,
    "CANCELLED": Phase.ENDED,
    "COMPLETED": Phase.ENDED,
    "DEADLINE": Phase.ENDED,
    "FAILED": Phase.ENDED,
    "NODE_FAIL": Phase.ENDED,
    "OUT_OF_MEMORY": Phase.ENDED,
    "PREEMPTED": Phase.ENDED,
    "REVOKED": Phase.ENDED,
    "TIMEOUT": Phase.ENDED,
}
CANCELLED = "CANCELLED"
#: sinfo's words for a node that answers, and for one that has not registered and has no jobs
UP, DRAINED = ("idle", "mixed", "allocated", "completing", "planned"), ("draining", "drained")
UNKNOWN = "unknown"
#: and signs of one whose power is off, or is being switched
_POWER = frozenset("~#!%")


@dataclass(frozen=True, slots=True)
class Request:
    """What a job's user asks for."""

    gres: str = ""  # of each node: "gres:gpu:2", "gres:shard:500"
    nodes: int = 1  # that it has, or at least wants
    cpus: int = 1  # all together
    time_limit_ns: int = 0  # 0 = none, or not known
    comment: str = ""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one element of an array, as squeue shows it."""

    key: str  # as scontrol takes it: "12", of an array "12_3"
    state: str = "PENDING"
    held: bool = False  # its priority is 0
    user_held: bool = False  # by its own user: the queue does not start it
    uid: int = 0
    account: str = ""
    request: Request = Request()
    node_names: tuple[str, ...] = ()  # that it has
    dependency: str = ""  # what it still waits for
    #: elements of its array that run at once; 0 = all, or Slurm does not say; None = Slurm has not been asked yet
    array_limit: int | None = 0
    requeues: bool = True  # it may be requeued: a script (salloc and srun have none) whose user allows it
    restarts: int = 0
    start: str = ""  # when it started, or is expected to: only whether it is the same start as before
    exit_code: int = 0  # as in a shell
    #: (node, number of the device, milli-GPU) that it has; () = not known
    devices: tuple[tuple[str, int, int], ...] = ()

    @property
    def phase(self) -> Phase:
        return PHASES.get(self.state, Phase.RUNS)

    @property
    def number(self) -> tuple[int, int]:
        """In the order of submission: the number of the job, or of its array, and the index in that."""
        found = re.match(r"(\d+)(?:_(\d+))?", self.key)
        return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node of the partition as sinfo shows it."""

    name: str
    state: str
    gpus: int
    gpu_model: str = ""
    shards: int = 0  # of all its devices
    cpus: int = 0
    #: of each device: what Slurm has given to jobs, whosever they are; () = it shows no amounts (22.05)
    used_milli: tuple[int, ...] = ()
    memory_bytes: int = 0  # of each device, as it publishes it; 0 = not known
    is_registered: bool = True  # since slurmctld's start
    reason: str = ""  # why it is drained or down

    @property
    def _words(self) -> tuple[str, list[str]]:
        """Slurm's words carry signs: idle* does not answer."""
        plain, *more = self.state.lower().split("+")
        return plain.rstrip("*~#!%$@^-"), more

    @property
    def is_off(self) -> bool:
        """Its power is off, or is being switched. Slurm boots it for a job, and sends it that job's start then."""
        _, more = self._words
        return bool(_POWER.intersection(self.state)) or any(word.startswith("power") for word in more)

    @property
    def answers(self) -> bool:
        """Whether it is there for jobs, if only for those that it has."""
        plain, more = self._words
        return "*" not in self.state and plain in UP and not {"drain", "down"}.intersection(more)

    @property
    def responds(self) -> bool:
        """Whether Slurm sends it a job's start at once: to others it does so some 10 s later, or later."""
        return "*" not in self.state and (self.is_registered or self.is_off)

    @property
    def is_schedulable(self) -> bool:
        """Whether Slurm would start anything there."""
        _, more = self._words
        return self.answers and not {"maint", "reserved"}.intersection(more)

    @property
    def drained(self) -> bool:
        plain, more = self._words
        return plain in DRAINED or "drain" in more

    @property
    def to_register(self) -> bool:
        """Whether it is to register soon: one whose power is off, or that is down, is not."""
        if self.is_registered:
            return False
        plain, more = self._words
        return plain in (*UP, *DRAINED, UNKNOWN) and not self.is_off and "down" not in more


@dataclass(frozen=True, slots=True)
class SlurmSnapshot:
    """All that Slurm shows at one moment; jobs and nodes of the partition only."""

    jobs: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]


# ---- orders to scontrol; each may be given twice ----


@dataclass(frozen=True, slots=True)
class Release:
    """It shall start on these nodes."""

    key: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hold:
    """It shall not start, and not be bound to nodes."""

    key: str


@dataclass(frozen=True, slots=True)
class Requeue:
    """It shall end, and wait for its next start."""

    key: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """It shall end for good."""

    key: str


@dataclass(frozen=True, slots=True)
class SetComment:
    """Its user is to find this sentence with the job (AdminComment)."""

    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Register:
    """These nodes shall say what runs there; jobs are released to them later. A drained one is resumed by that."""

    nodes: tuple[str, ...]
    why: str


JobOrder = Release | Hold | Requeue | Cancel | SetComment
Order = JobOrder | Register


@dataclass(slots=True)
class Binding:
    """What the controller remembers of a job of Slurm that the queue knows; saved with the job."""

    key: str
    job_id: int  # in the queue
    attempt: int = 0  # of the queue's job that Slurm has started
    restarts: int = 0  # of Slurm's job then
    last_order_ns: int = -1  # of the last order to Slurm about it, -1 = none is needed
    giving_up: bool = False  # the start took too long: it is being held again


@dataclass(frozen=True, slots=True)
class Settings:
    """What the site decides."""

    start_wait_ns: int = 30_000_000_000  # a released job that has not started by then is held again
    repeat_ns: int = 2_000_000_000  # an order that shows no effect is given again
    shards_per_device: int = 1000
    rates: dict[str, Speeds] = field(default_factory=dict)  # of jobs' models, by core.rates.model_key
    switches: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by node, see core.jobs.model.Node
