"""The workers of an elastic job as data: which there are, which work together, and what they report.

A worker is a process tree with a supervisor and a slice of its own. A membership (`generation`, `members` in order of
rank) says which workers train together. Neither its number nor that of a worker is used twice in an attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vgpud.core.jobs.model import Job, Place, Placement


class WorkerState(Enum):
    """Of a worker that its group has; one that has gone is removed."""

    ACTIVE = "active"  # started, or about to be, and counted as one of the job's workers
    STAND_IN = "stand_in"  # started beside a straggler, whose place it takes as soon as it works
    LEAVING = "leaving"  # told to leave, no longer counted
    RESPAWNING = "respawning"  # told to leave; another worker starts in its place when it has gone
    DONE = "done"  # ended by itself with exit code 0
    GONE = "gone"  # its processes have ended and its slice is removed


class WorkerEvent(Enum):
    """What changes the state of a worker."""

    LEAVE = "leave"  # the job shrinks, its stand-in works, or it is a stand-in that did not begin to work in time
    RESPAWN = "respawn"  # it is silent, or slow and there is no capacity for a stand-in beside it
    TAKE_OVER = "take_over"  # a stand-in works
    COMPLETE = "complete"  # it ended by itself with exit code 0
    END = "end"  # it ended otherwise, or could not be started


_S, _E = WorkerState, WorkerEvent
#: (state, event) -> state; what is not here does not happen
WORKER_TRANSITIONS: dict[tuple[WorkerState, WorkerEvent], WorkerState] = {
    (_S.ACTIVE, _E.LEAVE): _S.LEAVING,
    (_S.ACTIVE, _E.RESPAWN): _S.RESPAWNING,
    (_S.ACTIVE, _E.COMPLETE): _S.DONE,
    (_S.ACTIVE, _E.END): _S.GONE,
    (_S.STAND_IN, _E.TAKE_OVER): _S.ACTIVE,
    (_S.STAND_IN, _E.LEAVE): _S.LEAVING,
    (_S.STAND_IN, _E.RESPAWN): _S.LEAVING,
    (_S.STAND_IN, _E.END): _S.GONE,
    (_S.LEAVING, _E.LEAVE): _S.LEAVING,
    (_S.LEAVING, _E.RESPAWN): _S.LEAVING,
    (_S.LEAVING, _E.END): _S.GONE,
    (_S.RESPAWNING, _E.LEAVE): _S.LEAVING,
    (_S.RESPAWNING, _E.RESPAWN): _S.RESPAWNING,
    (_S.RESPAWNING, _E.END): _S.GONE,
    (_S.DONE, _E.LEAVE): _S.DONE,
    (_S.DONE, _E.RESPAWN): _S.DONE,
}


@dataclass(frozen=True, slots=True)
class Worker:
    number: int  # VGPU_WORKER
    place: Place
    state: WorkerState = WorkerState.ACTIVE
    replaces: int = -1  # of a stand-in: the straggler's number

    @property
    def leaving(self) -> bool:
        return self.state in (WorkerState.LEAVING, WorkerState.RESPAWNING)

    @property
    def done(self) -> bool:
        return self.state is WorkerState.DONE

    @property
    def works(self) -> bool:
        """Whether it may be a member of a membership."""
        return self.state in (WorkerState.ACTIVE, WorkerState.STAND_IN)


@dataclass(slots=True)
class WorkerGroup:
    """All workers of an attempt. Saved before anything that it says is carried out."""

    job_id: int
    attempt: int
    next_number: int = 0
    workers: tuple[Worker, ...] = ()  # in the order of the job's members; without those that have gone
    generation: int = 0  # of the newest membership; 0 = there was none
    members: tuple[int, ...] = ()  # of that membership, in order of rank
    store: str = ""  # HOST:PORT of its rendezvous
    failures: int = 0  # workers that failed and were replaced
    ending: bool = False  # all workers shall end: the job was told to stop, or has failed
    code: int = 0  # exit code of the first worker that failed, and why
    why: str = ""
    stopped: bool = False
    lost: bool = False
    cpu_ns: int = 0  # used by workers that have gone
    ram_peak_bytes: int = 0

    def worker(self, number: int) -> Worker | None:
        return next((worker for worker in self.workers if worker.number == number), None)

    @property
    def is_finished(self) -> bool:
        """A worker has ended well: so has the work, and there are no further memberships."""
        return any(worker.done for worker in self.workers)

    @property
    def retained_workers(self) -> tuple[Worker, ...]:
        """The workers that the job has and keeps; a straggler with a stand-in is not one of them."""
        replaced = {worker.replaces for worker in self.workers}
        return tuple(w for w in self.workers if w.state is not WorkerState.LEAVING and w.number not in replaced)

    @property
    def placement(self) -> Placement:
        return tuple(worker.place for worker in self.retained_workers)

    @property
    def live(self) -> tuple[Worker, ...]:
        """The workers whose processes are there, or will be."""
        return tuple(worker for worker in self.workers if not worker.done)

    @property
    def any_leaving(self) -> bool:
        return any(worker.leaving for worker in self.workers)

    def apply(self, number: int, event: WorkerEvent) -> None:
        """Changes the state of a worker as the table says; one that has gone already stays so. Raises KeyError."""
        worker = self.worker(number)
        if worker is None:
            return
        state = WORKER_TRANSITIONS[worker.state, event]
        replaces = worker.replaces if state is WorkerState.STAND_IN else -1
        made = replace(worker, state=state, replaces=replaces)
        kept = (made if one is worker else one for one in self.workers)
        self.workers = tuple(one for one in kept if one.state is not WorkerState.GONE)

    def add(self, place: Place, replaces: int = -1) -> Worker:
        """A new worker, the last in order; `replaces`: the straggler that it stands in for."""
        made = self._new(place, replaces)
        self.workers = (*self.workers, made)
        return made

    def replace_gone(self, number: int) -> Worker:
        """A new worker at the place and in the position of one that has ended."""
        gone = next(worker for worker in self.workers if worker.number == number)
        made = self._new(gone.place, -1)
        self.workers = tuple(made if worker is gone else worker for worker in self.workers)
        return made

    def _new(self, place: Place, replaces: int) -> Worker:
        state = WorkerState.STAND_IN if replaces >= 0 else WorkerState.ACTIVE
        made = Worker(self.next_number, place, state, replaces)
        self.next_number += 1
        return made

    def next_members(self, ready: Collection[int]) -> tuple[int, ...]:
        """Survivors in their order, then newcomers that are ready: members never wait for one that is not."""
        works = {worker.number for worker in self.workers if worker.works}
        survivors = tuple(number for number in self.members if number in works)
        newcomers = (w.number for w in self.workers if w.number in works and w.number in ready)
        return survivors + tuple(number for number in newcomers if number not in survivors)

    def renew(self, members: tuple[int, ...]) -> None:
        self.generation += 1
        self.members, self.store = members, ""


@dataclass(frozen=True, slots=True)
class Membership:
    """As it is sent to a worker. A worker that is not in it leaves."""

    generation: int
    workers: tuple[int, ...]  # in order of rank
    store: str = ""  # HOST:PORT of the rendezvous; "": the first in rank is to say it
    batch: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a worker has said, checked: its identity, the generation that it works in, and its progress since."""

    job_id: int
    attempt: int
    worker: int
    generation: int = 0
    store: str = ""
    samples: int = 0
    seconds_ns: int = 0
    steps: int = 0
    waited_ns: int = 0  # of seconds_ns, for the others
    has_lost_peers: bool = False
    has_joined: bool = False
    idle_ns: int = 0


def new_group(job: Job) -> WorkerGroup:
    """The group of a new attempt, a worker for each place."""
    group = WorkerGroup(job.job_id, job.attempt)
    for place in job.placement:
        group.add(place)
    return group


def difference(workers: Sequence[Worker], placement: Placement) -> tuple[list[Worker], list[Place]]:
    """(workers to leave, places of workers to add): a worker whose place is still wanted stays. Of workers with equal
    places the last ones leave."""
    left = list(placement)
    leaving = []
    for worker in workers:
        here = worker.place.node, worker.place.shares  # what else is known of a place may change while it is there
        same = next((place for place in left if (place.node, place.shares) == here), None)
        if same is None:
            leaving.append(worker)
        else:
            left.remove(same)
    return leaving, left


def has_workers(job: Job) -> bool:
    """Whether the job's members are workers, which are added and removed while it runs."""
    return job.spec.elastic is not None and job.spec.elastic.most_members > 0
