"""Why a job is where it is: one clause with the numbers that decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.placement.world import GIB, ask, job, node
from tests.core.queue.world import make_policy, queue
from vgpud.core.jobs.events import Note, Submitted
from vgpud.core.jobs.model import Ask, JobSpec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine


def place_and_explain(cluster: Cluster, amount: Ask | int, members: int = 1, **spec: object) -> str:
    one = job(amount, members, **spec)
    placement = cluster.place(one)
    assert placement is not None
    cluster.take(placement)
    return cluster.why_here(one, placement)


def make_cluster(rule: str, *devices: int) -> Cluster:
    cluster = Cluster([node(f"n{i}", count) for i, count in enumerate(devices or (4,), 1)])
    cluster.rules({"default": (rule, False)})
    return cluster


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            "best-fit",
            "of 4 that fit, the one that is left with the least (best-fit); 0.25 GPU and 20GiB are left there",
        ),
        (
            "worst-fit",
            "of 4 that fit, the one that is left with the most (worst-fit); 0.5 GPU and 40GiB are left there",
        ),
    ],
)
def test_the_numbers_that_decided(rule: str, text: str) -> None:
    cluster = make_cluster(rule)
    place_and_explain(cluster, 250)
    device = 0 if rule == "best-fit" else 1
    assert place_and_explain(cluster, 500) == f"on device {device} of n1: {text}"


def test_where_there_was_no_choice() -> None:
    cluster = make_cluster("best-fit", 2)
    place_and_explain(cluster, 1000)
    assert place_and_explain(cluster, 1000) == (
        "on device 1 of n1, the only one of 2 that fits; 0 GPU and 0B are left there"
    )
    assert place_and_explain(make_cluster("best-fit", 1), 500) == "on device 0 of n1; 0.5 GPU and 40GiB are left there"
    assert (
        place_and_explain(make_cluster("best-fit"), ask(500, device_uuids=("n1/2",)))
        == "on device 2 of n1, as --device asks"
    )


def test_what_all_use_where_devices_are_shared_by_that() -> None:
    cluster = make_cluster("colocate(120,2)", 1)
    small = ask(1000, mem_min_bytes=GIB, mem_max_bytes=GIB, min_milli=500)
    first, second = replace(small, utilisation_milli=350), replace(small, utilisation_milli=410)
    assert place_and_explain(cluster, first) == "on device 0 of n1, which was empty: empty devices come first"
    assert place_and_explain(cluster, second) == (
        "on device 0 of n1, where all use 76 % (at most 120 % by 2 jobs); its own part of that is 41 %"
    )


def test_gangs_and_jobs_of_several_devices() -> None:
    assert (
        place_and_explain(make_cluster("best-fit", 2, 2), 1000, 4)
        == "4 members on devices 0, 1 of n1; 0, 1 of n2, by best-fit"
    )
    assert place_and_explain(make_cluster("best-fit"), 3000) == "on devices 0, 1, 2 of n1, by best-fit"
    consolidated = place_and_explain(make_cluster("tiresias", 4), 1000, 2, skew_ppm=900_000)
    assert consolidated == "2 members on devices 0, 1 of n1, on as few nodes as possible, for its skew"


def test_it_is_noted_when_a_job_starts() -> None:
    machine = Machine((queue(),), Cluster([node("n1", 2)]), make_policy)
    notes = [c for c in machine.step(Submitted((1,), JobSpec(ask(500))), 0) if isinstance(c, Note)]
    assert [(note.kind, note.text) for note in notes] == [
        (
            "job.started",
            "0.5 GPU on device 0 of n1: of 2 that fit, the one that is left with the least (best-fit); 0.5 GPU and"
            " 40GiB are left there",
        )
    ]
