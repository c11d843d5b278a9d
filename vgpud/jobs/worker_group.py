"""The workers of an elastic job as data: who there is, who works together, and what is said. No IO.

A worker is a process tree with a supervisor and a slice of its own. A membership (`generation`, `members` in order of
rank) says who works together; its number never comes twice in an attempt, and a worker's number neither.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vgpud.core.checksums import seal, unseal
from vgpud.core.jobs.model import Job, Place, Placement
from vgpud.core.model import Denied
from vgpud.core.queue.record import decode, encode


@dataclass(frozen=True, slots=True)
class Worker:
    number: int  # VGPU_WORKER
    place: Place
    leaving: bool = False  # it is told to, and nobody counts on it any more
    done: bool = False  # it has ended with code 0 by itself
    stands_for: int = -1  # whom it takes the place of, once it works; -1 = nobody
    again: bool = False  # it is leaving, and when it has gone another one comes to its place


@dataclass(slots=True)
class Crew:
    """All of an attempt. Saved before anything of it is carried out."""

    job_id: int
    attempt: int
    next_number: int = 0
    workers: tuple[Worker, ...] = ()  # in the order of the job's members; without those that have gone
    generation: int = 0  # of the newest membership; 0 = there was none
    members: tuple[int, ...] = ()  # of that, in order of rank
    store: str = ""  # where they meet
    failures: int = 0  # workers that failed and were replaced
    ending: bool = False  # all shall end: it was told to, or has failed
    code: int = 0  # of the first that failed, and why
    why: str = ""
    stopped: bool = False
    lost: bool = False
    cpu_ns: int = 0  # of those that have gone
    ram_peak_bytes: int = 0

    def worker(self, number: int) -> Worker | None:
        return next((worker for worker in self.workers if worker.number == number), None)

    @property
    def over(self) -> bool:
        """One that worked has ended well: so has the work, and there are no further memberships."""
        return any(worker.done for worker in self.workers)

    @property
    def staying(self) -> tuple[Worker, ...]:
        """What the job has, and keeps; who stands for another is one too many until that one leaves."""
        gone = {worker.stands_for for worker in self.workers}
        return tuple(w for w in self.workers if (w.again or not w.leaving) and w.number not in gone)

    @property
    def placement(self) -> Placement:
        return tuple(worker.place for worker in self.staying)

    @property
    def live(self) -> tuple[Worker, ...]:
        """Whose processes are there, or will be."""
        return tuple(worker for worker in self.workers if not worker.done)

    def change(self, number: int, **fields: Any) -> None:
        self.workers = tuple(replace(w, **fields) if w.number == number else w for w in self.workers)

    def remove(self, number: int) -> None:
        self.workers = tuple(worker for worker in self.workers if worker.number != number)

    def add(self, place: Place, stands_for: int = -1) -> Worker:
        """A new one, the last in order; who replaces a worker that has gone has its place in the order as well."""
        made = Worker(self.next_number, place, stands_for=stands_for)
        self.next_number += 1
        self.workers = (*self.workers, made)
        return made

    def replace_gone(self, number: int) -> Worker:
        """Another one where this one was, which has ended."""
        gone = next(worker for worker in self.workers if worker.number == number)
        made = Worker(self.next_number, gone.place)
        self.next_number += 1
        self.workers = tuple(made if worker is gone else worker for worker in self.workers)
        return made

    def next_members(self, ready: Collection[int]) -> tuple[int, ...]:
        """Survivors in their order, then who has become ready: nobody waits for one who has not said a word yet."""
        staying = {w.number for w in self.workers if not w.leaving and not w.done}
        survivors = tuple(number for number in self.members if number in staying)
        newcomers = (w.number for w in self.workers if w.number in staying and w.number in ready)
        return survivors + tuple(number for number in newcomers if number not in survivors)

    def renew(self, members: tuple[int, ...]) -> None:
        self.generation += 1
        self.members, self.store = members, ""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a worker is told. Who is not in it leaves."""

    generation: int
    workers: tuple[int, ...]  # in order of rank
    store: str = ""  # where they meet; "": the first in rank is to say
    batch: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """What a worker has said, checked: who it is, in which generation it works, and what has happened since."""

    job_id: int
    attempt: int
    worker: int
    generation: int = 0
    store: str = ""
    samples: int = 0
    seconds_ns: int = 0
    steps: int = 0
    waited_ns: int = 0  # of seconds_ns, for the others
    lost: bool = False
    joined: bool = False
    idle_ns: int = 0


class Mailbox:
    """What one worker is still to be told: only the newest counts."""

    def __init__(self, job_id: int, worker: int) -> None:
        self.job_id = job_id
        self.worker = worker
        self._news: Membership | Denied | None = None
        self._closed = False
        self._told = asyncio.Event()

    def put(self, news: Membership | Denied) -> None:
        self._news = news
        self._told.set()

    def close(self) -> None:
        """Nothing follows."""
        self._closed = True
        self._told.set()

    async def take(self) -> Membership | Denied | None:
        """The next, as soon as there is one; None: nothing follows."""
        while self._news is None and not self._closed:
            self._told.clear()
            await self._told.wait()
        news, self._news = self._news, None
        return news


def begin(job: Job) -> Crew:
    """The crew of a new attempt, a worker for each place."""
    crew = Crew(job.job_id, job.attempt)
    for place in job.placement:
        crew.add(place)
    return crew


def difference(workers: Sequence[Worker], wanted: Placement) -> tuple[list[Worker], list[Place]]:
    """(those who leave, the places of those who come): a worker whose place is still there stays. Of workers with
    equal places the last ones leave."""
    left = list(wanted)
    leaving = []
    for worker in workers:
        here = worker.place.node, worker.place.shares  # what else is known of a place may change while it is there
        same = next((place for place in left if (place.node, place.shares) == here), None)
        if same is None:
            leaving.append(worker)
        else:
            left.remove(same)
    return leaving, left


def is_crewed(job: Job) -> bool:
    """Whether its members are workers that come and go."""
    return job.spec.elastic is not None and job.spec.elastic.most_members > 0


def dump(crew: Crew) -> str:
    return seal(encode(crew))


def parse(text: str) -> Crew:
    """Raises ValueError."""
    made: Crew = decode(Crew, unseal(text))
    return made
