"""The benchmark of the queue over many nodes, small."""

from __future__ import annotations

import pytest

from benchmarks.cluster import decisions, models
from vgpud.simulate import clusters


def test_a_small_cluster_decides() -> None:
    found = decisions.measure("2d-las(3250,7200)", jobs=200, nodes=10, decisions=5)
    assert 0 < found["median_ms"] <= found["p99_ms"] <= found["look_mean_ms"] * 5


def test_models_are_drawn_the_same_each_time() -> None:
    first, again = (models.drawn(models.CLUSTER400, 48, 0.7) for _ in range(2))
    assert first == again and len({job.spec.model for job in first}) > 10
    assert all(dict(job.spec.ask.rates).keys() == models.GPUS for job in first)


@pytest.mark.parametrize("model", ["ResNet-50 (batch size 32)", "A3C"])
def test_speeds_are_those_of_the_table(model: str) -> None:
    (job,) = [one for one in models.drawn(models.CLUSTER400, 48, 0.7) if one.spec.members == 1][:1]
    nodes = clusters.parse("1x1:k80+1x1:v100")
    assert models.rate(model, 1, "v100") > models.rate(model, 1, "k80") > 0.001
    assert job.spec.skew_ppm == -1 and len(nodes) == 2
