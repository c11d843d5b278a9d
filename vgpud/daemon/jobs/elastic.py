"""The part of the composition root that stretches jobs while they run: elastic slices, and workers that come and go.

Made by JobDesk. As there, what has been decided is on the disk before anything of it is done: a daemon that is killed
at any point finds who works, who was to come and who was to leave, and goes on. An elastic slice is resized where it
is. Each worker of an elastic job has a slice and a supervisor of its own; membership.py tells them who works together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vgpud.core import admit
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, JobState, Place, Placement
from vgpud.core.model import Denied, Reason
from vgpud.daemon.jobs.launch import LaunchError
from vgpud.daemon.jobs.membership import WorkDesk
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.errors import StoreError, VgpudError
from vgpud.jobs import worker_group
from vgpud.jobs.messages import Key, Result, attempt_key
from vgpud.jobs.runner import Found, StartError
from vgpud.jobs.worker_group import Crew, Said, Worker, is_crewed

if TYPE_CHECKING:
    from vgpud.daemon.jobs.controller import JobDesk

log = logging.getLogger("vgpud")

#: exit code of a worker whose supervisor never answered
NEVER_BEGAN = 126
#: who comes to take the place of a straggler has so long to begin its work
STAND_IN_S = 600.0
#: workers that began beside one that could not are given up; how long that may take
ABANDON_S = 30.0
LOOK_S = 0.02


class ElasticDesk:
    """Resizes, and the workers of all jobs that have such. `kept`: crews as the former daemon saved them."""

    def __init__(self, desk: JobDesk, kept: Mapping[int, str]) -> None:
        self._desk = desk
        self.crews: dict[int, Crew] = {}
        self._resizing: dict[int, str] = {}  # job -> what went wrong so far
        self.work = WorkDesk(self, desk)
        for job_id, text in kept.items():
            try:
                self.crews[job_id] = worker_group.parse(text)
            except ValueError as error:
                log.error("the workers of job %d cannot be read, and are begun anew: %s", job_id, error)

    def numbers(self, job: Job) -> Sequence[int] | None:
        """Of its workers; None: it has no such."""
        if not is_crewed(job):
            return None
        crew = self.crew(job)
        return [worker.number for worker in crew.workers] if crew else ()

    def crew(self, job: Job) -> Crew | None:
        """Of its present attempt."""
        crew = self.crews.get(job.job_id)
        return crew if crew and crew.attempt == job.attempt else None

    def borrowed(self) -> set[str]:
        """Slices of workers that the queue does not count for their job, or not yet."""
        found: set[str] = set()
        for job_id, crew in self.crews.items():
            if job := self._desk.machine.jobs.get(job_id):
                counted = max(job.placement, job.resizing, key=len)
                left, _ = worker_group.difference(crew.workers, counted)
                found.update(JobSlices.of_worker(job_id, worker.number) for worker in left)
        return found

    def keep(self, crew: Crew) -> None:
        """It is written with the next transaction: on_disk() waits for that."""
        self._desk.keep_crew(crew.job_id, worker_group.dump(crew))

    def forget(self, job_id: int) -> None:
        """Its attempt has ended."""
        self._resizing.pop(job_id, None)
        self.work.forget(job_id)
        if self.crews.pop(job_id, None) is not None:
            self._desk.keep_crew(job_id, None)

    # ---- after a restart ----

    def keys(self, job: Job) -> list[Key]:
        """What of a job that ran may still run."""
        if not is_crewed(job):
            return [attempt_key(job.job_id, job.attempt)]
        crew = self.crew(job)
        return [attempt_key(job.job_id, job.attempt, w.number) for w in crew.live] if crew else []

    def settle(self, job: Job, found: Mapping[Key, Found | Result]) -> None:
        """Goes on with the workers of a job that ran for the former daemon."""
        crew = self.crew(job)
        fates = {w.number: found[attempt_key(job.job_id, job.attempt, w.number)] for w in crew.live} if crew else {}
        if crew is None or (crew.live and all(fate is Found.NEVER_BEGAN for fate in fates.values())):
            self._desk.start_again(job)
            return
        if not crew.live:
            self._finish(job, crew)
        if Found.RUNS not in fates.values():
            self._fail_all(crew, [fate for fate in fates.values() if isinstance(fate, Result)])
        for number, fate in fates.items():
            if isinstance(fate, Result):
                self.worker_ended(job.job_id, job.attempt, number, fate)
            elif fate is Found.GIVEN_UP:
                lost = Result(NEVER_BEGAN, why="its supervisor did not answer")
                self.worker_ended(job.job_id, job.attempt, number, lost)
            elif fate is Found.NEVER_BEGAN:
                self._desk.spawn(self._begin_late(job, crew, number))
            elif crew.ending:
                self._desk.spawn(self._stop_rest(job, crew))
        for worker in crew.workers:
            if worker.stands_for >= 0:
                self._give_time(crew, worker.number)
        self.work.adopt(crew)

    def goes_on(self, job: Job) -> None:
        """It runs again, or was found to run: what it has may be other than the queue was told or had decided on when

        it was suspended, or the former daemon was killed.
        """
        if job.spec.elastic is None or job.state is not JobState.RUNNING or job.resizing or job.stopping:
            return
        crew = self.crew(job)
        if crew and not crew.ending:
            leaving, coming = worker_group.difference(crew.staying, job.placement)
            if leaving or coming:
                self._resizing.setdefault(job.job_id, "it was found so")
                self._check_resized(job, crew)
        elif not is_crewed(job) and job.placement:
            known = {made.name: made for made in self._desk.slices.of(job)}
            pairs = list(zip(self._desk.slices.names(job), job.placement, strict=True))
            has = tuple(replace(place, shares=known[name].shares) for name, place in pairs if name in known)
            if has and has != job.placement:
                self._answer(job, has, "it was found so")

    def _fail_all(self, crew: Crew, results: Sequence[Result]) -> None:
        """None of them runs: where one has failed, or the machine was restarted, nobody has what was computed."""
        failed = next((r for r in results if (r.exit_code or r.lost) and not r.stopped), None)
        if failed:
            self._fail(crew, failed.exit_code or 1, failed.why or "all of its workers have ended", lost=failed.lost)
            self.keep(crew)

    async def _begin_late(self, job: Job, crew: Crew, number: int) -> None:
        """One that was to begin when the former daemon was killed."""
        async with self._desk.alone_with(job.job_id):
            worker = crew.worker(number)
            if worker and self.crew(job) is crew and (crew.ending or job.state is not JobState.RUNNING):
                crew.remove(number)
                self.keep(crew)
                await self._after(job, crew)
            elif worker and self.crew(job) is crew:
                if why := await self._begin_or_drop(job, crew, worker):
                    self._resizing.setdefault(job.job_id, why)
                self._check_resized(job, crew)

    # ---- starting ----

    async def begin(self, job: Job) -> Denied | None:
        """All of them or none; who calls abandons it then. Raises as daemon_launch, jobs and the store do."""
        crew = self.crew(job)
        if crew is None:
            self.forget(job.job_id)
            crew = self.crews[job.job_id] = worker_group.begin(job)
        self.keep(crew)
        await self._desk.on_disk([job.job_id])
        for worker in crew.live:
            denied = await self._begin(job, worker)
            if denied:
                return denied
        return None

    async def _begin(self, job: Job, worker: Worker) -> Denied | None:
        """Its slice, then its supervisor."""
        name, slices = JobSlices.of_worker(job.job_id, worker.number), []
        if job.spec.ask.spec.gpus_milli:
            denied = await self._desk.slices.make(job, name, worker.place.shares)
            if denied:
                return denied
            slices = [(name, self._desk.host.attach_path(name))]
        await self._desk.begin_attempt(job, slices, worker.number)
        return None

    async def _begin_or_drop(self, job: Job, crew: Crew, worker: Worker) -> str:
        """A worker that comes later. Why it does not, "" when it does."""
        try:
            await self._desk.on_disk([job.job_id])
            denied = await self._begin(job, worker)
            why = denied.message if denied else ""
        except (StartError, LaunchError, StoreError, VgpudError, OSError) as error:
            why = str(error)
        if why:
            self._desk.slices.remove_one(job.job_id, JobSlices.of_worker(job.job_id, worker.number))
            crew.remove(worker.number)
            self.keep(crew)
            self._desk.note("job.warning", job, f"worker {worker.number} could not be started: {why}")
        return why

    async def abandon(self, job: Job) -> None:
        """Some of it may have begun, and all of it cannot: nothing of it runs when this returns."""
        crew = self.crew(job)
        if crew is None:
            return
        keys = self.keys(job)
        for worker in crew.live:
            await self._desk.runner.stop(job.job_id, job.attempt, 0.0, worker.number)
        deadline = time.monotonic() + ABANDON_S
        while time.monotonic() < deadline and not set(keys).isdisjoint(self._desk.runner.running):
            await asyncio.sleep(LOOK_S)
        self._desk.slices.remove(job)
        self.forget(job.job_id)
        for worker in crew.live:
            await self._desk.runner.forget(job.job_id, job.attempt, worker.number)

    # ---- stopping ----

    async def stop(self, job: Job) -> bool:
        """All of its workers. Whether one runs: its end is told when all have gone."""
        crew = self.crew(job)
        if crew is None:
            return False
        crew.ending = True
        self.keep(crew)
        runs = [await self._stop_one(job, worker.number) for worker in crew.live]
        return any(runs)

    async def _stop_one(self, job: Job, number: int) -> bool:
        grace_s = self._desk.host.config.job_grace_s
        return await self._desk.runner.stop(job.job_id, job.attempt, grace_s, number)

    async def _stop_rest(self, job: Job, crew: Crew) -> None:
        for worker in crew.live:
            await self._stop_one(job, worker.number)

    async def stop_leaver(self, job_id: int, attempt: int, number: int) -> None:
        """One that has had time to leave by itself, or hears nothing."""
        job, crew = self._desk.machine.jobs.get(job_id), self.crews.get(job_id)
        worker = crew.worker(number) if crew and crew.attempt == attempt else None
        if job and worker and worker.leaving:
            await self._stop_one(job, number)

    # ---- ends ----

    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None:
        """All processes of it have gone (jobs.Backend)."""
        self._desk.spawn(self._ended(job_id, attempt, worker, result))

    async def _ended(self, job_id: int, attempt: int, number: int, result: Result) -> None:
        async with self._desk.alone_with(job_id):
            job, crew = self._desk.machine.jobs.get(job_id), self.crews.get(job_id)
            worker = crew.worker(number) if crew and crew.attempt == attempt else None
            if job and crew and worker and not worker.done:
                self._desk.slices.remove_one(job_id, JobSlices.of_worker(job_id, number))
                crew.cpu_ns += result.cpu_ns
                crew.ram_peak_bytes = max(crew.ram_peak_bytes, result.ram_peak_bytes)
                await self._count(job, crew, worker, result)
                self.keep(crew)
                await self._after(job, crew)
        try:
            await self._desk.on_disk([job_id])
        except StoreError as error:
            log.warning("the directory of job %d's worker %d stays: %s", job_id, number, error)
            return
        await self._desk.runner.forget(job_id, attempt, number)

    async def _count(self, job: Job, crew: Crew, worker: Worker, result: Result) -> None:
        """What becomes of the crew without this one."""
        number, failed = worker.number, bool(result.exit_code) or result.lost
        if crew.ending or (result.stopped and not worker.leaving):
            # also by a daemon that did not live to hear of its end
            crew.ending, crew.code = True, crew.code or result.exit_code
            crew.stopped |= result.stopped and not crew.why  # else it is stopped because another one has failed
            crew.remove(number)
        elif worker.leaving and worker.again and job.state is JobState.RUNNING:
            made = crew.replace_gone(number)
            self.keep(crew)
            if why := await self._begin_or_drop(job, crew, made):
                self._resizing.setdefault(job.job_id, why)
        elif worker.leaving or worker.stands_for >= 0:
            crew.remove(number)
        elif not failed:
            crew.change(number, done=True)
        elif self._may_replace(job, crew, worker):
            crew.failures += 1
            made = crew.replace_gone(number)
            self.keep(crew)
            why = f"worker {number} ended with exit code {result.exit_code}" + f": {result.why}" * bool(result.why)
            self._desk.note("job.worker_failed", job, f"{why}; worker {made.number} takes its place")
            if why := await self._begin_or_drop(job, crew, made):
                self._fail(crew, 1, f"worker {number} could not be replaced: {why}")
        else:
            why = f"worker {number} ended with it" + f": {result.why}" * bool(result.why)
            self._fail(crew, result.exit_code or 1, why, lost=result.lost)
            crew.remove(number)

    @staticmethod
    def _fail(crew: Crew, code: int, why: str, *, lost: bool = False) -> None:
        crew.ending, crew.code, crew.why, crew.lost = True, code, why, lost

    @staticmethod
    def _may_replace(job: Job, crew: Crew, worker: Worker) -> bool:
        """As often as the job may be tried again, and only if somebody has what it has computed so far. Nobody begins

        while the job is suspended: its room is others'.
        """
        if job.state is not JobState.RUNNING:
            return False
        others = [w for w in crew.staying if not w.done and w.number != worker.number]
        survive = any(other.number in crew.members for other in others) if crew.members else bool(others)
        return survive and not crew.over and crew.failures < job.spec.retries - job.failures

    async def _after(self, job: Job, crew: Crew) -> None:
        if not crew.live:
            self._finish(job, crew)
        elif crew.ending:
            await self._stop_rest(job, crew)
        else:
            self._check_resized(job, crew)
            self.work.changed(crew)

    def _finish(self, job: Job, crew: Crew) -> None:
        result = Result(
            crew.code,
            why=crew.why,
            stopped=crew.stopped,
            lost=crew.lost,
            cpu_ns=crew.cpu_ns,
            ram_peak_bytes=crew.ram_peak_bytes,
        )
        self._desk.spawn(self._desk.end(job.job_id, job.attempt, result))

    # ---- resizing ----

    async def resize(self, command: qe.ResizeJob) -> None:
        """Answered by Resized, now or when those who leave have gone."""
        async with self._desk.alone_with(command.job_id):
            job = self._desk.machine.jobs.get(command.job_id)
            try:
                await self._desk.on_disk([command.job_id])
            except StoreError as error:
                if job:
                    self._answer(job, job.placement, str(error))
                return
            if job is None or job.stopping or (job.state, job.attempt) != (JobState.RUNNING, command.attempt):
                return  # its end says all
            crew = self.crew(job)
            if not is_crewed(job):
                why = await self._resize_slice(job, command.placement)
                self._answer(job, job.placement if why else command.placement, why)
            elif crew and not crew.ending:
                await self._resize_crew(job, crew, command)

    async def _resize_slice(self, job: Job, placement: Placement) -> str:
        for name, place in zip(self._desk.slices.names(job), placement, strict=False):
            denied = await self._desk.slices.resize(job, name, place.shares)
            if denied:
                return denied.message
        return ""

    async def _resize_crew(self, job: Job, crew: Crew, command: qe.ResizeJob) -> None:
        for worker in crew.workers:
            if worker.stands_for >= 0:  # the queue does not know of it yet: not now
                crew.change(worker.number, leaving=True, stands_for=-1)
        leaving, places = worker_group.difference(crew.staying, command.placement)
        self._resizing[job.job_id] = ""
        if crew.over and places:
            places, self._resizing[job.job_id] = [], "its work is done: it is about to end"
        for worker in leaving:
            crew.change(worker.number, leaving=True, again=False)
        newcomers = [crew.add(place) for place in places]
        self.keep(crew)
        for worker in newcomers:
            self._resizing[job.job_id] = await self._begin_or_drop(job, crew, worker) or self._resizing[job.job_id]
        self.work.changed(crew, command.why)
        self._check_resized(job, crew)

    def _check_resized(self, job: Job, crew: Crew) -> None:
        if job.job_id in self._resizing and not any(worker.leaving for worker in crew.workers):
            self._answer(job, crew.placement, self._resizing.pop(job.job_id))

    def _answer(self, job: Job, placement: Placement, why: str) -> None:
        self._desk.soon(qe.Resized(job.job_id, job.attempt, placement, why))

    # ---- progress ----

    def progress(self, said: Said) -> Denied | None:
        """What a program has done, said without a stream."""
        job = self._desk.machine.jobs.get(said.job_id)
        if job is None or job.state is not JobState.RUNNING or job.attempt != said.attempt:
            return Denied(Reason.PRECONDITION, f"attempt {said.attempt} of job {said.job_id} does not run")
        self.work.on_progress(said)
        return None

    # ---- stragglers ----

    async def replace_straggler(self, job_id: int, number: int, why: str) -> None:
        """Another one comes first; this one leaves when that works (Or et al., MLSys'20, section 4.3)."""
        async with self._desk.alone_with(job_id):
            job, crew = self._desk.machine.jobs.get(job_id), self.crews.get(job_id)
            worker = crew.worker(number) if crew else None
            if job is None or crew is None or worker not in crew.staying or crew.ending or crew.over or worker is None:
                return
            if job.state is not JobState.RUNNING or any(other.stands_for >= 0 for other in crew.workers):
                return  # one at a time
            place = self._elsewhere(job, worker.place)
            made = crew.add(place, stands_for=number) if place else None
            self.keep(crew)
            if made is None or await self._begin_or_drop(job, crew, made):
                self._leave_and_again(crew, number)
                text = f"{why}; there is no room for another one beside it, so it leaves first"
            else:
                text = f"{why}; worker {made.number} takes the place of worker {number}"
                self._give_time(crew, made.number)
            self._desk.note("job.straggler", job, text)
            self.work.changed(crew, why)

    async def replace_silent(self, job_id: int, generation: int, numbers: Collection[int]) -> None:
        """They were told to work together long ago, and these have not begun to: the others wait for them."""
        async with self._desk.alone_with(job_id):
            job, crew = self._desk.machine.jobs.get(job_id), self.crews.get(job_id)
            if job is None or crew is None or crew.generation != generation or crew.ending or crew.over:
                return
            if job.state is not JobState.RUNNING:
                return
            for number in numbers:
                self._leave_and_again(crew, number)
                await self._stop_one(job, number)
            named = ", ".join(map(str, sorted(numbers)))
            self._desk.note("job.worker_failed", job, f"not heard of for too long, and begun anew: worker {named}")
            self.work.changed(crew, f"nothing is heard of worker {named}")

    def _leave_and_again(self, crew: Crew, number: int) -> None:
        crew.change(number, leaving=True, again=True)
        self.keep(crew)

    def stand_ins_work(self, crew: Crew) -> None:
        """All of the newest membership work in it: whom they stand for may leave."""
        job = self._desk.machine.jobs[crew.job_id]
        relieved = [w for w in crew.workers if w.stands_for >= 0 and w.number in crew.members]
        for worker in relieved:
            crew.change(worker.stands_for, leaving=True)
            crew.change(worker.number, stands_for=-1)
            self._resizing.setdefault(job.job_id, "")  # it may be on another device: the queue is told
        if relieved:
            self.keep(crew)
            self.work.changed(crew, "a straggler was replaced")

    def _elsewhere(self, job: Job, place: Place) -> Place | None:
        """Where there is as much for a while, on another device if possible; None: nowhere."""
        state = self._desk.host.state
        named = job.spec.ask.spec.device_uuids or tuple(state.devices)
        found = [place]
        if len(place.shares) == 1:
            (share,) = place.shares
            others = [uuid for uuid in state.devices if uuid in named and uuid != share.device_uuid]
            found = [*(replace(place, shares=(replace(share, device_uuid=uuid),)) for uuid in others), place]
        for one in found:
            if self._desk.machine.may_borrow(job.job_id, one) and not isinstance(admit.put(one.shares, state), Denied):
                return one
        return None

    def _give_time(self, crew: Crew, number: int) -> None:
        """Who stands for another has so long to begin its work: until then its job has one worker too many."""
        loop = asyncio.get_running_loop()
        loop.call_later(STAND_IN_S, lambda: self._desk.spawn(self._dismiss(crew, number)))

    async def _dismiss(self, crew: Crew, number: int) -> None:
        async with self._desk.alone_with(crew.job_id):
            worker = crew.worker(number)
            if self.crews.get(crew.job_id) is not crew or worker is None or worker.stands_for < 0 or crew.ending:
                return
            text = f"worker {number} has not begun to work in {STAND_IN_S:.0f} s: worker {worker.stands_for} stays"
            self._desk.note("job.straggler", self._desk.machine.jobs[crew.job_id], text)
            crew.change(number, leaving=True, stands_for=-1)
            self.keep(crew)
            self.work.changed(crew)
            await self._stop_one(self._desk.machine.jobs[crew.job_id], number)
