"""Traces and clusters for tests, as short as can be."""

from __future__ import annotations

from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.simulate import clusters, scenario
from vgpud.simulate.engine import Costs, Outcome
from vgpud.simulate.trace import TraceJob


def job(at_s: float, duration_s: float, gpus: float = 1, members: int = 1, model: str = "", used: int = -1) -> TraceJob:
    duration_ns = round(duration_s * SECOND_NS)
    spec = JobSpec(Ask(Spec(round(gpus * 1000))), members, duration_ns=duration_ns, model=model)
    return TraceJob(round(at_s * SECOND_NS), duration_ns, spec, utilisation_milli=used)


def run(
    trace: list[TraceJob], cluster: str, policy: str = "fifo", placement: str = "count", **options: object
) -> Outcome:
    return scenario.run(trace, clusters.parse(cluster), scenario.Scenario(policy, placement, **options))  # type: ignore[arg-type]


def ends_s(outcome: Outcome) -> list[float]:
    return [job.ended_ns / SECOND_NS for _, job in outcome.jobs]


def costs(start_s: float = 0, suspend_s: float = 0, resume_s: float = 0) -> Costs:
    return Costs(*(round(s * SECOND_NS) for s in (start_s, suspend_s, resume_s)))
