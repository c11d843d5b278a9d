"""What the simulator says of the jobs before they run, and what a start costs, from a recording of the controller.

The same queues, nodes and specifications as the controller's own: they are made by its translation of what squeue
shows. Preemption keeps progress, as the jobs' checkpoints do. In the simulator a device is free when a program has
ended; here Slurm and the controller see that later. Each job pays for it with its start, and so do the jobs behind it.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.cluster.acceptance.records import Record
from benchmarks.cluster.acceptance.workload import GPUS_PER_NODE, NODES, QUEUES, Submission
from vgpud.cluster.core.model import Request, Settings, SlurmJob, SlurmNode
from vgpud.cluster.core.pauses import SETTLE_NS
from vgpud.cluster.core.translate import node_of, spec_of
from vgpud.core.jobs.model import SECOND_NS, Node
from vgpud.simulate import results, scenario
from vgpud.simulate.engine import Costs
from vgpud.simulate.trace import TraceJob

#: as tests/slurm/cluster.py makes them
CPUS = 8
TIME_LIMIT_NS = 180 * SECOND_NS
FIRST_UID = 1000


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds, of each start, end and preemption of a recorded run."""

    starts: list[float] = field(default_factory=list)  # from the decision until the program works
    restarts: list[float] = field(default_factory=list)  # the same after a preemption
    ends: list[float] = field(default_factory=list)  # from the program's end until the queue knows it
    stops: list[float] = field(default_factory=list)  # from the decision to preempt until the device is free

    def costs(self) -> Costs:
        """Means: what the average completion time consists of. Raises StatisticsError where nothing was measured."""
        start_s, stop_s = statistics.fmean(self.starts), statistics.fmean(self.stops or self.starts)
        restart_s = max(start_s + SETTLE_NS / SECOND_NS, statistics.fmean(self.restarts or [0.0]))
        end_s = statistics.fmean(self.ends)
        times = (start_s + end_s, stop_s, restart_s + end_s)
        return Costs(*(round(seconds * SECOND_NS) for seconds in times))

    def as_json(self) -> dict[str, Any]:
        """Means, and how many there were."""
        found = {}
        for name in ("starts", "restarts", "ends", "stops"):
            values = getattr(self, name)
            found[name] = {"count": len(values), "mean_s": statistics.fmean(values) if values else None}
        return found


def latencies(recordings: Iterable[str], records: Sequence[Record]) -> Latencies:
    """`recordings`: what controllers wrote with --record, each from its begin; unfinished last lines are left out."""
    found = Latencies()
    works, ends = _programs(records)
    for text in recordings:
        keys: dict[int, str] = {}
        stop_times_ns: dict[int, int] = {}
        for at_ns, events, commands in _steps(text, keys):
            for event in events:
                job_id = event.get("job_id", 0)
                if event["type"] == "JobSuspended" and job_id in stop_times_ns:
                    since_ns = stop_times_ns.pop(job_id)
                    if keys.get(job_id) in works:
                        found.stops.append((at_ns - since_ns) / SECOND_NS)
                elif event["type"] == "JobEnded" and event["exit_code"] == 0 and keys.get(job_id) in ends:
                    found.ends.append((at_ns - ends[keys[job_id]]) / SECOND_NS)
            for command in commands:
                if command["type"] == "StopJob":
                    stop_times_ns[command["job_id"]] = at_ns
                elif command["type"] == "StartJob":
                    began = works.get(keys.get(command["job_id"], ""), [])
                    after = [one for one in began if one > at_ns]
                    if after:
                        which = found.starts if len(after) == len(began) else found.restarts
                        which.append((min(after) - at_ns) / SECOND_NS)
    return found


def _programs(records: Sequence[Record]) -> tuple[dict[str, list[int]], dict[str, int]]:
    """By Slurm's key: when programs began to work, and when the last member ended."""
    works: dict[str, list[int]] = defaultdict(list)
    ends: dict[str, int] = {}
    for one in records:
        if one.word == "start":
            works[one.job].append(one.at_ns)
        elif one.word == "end":
            ends[one.job] = max(one.at_ns, ends.get(one.job, 0))
    return works, ends


def _steps(text: str, keys: dict[int, str]) -> Iterable[tuple[int, list[dict[str, Any]], list[dict[str, Any]]]]:
    """Plain events and commands; `keys` is filled: job of the queue -> Slurm's."""
    events: list[dict[str, Any]] = []
    lines = text[: text.rfind("\n") + 1].splitlines()
    if lines:
        keys.update({job["job_id"]: job["spec"]["name"] for job in json.loads(lines[0]).get("jobs", [])})
    for line in lines[1:]:
        data = json.loads(line)
        event = data["event"]
        events.append(event)
        if event["type"] == "Submitted":
            keys.update(dict.fromkeys(event["job_ids"], event["spec"]["name"]))
        if "commands" in data:
            yield data["at_ns"], events, data["commands"]
            events = []


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of one policy. Times in seconds."""

    mean_jct_s: float
    makespan_s: float
    preemptions: int
    jct_s: dict[str, float]  # by job


def trace(submissions: Sequence[Submission]) -> list[TraceJob]:
    """As the controller would see them."""
    names = {queue.name for queue in QUEUES}
    uids = {queue.name: FIRST_UID + number for number, queue in enumerate(QUEUES)}
    ids: dict[str, tuple[int, ...]] = {}
    found: list[TraceJob] = []
    for one in submissions:
        shown = SlurmJob(
            "1",
            uid=uids[one.queue],
            account=one.queue,
            request=Request(f"gres:{one.gres}", one.nodes, one.nodes, TIME_LIMIT_NS),
        )
        after = tuple(job_id for name in one.after for job_id in ids[name])
        spec = replace(spec_of(shown, names, Settings()), after=after, after_any=one.after_any)
        ids[one.name] = tuple(range(len(found) + 1, len(found) + 1 + len(one.durations_ms)))
        for job, duration_ms in zip(one.jobs, one.durations_ms, strict=True):
            found.append(TraceJob(round(one.at_s * SECOND_NS), duration_ms * 1_000_000, replace(spec, name=job)))
    return found


def nodes() -> tuple[Node, ...]:
    """As the controller would see those of the test cluster."""
    shown = (
        SlurmNode(f"n{number}", "idle", GPUS_PER_NODE, shards=1000 * GPUS_PER_NODE, cpus=CPUS)
        for number in range(1, NODES + 1)
    )
    return tuple(node_of(node, Settings()) for node in shown)


def forecast(submissions: Sequence[Submission], costs: Costs) -> Forecast:
    """Raises ValueError when the simulator refuses a job."""
    outcome = scenario.run(trace(submissions), nodes(), scenario.Scenario(queues=QUEUES, costs=costs))
    if outcome.refused_jobs:
        raise ValueError(f"the simulator refuses {outcome.refused_jobs[0][0].spec.name}: {outcome.refused_jobs[0][1]}")
    figures = results.figures(outcome)
    jct = {job.spec.name: results.seconds(job.ended_ns - job.submitted_ns) for _, job in outcome.jobs}
    return Forecast(figures.jct_s.mean, figures.makespan_s, int(figures.preemptions), jct)
