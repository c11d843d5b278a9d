"""What a decision over a large cluster costs the controller.

A decision: one running job ends and one is submitted, in a queue under contention. The controller sees all jobs and all
nodes each time, as squeue and sinfo would show them; reading their text is not counted, Slurm's own work neither. Times
are of the processor: other programs on the machine do not count.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.table import Figure, at_most
from vgpud.cluster.core.controller import HOWS, Controller
from vgpud.cluster.core.model import Hold, Release, Request, Requeue, Settings, SlurmJob, SlurmNode, SlurmSnapshot
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.core.model import SiteLimits
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import TRIES_MAX, Machine

NODES, GPUS, JOBS = 1_000, 8, 100_000
POLICIES = ("fifo", "2d-las(3250,7200)")
#: (gres, nodes) and how often
SHAPES = (
    ("shard:250", 1),
    ("shard:500", 1),
    ("shard:750", 1),
    ("gpu:1", 1),
    ("gpu:2", 1),
    ("gpu:4", 1),
    ("gpu:8", 1),
    ("gpu:8", 2),
    ("gpu:8", 4),
)
WEIGHTS = (20, 20, 10, 25, 10, 6, 6, 2, 1)
DECISIONS = 60
MEAN_JOB_S = 3600
MILLISECONDS_MAX = 20
SEED = 1


class Load:
    """A full cluster with so many waiting jobs. Slurm executes each decision at once."""

    def __init__(self, policy: str, jobs: int = JOBS, nodes: int = NODES) -> None:
        self._draw = random.Random(SEED)
        site = SiteLimits(slices_max=1 << 40)
        machine = Machine(
            (QueueSpec("default", policy=policy),), Cluster((), site), registry.make, hows=HOWS, tries_max=TRIES_MAX
        )
        self.controller = Controller(machine, {"default"}, Settings())
        self._spent_s = 0.0
        steps = machine.steps

        def time_call(*args: Any) -> Any:
            begin = time.process_time()
            found = steps(*args)
            self._spent_s += time.process_time() - begin
            return found

        machine.steps = time_call  # type: ignore[method-assign,assignment]  # the machine's part of a look
        self.nodes = tuple(SlurmNode(f"n{number}", "mixed", GPUS, "", 1000 * GPUS, 0, ()) for number in range(nodes))
        self.jobs: dict[str, SlurmJob] = {}
        self.now_ns = SECOND_NS
        self._next = 0
        while sum(job.state == "PENDING" for job in self.jobs.values()) < jobs:
            waiting = sum(job.state == "PENDING" for job in self.jobs.values())
            for _ in range(jobs - waiting):
                self._submit()
            self.look()
        self.look()

    def _submit(self) -> None:
        self._next += 1
        gres, nodes = self._draw.choices(SHAPES, WEIGHTS)[0]
        self.jobs[str(self._next)] = SlurmJob(
            str(self._next), held=True, uid=self._draw.randrange(20), request=Request(gres, nodes, nodes)
        )

    def look(self) -> tuple[float, float]:
        """Milliseconds of a whole look, and of the machine in it."""
        self._spent_s, begin = 0.0, time.process_time()
        made = self.controller.step(SlurmSnapshot(tuple(self.jobs.values()), self.nodes), self.now_ns)
        took_s = time.process_time() - begin
        for order in made.orders:
            match order:
                case Release(key, nodes):
                    self.jobs[key] = replace(self.jobs[key], state="RUNNING", held=False, node_names=nodes)
                case Hold(key) | Requeue(key) if (job := self.jobs[key]).state == "RUNNING":
                    held = replace(job, state="PENDING", held=True, node_names=(), restarts=job.restarts + 1)
                    self.jobs[key] = held
        return 1000 * took_s, 1000 * self._spent_s

    def decide(self) -> tuple[float, float]:
        """One job ends, one comes."""
        running = [key for key, job in self.jobs.items() if job.state == "RUNNING"]
        self.now_ns += MEAN_JOB_S * SECOND_NS // len(running)
        del_key = self._draw.choice(running)
        self.jobs[del_key] = replace(self.jobs[del_key], state="COMPLETED", node_names=())
        self._submit()
        found = self.look()
        del self.jobs[del_key]
        return found


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    raw["runs"] = []
    for policy in POLICIES:
        found = measure(policy)
        raw["runs"].append(found)
        case = f"{NODES:,} nodes x {GPUS} GPUs, {JOBS:,} jobs wait, {policy}"
        yield Figure("decisions", case, "decision, CPU ms, mean", found["mean_ms"], at_most(MILLISECONDS_MAX))
        yield Figure("decisions", case, "decision, CPU ms, 99th percentile", found["p99_ms"])
        yield Figure("decisions", case, "whole look at Slurm's jobs and nodes, CPU ms, mean", found["look_mean_ms"])
        yield Figure("decisions", case, "look with nothing new, CPU ms", found["idle_look_ms"])


def measure(policy: str, jobs: int = JOBS, nodes: int = NODES, decisions: int = DECISIONS) -> dict[str, Any]:
    """Milliseconds."""
    load = Load(policy, jobs, nodes)
    for _ in range(5):
        load.decide()  # what the first fill left to do
    pairs = [load.decide() for _ in range(decisions)]
    took_ms = sorted(machine_ms for _, machine_ms in pairs)
    load.look()
    return {
        "policy": policy,
        "nodes": nodes,
        "jobs": jobs,
        "mean_ms": statistics.fmean(took_ms),
        "median_ms": statistics.median(took_ms),
        "p99_ms": took_ms[int(0.99 * (len(took_ms) - 1))],
        "look_mean_ms": statistics.fmean(look_ms for look_ms, _ in pairs),
        "idle_look_ms": load.look()[0],
    }
