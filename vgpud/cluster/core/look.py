"""One look at Slurm: what the decisions on a job need to know besides that job, and what follows from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from vgpud.cluster.core.dependencies import Ends
from vgpud.cluster.core.model import Binding, Order, Phase, Settings, SlurmJob
from vgpud.cluster.core.registrations import Registrations
from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.queue.machine import Machine

#: exit code of a job whose end was not seen
UNSEEN = 255
WAITING = (JobState.PENDING, JobState.HELD)


@dataclass(slots=True)
class Decided:
    """What follows from one look. `jobs`, `bindings` and `ended_jobs` are saved before an order is carried out."""

    orders: list[Order] = field(default_factory=list)
    steps: int = 0  # of the machine
    jobs: dict[int, Job] = field(default_factory=dict)
    bindings: dict[str, Binding | None] = field(default_factory=dict)  # None: it is no more
    ended_jobs: list[tuple[str, Job]] = field(default_factory=list)
    notes: list[qe.Note] = field(default_factory=list)
    faults: list[tuple[str, Exception]] = field(default_factory=list)  # of jobs that could not be looked at


@dataclass(slots=True)
class Look:
    """The machine gets `requests` and `answers`, which are events, when all jobs have been looked at."""

    now_ns: int
    began_ns: int  # when the controller did
    machine: Machine
    settings: Settings
    queues: Collection[str]  # names of those that jobs may enter
    by_key: Mapping[str, SlurmJob]
    registrations: Registrations
    outcome: Decided
    reruns: Collection[str] = ()  # jobs whose end does not count
    ends: Ends = field(default_factory=lambda: Ends(()))
    requests: list[qe.Event] = field(default_factory=list)
    answers: list[qe.Event] = field(default_factory=list)
    jobs_to_order: list[int] = field(default_factory=list)  # jobs that the machine has started or stopped

    def note_reruns(self, keys: Collection[str]) -> None:
        """Others that come after those jobs are not to see the ends that do not count."""
        self.reruns = keys
        jobs = self.by_key.values()
        self.ends = Ends([replace(job, state="REQUEUED") if job.key in keys else job for job in jobs] if keys else jobs)

    def note_missing(self, job: Job) -> None:
        """squeue shows jobs for a while after their end (MinJobAge): it ended when no controller looked."""
        why = "Slurm does not know it any longer: its end was not seen"
        if job.state in WAITING:
            self.requests.append(qe.Cancelled(job.job_id, why))
        elif job.state is JobState.RUNNING:
            self.answers.append(qe.JobEnded(job.job_id, job.attempt, UNSEEN, why))

    def runs(self, job: Job) -> bool:
        """Whether Slurm says so."""
        shown = self.by_key.get(job.spec.name)
        return shown is not None and shown.phase is Phase.RUNS

    def list_ended(self) -> set[int]:
        """Jobs that have given their nodes back."""
        answers = (one for one in self.answers if isinstance(one, qe.JobEnded | qe.JobSuspended | qe.StartFailed))
        return {event.job_id for event in answers}

    def list_starting_nodes(self, jobs: Iterable[Job]) -> set[str]:
        """Nodes of those jobs, which are to run, that were released and do not run yet."""
        shown = ((job, self.by_key.get(job.spec.name)) for job in jobs)
        starting = (job for job, one in shown if one is not None and one.phase is Phase.WAITS and not one.held)
        return {place.node for job in starting for place in job.placement}
