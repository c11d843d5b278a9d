"""A worker group with the test's own shell and clock: commands are executed at once, Stop at the test's request."""

from __future__ import annotations

from collections import deque
from typing import Any

from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.live_group import LiveGroup
from vgpud.core.elastic.worker_group import Membership, ProgressReport, Worker, WorkerGroup, new_group
from vgpud.core.elastic.workers import step
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import SECOND_NS, Ask, Elastic, Job, JobSpec, JobState, Place, Placement
from vgpud.core.model import Share, Spec
from vgpud.core.queue import group_record


def place(device: str) -> Place:
    return Place("n1", (Share(device, 500, 500, 1, 1),))


def places(devices: str) -> Placement:
    return tuple(place(device) for device in devices)


def job_of(workers: int, batch: int = 0, batch_max: int = 0, **spec: Any) -> Job:
    launch = Launch(0, 0, (), ("train",), "", "/", (), 0, (), "/log", batch=batch, batch_max=batch_max)
    made = JobSpec(Ask(Spec(500)), members=workers, elastic=Elastic(0, 0, 1, 8), run=launch, **spec)
    return Job(1, made, 0, state=JobState.RUNNING, attempt=1, placement=places("a" * workers))


class World:
    def __init__(self, workers: int, batch: int = 0, batch_max: int = 0, record: str = "", **spec: Any) -> None:
        self.job = job_of(workers, batch, batch_max, **spec)
        self.live = LiveGroup(self.job, group_record.parse(record) if record else new_group(self.job))
        self.now_ns = 0
        self.disk = record or group_record.dump(self.group)
        self.mail: dict[int, Membership] = {}  # by worker: sent, and not read yet
        self.unstartable: set[int] = set()
        self.slow_disk = False
        self.unsaved_generations: list[int] = []  # generations that the disk does not have yet
        self.started_workers: list[int] = []
        self.running: set[int] = {worker.number for worker in self.group.live}
        self.stopped_workers: list[int] = []
        self.notes: list[tuple[str, str]] = []
        self.resizes: list[tuple[Placement, str]] = []
        self.progress: list[ProgressReport] = []
        self.joins: list[tuple[int, ...]] = []
        self.end_count = 0
        self.begun_again = False

    @property
    def group(self) -> WorkerGroup:
        return self.live.record

    def worker(self, number: int) -> Worker:
        found = self.group.worker(number)
        assert found
        return found

    # ---- events in, commands out ----

    def send(self, event: we.Event) -> None:
        commands = deque(step(self.live, event, self.now_ns))
        while commands:
            commands += self._carry_out(commands.popleft())

    def _carry_out(self, command: we.Command) -> list[we.Command]:
        match command:
            case we.Save():
                self.disk = group_record.dump(self.group)
            case we.Start(worker):
                assert group_record.parse(self.disk).worker(worker), "it is saved before it is carried out"
                assert worker not in self.started_workers, "no number is used twice"
                self.started_workers.append(worker)
                if worker in self.unstartable:
                    return step(self.live, we.StartFailed(worker, "the disk is full"), self.now_ns)
                self.running.add(worker)
                return step(self.live, we.Started(worker), self.now_ns)
            case we.Stop(worker):
                self.stopped_workers.append(worker)
            case we.Tell(worker, membership):
                assert worker in self.live.streams
                self.mail[worker] = membership
            case we.Announce(generation):
                assert group_record.parse(self.disk).generation == generation, "it is saved before it is told"
                self.unsaved_generations.append(generation)
                return [] if self.slow_disk else self.disk_has()
            case we.Resized(placement, why):
                self.resizes.append((placement, why))
            case we.Note(kind, text):
                self.notes.append((kind, text))
            case we.Progress(report):
                self.progress.append(report)
            case we.Joined(members):
                self.joins.append(members)
            case we.StartAll():
                self.begun_again = True
            case we.Ended():
                assert not self.running
                self.end_count += 1
        return []

    def disk_has(self) -> list[we.Command]:
        """What was announced is on the disk now."""
        found = [
            step(self.live, we.MembershipSaved(generation), self.now_ns) for generation in self.unsaved_generations
        ]
        self.unsaved_generations.clear()
        return [command for commands in found for command in commands]

    def sleep(self, seconds: float) -> None:
        """Until then, with what is due meanwhile."""
        until_ns = self.now_ns + round(seconds * SECOND_NS)
        while (at_ns := self.live.next_deadline_ns()) is not None and at_ns <= until_ns:
            self.now_ns = max(self.now_ns, at_ns)
            self.send(we.Tick())
        self.now_ns = until_ns

    def ends(self, number: int, exit_code: int = 0, **fields: Any) -> None:
        self.running.discard(number)
        self.live.streams.discard(number)
        self.mail.pop(number, None)
        self.send(we.WorkerEnded(number, exit_code, **fields))

    # ---- what workers send, and receive ----

    def hello(self, worker: int, generation: int = 0) -> None:
        self.mail.pop(worker, None)
        self.send(we.StreamOpened(ProgressReport(1, 1, worker, generation)))

    def say(self, worker: int, **what: Any) -> None:
        self.send(we.Reported(ProgressReport(1, 1, worker, **({"generation": self.group.generation} | what))))

    def take_membership(self, worker: int) -> Membership:
        return self.mail.pop(worker)

    def begin(self, *workers: int) -> None:
        """All say hello and work together."""
        for worker in workers:
            self.hello(worker)
        self.meet(*workers)

    def meet(self, *workers: int) -> None:
        for worker in workers:
            assert self.take_membership(worker).workers == self.group.members
        self.say(self.group.members[0], store="127.0.0.1:5")
        for worker in workers:
            assert self.take_membership(worker).store == "127.0.0.1:5"
            self.say(worker, has_joined=True, idle_ns=5)
