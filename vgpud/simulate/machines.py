"""How fast a job runs where it is: by the model of its GPUs. Speeds are in millionths, as interference has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from vgpud.core.devices.rates import FASTEST_MILLI, Speeds, model_key, speed_on
from vgpud.core.jobs.model import Node, Placement
from vgpud.simulate.interference import FULL
from vgpud.simulate.trace import TraceJob


class Machines(Protocol):
    """Speeds of jobs by placement. A trace's duration is that on the GPUs where the job is fastest."""

    def speed(self, job: TraceJob, placement: Placement) -> int:
        """In millionths of the highest; at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class ByModel:
    """By what the job's ask says of models of GPUs (Ask.rates). Members wait for each other: the slowest counts. A
    model that it says nothing of is as fast as the fastest."""

    models: Mapping[str, str]  # node -> model of its GPUs

    def speed(self, job: TraceJob, placement: Placement) -> int:
        rates = job.spec.ask.rates
        if not rates:
            return FULL
        models = {self.models.get(place.node, "") for place in placement}
        slowest = min((speed_on(rates, model) or FASTEST_MILLI for model in models), default=FASTEST_MILLI)
        return max(1, FULL * slowest // FASTEST_MILLI)


def models_of(nodes: Sequence[Node]) -> dict[str, str]:
    """By node."""
    return {node.name: node.gpu_model for node in nodes}


def add_rates(trace: Sequence[TraceJob], rates: Mapping[str, Speeds]) -> list[TraceJob]:
    """The same jobs, with the speeds of their models where the table (by rates.model_key) has them."""

    def one(job: TraceJob) -> TraceJob:
        known = rates.get(model_key(job.spec.model))
        return replace(job, spec=replace(job.spec, ask=replace(job.spec.ask, rates=known))) if known else job

    return [one(job) for job in trace]
