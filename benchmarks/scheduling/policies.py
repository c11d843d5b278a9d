"""Policies on the published traces: figures that are known, promotion that does not thrash, ratios to FIFO."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.scheduling.traces import ALL, CLUSTER400, HOUR_S, SIXTY, Trace, play
from benchmarks.table import Figure, at_least, at_most, below_bound, equal_to_decimals, near_percent
from vgpud.simulate.scenario import STRICT

FIFO = f"{STRICT}fifo"
TIRESIAS = "2d-las(3250,7200)"
#: the same for all traces; no job says how long it takes
WITHOUT_DURATIONS = "las(3250,7200,narrow)"
PROMOTING = ("2d-las(3250,7200,promote=4)", "2d-las(3250,7200,promote=8)")
#: others that know no durations, to compare with
OTHERS = ("fifo", TIRESIAS, "las(3250,7200)", "gittins", "2d-gittins")
ORACLES = ("srtf", "srsf")
MEAN = "average completion time"


def tiresias(raw: dict[str, Any]) -> Iterator[Figure]:
    """60_job.csv on 8 GPUs: all policies decide as in the released simulator here."""
    known = ((FIFO, 1556.5), ("fifo", 715.3), (TIRESIAS, 715.3), ("srtf", 519.9), ("srsf", 563.4))
    for policy, wanted in known:
        mean = _mean_s(raw, SIXTY, policy)
        yield Figure("tiresias", policy, f"{MEAN}, s", mean, equal_to_decimals(wanted, 1))


def muri(raw: dict[str, Any]) -> Iterator[Figure]:
    """400 jobs on 64 GPUs, and what starvation promotion costs and brings there."""
    for policy, wanted in ((FIFO, 207.6), (TIRESIAS, 83.6), ("srsf", 59.8)):
        yield Figure("muri", policy, f"{MEAN}, h", _mean_s(raw, CLUSTER400, policy) / HOUR_S, near_percent(wanted, 3))
    without = play(CLUSTER400, TIRESIAS).figures
    yield Figure("muri", TIRESIAS, "preemptions", without.preemptions)
    yield Figure("muri", TIRESIAS, "longest wait, h", without.longest_wait_s / HOUR_S)
    for policy in PROMOTING:
        mean_s = _mean_s(raw, CLUSTER400, policy)
        found = play(CLUSTER400, policy).figures
        yield Figure("muri", policy, f"{MEAN}, h", mean_s / HOUR_S)
        yield Figure("muri", policy, "preemptions", found.preemptions)
        times = found.preemptions / without.preemptions
        yield Figure("muri", policy, "preemptions, times those without promotion", times, below_bound(3))
        shorter = 100 * (1 - found.longest_wait_s / without.longest_wait_s)
        yield Figure("muri", policy, "longest wait, % shorter than without promotion", shorter, at_least(30))


def ratio(raw: dict[str, Any]) -> Iterator[Figure]:
    """Every trace: first come first served over what does best without knowing durations."""
    for trace in ALL:
        case = f"{trace.name} on {trace.cluster}"
        means = {policy: _mean_s(raw, trace, policy) for policy in (FIFO, WITHOUT_DURATIONS, *OTHERS, *ORACLES)}
        for policy, mean in means.items():
            yield Figure("ratio", case, f"{policy}: {MEAN}, h", mean / HOUR_S)
        best = min((WITHOUT_DURATIONS, *OTHERS), key=lambda policy: means[policy])
        yield Figure("ratio", case, f"FIFO over the best without durations, {best}", means[FIFO] / means[best])
        released = trace.released_s or means[TIRESIAS]
        whose = "the released Tiresias" if trace.released_s else f"{TIRESIAS} (never run with the released Tiresias)"
        what = f"{WITHOUT_DURATIONS} over {whose}"
        yield Figure("ratio", case, what, means[WITHOUT_DURATIONS] / released, below_bound(1))
        goal = at_most(1.3) if trace is CLUSTER400 else None
        yield Figure("ratio", case, f"{WITHOUT_DURATIONS} over SRSF", means[WITHOUT_DURATIONS] / means["srsf"], goal)


def _mean_s(raw: dict[str, Any], trace: Trace, policy: str) -> float:
    run = play(trace, policy)
    raw.setdefault(trace.name, {})[policy] = run.as_json()
    return run.figures.jct_s.mean
