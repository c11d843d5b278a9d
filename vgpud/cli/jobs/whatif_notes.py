"""What `vgpu whatif` says beside its figures, each line once: jobs that are left out, a cluster that is too small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from vgpud.core.units import MILLI_PER_DEVICE

if TYPE_CHECKING:
    from vgpud.simulate.engine import Outcome
    from vgpud.simulate.trace import Trace

#: jobs that never fit: this many are named one by one
NAMED_MAX = 20


def say_trace(name: str, trace: Trace, cluster: str, gpus: int) -> None:
    """The jobs of the file that are not replayed, and whether `cluster` with its `gpus` is smaller than the trace's."""
    from vgpud.cli.common.output import say
    from vgpud.simulate import as_it_was, readers

    left_out = readers.describe_left_out(trace)
    if left_out:
        say(f"{name}: {len(trace.jobs)} jobs ran with GPUs; left out: {left_out}")
    peak = -(-as_it_was.peak_milli(trace.jobs) // MILLI_PER_DEVICE)
    if max(trace.gpus, peak) > gpus:
        text = f"was recorded on {trace.gpus} GPUs" if trace.gpus > gpus else f"had up to {peak} GPUs in use at once"
        say(f"{name} {text}, and {cluster} has {gpus}: jobs wait as on a smaller cluster")


def say_outcomes(outcomes: Mapping[str, Outcome]) -> None:
    """The jobs that are not in the figures: a line that is the same under every policy is said once, without names."""
    from vgpud.cli.common.output import say

    lines: dict[str, list[str]] = {}
    for name, outcome in outcomes.items():
        for line in _describe(outcome):
            lines.setdefault(line, []).append(name)
    for line, names in lines.items():
        say(line if len(names) == len(outcomes) > 1 else f"{', '.join(names)}: {line}")


def _describe(outcome: Outcome) -> Iterator[str]:
    """The first of each kind, or each if no job ran."""
    if not any(job.state.is_final for _, job in outcome.jobs):
        for traced, why in outcome.refused_jobs[:NAMED_MAX]:
            yield f"job of {traced.where} never fits: {why}"
        if len(outcome.refused_jobs) > NAMED_MAX:
            yield f"{len(outcome.refused_jobs) - NAMED_MAX} more jobs never fit"
    elif outcome.refused_jobs:
        traced, why = outcome.refused_jobs[0]
        count = len(outcome.refused_jobs)
        some = (
            f"{count} jobs never fit and are left out, the first of"
            if count > 1
            else "1 job never fits: it is left out,"
        )
        yield f"{some} {traced.where}, which would be told: {why}"
    waiting = [traced for traced, job in outcome.jobs if not job.state.is_final]
    if waiting:
        yield f"{len(waiting)} jobs never ended, the first of {waiting[0].where}"
