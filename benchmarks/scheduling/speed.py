"""What a decision of the queue's machine costs, by the size of the cluster and of the queue; and a trace as a whole.

A decision: one running job ends and one is submitted, in a queue under contention, as it is nearly all the time. The
machine and the cluster are those of the daemon, devices, shares and memory included. As time passes with each decision
as in a real cluster of that size, jobs fall to other levels and preempt each other meanwhile.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scheduling.policies import TIRESIAS
from benchmarks.scheduling.traces import PHILLY, play
from benchmarks.table import Figure, at_most
from vgpud.core.jobs.events import Event, JobEnded, JobSuspended, StartJob, StopJob, Submitted
from vgpud.core.jobs.model import SECOND_NS, Ask, How, JobSpec
from vgpud.core.model import Spec
from vgpud.core.policy.registry import NEW_QUEUE
from vgpud.core.queue.machine import Machine
from vgpud.simulate import clusters, scenario

GPUS = (10, 100, 1_000, 10_000)
JOBS = (1_000, 10_000, 100_000)
POLICIES = ("fifo", TIRESIAS)
#: (milli-GPU of a member, members) and how often: two thirds of what openb's users ask for is less than a device
SHAPES = ((250, 1), (500, 1), (750, 1), (1000, 1), (1000, 2), (2000, 1), (1000, 4), (1000, 8), (8000, 1))
WEIGHTS = (20, 20, 10, 25, 8, 5, 6, 4, 2)
DECISIONS = 500
#: one for each running job, an hour, but for the largest clusters
WARM_UP_MAX = 10_000
MEAN_JOB_S = 3600
SEED = 1
NODE_GPUS = {10: "2x5", 100: "12x8+1x4", 1_000: "125x8", 10_000: "1250x8"}
EXPONENT_MAX = 1.15
#: a decision of the order of new queues, which sorts all jobs again whenever it has learnt
SLOWEST_MS_MAX = 20
MILLISECONDS_MAX = 10
#: policies whose keys change by themselves, and of how many users the jobs are
CHANGING = (("srsf", 1), ("srtf", 1), ("fair", 1), ("fair", 100), ("ftf", 1))
CHANGING_GPUS = (100, 1_000, 10_000)
CHANGING_JOBS = 10_000
CHANGING_MS_MAX = 2
PHILLY_S_MAX = 5
PHILLY_RUNS = 3


@dataclass
class Load:
    """A machine with a full cluster and so many waiting jobs; drives it without a trace."""

    gpus: int
    jobs: int
    policy: str
    users: int = 1

    def __post_init__(self) -> None:
        self._draw = random.Random(SEED)
        one = scenario.Scenario(self.policy)
        cluster = scenario.make_cluster(clusters.parse(NODE_GPUS[self.gpus]), one)
        queues = scenario.make_queues(one, ())
        self._machine = Machine(queues, cluster, scenario.make_policy, hows=(How.EVICT,), moves=True)
        self._now_ns = 0
        self._next_id = 0
        self._running: dict[int, int] = {}  # job -> attempt
        while len(self._machine.jobs) - len(self._running) < self.jobs:
            many = max(1, self.jobs - len(self._machine.jobs) + len(self._running))
            self._tell([self._submit() for _ in range(many)])
        for _ in range(min(len(self._running), WARM_UP_MAX)):
            self.decide()  # until jobs of all ages run and wait

    def _submit(self) -> Submitted:
        milli, members = self._draw.choices(SHAPES, WEIGHTS)[0]
        duration_ns = round(self._draw.expovariate(1 / MEAN_JOB_S) * SECOND_NS)
        self._next_id += 1
        uid = self._next_id % self.users
        return Submitted((self._next_id,), JobSpec(Ask(Spec(milli)), members, uid=uid, duration_ns=duration_ns))

    def decide(self) -> float:
        """One decision; returns the seconds that it took, with what follows at once from it."""
        self._now_ns += MEAN_JOB_S * SECOND_NS // len(self._running)
        ended = self._draw.choice(list(self._running))
        took_s = self._tell([JobEnded(ended, self._running.pop(ended), 0), self._submit()])
        self._machine.forget([ended])
        return took_s

    def _tell(self, events: list[Event]) -> float:
        """Jobs that are preempted are off their devices at once, and the machine is notified."""
        took_s = 0.0
        while events:
            begin = time.perf_counter()
            commands = self._machine.steps(events, self._now_ns)
            took_s += time.perf_counter() - begin
            events = []
            for command in commands:
                match command:
                    case StartJob(job_id, attempt):
                        self._running[job_id] = attempt
                    case StopJob(job_id):
                        del self._running[job_id]
                        events.append(JobSuspended(job_id, How.EVICT))
        return took_s


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """A trace of 9,953 jobs; then milliseconds of each size, and how they grow."""
    walls_s = []
    for _ in range(PHILLY_RUNS):
        play.cache_clear()
        run = play(PHILLY, TIRESIAS)
        walls_s.append(run.wall_s)
    raw["philly"] = {**run.as_json(), "walls_s": walls_s}
    case = f"{PHILLY.name} on {PHILLY.cluster}, {TIRESIAS}"
    what = f"{run.figures.jobs:,} jobs, s, least of {PHILLY_RUNS} runs"
    yield Figure("speed", case, what, min(walls_s), at_most(PHILLY_S_MAX))
    raw["decisions"] = []
    for policy in POLICIES:
        for gpus in GPUS:
            means = []
            for jobs in JOBS:
                found = measure(gpus, jobs, policy)
                raw["decisions"].append(found)
                means.append(found["mean_ms"])
                goal = at_most(MILLISECONDS_MAX) if (gpus, jobs) == (GPUS[-1], JOBS[-1]) else None
                yield Figure("speed", f"{gpus:,} GPUs, {jobs:,} jobs wait, {policy}", "decision, ms", means[-1], goal)
            grows = exponent(JOBS, means)
            yield Figure("speed", f"{gpus:,} GPUs, {policy}", "exponent by jobs", grows, at_most(EXPONENT_MAX))
    found = measure(GPUS[-1], JOBS[-1], NEW_QUEUE)
    raw["decisions"].append(found)
    case = f"{GPUS[-1]:,} GPUs, {JOBS[-1]:,} jobs wait, {NEW_QUEUE}"
    yield Figure("speed", case, "decision, ms", found["mean_ms"])
    yield Figure("speed", case, "slowest decision, ms", found["slowest_ms"], at_most(SLOWEST_MS_MAX))


def changing(raw: dict[str, Any]) -> Iterator[Figure]:
    """Milliseconds under policies whose keys change with time, or with every job."""
    raw["decisions"] = []
    for policy, users in CHANGING:
        for gpus in CHANGING_GPUS:
            found = measure(gpus, CHANGING_JOBS, policy, users)
            raw["decisions"].append({**found, "users": users})
            case = f"{gpus:,} GPUs, {CHANGING_JOBS:,} jobs of {users} user(s) wait, {policy}"
            yield Figure("changing", case, "decision, ms", found["mean_ms"], at_most(CHANGING_MS_MAX))
            yield Figure("changing", case, "decision, 99th percentile, ms", found["p99_ms"])


def measure(gpus: int, jobs: int, policy: str, users: int = 1) -> dict[str, Any]:
    """Milliseconds of a decision."""
    load = Load(gpus, jobs, policy, users)
    took_ms = sorted(1000 * load.decide() for _ in range(DECISIONS))
    return {
        "policy": policy,
        "gpus": gpus,
        "jobs": jobs,
        "mean_ms": statistics.fmean(took_ms),
        "median_ms": statistics.median(took_ms),
        "p99_ms": took_ms[int(0.99 * (len(took_ms) - 1))],
        "slowest_ms": took_ms[-1],
    }


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a line through the logarithms, least squares."""
    slope, _ = statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values])
    return slope
