"""How much of each GPU model is asked for by name: what a job that needs no certain model had better leave free.

Of the GPUs that a mix of jobs asks for, a part is asked for by model. Set against the model's part of all GPUs of the
cluster, it says how much of that model jobs need that can run nowhere else once the whole cluster is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from vgpud.core.jobs.model import Ask, Node
from vgpud.core.units import MILLI_PER_DEVICE


def sum_model_demand(mix: Iterable[tuple[Ask, int]], nodes: Sequence[Node]) -> dict[str, int]:
    """GPU model -> milli of each of its GPUs that jobs of the mix ask for by name, if these ask for all GPUs together.

    At most a whole GPU. An ask for one of several models counts for each by how many there are. {}: without nodes, or
    where no model of theirs is asked for by name.
    """
    counts: Counter[str] = Counter()
    for node in nodes:
        counts[node.gpu_model] += len(node.devices)
    asked_milli, named_milli = 0, Counter[str]()
    for ask, weight in mix:
        milli = weight * ask.spec.gpus_milli
        asked_milli += milli
        models = [model for model in set(ask.gpu_models) if counts[model]]
        of_these = sum(counts[model] for model in models)
        for model in models:
            named_milli[model] += milli * counts[model] // of_these
    if not named_milli.total():
        return {}
    total = counts.total()
    return {
        model: min(MILLI_PER_DEVICE, MILLI_PER_DEVICE * named_milli[model] * total // (asked_milli * count))
        for model, count in counts.items()
        if count
    }


class ModelCost:
    """What it costs to use a GPU of a model, in milli of a GPU: the demand for it by name, above that for the model
    that is least in demand of those that the job may use."""

    def __init__(self, demand_milli: Mapping[str, int]) -> None:
        self._demand_milli = demand_milli
        self._least_milli: dict[frozenset[str], int] = {}

    def cost_milli(self, models: frozenset[str], model: str) -> int:
        """Of a GPU of `model`, to a job that may use `models`; empty: any."""
        demand_milli = self._demand_milli
        if not demand_milli:
            return 0
        least = self._least_milli.get(models)
        if least is None:
            usable = [milli for name, milli in demand_milli.items() if not models or name in models]
            least = self._least_milli[models] = min(usable, default=0)
        return demand_milli.get(model, 0) - least
