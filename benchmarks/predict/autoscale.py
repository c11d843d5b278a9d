"""The autoscaler of elastic workers (MLSys'20) on scaling curves that are known: where it settles, what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from benchmarks.predict.scaling import CURVES, SLIDES, Curve, Run, optimum, play
from benchmarks.table import Figure, at_most, equal_to_decimals
from vgpud.core.elastic.heuristics import Efficiency, efficiency
from vgpud.core.elastic.measures import Point
from vgpud.core.elastic.registry import DEFAULT, DEFAULT_THRESHOLD

RULE = Efficiency(DEFAULT, Fraction(DEFAULT_THRESHOLD))
#: a part of a step's time; and so much that it hides differences between many workers
NOISE = 0.01
MUCH_NOISE = 0.02
#: not those by which the search's own numbers were chosen
SEEDS = range(100, 120)
#: a change of workers that survive it, as is the goal of the live row; and by way of a checkpoint, as Sia has it
CHANGE_S = 2.0
RESTART_S = 30.0
FIXED = (1, 8, 16, 64)
HOUR_S = 3600
#: how long jobs last with 16 workers: those that are only watched until they have settled, and those that are counted
SEARCH_S = 1 * HOUR_S
JOB_S = 4 * HOUR_S
REPORT_S = 5.0
#: of the paper, %: completion time and GPU time against fixed numbers of workers, average over these and best
PAPER = {"ImageNet": (-8.23, -58.6), "CIFAR-10": (-19.4, 7.39)}
PAPER_BEST = (-45.0, -85.1)


def slides(raw: dict[str, Any]) -> Iterator[Figure]:
    """400 img/s with 4 workers, 480 with 5."""
    found = efficiency(Point(4, 400), Point(5, 480))
    raw["s_k"] = str(found)
    yield Figure(
        "s_k", "400 -> 480 img/s, 4 -> 5 workers", "scaling efficiency", float(found), equal_to_decimals(0.8, 1)
    )


def settles(raw: dict[str, Any]) -> Iterator[Figure]:
    """How far from the optimum of its rule, without noise and with, and when."""
    for curve in CURVES:
        best, samples = optimum(curve, RULE), curve.rate(16) * SEARCH_S
        quiet = play(curve, samples, change_s=CHANGE_S)
        noisy, noisier = (
            [play(curve, samples, change_s=CHANGE_S, noise=noise, seed=seed) for seed in SEEDS]
            for noise in (NOISE, MUCH_NOISE)
        )
        raw[curve.name] = {"optimum": best, "path": quiet.path, "noisy": [run.path for run in (*noisy, *noisier)]}
        yield Figure("autoscale", curve.name, "optimum of its rule, workers", best)
        yield Figure("autoscale", curve.name, "workers from it", abs(quiet.members - best), at_most(1))
        worst = max(abs(run.members - best) for run in noisy)
        what = f"the same, steps {100 * NOISE:g} % noisy, worst of {len(SEEDS)}"
        yield Figure("autoscale", curve.name, what, worst, at_most(1))
        for noise, runs in ((NOISE, noisy), (MUCH_NOISE, noisier)):
            within = sum(abs(run.members - best) <= 1 for run in runs)
            what = f"runs of {len(SEEDS)} within one worker, {100 * noise:g} % noisy"
            yield Figure("autoscale", curve.name, what, within)
        yield Figure("autoscale", curve.name, "settles after, s (the paper: 61 to 264)", quiet.settled_s)
        yield Figure("autoscale", curve.name, "changes until then", len(quiet.path) - 1)


def costs(raw: dict[str, Any]) -> Iterator[Figure]:
    """Completion time and GPU time against fixed workers. Lower than zero is less than these."""
    for curve in CURVES:
        run = play(curve, _samples(curve), change_s=CHANGE_S, report_s=REPORT_S)
        yield Figure(
            "gpu-time", curve.name, "idle while workers change, % (the paper: < 2 to 6)", _idle(run), at_most(2)
        )
        yield from _against(raw, curve, curve.name, run)
    restarted = play(SLIDES, _samples(SLIDES), change_s=RESTART_S, report_s=REPORT_S)
    case = f"{SLIDES.name}, {RESTART_S:g} s a change"
    yield Figure("gpu-time", case, "idle while workers change, %", _idle(restarted))
    yield from _against(raw, SLIDES, case, restarted)
    for name, (completion, gpu_time) in PAPER.items():
        yield Figure("gpu-time", f"the paper's own jobs, {name}", "completion time, average, %", completion)
        yield Figure("gpu-time", f"the paper's own jobs, {name}", "GPU time, average, %", gpu_time)
    yield Figure("gpu-time", "the paper's own jobs", "completion time, best, %", PAPER_BEST[0])
    yield Figure("gpu-time", "the paper's own jobs", "GPU time, best, %", PAPER_BEST[1])


def _against(raw: dict[str, Any], curve: Curve, case: str, run: Run) -> Iterator[Figure]:
    fixed = {k: _samples(curve) / curve.rate(k) for k in FIXED if k <= curve.workers_max}
    completion = {k: 100 * (run.jct_s / fixed_s - 1) for k, fixed_s in fixed.items()}
    gpu_time = {k: 100 * (run.gpu_s / (fixed_s * k) - 1) for k, fixed_s in fixed.items()}
    raw[case] = {"workers": run.members, "jct_s": run.jct_s, "gpu_s": run.gpu_s, "fixed_jct_s": fixed}
    for what, found in (("completion time", completion), ("GPU time", gpu_time)):
        for k, percent in found.items():
            yield Figure("gpu-time", case, f"{what} against {k} fixed, %", percent)
        yield Figure("gpu-time", case, f"{what}, average, %", sum(found.values()) / len(found))


def _idle(run: Run) -> float:
    return 100 * run.idle_s / run.jct_s


def _samples(curve: Curve) -> float:
    return curve.rate(16) * JOB_S
