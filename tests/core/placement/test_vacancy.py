"""Whether a job fits, by counting: as placing it says, whatever is taken; and which jobs do not fit either."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.examples import examples
from vgpud.core.jobs.model import Ask, Job, JobSpec, Node, Placement
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.registry import make

GIB = 1 << 30


def make_cluster(draw: random.Random, rule: str) -> Cluster:
    nodes = []
    for n in range(draw.randint(1, 4)):
        memory_bytes = draw.choice([8, 16]) * GIB
        devices = tuple(
            make_small_device(i, uuid=f"{n}-{i}", memory_bytes=memory_bytes) for i in range(draw.randint(1, 4))
        )
        model = draw.choice(["A", "B"])
        cpu_milli, swap_bytes = draw.choice([4000, 64_000]), draw.choice([0, 10, 100]) * GIB
        nodes.append(Node(f"n{n}", devices, cpu_milli, 64 * GIB, model, swap_bytes=swap_bytes))
    return Cluster(nodes, rule=make(rule))


def make_spec(draw: random.Random) -> JobSpec:
    milli = draw.choice([0, 1, 100, 250, 500, 750, 1000, 1000, 1500, 2000, 3000])
    size_bytes = draw.choice([None, None, None, GIB, 6 * GIB])
    spread, rotates = draw.choice([0, 0, 0, 2]), milli <= 1000 and draw.random() < 0.4
    spec = Spec(milli, mem_min_bytes=size_bytes, mem_max_bytes=size_bytes, spread=0 if rotates else spread)
    spec = replace(spec, mem_swap=rotates)
    if draw.random() < 0.1:
        spec = Spec(milli, device_uuids=tuple(f"0-{i}" for i in range(max(1, milli // 1000))))
    models = draw.choice([(), (), (), ("A",)])
    ask = Ask(spec, cpu_milli=draw.choice([0, 0, 1000]), ram_bytes=draw.choice([0, 0, 20 * GIB]), gpu_models=models)
    return JobSpec(ask, members=draw.choice([1, 1, 1, 2, 3, 5]), one_per_node=draw.random() < 0.2)


def fill(cluster: Cluster, draw: random.Random) -> list[Placement]:
    held = []
    for job_id in range(draw.randint(0, 12)):
        placement = cluster.place(Job(job_id, make_spec(draw), 0))
        if placement is not None:
            cluster.take(placement)
            held.append(placement)
    for node in cluster.nodes:
        if draw.random() < 0.3:
            cluster.change(node.name, (), tuple(device.uuid for device in node.devices[1:]))
    return held


def is_placed(cluster: Cluster, spec: JobSpec) -> bool:
    return cluster.place(Job(99, spec, 0)) is not None


@pytest.mark.parametrize("rule", ["best-fit", "worst-fit", "fgd", "tiresias"])
def test_counting_says_what_placing_says(rule: str) -> None:
    draw, fits, known = random.Random(rule), 0, 0
    for _ in range(examples(2000) * 8):
        cluster = make_cluster(draw, rule)
        held = fill(cluster, draw)
        for spec in (make_spec(draw) for _ in range(6)):
            vacancy = cluster.ask_vacancy(spec, ())
            if vacancy is None:
                continue
            known += 1
            assert vacancy.fits() == is_placed(cluster, spec)
            leaving = draw.sample(held, draw.randint(0, len(held)))
            for placement in leaving:
                vacancy.release(placement)
            has_fitted = vacancy.fits()
            for placement in leaving:
                vacancy.take(placement)
            by_node: dict[str, dict[int, Placement]] = {}
            for number, placement in enumerate(leaving):
                for place in placement:
                    on_node = by_node.setdefault(place.node, {})
                    on_node[number] = (*on_node.get(number, ()), place)
            assert vacancy.fits_without(by_node) == has_fitted
            for placement in leaving:
                cluster.release(placement)
            assert is_placed(cluster, spec) == has_fitted
            fits += has_fitted
            for placement in leaving:
                cluster.take(placement)
    assert fits > known // 10


def test_a_job_that_needs_all_of_another_does_not_fit_where_that_does_not() -> None:
    draw, covered = random.Random(5), 0
    for _ in range(examples(2000) * 8):
        cluster = make_cluster(draw, "best-fit")
        fill(cluster, draw)
        specs = [make_spec(draw) for _ in range(8)]
        vacancies = [cluster.ask_vacancy(spec, ()) for spec in specs]
        known = [(one, spec) for one, spec in zip(vacancies, specs, strict=True) if one is not None]
        for vacancy, spec in known:
            for other, other_spec in known:
                if vacancy.needs_all_of(other) and not is_placed(cluster, other_spec):
                    covered += 1
                    assert not is_placed(cluster, spec), (spec, other_spec)
    assert covered > 100


def test_members_on_different_nodes_need_as_many_nodes() -> None:
    """Two nodes of three devices: three whole devices on each of two nodes fit, one on each of five does not."""
    nodes = [Node(f"n{n}", tuple(make_small_device(i, uuid=f"{n}-{i}") for i in range(3))) for n in range(2)]
    cluster = Cluster(nodes)
    wide = cluster.ask_vacancy(JobSpec(Ask(Spec(3000)), 2, one_per_node=True), ())
    many = cluster.ask_vacancy(JobSpec(Ask(Spec(1000)), 5, one_per_node=True), ())
    assert wide is not None and many is not None
    assert wide.fits() and not many.fits()
    assert not wide.needs_all_of(many) and wide.needs_all_of(wide)
