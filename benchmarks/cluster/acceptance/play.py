"""One run of the jobs on a site, with kills or without, until all have ended."""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.cluster.acceptance import records
from benchmarks.cluster.acceptance.faults import Fault
from benchmarks.cluster.acceptance.records import Record
from benchmarks.cluster.acceptance.site import SLURMCTLD, Folder, Site
from benchmarks.cluster.acceptance.submitter import Submitter
from benchmarks.cluster.acceptance.workload import Submission, span_s

#: how much longer than the submissions a run may take
LONGER_S = 600.0
TURN_S = 0.2
#: how often the records are read; how long Slurm may need for its last jobs' ends
READ_S, SETTLE_S = 1.0, 30.0
#: states that Slurm's account of ended jobs has of one that runs again
AGAIN = ("REQUEUED", "COMPLETED")


@dataclass(slots=True)
class Played:
    """What a run left behind."""

    begin_ns: int  # wall clock, as in the records
    seconds: float
    records: list[Record]
    faults: list[Fault] = field(default_factory=list)  # those that took place
    forgotten_jobs: list[str] = field(default_factory=list)  # submissions that slurmctld had accepted and not saved
    drained: int = 0  # how often Slurm drained a node
    refused_calls: int = 0
    late_s: float = 0.0
    failed: list[str] = field(default_factory=list)  # jobs that have not completed, as Slurm has it
    log_text: str = ""


def play(site: Site, folder: Folder, submissions: Sequence[Submission], faults: Sequence[Fault] = ()) -> Played:
    """Raises PartError when a daemon ends that was not killed, RuntimeError when a job is not taken."""
    begin_s, begin_ns = time.monotonic(), time.time_ns()
    submitter = Submitter(site, folder, submissions, begin_s)
    made = Played(begin_ns, 0.0, [])
    try:
        _until_ended(site, folder, submissions, submitter, made, list(faults), begin_s)
    finally:
        submitter.stop()
    made.seconds = time.monotonic() - begin_s
    made.forgotten_jobs, made.refused_calls, made.late_s = (
        submitter.forgotten_jobs,
        submitter.refused_calls,
        submitter.late_s,
    )
    _settle(site)
    made.drained = site.drained()
    made.records = records.parse(folder.records())
    of_run = {one.name for one in submissions}
    ended = site.ended_jobs().items()
    made.failed = sorted(
        f"{name} ({number}) {state}" for number, (name, state) in ended if name in of_run and state not in AGAIN
    )
    made.log_text = folder.read_output()
    return made


def _until_ended(
    site: Site,
    folder: Folder,
    submissions: Sequence[Submission],
    submitter: Submitter,
    outcome: Played,
    faults: list[Fault],
    begin_s: float,
) -> None:
    starts: list[tuple[float, str, str]] = []  # when a killed daemon is started again
    until_s = begin_s + span_s(submissions) + LONGER_S
    read_s = killed_s = begin_s
    while True:
        now_s = time.monotonic()
        if submitter.error is not None:
            raise submitter.error
        if faults and now_s - begin_s >= faults[0].at_s:
            fault = faults.pop(0)
            if (fault.kind, fault.node) in {start[1:] for start in starts}:
                continue  # it is away already
            if fault.kind == SLURMCTLD:
                submitter.slurmctld_goes()
            site.kill(fault.kind, fault.node, gentle=fault.gentle)
            outcome.faults.append(fault)
            if fault.kind == SLURMCTLD:
                killed_s = time.monotonic()
            heapq.heappush(starts, (time.monotonic() + fault.away_s, fault.kind, fault.node))
        if starts and now_s >= starts[0][0]:
            _, kind, node = heapq.heappop(starts)
            site.start(kind, node)
            if kind == SLURMCTLD:
                submitter.slurmctld_was_killed(killed_s)
        site.check({start[1:] for start in starts})
        if now_s - read_s >= READ_S and not starts:
            read_s = now_s
            over = submitter.is_done and not _is_active(site)
            if now_s > until_s or over or _all_ended(folder, submissions):
                return
        time.sleep(TURN_S)


def _all_ended(folder: Folder, submissions: Sequence[Submission]) -> bool:
    """By the jobs' own records; those that were lost keep the run going until its time is over."""
    ended = {tuple(line.split()[1:3]) for line in folder.records().splitlines() if line.startswith("end ")}
    return len(ended) >= sum(len(one.durations_ms) * one.nodes for one in submissions)


def _is_active(site: Site) -> bool:
    """Whether Slurm has a job that waits, runs or ends; also where it does not answer."""
    done = site.cluster.call("squeue", "-h", "-a", "-o", "%i", check=False)
    return done.returncode != 0 or bool(done.stdout.strip())


def _settle(site: Site) -> None:
    """Slurm and the queue see the last ends."""
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s and _is_active(site):
        time.sleep(READ_S)
    time.sleep(2 * READ_S)
