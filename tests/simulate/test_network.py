"""Switches above simulated nodes, and gangs that went beyond one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulate.worlds import job
from vgpud.simulate import clusters, network, scenario

NODES = clusters.parse("4x1")
PAIRS = {"n0": ("s0", "top"), "n1": ("s1", "top"), "n2": ("s1", "top"), "n3": ("s0", "top"), "other": ("s2", "top")}


def test_nodes_get_their_switches_and_nothing_else() -> None:
    found = network.add_switches(NODES, PAIRS)
    assert [node.switches for node in found] == [PAIRS[node.name] for node in NODES]
    assert [(node.name, node.devices) for node in found] == [(node.name, node.devices) for node in NODES]
    assert not any(node.switches for node in NODES)


def test_nodes_that_it_does_not_name_have_none() -> None:
    assert [node.switches for node in network.add_switches(NODES, {"n2": ("s",)})] == [(), (), ("s",), ()]


@pytest.mark.parametrize(
    ("switches", "message"), [({"gpu-1": ("s",)}, r"n0 to n3\), but for example gpu-1"), ({}, r"n0 to n3\)$")]
)
def test_a_network_of_other_nodes_is_refused(switches: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(network.NoNodeError, match=message):
        network.add_switches(NODES, switches)


@pytest.mark.parametrize(
    ("group", "count_above"), [(("n0", "n3"), 0), (("n1", "n2"), 0), (("n0", "n1"), 1), (("n0", "n1", "n2", "n3"), 1)]
)
def test_above_one_switch(group: tuple[str, ...], count_above: int) -> None:
    assert network.above_one_switch([group], network.add_switches(NODES, PAIRS)) == count_above


def test_what_is_not_known_counts_as_above() -> None:
    nodes = network.add_switches(NODES, {"n0": ("s",)})
    assert network.above_one_switch([("n0", "n1"), ("n1", "n2"), ("n1",)], nodes) == 2


@given(st.lists(st.sets(st.sampled_from([node.name for node in NODES]), min_size=1), max_size=9))
def test_one_switch_above_all_is_never_left(groups: list[set[str]]) -> None:
    nodes = network.add_switches(NODES, {node.name: ("only",) for node in NODES})
    assert network.above_one_switch(groups, nodes) == 0


@pytest.mark.parametrize(("placement", "count_above"), [("tiresias", 0), ("best-fit", 1)])
def test_a_simulated_gang_knows_its_switches(placement: str, count_above: int) -> None:
    """n0 is first, and below another switch than n1; a gang with skewed traffic goes to two that are near."""
    gang = job(0, 10, members=2)
    gang = replace(gang, spec=replace(gang.spec, skew_ppm=900_000))
    nodes = network.add_switches(NODES, PAIRS)
    outcome = scenario.run([gang], nodes, scenario.Scenario("fifo", placement))
    assert [len(names) for names in outcome.starts_on_several_nodes] == [2]
    assert network.above_one_switch(outcome.starts_on_several_nodes, nodes) == count_above
