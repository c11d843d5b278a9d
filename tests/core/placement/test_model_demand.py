"""The demand for GPU models by name, and that FGD leaves to such jobs what they need."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import ask, at, fresh, job, node
from tests.examples import examples
from vgpud.core.jobs.model import Node
from vgpud.core.model import SiteLimits
from vgpud.core.placement import registry
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.fgd import Fgd, Mix, mix_of
from vgpud.core.placement.model_demand import ModelCost, sum_model_demand
from vgpud.core.placement.shape import Shape
from vgpud.core.placement.worst_fit import WorstFit

#: two GPUs of each of the rare models, eight of the frequent one
NODES = [node("a", 2, model="rare"), node("b", 8, model="frequent"), node("c", 2, model="other")]
#: of 12 GPUs one is asked for as `rare`
ONE_RARE: Mix = ((ask(1000), 11), (ask(1000, models=("rare",)), 1))
#: more jobs ask for the frequent model, but the rare one is the scarce one
SCARCE: Mix = ((ask(1000), 9), (ask(1000, models=("rare",)), 1), (ask(1000, models=("frequent",)), 2))


# ---- demand by hand ----


@pytest.mark.parametrize(
    ("mix", "demand"),
    [
        (ONE_RARE, {"rare": 500, "frequent": 0, "other": 0}),  # 1 of 12 GPUs, and there are 2 of 12
        (((ask(1000), 1), (ask(500, models=("rare",)), 2)), {"rare": 1000, "frequent": 0, "other": 0}),  # more than all
        (((ask(2000, models=("rare", "frequent")), 1), (ask(1000), 4)), {"rare": 400, "frequent": 400, "other": 0}),
        (((ask(1000, models=("rare", "rare", "none")), 1), (ask(1000), 11)), {"rare": 500, "frequent": 0, "other": 0}),
        (((ask(1000), 1),), {}),
        (((ask(1000, models=("none",)), 1),), {}),
        (((ask(0, 1000, models=("rare",)), 1),), {}),
        ((), {}),
    ],
)
def test_demand_by_hand(mix: Mix, demand: dict[str, int]) -> None:
    assert sum_model_demand(mix, NODES) == demand


def test_without_nodes_there_is_no_demand() -> None:
    assert sum_model_demand(ONE_RARE, ()) == {}
    assert sum_model_demand(ONE_RARE, [node("a", 0, model="rare"), node("b", 1, model="frequent")]) == {}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 250, 1000, 2000]),
            st.lists(st.sampled_from(["rare", "frequent", "other", "none"]), max_size=3),
            st.integers(1, 9),
        ),
        max_size=5,
    )
)
def test_demand_never_exceeds_what_is_asked_for_or_a_gpu(asks: list[tuple[int, list[str], int]]) -> None:
    mix = tuple((ask(milli, models=tuple(models)), weight) for milli, models, weight in asks)
    demand = sum_model_demand(mix, NODES)
    assert all(0 <= milli <= 1000 for milli in demand.values())
    asked = sum(weight * a.spec.gpus_milli for a, weight in mix)
    named = sum(weight * a.spec.gpus_milli for a, weight in mix if set(a.gpu_models) - {"none"})
    gpus = {"rare": 2, "frequent": 8, "other": 2}
    taken = sum(Fraction(milli * gpus[model], 12_000) for model, milli in demand.items())
    assert taken * asked <= named


# ---- what it costs a job ----


def test_a_job_pays_what_its_cheapest_model_does_not_cost() -> None:
    cost = ModelCost({"rare": 700, "frequent": 100, "other": 300})
    anything: frozenset[str] = frozenset()
    models = ("rare", "frequent", "other")
    assert [cost.cost_milli(anything, model) for model in models] == [600, 0, 200]
    assert cost.cost_milli(frozenset({"rare"}), "rare") == 0
    assert [cost.cost_milli(frozenset({"rare", "other"}), model) for model in ("rare", "other")] == [400, 0]
    assert ModelCost({}).cost_milli(anything, "rare") == 0


# ---- where jobs go ----


def cluster_of(mix: Mix, nodes: list[Node] | None = None) -> Cluster:
    made = Cluster(fresh(nodes or NODES), mix=mix)
    made.rules({"default": ("fgd", False)})
    return made


def place(cluster: Cluster, *models: str) -> str:
    placement = cluster.place(job(ask(1000, models=models)))
    assert placement is not None
    cluster.take(placement)
    return at(placement)[0]


def test_jobs_that_run_anywhere_leave_the_model_that_others_ask_for() -> None:
    as_published = Cluster(fresh(NODES[:2]), rule=registry.make("fgd", mix=SCARCE))
    assert at(as_published.place(job(1000))) == ["a"]
    cluster = cluster_of(SCARCE)
    assert [place(cluster) for _ in range(10)] == ["c"] * 2 + ["b"] * 8
    assert place(cluster, "rare") == "a"
    assert place(cluster) == "a"  # they may have it when nothing else is free


def test_of_several_models_a_job_takes_the_one_least_in_demand() -> None:
    cluster = cluster_of(((ask(1000), 9), (ask(1000, models=("rare",)), 2), (ask(1000, models=("other",)), 1)))
    assert [place(cluster, "rare", "other") for _ in range(3)] == ["c", "c", "a"]


def test_other_nodes_have_another_demand() -> None:
    """The same model is rare no longer once most GPUs are of it."""
    mix: Mix = ((ask(1000), 9), (ask(1000, models=("rare",)), 2), (ask(1000, models=("frequent",)), 1))
    cluster = cluster_of(mix)
    few = [node("a", 8, model="frequent"), node("b", 4, model="rare")]
    many = [node("a", 2, model="frequent"), node("b", 1, model="rare"), node("c", 9, model="rare")]
    for nodes, first in ((few, "a"), (many, "b"), (few, "a")):
        cluster.replace_nodes(fresh(nodes))
        assert place(cluster) == first
        assert at(cluster_of(mix, nodes).place(job(1000))) == [first]


def test_without_demand_by_name_the_score_is_as_published() -> None:
    mix = mix_of([ask(500)] * 3 + [ask(1000)] * 2)
    cluster = Cluster(fresh(NODES))
    ours, published = registry.make("fgd", True, mix, nodes=NODES), Fgd(WorstFit(), mix)
    for milli in (300, 500, 1000, 2000):
        shape = Shape(ask(milli), SiteLimits())
        devices = tuple(range(len(shape.parts)))
        for n in cluster.nodes:
            assert ours.node_rank(shape, n, devices) == published.node_rank(shape, n, devices)
