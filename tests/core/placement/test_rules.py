"""The rules: best and worst fit, fragmentation by hand and by its definition, groups of devices, names."""

from __future__ import annotations

from math import exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import GIB, ask, at, devices_of, job, node
from tests.examples import examples
from vgpud.core.jobs.model import Node
from vgpud.core.model import SiteLimits
from vgpud.core.placement import registry
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.fgd import PLAIN_MIX, Fgd, Mix, mix_of
from vgpud.core.placement.shape import Shape
from vgpud.core.placement.topology import group_order


def put(cluster: Cluster, name: str, gpus_milli: int) -> None:
    found = cluster.place(job(ask(gpus_milli, device_uuids=(name,))))
    assert found is not None
    cluster.take(found)


def shape(gpus_milli: int, cpu_milli: int = 0) -> Shape:
    return Shape(ask(gpus_milli, cpu_milli), SiteLimits())


# ---- best fit, worst fit ----


@pytest.mark.parametrize(
    ("rule", "half_device", "whole_device"), [("best-fit", "b/1", "b/0"), ("worst-fit", "a/0", "a/0")]
)
def test_full_or_empty_first(rule: str, half_device: str, whole_device: str) -> None:
    cluster = Cluster([node("a", 4), node("b", 2)], rule=registry.make(rule))
    put(cluster, "b/1", 300)
    assert devices_of(cluster.place(job(500))) == [(half_device,)]
    assert devices_of(cluster.place(job(1000))) == [(whole_device,)]


def test_equal_nodes_go_by_index() -> None:
    for rule in registry.NAMES:
        cluster = Cluster([node("b", 2), node("a", 2)], rule=registry.make(rule))
        assert devices_of(cluster.place(job(400))) == [("b/0",)]


def test_nodes_that_differ_in_one_thing_are_not_alike() -> None:
    """A new ranking ranks nodes that are alike once."""
    assert at(Cluster([node("a", 1, cpu_milli=8000), node("b", 1, cpu_milli=4000)]).place(job(500))) == ["b"]
    assert at(Cluster([node("a", 1, model="A"), node("b", 1, model="B")]).place(job(ask(500, models=("B",))))) == ["b"]
    assert at(Cluster([node("a", 2, groups=(0, 1)), node("b", 2, groups=(0, 0))]).place(job(2000))) == ["b"]
    assert at(Cluster([node("a", 1), node("b", 1)]).place(job(ask(500, device_uuids=("b/0",))))) == ["b"]
    more = Cluster([node("a", 1, ram_bytes=GIB), node("b", 1, ram_bytes=2 * GIB)])
    assert at(more.place(job(ask(500, ram_bytes=2 * GIB)))) == ["b"]
    cluster = Cluster([node("a", 1), node("b", 1)])
    cluster.change("a", (), ())
    assert at(cluster.place(job(500))) == ["b"]
    cluster.change("a", (("a/0", 0, 60 * GIB),), ("a/0",))
    assert at(cluster.place(job(600))) == ["b"]


def test_a_gpu_left_weighs_as_sixteen_cpus_left() -> None:
    nodes = [node("gpus", 2, cpu_milli=8_000), node("cpus", 1, cpu_milli=23_000)]
    assert at(Cluster(nodes).place(job(1000))) == ["cpus"]
    nodes = [node("gpus", 2, cpu_milli=8_000), node("cpus", 1, cpu_milli=25_000)]
    assert at(Cluster(nodes).place(job(1000))) == ["gpus"]


# ---- fragmentation ----

HALVES_AND_WHOLE: Mix = ((ask(500), 1), (ask(1000), 1))


def on_node(n: Node, *free_milli: int) -> Node:
    """The node with so much free on its devices, and memory in proportion."""
    Cluster([n])
    n.free_milli = list(free_milli)
    n.free_bytes = [d.memory_bytes * milli // 1000 for d, milli in zip(n.devices, free_milli, strict=True)]
    return n


def test_fragmentation_by_hand() -> None:
    """One device whole, 0.4 of another. Neither job can use the 0.4: 400 for each.

    0.4 more on the second: nothing is fragmented. On the first: 400 + nothing whole, so 1000 for the whole job, 400 for
    the half one. Of a mix of weight 2 the gradients are 400 and -300: scores floor(100 sigmoid(0.4)) and (-0.3).
    """
    rule = Fgd(BestFit(), HALVES_AND_WHOLE)
    n = on_node(node("a", 2), 1000, 400)
    assert rule.fragmentation(n) == 400 + 400
    wanted = shape(400)
    assert rule.node_rank(wanted, n, (1,))[0] == -int(100 / (1 + exp(-0.4))) == -59
    assert rule.node_rank(wanted, n, (0,))[0] == -int(100 / (1 + exp(0.3))) == -42
    ranks = rule.device_ranks(wanted, 0, n, [0, 1])
    assert ranks[1] < ranks[0]


def test_whole_devices_that_are_too_few_are_fragmented() -> None:
    rule = Fgd(BestFit(), ((ask(2000), 3), (ask(1000), 1)))
    assert rule.fragmentation(on_node(node("a", 3), 1000, 1000, 0)) == 0
    rule = Fgd(BestFit(), ((ask(2000), 3), (ask(1000), 1)))
    assert rule.fragmentation(on_node(node("a", 3), 1000, 0, 500)) == 3 * 1500 + 1 * 500


def test_jobs_without_gpus_leave_all_of_it() -> None:
    assert Fgd(BestFit(), ((ask(0, 1000), 1),)).fragmentation(on_node(node("a", 2), 1000, 500)) == 1500


def test_memory_makes_a_device_useless_too() -> None:
    n = on_node(node("a", 1), 500)
    n.free_bytes = [8 * GIB]  # a tenth of 80 GiB
    assert Fgd(BestFit(), ((ask(100), 1),)).fragmentation(n) == 0
    assert Fgd(BestFit(), ((ask(101), 1),)).fragmentation(n) == 500


def by_definition(n: Node, mix: Mix) -> int:
    """F of the paper, job by job."""
    total, idle = 0, sum(n.free_milli)
    for wanted, weight in mix:
        pieces = wanted.spec.pieces
        milli = pieces[0] if pieces else 0
        runs = wanted.cpu_milli <= n.free_cpu_milli and wanted.ram_bytes <= n.free_ram_bytes and bool(pieces)
        runs = runs and (not wanted.gpu_models or n.gpu_model in wanted.gpu_models)
        runs = runs and sum(free >= milli for free in n.free_milli) >= len(pieces)
        total += weight * (sum(free for free in n.free_milli if free < milli) if runs else idle)
    return total


MIXES = st.lists(
    st.tuples(
        st.builds(
            ask,
            st.sampled_from([0, 100, 250, 500, 1000, 2000, 4000]),
            st.sampled_from([0, 4000, 8000]),
            st.sampled_from([0, GIB]),
            st.sampled_from([(), ("A",), ("B",)]),
        ),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(
    MIXES,
    st.lists(st.sampled_from([0, 90, 250, 499, 500, 750, 1000]), min_size=1, max_size=4),
    st.sampled_from([0, 4000, 9000]),
    st.sampled_from([0, 2 * GIB]),
    st.sampled_from([100, 250, 500, 1000, 2000]),
)
def test_fragmentation_is_its_definition(
    mix: list[tuple[object, int]], free: list[int], cpu_milli: int, ram_bytes: int, wanted_milli: int
) -> None:
    """Also of the state after a job, which the score is made of."""
    rule = Fgd(BestFit(), tuple(mix))  # type: ignore[arg-type]
    n = node("a", len(free), cpu_milli=cpu_milli, ram_bytes=ram_bytes, model="A", memory_bytes=1000 * GIB)
    on_node(n, *free)
    before = by_definition(n, tuple(mix))  # type: ignore[arg-type]
    assert rule.fragmentation(n) == before
    wanted = shape(wanted_milli, cpu_milli=4000)
    fits = wanted.fitting(n)
    if not fits:
        return
    devices = tuple(fits[0][: len(fits)])
    rank = rule.node_rank(wanted, n, devices)[0]
    wanted.change(n, devices, -1)
    gradient = before - by_definition(n, tuple(mix))  # type: ignore[arg-type]
    assert rank == -int(100 / (1 + exp(-gradient / (1000 * rule.total_weight))))


def test_the_mix_is_the_most_popular_jobs() -> None:
    asks = [ask(500)] * 90 + [ask(1000)] * 6 + [ask(300)] * 4
    assert mix_of(asks) == ((ask(500), 90), (ask(1000), 6))
    assert mix_of([]) == ()
    assert Fgd(BestFit(), ()).total_weight == sum(weight for _, weight in PLAIN_MIX)
    named = [ask(500, device_uuids=("a/0",)), ask(500, device_uuids=("a/1",))]
    assert mix_of(named) == ((ask(500), 2),)


# ---- groups, names ----


@pytest.mark.parametrize(
    ("groups", "fits", "first"),
    [
        ((), [[0, 1, 2], [0, 1, 2]], {0, 1, 2}),
        ((0, 0, 1, 1, 1), [[0, 1, 2, 3, 4]] * 2, {0, 1}),  # just enough
        ((0, 0, 1, 1, 1), [[1, 2, 3, 4]] * 2, {2, 3, 4}),
        ((0, 0, 1, 1, 1), [[0, 1, 2, 3, 4]] * 4, {2, 3, 4}),  # in none: the widest
        ((0, 0, 1, 1), [[2, 3], [0, 1, 2, 3]], {2, 3}),  # a bigger part fits only there
    ],
)
def test_order_of_groups(groups: tuple[int, ...], fits: list[list[int]], first: set[int]) -> None:
    order = group_order(groups, fits)
    assert {i for i, early in order.items() if early == 0} == first


def test_rules_by_name() -> None:
    assert [registry.make(name).name for name in registry.NAMES] == list(registry.NAMES)
    with pytest.raises(ValueError, match="no placement 'random': choose one of best-fit, worst-fit, fgd"):
        registry.make("random")
    with pytest.raises(ValueError, match=r"no placement 'first-fit', did you mean worst-fit or best-fit\?"):
        registry.make("first-fit")


def test_spread_queues_fill_ties_from_the_emptiest() -> None:
    for name in registry.NAMES:
        cluster = Cluster([node("a", 1), node("b", 1)], rule=registry.make(name, spread=True, mix=((ask(100), 1),)))
        put(cluster, "a/0", 100)
        assert at(cluster.place(job(100))) == ["b"], name
