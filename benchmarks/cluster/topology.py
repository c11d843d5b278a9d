"""Gangs over several nodes below one switch, where placement knows the switches, or anywhere.

What a gang loses over several nodes is Gavel's measurement; what it loses above one switch is not published. Here
links between switches are shared four to one, as is common: the part of a step that goes over the network takes four
times as long there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cluster.models import GPUS, OVERLOAD, TRACES, draw_jobs, rate
from benchmarks.scheduling.policies import TIRESIAS
from benchmarks.table import Figure
from vgpud.core.jobs.model import Node, Placement
from vgpud.simulate import clusters, network, results, scenario
from vgpud.simulate.interference import FULL
from vgpud.simulate.trace import TraceJob

#: nodes of four, so that gangs of eight need two; four of them below each switch
CLUSTER, MODEL, BELOW = "16x4:v100", "v100", 4
#: how many times less a link between switches carries than one below a switch
SHARED_BY = 4
KNOWN, UNKNOWN = "switches known", "switches not known"
#: (placement, what it knows)
WAYS = (("best-fit", UNKNOWN), ("tiresias", UNKNOWN), ("tiresias", KNOWN))


@dataclass(frozen=True)
class Network:
    """simulate.machines.Machines: one model of GPU, switches above its nodes."""

    switch_of: dict[str, str]  # by node

    def speed(self, job: TraceJob, placement: Placement) -> int:
        there = {place.node for place in placement}
        members = len(placement)
        step_s = near_s = 1 / rate(job.spec.model, members, MODEL)
        if len(there) > 1:
            far_s = max(near_s, 1 / rate(job.spec.model, members, f"{MODEL}_unconsolidated"))
            switches = {self.switch_of[node] for node in there}
            step_s = near_s + (far_s - near_s) * (1 if len(switches) == 1 else SHARED_BY)
        best_s = min(1 / rate(job.spec.model, members, gpu) for gpu in GPUS)
        return max(1, round(FULL * min(1.0, best_s / step_s)))


def connect_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Below switches s0, s1, ..., and these below one more."""
    return network.add_switches(nodes, {node.name: (f"s{at // BELOW}", "top") for at, node in enumerate(nodes)})


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """Average completion times, and where the gangs were."""
    nodes = clusters.parse(CLUSTER)
    real = connect_nodes(nodes)
    machines = Network({node.name: node.switches[0] for node in real})
    raw["runs"] = []
    for trace in TRACES:
        jobs = draw_jobs(trace, sum(len(node.devices) for node in nodes), OVERLOAD)
        case = f"{trace.name} on {CLUSTER}, {BELOW} nodes below a switch, load {OVERLOAD:g}"
        means = {}
        for placement, known in WAYS:
            one = scenario.Scenario(TIRESIAS, placement, machines=machines)
            outcome = scenario.run(jobs, real if known is KNOWN else nodes, one)
            found = results.figures(outcome)
            several = outcome.starts_on_several_nodes
            above = network.above_one_switch(several, real)
            counts = {"starts_on_several_nodes": len(several), "starts_above_one_switch": above}
            raw["runs"].append(
                {"trace": trace.name, "placement": placement, "known": known, **found.as_json(), **counts}
            )
            way = f"{placement}, {known}"
            means[way] = found.jct_s.mean
            yield Figure("topology", case, f"{way}: average completion time, h", means[way] / 3600)
            yield Figure("topology", case, f"{way}: starts on several nodes", len(several))
            if several:
                yield Figure("topology", case, f"{way}: of these above one switch, %", 100 * above / len(several))
        *others, best = means
        for other in others:
            yield Figure("topology", case, f"{best}: less than {other}, %", 100 * (1 - means[best] / means[other]))
