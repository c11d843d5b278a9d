"""FGD where jobs ask for GPU models: openb's pods, so many of which ask for models drawn at random, on its nodes.

Each copy draws how popular the models are (exponentially, times their GPUs), and which pods ask for one or two of them.
A model is only asked for by pods that fit one of its empty nodes. Each copy is placed by `fgd` and by FGD as released:
the published score without the demand for models, ties to the lowest node.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.scheduling.openb_runs import LEARNT, NODES, PODS, run
from benchmarks.table import Figure, at_least, at_most
from vgpud.core.jobs.model import Ask, Node
from vgpud.simulate import clusters, readers

#: pods that ask for models, in percent of those that ask for GPUs
NAMED_PERCENTS = (5, 10, 20, 33, 50)
COPIES = 4
RELEASED = "fgd as released"
#: so much less than FGD as released is chance; and so much less with the mix learnt than with the mix known
LEAST_GAIN = -0.2
LEARNT_LOSS = 0.5


def row(raw: dict[str, Any]) -> Iterator[Figure]:
    """What each of the two has allocated once pods have asked for every GPU, and the worst copy's difference."""
    asks, nodes = [job.spec.ask for job in readers.read(PODS, sort=True)], clusters.parse(str(NODES))
    for percent in NAMED_PERCENTS:
        gains = []
        for seed in range(COPIES):
            named = name_models(asks, nodes, percent, seed)
            ours, released = (run(named, nodes, case, seed).allocated_percents[-1] for case in ("fgd", RELEASED))
            gains.append(ours - released)
            raw.setdefault(str(percent), []).append({"fgd": round(ours, 3), RELEASED: round(released, 3)})
        case = f"{percent} % of pods ask for models, {COPIES} copies"
        for name in ("fgd", RELEASED):
            mean = statistics.fmean(found[name] for found in raw[str(percent)])
            yield Figure("openb-models", case, f"{name}: allocated at 100 % arrived, %", mean)
        yield Figure(
            "openb-models", case, f"fgd above {RELEASED}, worst copy, points", min(gains), at_least(LEAST_GAIN)
        )


#: of learnt_row: pods that ask for models, in percent, and copies of each
LEARNT_PERCENTS, LEARNT_COPIES = (0, 10, 33), 2


def learnt_row(raw: dict[str, Any]) -> Iterator[Figure]:
    """What a queue allocates, which learns the mix of jobs from those that have come, beside one that knows it."""
    asks, nodes = [job.spec.ask for job in readers.read(PODS, sort=True)], clusters.parse(str(NODES))
    for percent in LEARNT_PERCENTS:
        losses = []
        for seed in range(LEARNT_COPIES):
            named = name_models(asks, nodes, percent, seed)
            learnt, known = (run(named, nodes, case, seed).allocated_percents[-1] for case in (LEARNT, "fgd"))
            losses.append(known - learnt)
            raw.setdefault(str(percent), []).append({LEARNT: round(learnt, 3), "fgd": round(known, 3)})
        case = f"{percent} % of pods ask for models, {LEARNT_COPIES} copies"
        for name in (LEARNT, "fgd"):
            mean = statistics.fmean(found[name] for found in raw[str(percent)])
            yield Figure("openb-learnt", case, f"{name}: allocated at 100 % arrived, %", mean)
        what = "the mix learnt below the mix known, worst copy, points"
        yield Figure("openb-learnt", case, what, max(losses), at_most(LEARNT_LOSS))


def name_models(asks: Sequence[Ask], nodes: Sequence[Node], percent: int, seed: int) -> list[Ask]:
    """The pods, of which so many percent ask for one or two models; the same seed, the same copy."""
    draw = random.Random(seed)
    popularity: dict[str, float] = {}
    for node in nodes:
        popularity[node.gpu_model] = popularity.get(node.gpu_model, 0) + len(node.devices)
    popularity = {model: gpus * draw.expovariate(1) for model, gpus in popularity.items()}
    sizes: dict[str, set[tuple[int, int, int]]] = {}
    for node in nodes:
        sizes.setdefault(node.gpu_model, set()).add((len(node.devices), node.cpu_milli, node.ram_bytes))

    def fits(ask: Ask, model: str) -> bool:
        return any(
            len(ask.spec.pieces) <= gpus and ask.cpu_milli <= cpu_milli and ask.ram_bytes <= ram_bytes
            for gpus, cpu_milli, ram_bytes in sizes[model]
        )

    named = []
    for ask in asks:
        models = [model for model in popularity if fits(ask, model)] if ask.spec.gpus_milli else []
        if not models or draw.randrange(100) >= percent:
            named.append(ask)
            continue
        weights = [popularity[model] for model in models]
        chosen = dict.fromkeys(draw.choices(models, weights, k=draw.randint(1, 2)))
        named.append(replace(ask, gpu_models=tuple(chosen)))
    return named
