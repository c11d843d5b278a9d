"""A worker group while its job is there: what is saved of it, and what each daemon learns from the workers again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from vgpud.core.elastic.worker_events import Command
from vgpud.core.elastic.worker_group import Membership, WorkerGroup
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import SECOND_NS, Job

#: workers that have started together with one that is ready are waited for this long
READY_NS = 30 * SECOND_NS
#: after a failed collective: until the death behind it is known at the latest
LOST_NS = SECOND_NS
#: a leaving worker has this long from when all others work without it, and this long altogether
LEAVE_NS, LEAVE_MAX_NS = 30 * SECOND_NS, 600 * SECOND_NS
#: members that have not joined after this long have lost one that still lives: no step, no epoch is that long
JOIN_MAX_NS = 3600 * SECOND_NS
#: a stand-in has this long to begin its work
STAND_IN_NS = 600 * SECOND_NS


class Deadline(Enum):
    """What is due at a time; beside it the number that it is about."""

    READY = "ready"  # 0
    LOST = "lost"  # a generation
    SILENT = "silent"  # a generation
    LEAVE = "leave"  # a worker
    STAND_IN = "stand_in"  # a worker


class Cause(Enum):
    """Why a worker is being started: what follows when it is, or cannot be."""

    BEGIN = "begin"
    RESIZE = "resize"
    ADOPTED = "adopted"
    RESPAWN = "respawn"
    REPLACEMENT = "replacement"
    STAND_IN = "stand_in"


@dataclass(frozen=True, slots=True)
class Starting:
    cause: Cause
    place_of: int = -1  # the worker whose place it takes
    why: str = ""


@dataclass(slots=True, eq=False)
class LiveGroup:
    """What step() works on. `job` is the queue's, and only read."""

    job: Job
    record: WorkerGroup
    starting: dict[int, Starting] = field(default_factory=dict)  # by worker: Start is not answered yet
    ready: set[int] = field(default_factory=set)
    joined_workers: set[int] = field(default_factory=set)  # workers that work in the newest membership
    #: of the newest membership: its members and the former ones
    workers_to_notify: set[int] = field(default_factory=set)
    notified_generation: int = 0  # the newest that was sent to them
    streams: set[int] = field(default_factory=set)  # workers with an open stream
    reason: str = ""  # of the newest membership
    next_reason: str = ""  # why others are about to join
    idle_ns: int = 0  # the longest that a member did nothing for the newest membership
    leavers: set[int] = field(default_factory=set)  # workers whose time to leave is limited
    resize_problem: str | None = None  # of the resize that is under way, "" = none so far; None: none is under way
    change_reason: str = ""  # of the change whose workers are being started
    deadlines: dict[tuple[Deadline, int], int] = field(default_factory=dict)

    def next_deadline_ns(self) -> int | None:
        """When Tick is due; None: never."""
        return min(self.deadlines.values(), default=None)

    def limit(self, what: Deadline, number: int, at_ns: int) -> None:
        """The earlier time counts."""
        self.deadlines[what, number] = min(at_ns, self.deadlines.get((what, number), at_ns))

    def membership(self) -> Membership:
        saved = self.record
        return Membership(saved.generation, saved.members, saved.store, self._batch(len(saved.members)), self.reason)

    def _batch(self, workers: int) -> int:
        """The global batch: what the user gave, multiplied with the workers up to the maximum that the user allows."""
        launch, elastic = self.job.spec.run, self.job.spec.elastic
        if not isinstance(launch, Launch) or elastic is None or not launch.batch_max:
            return launch.batch if isinstance(launch, Launch) else 0
        return min(launch.batch_max, launch.batch * workers // max(1, elastic.least_members))


#: what a step adds its commands to
Commands = list[Command]
