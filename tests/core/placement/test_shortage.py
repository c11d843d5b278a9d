"""Why a job could never be placed, and why it cannot now: one sentence, with what is wanted and what there is."""

from __future__ import annotations

import pytest

from tests.core.placement.world import GIB, ask, fresh, job, node
from vgpud.core.jobs.model import Job
from vgpud.core.placement.cluster import Cluster


def make_cluster() -> Cluster:
    """Two nodes: a has 0.7 of one device and 1 CPU left, b 0.3 and 0.6 of its two and 8 CPUs."""
    cluster = Cluster(
        [
            node("a", 2, cpu_milli=8000, ram_bytes=64 * GIB, model="T4", memory_bytes=16 * GIB),
            node("b", 2, cpu_milli=16_000, ram_bytes=32 * GIB, model="H100"),
        ]
    )
    for wanted in (
        ask(1000, 6000, 30 * GIB, device_uuids=("a/0",)),
        ask(300, 1000, device_uuids=("a/1",)),
        ask(700, 4000, device_uuids=("b/0",)),
        ask(400, 4000, device_uuids=("b/1",)),
    ):
        placement = cluster.place(job(wanted))
        assert placement is not None
        cluster.take(placement)
    return cluster


@pytest.mark.parametrize(
    ("new_job", "sentence"),
    [
        (job(500), ""),
        (job(1000), "no device has 1 GPU and 16GiB free: device 1 of a has the most free: 0.7 GPU and 11.2GiB"),
        (job(2000), "no device has 1 GPU and 16GiB free: device 1 of a has the most free: 0.7 GPU and 11.2GiB"),
        (
            job(ask(1200, spread=2)),
            "2 devices of one node are needed with 0.6 of each free: a has the most: 1",
        ),
        (
            job(ask(200, mem_min_bytes=60 * GIB)),
            "no device has 0.2 GPU and 60GiB free: device 1 of b has the most free: 0.6 GPU and 48GiB",
        ),
        (
            job(ask(700, models=("H100",))),
            "no device has 0.7 GPU and 56GiB free: device 1 of b has the most free: 0.6 GPU and 48GiB",
        ),
        (
            job(ask(500, device_uuids=("b/0",))),
            "no device has 0.5 GPU and 40GiB free: device 0 of b has the most free: 0.3 GPU and 24GiB",
        ),
        (job(ask(700, 4000)), "no node where the GPUs are free has 4 CPUs free: at most 1"),
        (job(ask(700, 0, 40 * GIB)), "no node where the GPUs are free has 40GiB of RAM free: at most 34GiB"),
        (job(ask(0, 9000)), "no node has 9 CPUs free: at most 8"),
        (job(ask(0, 8000, 33 * GIB)), "no node has 8 CPU + 33GiB RAM free together"),
        (job(500, 3), "there is free capacity for 2 of 3 members of 0.5 GPU each"),
    ],
)
def test_what_is_missing_now(new_job: Job, sentence: str) -> None:
    assert make_cluster().why_not(new_job) == sentence


def test_a_sentence_holds_until_something_changes() -> None:
    cluster = Cluster([node("a", 2)])
    assert cluster.why_not(job(2000)) == ""
    held = cluster.place(job(500))
    assert held is not None
    cluster.take(held)
    assert "a has the most: 1" in cluster.why_not(job(2000))
    assert cluster.why_not(job(1000)) == ""
    cluster.release(held)
    assert cluster.why_not(job(2000)) == ""


def test_devices_that_are_not_offered_are_said() -> None:
    cluster = make_cluster()
    cluster.change("a", (), ())
    assert cluster.why_not(job(700)) == (
        "no device has 0.7 GPU and 56GiB free: device 1 of b has the most free: 0.6 GPU and 48GiB"
        " (2 devices are not offered: `vgpu gpu ls` says why)"
    )
    cluster.change("b", (), ())
    assert cluster.why_not(job(100)) == (
        "no device that it may use is offered (4 devices are not offered: `vgpu gpu ls` says why)"
    )
    assert cluster.never_fits_reason(job(1000)) == ""


@pytest.mark.parametrize(
    ("new_job", "sentence"),
    [
        (job(2000, 2), ""),
        (job(1000, 4), ""),
        (job(ask(0, 16_000)), ""),
        (job(1000, 5), "5 members of 1 GPU each: the nodes together hold 4 when nothing else runs, ask for no more"),
        (job(3000), "3 GPUs need 3 devices, this node has 2: ask for 2 or less"),
        (job(ask(500, models=("A100", "V100"))), "no node has GPU model A100 or V100: there are H100, T4"),
        (job(ask(500, models=("T4",), mem_min_bytes=17 * GIB)), "memory 17GiB is more than device 0 has (16GiB)"),
        (job(ask(500, device_uuids=("a/7",))), "no device 'a/7' on this node"),
        (job(ask(500, device_uuids=("b/0", "b/1"))), "need 1 different device(s), 2 are named"),
        (job(ask(500, 17_000)), "17 CPUs: the largest node has 16, ask for less"),
        (job(ask(500, 0, 65 * GIB)), "65GiB of RAM: the largest node has 64GiB, ask for less"),
        (job(ask(500, 16_000, 64 * GIB)), "no node has 0.5 GPU + 16 CPU + 64GiB RAM together, however empty"),
        (job(ask(500, max_milli=100)), "min 0.5 is above max 0.1: lower the minimum or raise the maximum"),
        (job(ask(500, mem_max_bytes=1)), "is less than one context needs"),
    ],
)
def test_what_could_never_be(new_job: Job, sentence: str) -> None:
    found = make_cluster().never_fits_reason(new_job)
    assert sentence in found if sentence else found == ""
    assert "\n" not in found


def test_an_empty_cluster_says_so() -> None:
    assert Cluster([]).never_fits_reason(job(1000)) == "this cluster has no node"
    assert Cluster([]).place(job(1000)) is None
    assert Cluster([]).why_not(job(1000)) == "this cluster has no node"


def test_capacity_on_what_is_not_there_any_more_is_said() -> None:
    """A suspended job after a restart without its device, or under another name of the node."""
    known, left, renamed = (Cluster(fresh([node(name, count)])) for name, count in (("a", 2), ("a", 1), ("b", 2)))
    placement = known.place(job(2000))
    assert placement is not None and known.shortage(placement) == ""
    assert left.shortage(placement) == "device a/1 of a is missing"
    assert renamed.shortage(placement) == "node a is missing"
