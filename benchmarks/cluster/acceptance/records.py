"""What the jobs' own records say: who ran when and where, and whether all that was asked for holds. Pure.

A record is a line of benchmarks/tenants/steps.c. A run that was killed has no last line: it ended when its checkpoint
was last written, which the next run's first line says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.cluster.acceptance.workload import Submission
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.core.units import MILLI_PER_DEVICE

#: of the limit of memory that a job sees, which is in granules
GRANULE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Record:
    word: str  # start, stop, end, again, overlap
    name: str
    rank: int
    job: str  # as scontrol takes it
    restarts: int
    node: str
    devices: tuple[int, ...]
    memory_bytes: int
    at_ns: int
    before_ns: int

    @classmethod
    def parse(cls, line: str) -> Record:
        """Raises ValueError."""
        word, name, rank, job, restarts, node, devices, memory, at_ns, before_ns = line.split()
        indices = tuple(int(part) for part in devices.split(",")) if devices != "-" else ()
        return cls(word, name, int(rank), job, int(restarts), node, indices, int(memory), int(at_ns), int(before_ns))


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one member of a job."""

    name: str
    rank: int
    job: str
    node: str
    devices: tuple[int, ...]
    begin_ns: int
    end_ns: int
    how: str  # end, stop, killed


def parse(text: str) -> list[Record]:
    """In the order of time. Raises ValueError."""
    return sorted((Record.parse(line) for line in text.splitlines()), key=lambda one: one.at_ns)


def runs(records: Iterable[Record]) -> list[Run]:
    """In the order of their begin. One that is not known to have ended is not among them."""
    open_runs: dict[tuple[str, int], Record] = {}
    found: list[Run] = []

    def close(begin_record: Record, end_ns: int, how: str) -> None:
        place = (begin_record.job, begin_record.node, begin_record.devices)
        found.append(
            Run(begin_record.name, begin_record.rank, *place, begin_record.at_ns, max(begin_record.at_ns, end_ns), how)
        )

    for record in records:
        member = record.name, record.rank
        begun = open_runs.pop(member, None)
        if record.word in ("end", "stop"):
            if begun:
                close(begun, record.at_ns, record.word)
        elif record.word == "overlap":
            if begun:
                open_runs[member] = begun
        else:
            if begun:
                # it had finished where the next one found nothing to do
                close(begun, record.before_ns, "end" if record.word == "again" else "killed")
            if record.word == "start":
                open_runs[member] = record
    return sorted(found, key=lambda run: run.begin_ns)


@dataclass(slots=True)
class Findings:
    """What was found. The lists name what is wrong, and are to be empty."""

    lost_jobs: list[str] = field(default_factory=list)  # jobs that have not ended
    repeated_jobs: list[str] = field(default_factory=list)  # that ended more than once, or ran twice at a time
    over_quota: list[str] = field(default_factory=list)
    over_device: list[str] = field(default_factory=list)
    too_early: list[str] = field(default_factory=list)  # before a job that they come after had ended
    memory: list[str] = field(default_factory=list)  # whose limit of memory was not that of their part
    starts: int = 0  # of jobs' programs, gangs counted once
    killed_runs: int = 0  # runs without a last word
    redone_runs: int = 0  # runs that found their work done: Slurm had forgotten the end
    most_milli: dict[str, int] = field(default_factory=dict)  # by queue, at one time
    ended_ns: dict[str, int] = field(default_factory=dict)  # by job

    @property
    def wrong(self) -> list[str]:
        return [
            f"{name}: {', '.join(found[:10])}"
            for name in ("lost_jobs", "repeated_jobs", "over_quota", "over_device", "too_early", "memory")
            if (found := getattr(self, name))
        ]


def check(
    submissions: Sequence[Submission],
    records: Sequence[Record],
    queues: Sequence[QueueSpec],
    device_bytes: int = 0,
) -> Findings:
    """`queues`: () where no queue has a limit. `device_bytes`: memory of a device, 0: limits are not looked at."""
    found = Findings()
    of = {job: one for one in submissions for job in one.jobs}
    known = runs(records)
    _ends(found, of, records, known)
    _quotas(found, of, known, queues)
    _devices(found, of, known)
    _order(found, submissions, known)
    if device_bytes:
        _memory(found, of, records, device_bytes)
    return found


def _ends(findings: Findings, of: Mapping[str, Submission], records: Sequence[Record], job_runs: Sequence[Run]) -> None:
    ended: dict[tuple[str, int], list[int]] = defaultdict(list)
    for run in job_runs:
        if run.how == "end":
            ended[run.name, run.rank].append(run.end_ns)
    for name, one in of.items():
        ends = [ended[name, rank] for rank in range(one.nodes)]
        if not all(ends):
            findings.lost_jobs.append(name)
        else:
            findings.ended_ns[name] = max(min(member) for member in ends)
        findings.repeated_jobs += [f"{name} ended {len(member)} times" for member in ends if len(member) > 1]
    findings.repeated_jobs += [f"{one.name} ran twice at a time" for one in records if one.word == "overlap"]
    over: set[tuple[str, int]] = set()
    for record in records:
        member = record.name, record.rank
        if record.word == "start" and member in over:
            findings.repeated_jobs.append(f"{record.name} worked again after its end")
        if record.word in ("end", "again"):
            over.add(member)
    findings.repeated_jobs += [f"{name} was not submitted" for name in {one.name for one in records} - of.keys()]
    findings.starts = sum(one.word == "start" and one.rank == 0 for one in records)
    findings.killed_runs = sum(run.how == "killed" for run in job_runs)
    findings.redone_runs = sum(one.word == "again" and one.rank == 0 for one in records)


def _changes(job_runs: Iterable[Run]) -> list[tuple[int, int, Run]]:
    """(time, -1 or 1, run): ends before begins of the same moment."""
    pairs = [change for run in job_runs for change in ((run.begin_ns, 1, run), (run.end_ns, -1, run))]
    return sorted(pairs, key=lambda one: one[:2])


def _quotas(
    findings: Findings, of: Mapping[str, Submission], job_runs: Sequence[Run], queues: Sequence[QueueSpec]
) -> None:
    limits = {queue.name: queue.limit_milli for queue in queues}
    used = dict.fromkeys({one.queue for one in of.values()}, 0)
    findings.most_milli = dict(used)
    for _, sign, run in _changes(run for run in job_runs if run.name in of):
        one = of[run.name]
        used[one.queue] += sign * one.node_milli
        findings.most_milli[one.queue] = max(findings.most_milli[one.queue], used[one.queue])
        if used[one.queue] > limits.get(one.queue, used[one.queue]):
            findings.over_quota.append(f"{one.queue} {used[one.queue]} with {run.name}")


def _devices(findings: Findings, of: Mapping[str, Submission], job_runs: Sequence[Run]) -> None:
    used: dict[tuple[str, int], int] = defaultdict(int)
    for _, sign, run in _changes(run for run in job_runs if run.name in of):
        milli = min(of[run.name].node_milli, MILLI_PER_DEVICE)
        for index in run.devices:
            used[run.node, index] += sign * milli
            if used[run.node, index] > MILLI_PER_DEVICE:
                findings.over_device.append(f"{run.node}/{index} {used[run.node, index]} with {run.name}")
        if len(run.devices) != -(-of[run.name].node_milli // MILLI_PER_DEVICE):
            findings.over_device.append(f"{run.name} has devices {run.devices} of {run.node}")


def _order(findings: Findings, submissions: Sequence[Submission], job_runs: Sequence[Run]) -> None:
    begins: dict[str, int] = {}
    for run in job_runs:
        begins.setdefault(run.name, run.begin_ns)
    jobs = {one.name: one.jobs for one in submissions}
    for one in submissions:
        for name in one.after:
            ends_ns = max((findings.ended_ns.get(job, 0) for job in jobs[name]), default=0)
            findings.too_early += [job for job in one.jobs if begins.get(job, ends_ns) < ends_ns]


def _memory(findings: Findings, of: Mapping[str, Submission], records: Sequence[Record], device_bytes: int) -> None:
    """As vgpud limits it: the part of its device that a job has."""
    for one in records:
        if one.word != "start" or one.name not in of:
            continue
        milli = min(of[one.name].node_milli, MILLI_PER_DEVICE)
        wanted = device_bytes * milli // MILLI_PER_DEVICE
        if not wanted - GRANULE_BYTES <= one.memory_bytes <= wanted:
            findings.memory.append(f"{one.name} {one.memory_bytes}, not {wanted}")


def mean_jct_s(submissions: Sequence[Submission], ended_ns: Mapping[str, int], begin_ns: int) -> float:
    """Average time from a job's submission to its end, of the jobs that have ended."""
    times = jct_s(submissions, ended_ns, begin_ns).values()
    return sum(times) / len(times) if times else float("nan")


def jct_s(submissions: Sequence[Submission], ended_ns: Mapping[str, int], begin_ns: int) -> dict[str, float]:
    """By job. `begin_ns`: when the first submission could come."""
    return {
        job: round((ended_ns[job] - begin_ns) / SECOND_NS - one.at_s, 3)
        for one in submissions
        for job in one.jobs
        if job in ended_ns
    }
