"""The runs of the openb benchmark: pods arrive in random order, are placed or refused for good, and none ever ends."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import DEFAULT_QUEUE, Ask, Job, JobSpec, Node, Placement
from vgpud.core.model import SiteLimits
from vgpud.core.placement import registry
from vgpud.core.placement.base import Rank
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.fgd import Fgd, Mix, mix_of
from vgpud.core.placement.model_demand import sum_model_demand
from vgpud.core.placement.ranking import Changes, Entry, Ranking
from vgpud.core.placement.shape import Devices, Shape
from vgpud.simulate import clusters, readers

DATA = Path(__file__).resolve().parents[1] / "data" / "openb"
PODS, NODES = DATA / "openb_pod_list_default.csv", DATA / "openb_node_list_gpu_node.csv"
#: those of the published runs
SEED_FIRST, SEEDS = 42, 10
LOADS = range(101)  # percent


@dataclass(frozen=True)
class Case:
    """A placement rule, whether FGD's score is the published one (it counts neither RAM nor the demand for models),
    how ties fall, and whether the mix of jobs is learnt from those that have come, as in a queue, not known."""

    placement: str
    as_published: bool = False
    random_ties: bool = False
    lowest_node: bool = False
    learns: bool = False


CASES = {
    "best-fit": Case("best-fit"),
    "worst-fit": Case("worst-fit"),
    "fgd": Case("fgd"),
    "fgd, random ties": Case("fgd", random_ties=True),
    "fgd as published": Case("fgd", as_published=True),
    "fgd as published, random ties": Case("fgd", as_published=True, random_ties=True),
    "fgd as released": Case("fgd", as_published=True, lowest_node=True),
}
#: of the row openb-learnt alone
LEARNT = "fgd, mix learnt"


class LowestNode(BestFit):
    """Holds all nodes equal, so that the lowest is taken: the ties of FGD's released code."""

    def node_rank(self, shape: Shape, node: Node, devices: Devices) -> Rank:
        return ()


class AnyDevice(LowestNode):
    """Holds all nodes equal, and draws the device."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def device_ranks(self, shape: Shape, part: int, node: Node, devices: Sequence[int]) -> list[int]:
        return [self._draw.getrandbits(32) for _ in devices]


class AtRandom:
    """The control: any of the nodes that have FGD's best score. It looks at all nodes each time."""

    def __init__(self, cluster: Cluster, mix: Mix, demand_milli: Mapping[str, int], seed: int) -> None:
        self._nodes = cluster.nodes
        self._draw = random.Random(seed)
        self._rule = Fgd(AnyDevice(self._draw), mix, demand_milli)
        self._rankings: dict[Ask, Ranking] = {}
        self._entries: dict[Ask, list[tuple[int, Entry | None]]] = {}  # by node: its version, how it ranks

    def place(self, job: Job) -> Placement | None:
        """As Cluster.place()."""
        ask = job.spec.ask
        if ask not in self._rankings:
            self._rankings[ask] = Ranking(Shape(ask, SiteLimits()), self._rule, self._nodes, Changes(len(self._nodes)))
            self._entries[ask] = [(-1, None)] * len(self._nodes)
        ranking, entries = self._rankings[ask], self._entries[ask]
        for node in self._nodes:
            if entries[node.index][0] != node.version:
                entries[node.index] = node.version, ranking.entry(node)
        fitting = [entry for _, entry in entries if entry is not None]
        if not fitting:
            return None
        best = min(fitting)[0]
        chosen = self._draw.choice([entry for entry in fitting if entry[0] == best])
        return (ranking.shape.place(self._nodes[chosen[1]], chosen[3]),)


@dataclass(slots=True)
class Run:
    """One run: curves in percent of all GPUs at each of LOADS."""

    case: str
    seed: int
    seconds: float = 0.0
    pods: int = 0
    allocated_percents: list[float] = field(default_factory=list)
    fragmented_percents: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As the results file keeps it."""
        return {
            "case": self.case,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "pods": self.pods,
            "allocated_percent": [round(value, 3) for value in self.allocated_percents],
            "fragmented_percent": [round(value, 3) for value in self.fragmented_percents],
        }


def arrivals(asks: Sequence[Ask], seed: int, total_milli: int) -> list[Ask]:
    """The pods in random order, and as many more drawn from them as ask for all GPUs together."""
    draw = random.Random(seed)
    order = list(asks)
    draw.shuffle(order)
    arrived_milli = sum(ask.spec.gpus_milli for ask in order)
    while arrived_milli < total_milli:
        order.append(draw.choice(asks))
        arrived_milli += order[-1].spec.gpus_milli
    return order


def run(asks: Sequence[Ask], nodes: Sequence[Node], name: str, seed: int) -> Run:
    """Places the pods of one seed by one of CASES. The time is that of placing, without that of measuring.

    Fragmentation is scored by the mix of the whole list, as published, and measured so (without RAM) for all cases.
    """
    case = Case("fgd", learns=True) if name == LEARNT else CASES[name]
    published = mix_of(replace(ask, ram_bytes=0) for ask in asks)
    mix, known = (published, ()) if case.as_published else (mix_of(asks), nodes)
    fresh = [replace(node, free_milli=[], free_bytes=[], offered=[]) for node in nodes]
    rule = Fgd(LowestNode(), mix) if case.lowest_node else registry.make(case.placement, mix=mix, nodes=known)
    cluster = Cluster(fresh, rule=rule)
    if case.learns:
        cluster = Cluster(fresh)
        cluster.rules({DEFAULT_QUEUE: (case.placement, False)})
    place = cluster.place
    if case.random_ties:
        place = AtRandom(cluster, mix, sum_model_demand(mix, known), seed).place
    made, meter, total_milli = Run(name, seed), Fgd(BestFit(), published), cluster.total_milli()
    scale = total_milli * meter.total_weight / 100
    arrived_milli, measuring = 0, 0.0

    def look() -> None:
        """Adds to the curves what has become of the load that has arrived."""
        nonlocal measuring
        paused = time.perf_counter()
        while arrived_milli * 100 >= len(made.allocated_percents) * total_milli and len(made.allocated_percents) < len(
            LOADS
        ):
            made.allocated_percents.append(100 - 100 * cluster.free_milli() / total_milli)
            made.fragmented_percents.append(sum(meter.fragmentation(node) for node in cluster.nodes) / scale)
        measuring += time.perf_counter() - paused

    began = time.perf_counter()
    for ask in arrivals(asks, seed, total_milli):
        look()
        cluster.count_ask(ask)
        placement = place(Job(made.pods, JobSpec(ask), 0))
        if placement is not None:
            cluster.take(placement)
        arrived_milli += ask.spec.gpus_milli
        made.pods += 1
    look()
    made.seconds = time.perf_counter() - began - measuring
    return made


def measure(
    pods: Path = PODS,
    nodes: Path = NODES,
    names: Sequence[str] = tuple(CASES),
    seeds: int = SEEDS,
    progress: Callable[[Run], None] | None = None,
) -> list[Run]:
    """All runs: of each of these cases with each seed."""
    asks = [job.spec.ask for job in readers.read(pods, sort=True)]
    made_nodes = clusters.parse(str(nodes))
    runs = []
    for name in names:
        for seed in range(SEED_FIRST, SEED_FIRST + seeds):
            runs.append(run(asks, made_nodes, name, seed))
            if progress:
                progress(runs[-1])
    return runs
