"""Traces without expected durations: durations are learnt from ended jobs, by the attributes in the trace.

Classes are made of the user, the model and the GPUs, as far as the trace has them, as vgpud.core.jobs.similarity makes
them of what the daemon knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vgpud.core.jobs.model import JobSpec
from vgpud.simulate.trace import TraceJob


def untold(trace: Sequence[TraceJob], *, learn: bool) -> list[TraceJob]:
    """The same jobs, without the durations that policies get; `learn`: with classes."""

    def spec(job: TraceJob) -> JobSpec:
        return replace(job.spec, duration_ns=0, kinds=similarity_classes(job.spec) if learn else ())

    return [replace(job, spec=spec(job)) for job in trace]


def similarity_classes(spec: JobSpec) -> tuple[str, ...]:
    """Narrowest first, each once."""
    size = f"{spec.ask.spec.gpus_milli}x{spec.members}"
    user, model = f"user {spec.uid}" if spec.uid else "", f"model {spec.model}" if spec.model else ""
    rows: tuple[tuple[str, ...], ...] = ((user, size), (user,), (size,))
    if model:
        rows = ((user, model, size), (model, size), (user, size), (model,), (user,), (size,))
    found = [" ".join(filter(None, row)) for row in rows]
    return tuple(dict.fromkeys(kind for kind in found if kind))
