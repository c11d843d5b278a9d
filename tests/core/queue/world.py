"""The machine of the queue with a shell that carries its commands out: counted GPUs, a clock that is set by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from vgpud.core.jobs.events import (
    Command,
    Event,
    JobEnded,
    JobSuspended,
    Resized,
    ResizeJob,
    StartJob,
    StopJob,
    Submitted,
    Wake,
    Woken,
)
from vgpud.core.jobs.model import (
    NEVER_NS,
    SECOND_NS,
    Ask,
    How,
    Job,
    JobSpec,
    JobState,
    Node,
    Place,
    Placement,
    QueueSpec,
)
from vgpud.core.model import Share, Spec
from vgpud.core.placement.base import Direct, Turns, Vacancy
from vgpud.core.policy.base import Plain, Policy
from vgpud.core.queue.machine import Machine
from vgpud.core.units import format_gpus


class CountedCluster:
    """So many milli-GPU, wherever they are."""

    def __init__(self, total_milli: int) -> None:
        self._total = self._free = total_milli
        self._direct = 0

    def place(self, job: Job) -> Placement | None:
        width = job.spec.width_milli
        if width > self._free:
            return None
        if job.spec.elastic and job.spec.elastic.most_members:
            one = job.spec.ask.width_milli
            return (Place("n", (Share("all", one, one, 0, 0),)),) * job.spec.members
        return (Place("n", (Share("all", width, width, 0, 0),)),)

    def place_outside(self, job: Job, closed: Collection[str]) -> Placement | None:
        return None if closed else self.place(job)

    def fits(self, placement: Placement) -> bool:
        return self._width(placement) <= self._free

    def suits(self, job: Job, placement: Placement) -> bool:
        return self.fits(placement)

    def ask_vacancy(self, spec: JobSpec, placement: Placement) -> Vacancy | None:
        return None  # as with rules that look at residents: every question is answered by placing the job

    def offers(self, placement: Placement) -> bool:
        return True

    def has_devices(self, job: Job, placement: Placement) -> bool:
        return placement != () or job.spec.width_milli <= self._total

    def shared(self, spec: JobSpec) -> JobSpec:
        return spec

    def annotate_placement(self, job: Job, placement: Placement) -> Placement:
        return placement

    def count_ask(self, ask: Ask) -> None:
        return

    def lose(self, kind: str, other: str) -> None:
        return

    def pairs(self) -> tuple[tuple[str, str], ...]:
        return ()

    def shortage(self, placement: Placement) -> str:
        return "" if self.fits(placement) else f"{format_gpus(self._free)} GPUs are free"

    def take(self, placement: Placement) -> None:
        self._free -= self._width(placement)

    def release(self, placement: Placement) -> None:
        self._free += self._width(placement)

    def total_milli(self) -> int:
        return self._total

    def free_milli(self) -> int:
        return self._free

    def replace_nodes(self, nodes: Sequence[Node]) -> list[str]:
        raise AssertionError("its GPUs are on no nodes")

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        return

    def change(
        self,
        node: str,
        direct: Direct,
        offered_uuids: tuple[str, ...],
        in_turn: Turns = (),
        swap_bytes: int = NEVER_NS,
    ) -> None:
        held = sum(milli for _, milli, _ in direct)
        self._free += self._direct - held
        self._direct = held

    def never_fits_reason(self, job: Job) -> str:
        width = job.spec.width_milli
        return "" if width <= self._total else f"{format_gpus(width)} GPUs are more than there are"

    def why_here(self, job: Job, placement: Placement) -> str:
        return ""

    def why_not(self, job: Job) -> str:
        return f"{format_gpus(job.spec.width_milli)} GPUs are asked for, {format_gpus(self._free)} are free"

    @staticmethod
    def _width(placement: Placement) -> int:
        return sum(share.min_milli for place in placement for share in place.shares)


class Fifo(Plain):
    name = "fifo"
    preempts = False

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (job.submitted_ns,)


class Priority(Plain):
    name = "priority"

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (-job.spec.priority,)


class LeastService(Plain):
    """Levels by attained service of 10 GPU-seconds each."""

    name = "least"

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (job.level,)

    def touch(self, job: Job, now_ns: int) -> None:
        job.level = job.attained_at(now_ns) // (10_000 * SECOND_NS)

    def changes_at(self, job: Job, now_ns: int) -> int:
        if job.state is not JobState.RUNNING:
            return 1 << 62
        left = (job.level + 1) * 10_000 * SECOND_NS - job.attained_at(now_ns)
        return now_ns - (-left // job.width_milli)


class Shortest(Plain):
    """Remaining time: that of a job that runs shrinks."""

    name = "shortest"
    drifts = True

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (0, job.spec.duration_ns - job.executed_at(now_ns))

    def pace(self, job: Job) -> int:
        return 1


class Rank(Plain):
    """By what all jobs have used: known only when all are."""

    name = "rank"
    dynamic = True
    least_attained_ns = 0

    def before_all(self, jobs: list[Job], now_ns: int) -> None:
        self.least_attained_ns = min((job.attained_at(now_ns) for job in jobs), default=0)

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (job.attained_at(now_ns) - self.least_attained_ns,)


class Learning(Plain):
    """Turns its order round with each job that ends."""

    name = "learning"

    def __init__(self) -> None:
        self.epoch = 0

    def record_end(self, job: Job) -> None:
        self.epoch += 1

    def key(self, job: Job, now_ns: int) -> tuple[int, ...]:
        return (job.job_id if self.epoch % 2 else -job.job_id,)


POLICIES: dict[str, Callable[[], Policy]] = {"fifo": Fifo, "priority": Priority, "least": LeastService}
POLICIES |= {"shortest": Shortest, "rank": Rank, "learning": Learning}


def make_policy(name: str) -> Policy:
    return POLICIES[name]()


def gpus(amount: float, **fields: object) -> JobSpec:
    """A job's spec: so many GPUs."""
    return JobSpec(Ask(Spec(round(amount * 1000))), **fields)  # type: ignore[arg-type]


def queue(name: str = "default", **fields: object) -> QueueSpec:
    return QueueSpec(name, **{"min_run_ns": 0, **fields})  # type: ignore[arg-type]


@dataclass
class Shell:
    """Carries out what the machine says. `slow`: stops and resizes are answered only when the test says so."""

    machine: Machine
    now_ns: int = 0
    slow: bool = False
    log: list[Command] = field(default_factory=list)
    stops: list[StopJob] = field(default_factory=list)
    resizes: list[ResizeJob] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    starts: list[int] = field(default_factory=list)
    wake_ns: int | None = None
    next_id: int = 1

    def send(self, *events: Event) -> list[Command]:
        return self.carry(self.machine.steps(events, self.now_ns))

    def restore(self, jobs: Iterable[Job]) -> list[Command]:
        return self.carry(self.machine.restore(jobs, self.now_ns))

    def carry(self, commands: list[Command]) -> list[Command]:
        """Executes them."""
        self.log += commands
        for command in commands:
            if isinstance(command, StartJob):
                assert command.job_id not in self.running, "started twice"
                self.running.add(command.job_id)
                self.starts.append(command.job_id)
            elif isinstance(command, StopJob):
                self.stops.append(command)
            elif isinstance(command, ResizeJob):
                assert command.job_id in self.running
                self.resizes.append(command)
            elif isinstance(command, Wake):
                self.wake_ns = command.at_ns
        if self.stops and not self.slow:
            commands = commands + self.answer_stops()
        if self.resizes and not self.slow:
            commands = commands + self.answer_resizes()
        return commands

    def answer_resizes(self) -> list[Command]:
        """All that were to become larger or smaller have done so, except those that are to stop."""
        resizes, self.resizes = self.resizes, []
        return self.send(*(Resized(one.job_id, one.attempt, one.placement) for one in resizes))

    def answer_stops(self) -> list[Command]:
        """All that were to stop have stopped."""
        stops, self.stops = self.stops, []
        events: list[Event] = []
        for job_id in dict.fromkeys(stop.job_id for stop in stops):
            how = [stop.how for stop in stops if stop.job_id == job_id][-1]
            self.running.discard(job_id)
            job = self.machine.jobs[job_id]
            events.append(JobSuspended(job_id, how) if how is not None else JobEnded(job_id, job.attempt, 143))
        return self.send(*events)

    def submit(self, spec: JobSpec, count: int = 1, held: bool = False) -> int:
        """The first job's id."""
        ids = tuple(range(self.next_id, self.next_id + count))
        self.next_id += count
        assert self.machine.check(spec, count) is None
        self.send(Submitted(ids, spec, held))
        return ids[0]

    def end(self, job_id: int, exit_code: int = 0) -> None:
        self.running.discard(job_id)
        self.stops = [stop for stop in self.stops if stop.job_id != job_id]
        self.send(JobEnded(job_id, self.machine.jobs[job_id].attempt, exit_code))

    def sleep(self, seconds: float) -> None:
        """Time passes; the machine is woken when it asked for it."""
        until_ns = self.now_ns + round(seconds * SECOND_NS)
        while self.wake_ns is not None and self.wake_ns <= until_ns:
            self.now_ns, self.wake_ns = max(self.now_ns, self.wake_ns), None
            self.send(Woken())
        self.now_ns = until_ns

    def state(self, job_id: int) -> str:
        return self.machine.jobs[job_id].state.value

    def job(self, job_id: int) -> Job:
        return self.machine.jobs[job_id]

    def reason(self, job_id: int) -> str:
        return self.machine.reason(job_id, self.now_ns)


def shell(
    total: float, *queues: QueueSpec, slow: bool = False, hows: Iterable[How] = (How.EVICT,), moves: bool = True
) -> Shell:
    """A machine with so many GPUs."""
    cluster = CountedCluster(round(total * 1000))
    return Shell(Machine(queues or (queue(),), cluster, make_policy, hows=tuple(hows), moves=moves), slow=slow)
