"""Who works together: the memberships of elastic jobs' workers, and what their processes say (api/workers.py).

Part of the composition root, made by ElasticDesk. A membership is made of workers that have said they are ready, so
that nobody waits for another one's imports; it is saved before it is told, and its number only grows. Survivors keep
their order, so the first of them has the state. A worker whose stream has gone stays a member while its process lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.model import Denied, Reason
from vgpud.errors import StoreError
from vgpud.jobs.worker_group import Crew, Mailbox, Membership, Said

if TYPE_CHECKING:
    from vgpud.daemon.jobs.controller import JobDesk
    from vgpud.daemon.jobs.elastic import ElasticDesk

log = logging.getLogger("vgpud")

#: so long are those waited for who have begun with one that is ready
READY_S = 30.0
#: a collective that failed: so long it takes at most until the death behind it is known
LOST_S = 1.0
#: who is to leave has this long from when all others work without it, and this long altogether
LEAVE_S, LEAVE_MAX_S = 30.0, 600.0
#: members that do not come together for so long have lost one that still lives: no step, no epoch is that long
JOIN_MAX_S = 3600.0


@dataclass
class Roster:
    """Of one job: who is there. All of it is said anew to the next daemon."""

    attempt: int
    ready: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)  # who works in the newest membership
    told: set[int] = field(default_factory=set)  # who has to know of it: its members, and those of the one before
    reason: str = ""  # of the newest membership
    coming: str = ""  # why others are to come
    boxes: dict[int, Mailbox] = field(default_factory=dict)
    leavers: set[int] = field(default_factory=set)  # whose time runs
    waits: asyncio.TimerHandle | None = None
    silence: asyncio.TimerHandle | None = None  # when it is looked who has not begun to work in the newest membership
    idle_ns: int = 0  # the longest that a member did nothing for the newest membership


class WorkDesk:
    """`heard`: who is told of progress (job id, what was said); `changed_size`: and that another size works."""

    def __init__(self, elastic: ElasticDesk, desk: JobDesk) -> None:
        self._elastic = elastic
        self._desk = desk
        self._rosters: dict[int, Roster] = {}
        self.on_progress: Callable[[Said], None] = lambda said: None
        self.on_complete: Callable[[Crew], None] = lambda crew: None

    def forget(self, job_id: int) -> None:
        roster = self._rosters.pop(job_id, None)
        if roster:
            self._stop_waiting(roster)
            if roster.silence:
                roster.silence.cancel()
            for box in roster.boxes.values():
                box.put(_ended(job_id, roster.attempt))

    def adopt(self, crew: Crew) -> None:
        """A crew that the former daemon has left: who was to leave is given its time anew, to come back and hear it."""
        roster = self._roster(crew)
        for worker in crew.workers:
            if worker.leaving:
                roster.leavers.add(worker.number)
                asyncio.get_running_loop().call_later(LEAVE_MAX_S, self._end_leaver, crew, worker.number)
        self.changed(crew)

    def _roster(self, crew: Crew) -> Roster:
        roster = self._rosters.get(crew.job_id)
        if roster is None or roster.attempt != crew.attempt:
            self.forget(crew.job_id)
            roster = self._rosters[crew.job_id] = Roster(crew.attempt)
        return roster

    # ---- what workers say ----

    def open(self, said: Said) -> Mailbox | Denied:
        """A worker's first message: from now on it is ready. Another stream of the same worker ends."""
        job = self._desk.machine.jobs.get(said.job_id)
        crew = self._elastic.crew(job) if job and not job.state.ended else None
        worker = crew.worker(said.worker) if crew and crew.attempt == said.attempt else None
        if job is None or crew is None or worker is None or worker.done:
            return _no_worker(job, said)
        roster = self._roster(crew)
        if before := roster.boxes.pop(said.worker, None):
            before.close()
        box = roster.boxes[said.worker] = Mailbox(said.job_id, said.worker)
        roster.ready.add(said.worker)
        if said.generation > crew.generation:  # told by a daemon that did not live to keep it
            crew.generation, crew.members, crew.store = said.generation, (), ""
            self._elastic.keep(crew)
        if crew.over:
            box.put(Membership(crew.generation + 1, (), reason="the work is done"))
        elif said.worker in crew.members and said.generation == crew.generation:
            self._joined(crew, roster, said)
        elif said.worker in crew.members or worker.leaving:
            box.put(self._membership(crew, roster))
        else:
            self._expect(crew, roster)
        return box

    def close(self, box: Mailbox) -> None:
        """Its stream has ended; the process may come back by another one."""
        roster = self._rosters.get(box.job_id)
        if roster and roster.boxes.get(box.worker) is box:
            del roster.boxes[box.worker]

    def heard(self, said: Said) -> None:
        """A further message."""
        crew = self._elastic.crews.get(said.job_id)
        roster = self._rosters.get(said.job_id)
        if crew is None or roster is None or crew.attempt != said.attempt or crew.worker(said.worker) is None:
            return
        newest = said.generation == crew.generation
        if said.store and newest and crew.members[:1] == (said.worker,) and said.store != crew.store:
            crew.store = said.store
            self._elastic.keep(crew)
            self._tell(crew, roster)
        if said.joined and newest:
            self._joined(crew, roster, said)
        if said.lost and crew.over:
            self._tell_over(crew, roster, said.worker)
        elif said.lost and newest:
            asyncio.get_running_loop().call_later(LOST_S, self._lost, said.job_id, crew.generation)
        if said.steps or said.samples:
            self.on_progress(said)

    def _lost(self, job_id: int, generation: int) -> None:
        crew = self._elastic.crews.get(job_id)
        if crew and crew.generation == generation and not crew.ending:
            self._renew(crew, "the workers lost each other", force=True)

    def _joined(self, crew: Crew, roster: Roster, said: Said) -> None:
        fresh = not roster.joined.issuperset(crew.members)
        roster.joined.add(said.worker)
        roster.idle_ns = max(roster.idle_ns, said.idle_ns)
        if not fresh or not roster.joined.issuperset(crew.members):
            return
        job = self._desk.machine.jobs[crew.job_id]
        if roster.told:
            idle = f", and did nothing for {roster.idle_ns / 1e9:.2f} s" if roster.idle_ns else ""
            self._desk.note("job.workers", job, f"{_count(len(crew.members))} work together{idle}: {roster.reason}")
        for worker in crew.workers:
            if worker.leaving:
                asyncio.get_running_loop().call_later(LEAVE_S, self._end_leaver, crew, worker.number)
        self._desk.spawn(self._complete(crew))

    async def _complete(self, crew: Crew) -> None:
        async with self._desk.alone_with(crew.job_id):
            if self._elastic.crews.get(crew.job_id) is crew:
                self.on_complete(crew)
                self._elastic.stand_ins_work(crew)

    # ---- who works together ----

    def _expect(self, crew: Crew, roster: Roster) -> None:
        """A newcomer is ready: the others that come with it are waited for, but not for ever."""
        coming = {w.number for w in crew.workers if not w.leaving and not w.done} - set(crew.members)
        if coming <= roster.ready:
            self._renew(crew, roster.coming or _start_reason(crew))
            roster.coming = ""
        elif roster.waits is None:
            loop = asyncio.get_running_loop()
            roster.waits = loop.call_later(READY_S, self._wait_no_longer, crew, roster)

    def _wait_no_longer(self, crew: Crew, roster: Roster) -> None:
        roster.waits = None
        if self._rosters.get(crew.job_id) is roster and not crew.ending:
            self._renew(crew, f"after {READY_S:.0f} s the others are not waited for")

    @staticmethod
    def _stop_waiting(roster: Roster) -> None:
        if roster.waits:
            roster.waits.cancel()
            roster.waits = None

    def changed(self, crew: Crew, reason: str = "") -> None:
        """Workers were told to leave, have ended or are to come."""
        roster = self._roster(crew)
        there = {worker.number: worker for worker in crew.workers}
        roster.ready &= there.keys()
        if crew.over:
            for number in set(roster.boxes) - set(crew.members):
                self._tell_over(crew, roster, number)
        elif any(n not in there or there[n].leaving for n in crew.members):
            gone = [number for number in crew.members if number not in there]
            self._renew(crew, f"worker {gone[0]} has ended" if gone and not reason else reason)
        elif crew.workers:
            roster.coming = reason or roster.coming
            self._look_for_newcomers(crew, roster)
        for worker in crew.workers:
            if worker.leaving and worker.number not in roster.leavers:
                roster.leavers.add(worker.number)
                hears = worker.number in roster.boxes and worker.number in (*crew.members, *roster.told)
                after_s = LEAVE_MAX_S if hears else 0.0
                asyncio.get_running_loop().call_later(after_s, self._end_leaver, crew, worker.number)

    def _look_for_newcomers(self, crew: Crew, roster: Roster) -> None:
        """One that was waited for may have ended: then nobody else is."""
        if any(w.number in roster.ready and w.number not in crew.members for w in crew.staying):
            self._expect(crew, roster)

    def _end_leaver(self, crew: Crew, number: int) -> None:
        self._desk.spawn(self._elastic.stop_leaver(crew.job_id, crew.attempt, number))

    def _renew(self, crew: Crew, reason: str, *, force: bool = False) -> None:
        roster = self._roster(crew)
        members = crew.next_members(roster.ready)
        if crew.over or crew.ending or not members or (members == crew.members and not force):
            return
        self._stop_waiting(roster)
        roster.told = {*crew.members, *members}
        roster.joined, roster.reason, roster.idle_ns = set(), reason, 0
        crew.renew(members)
        self._elastic.keep(crew)
        self._desk.spawn(self._announce(crew, roster, crew.generation))

    async def _announce(self, crew: Crew, roster: Roster, generation: int) -> None:
        try:
            await self._desk.on_disk([crew.job_id])
        except StoreError as error:  # it is told all the same: survivors go on, and say their number to the next daemon
            log.warning("%s", error)
        if crew.generation == generation:
            self._tell(crew, roster)
            self._look_later(crew, roster)

    def _look_later(self, crew: Crew, roster: Roster) -> None:
        """One timer for a job, however often its memberships change."""
        if roster.silence:
            roster.silence.cancel()
        loop = asyncio.get_running_loop()
        roster.silence = loop.call_later(JOIN_MAX_S, self._look_for_silent, crew, roster, crew.generation)

    def _look_for_silent(self, crew: Crew, roster: Roster, generation: int) -> None:
        job = self._desk.machine.jobs.get(crew.job_id)
        if crew.generation != generation or self._rosters.get(crew.job_id) is not roster or job is None:
            return
        silent = set(crew.members) - roster.joined
        if job.state is not JobState.RUNNING:  # they stand still: that is no fault of theirs
            self._look_later(crew, roster)
        elif silent and silent != set(crew.members):
            self._desk.spawn(self._elastic.replace_silent(crew.job_id, generation, silent))

    def _tell(self, crew: Crew, roster: Roster) -> None:
        for number in sorted(roster.told | set(crew.members)):
            if box := roster.boxes.get(number):
                box.put(self._membership(crew, roster))

    def _tell_over(self, crew: Crew, roster: Roster, number: int) -> None:
        if box := roster.boxes.get(number):
            box.put(Membership(crew.generation + 1, (), reason="the work is done"))

    def _membership(self, crew: Crew, roster: Roster) -> Membership:
        batch = self._batch(self._desk.machine.jobs[crew.job_id], len(crew.members))
        return Membership(crew.generation, crew.members, crew.store, batch, roster.reason)

    @staticmethod
    def _batch(job: Job, workers: int) -> int:
        """The global batch of so many: what the user gave, grown with them up to what he allows."""
        launch, elastic = job.spec.run, job.spec.elastic
        if not isinstance(launch, Launch) or elastic is None or not launch.batch_max:
            return launch.batch if isinstance(launch, Launch) else 0
        return min(launch.batch_max, launch.batch * workers // max(1, elastic.least_members))


def _count(workers: int) -> str:
    return f"{workers} worker{'s' * (workers != 1)}"


def _start_reason(crew: Crew) -> str:
    return "more workers are there" if crew.members else "all that were started are there"


def _ended(job_id: int, attempt: int) -> Denied:
    return Denied(Reason.PRECONDITION, f"attempt {attempt} of job {job_id} has ended")


def _no_worker(job: Job | None, said: Said) -> Denied:
    if job is None or job.state.ended or job.attempt != said.attempt:
        return _ended(said.job_id, said.attempt)
    if job.state is not JobState.RUNNING and job.suspended_how is None:
        return Denied(Reason.PRECONDITION, f"job {said.job_id} does not run: it is {job.state.value}")
    text = f"job {said.job_id} has no worker {said.worker} now: start the program by vgpu submit --workers"
    return Denied(Reason.PRECONDITION, text, "worker")
