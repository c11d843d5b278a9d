"""The jobs: a seeded mix of fractions, whole GPUs, gangs over both nodes, arrays and dependencies. Pure.

Two users, each with a queue of its own (a Slurm account). Durations are heavy-tailed: most of a few seconds, some of a
minute. Submissions come at random over a time that follows from the load.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.core.units import MILLI_PER_DEVICE

#: GPU-seconds at which a job falls to the next level: most jobs end in the first one
POLICY = "2d-las(6,30)"
MIN_RUN_NS = 3 * SECOND_NS
QUEUES = (
    QueueSpec("research", guarantee_milli=2000, limit_milli=3000, policy=POLICY, min_run_ns=MIN_RUN_NS),
    QueueSpec("teaching", guarantee_milli=1000, limit_milli=2000, policy=POLICY, min_run_ns=MIN_RUN_NS),
)
#: queue -> its user, which each Debian has, and its part of the submissions
USERS = {"research": ("man", 0.6), "teaching": ("games", 0.4)}
NODES, GPUS_PER_NODE = 2, 2
CAPACITY_MILLI = NODES * GPUS_PER_NODE * MILLI_PER_DEVICE
#: (gres, nodes) -> how often. Not several devices of a node: Slurm 22.05 may give some away whose shards are in use
SHAPES = {
    ("shard:250", 1): 26,
    ("shard:300", 1): 18,
    ("shard:500", 1): 20,
    ("shard:700", 1): 4,
    ("gpu:1", 1): 10,
    ("shard:500", 2): 3,
    ("gpu:1", 2): 3,
}
#: a bounded Pareto distribution, seconds; its mean is 7.7
SHORTEST_S, LONGEST_S, ALPHA = 2.5, 60.0, 1.1
ARRAY_PART, ARRAY_SIZES = 0.08, (3, 4, 5, 6)
AFTER_PART, AFTER_ANY_PART, AFTER_AMONG = 0.12, 0.3, 20
#: of the GPU time: what the jobs work, and what a start is thought to cost
LOAD, START_S = 1.0, 1.0


@dataclass(frozen=True, slots=True)
class Submission:
    """One call of sbatch: a job, or an array of them."""

    name: str
    at_s: float  # since the first one could come
    queue: str
    gres: str  # of each node
    nodes: int
    durations_ms: tuple[int, ...]  # one for each job
    after: tuple[str, ...] = ()  # submissions whose jobs must all have ended
    after_any: bool = False  # in whatever way

    @property
    def user(self) -> str:
        return USERS[self.queue][0]

    @property
    def node_milli(self) -> int:
        """milli-GPU on each node."""
        return milli(self.gres)

    @property
    def width_milli(self) -> int:
        return self.node_milli * self.nodes

    @property
    def is_array(self) -> bool:
        return len(self.durations_ms) > 1

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of its jobs, under which their records are kept."""
        if not self.is_array:
            return (self.name,)
        return tuple(f"{self.name}.{index}" for index in range(len(self.durations_ms)))


def milli(gres: str) -> int:
    """shard:500, gpu:2"""
    kind, _, count = gres.partition(":")
    return int(count) * (MILLI_PER_DEVICE if kind == "gpu" else 1)


def generate(
    jobs: int, seed: int, load: float = LOAD, longest_s: float = LONGEST_S, prefix: str = "j"
) -> list[Submission]:
    """So many jobs, in the order of their submission."""
    draw = random.Random(seed)
    found: list[Submission] = []
    left = jobs
    while left:
        count = min(left, draw.choice(ARRAY_SIZES)) if draw.random() < ARRAY_PART else 1
        found.append(_submission(f"{prefix}{len(found):03}", count, found, draw, longest_s))
        left -= count
    service_s = sum(_service_s(one) for one in found)
    span_s = service_s * MILLI_PER_DEVICE / CAPACITY_MILLI / load
    times = sorted(round(draw.uniform(0, span_s), 3) for _ in found)
    return [replace(one, at_s=at_s) for one, at_s in zip(found, times, strict=True)]


def _submission(
    name: str, count: int, earlier_jobs: Sequence[Submission], draw: random.Random, longest_s: float
) -> Submission:
    queue = draw.choices(list(USERS), [part for _, part in USERS.values()])[0]
    limit_milli = next(one.limit_milli for one in QUEUES if one.name == queue)
    allowed = {
        (gres, nodes): often
        for (gres, nodes), often in SHAPES.items()
        if milli(gres) * nodes <= limit_milli and (count == 1 or nodes == 1)
    }
    gres, nodes = draw.choices(list(allowed), list(allowed.values()))[0]
    after: tuple[str, ...] = ()
    if earlier_jobs and draw.random() < AFTER_PART:
        among = earlier_jobs[-AFTER_AMONG:]
        after = tuple(one.name for one in draw.sample(among, min(len(among), draw.choice((1, 1, 2)))))
    durations_ms = tuple(round(1000 * _duration_s(draw, longest_s)) for _ in range(count))
    return Submission(name, 0.0, queue, gres, nodes, durations_ms, after, draw.random() < AFTER_ANY_PART)


def _duration_s(draw: random.Random, longest_s: float) -> float:
    least, most = SHORTEST_S**-ALPHA, longest_s**-ALPHA
    return float((least - draw.random() * (least - most)) ** (-1 / ALPHA))


def _service_s(one: Submission) -> float:
    """GPU-seconds."""
    return sum(ms / 1000 + START_S for ms in one.durations_ms) * one.width_milli / MILLI_PER_DEVICE


def span_s(submissions: Sequence[Submission]) -> float:
    """When the last one comes."""
    return submissions[-1].at_s if submissions else 0.0
