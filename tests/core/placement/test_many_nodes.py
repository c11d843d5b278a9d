"""Several nodes: members on different ones, below one switch, by the speed of GPU models; and nodes that change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.placement.world import ask, at, devices_of, job, node
from vgpud.core.jobs.model import Job, Node
from vgpud.core.named import InvalidSpec
from vgpud.core.placement import registry
from vgpud.core.placement.cluster import Cluster


def node_with_switches(name: str, gpus: int, *switches: str) -> Node:
    return replace(node(name, gpus), switches=switches)


def take_place(cluster: Cluster, new_job: Job) -> list[str]:
    found = cluster.place(new_job)
    assert found is not None
    cluster.take(found)
    return at(found)


# ---- one member for each node ----


def test_members_are_on_different_nodes() -> None:
    cluster = Cluster([node("a", 4), node("b", 4)])
    assert at(cluster.place(job(1000, 2))) == ["a", "a"]
    assert sorted(at(cluster.place(job(1000, 2, one_per_node=True)))) == ["a", "b"]


def test_there_must_be_as_many_nodes_as_members() -> None:
    cluster = Cluster([node("a", 4), node("b", 4)])
    three = job(1000, 3, one_per_node=True)
    assert cluster.place(three) is None
    assert "the nodes together hold 2 when" in cluster.never_fits_reason(three) and "each on another node" in (
        cluster.never_fits_reason(three)
    )
    take_place(cluster, job(4000))
    two = job(1000, 2, one_per_node=True)
    assert cluster.place(two) is None
    assert "free capacity for 1 of 2 members" in cluster.why_not(two)
    assert cluster.why_not(job(1000, 2)) == ""  # the sentence of the one is not that of the other


def test_placing_one_per_node_changes_nothing() -> None:
    cluster = Cluster([node("a", 2), node("b", 2), node("c", 2)])
    wanted = job(500, 2, one_per_node=True)
    assert at(cluster.place(wanted)) == at(cluster.place(wanted)) == ["a", "b"]
    assert cluster.free_milli() == 6000


# ---- switches ----


def test_members_go_below_the_lowest_switch_with_capacity() -> None:
    cluster = Cluster(
        [
            node_with_switches("a", 2, "s1", "top"),
            node_with_switches("b", 2, "s2", "top"),
            node_with_switches("c", 2, "s2", "top"),
            node_with_switches("d", 2, "s3", "top"),
        ]
    )
    assert at(cluster.place(job(2000, 2, one_per_node=True))) == ["b", "c"]
    assert at(cluster.place(job(2000, 3, one_per_node=True))) == ["a", "b", "c"]


def test_of_several_switches_the_one_with_least_capacity() -> None:
    nodes = [node_with_switches(f"w{number}", 1, "wide") for number in range(3)] + [
        node_with_switches("n0", 1, "narrow"),
        node_with_switches("n1", 1, "narrow"),
    ]
    assert at(Cluster(nodes).place(job(1000, 2, one_per_node=True))) == ["n0", "n1"]


@pytest.mark.parametrize(("skew_ppm", "where"), [(900_000, ["b", "b", "c"]), (100_000, ["a", "a", "b"])])
def test_consolidated_gangs_stay_below_one_switch(skew_ppm: int, where: list[str]) -> None:
    """Without skew the gang goes anywhere; with it, to two nodes that are near to each other."""
    nodes = [
        node_with_switches("a", 2, "s1", "top"),
        node_with_switches("b", 2, "s2", "top"),
        node_with_switches("c", 2, "s2", "top"),
    ]
    cluster = Cluster(nodes, rule=registry.make("tiresias"))
    assert at(cluster.place(job(1000, 3, skew_ppm=skew_ppm))) == where


def test_a_gang_on_one_node_needs_no_switch() -> None:
    nodes = [node_with_switches("a", 4, "s1"), node_with_switches("b", 2, "s2"), node_with_switches("c", 2, "s2")]
    cluster = Cluster(nodes, rule=registry.make("tiresias"))
    assert set(at(cluster.place(job(1000, 4, skew_ppm=900_000)))) == {"a"}


# ---- models of GPUs ----

FAST_AND_SLOW = (("fast", 1000), ("slow", 100))
NEARLY_EQUAL = (("fast", 1000), ("slow", 900))


def mixed_nodes() -> list[Node]:
    return [node("s", 2, model="slow"), node("f", 2, model="fast")]


def test_jobs_go_where_they_lose_little() -> None:
    cluster = Cluster(mixed_nodes(), rule=registry.make("throughput"))
    assert at(cluster.place(job(replace(ask(1000), rates=FAST_AND_SLOW)))) == ["f"]
    assert at(cluster.place(job(replace(ask(1000), rates=NEARLY_EQUAL)))) == ["s"]
    assert at(cluster.place(job(ask(1000)))) == ["s"]  # nothing is known: the first


def test_a_full_model_is_no_reason_to_wait() -> None:
    cluster = Cluster(mixed_nodes(), rule=registry.make("throughput"))
    gains = job(replace(ask(2000), rates=FAST_AND_SLOW))
    assert [take_place(cluster, gains), take_place(cluster, gains)] == [["f"], ["s"]]
    assert cluster.place(gains) is None


def test_the_loss_that_is_little_can_be_chosen() -> None:
    none = Cluster(mixed_nodes(), rule=registry.make("throughput(0)"))
    assert at(none.place(job(replace(ask(1000), rates=NEARLY_EQUAL)))) == ["f"]
    for wrong in ("throughput(101)", "throughput(1,2)", "throughput(fast)"):
        with pytest.raises(InvalidSpec):
            registry.make(wrong)


def test_unknown_models_come_last() -> None:
    nodes = [node("u", 2, model="unknown"), *mixed_nodes()]
    cluster = Cluster(nodes, rule=registry.make("throughput"))
    wanted = job(replace(ask(2000), rates=FAST_AND_SLOW))
    assert [take_place(cluster, wanted)[0] for _ in range(3)] == ["f", "s", "u"]


# ---- nodes change ----


@pytest.mark.parametrize("rule", registry.NAMES)
def test_nodes_are_replaced(rule: str) -> None:
    """What rules remember of former nodes, by index and version, is not believed of new ones."""
    cluster = Cluster([node("a", 2), node("b", 2)], rule=registry.make(rule))
    cluster.change("a", (("a/0", 500, 0),), ("a/0",))
    take_place(cluster, job(1500))
    assert cluster.replace_nodes([node("b", 1), node("c", 4)]) == ["a", "b"]
    assert cluster.total_milli() == cluster.free_milli() == 5000
    assert at(cluster.place(job(4000))) == ["c"]
    assert devices_of(cluster.place(job(ask(300, device_uuids=("b/0",))))) == [("b/0",)]
    assert cluster.place(job(ask(300, device_uuids=("b/1",)))) is None


def test_the_given_nodes_stay_as_they_are() -> None:
    given = [node("a", 1)]
    cluster = Cluster(())
    cluster.replace_nodes(given)
    take_place(cluster, job(1000))
    assert given[0].free_milli == [] and cluster.free_milli() == 0
