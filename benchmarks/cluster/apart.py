"""A queue on each node, without one over all: to which node a job goes as it comes, and the sum of what they make."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from vgpud.core.jobs.model import Node, Place
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import scenario
from vgpud.simulate.engine import Outcome, Sample
from vgpud.simulate.interference import FULL
from vgpud.simulate.machines import Machines
from vgpud.simulate.trace import TraceJob

#: the jobs of each node, in the order in which they come
Parts = list[list[TraceJob]]


def in_turn(jobs: Sequence[TraceJob], nodes: Sequence[Node]) -> Parts:
    """The first job to the first node, the second to the second. Every node must be large enough for every job."""
    return [list(jobs[first :: len(nodes)]) for first in range(len(nodes))]


def ends_first(jobs: Sequence[TraceJob], nodes: Sequence[Node], machines: Machines | None = None) -> Parts:
    """To the node where it would end first if each worked its jobs off one after another on all of its GPUs: by
    durations and speeds, which few users know so well."""
    parts: Parts = [[] for _ in nodes]
    free_ns = [0.0] * len(nodes)  # when a node has worked off what it has
    for job in jobs:
        found = []
        for at, node in enumerate(nodes):
            members = (Place(node.name, ()),) * job.spec.members
            alone_ns = job.duration_ns * FULL / (machines.speed(job, members) if machines else FULL)
            part = job.spec.width_milli / (MILLI_PER_DEVICE * len(node.devices))
            worked_off_ns = max(free_ns[at], job.submitted_ns) + alone_ns * part
            found.append((max(worked_off_ns, job.submitted_ns + alone_ns), worked_off_ns, at))
        _, worked_off_ns, at = min(found)
        free_ns[at] = worked_off_ns
        parts[at].append(job)
    return parts


def run(parts: Parts, nodes: Sequence[Node], one: scenario.Scenario) -> Outcome:
    """Each node by itself, with the jobs that were sent to it."""
    return merge_outcomes(
        [
            scenario.run(jobs, (node,), one) if jobs else Outcome(MILLI_PER_DEVICE * len(node.devices))
            for jobs, node in zip(parts, nodes, strict=True)
        ]
    )


def merge_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Of clusters that know nothing of each other, as one."""
    whole = Outcome(sum(one.capacity_milli for one in outcomes))
    for one in outcomes:
        whole.jobs += one.jobs
        whole.refused_jobs += one.refused_jobs
        whole.decisions += one.decisions
        whole.longest_wait_ns = max(whole.longest_wait_ns, one.longest_wait_ns)
    last = [Sample(0, 0, 0, 0)] * len(outcomes)
    for at_ns, which, number in heapq.merge(
        *([(sample.at_ns, at, number) for number, sample in enumerate(one.samples)] for at, one in enumerate(outcomes))
    ):
        last[which] = outcomes[which].samples[number]
        summed = Sample(
            at_ns,
            sum(sample.held_milli for sample in last),
            sum(sample.waiting for sample in last),
            sum(sample.fragmented_milli for sample in last),
        )
        if whole.samples and whole.samples[-1].at_ns == at_ns:
            whole.samples[-1] = summed
        else:
            whole.samples.append(summed)
    return whole
