"""Sharing devices by what jobs use: where a job goes, which keep it out, its guarantee, how the rule is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.placement.world import GIB, at, devices_of, job, node
from vgpud.core.colocate.pairs import PAIRS_MAX, Pairs
from vgpud.core.jobs.model import Ask, Elastic, Job, JobSpec, Placement
from vgpud.core.model import Spec
from vgpud.core.placement import registry
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.colocate import shared


def uses(percent: int, kind: str = "", gib: int = 8, **spec: object) -> Job:
    """A job of one device that uses so much of it (-1: not known), as the rule of two jobs on a device has it."""
    known_milli = 10 * percent if percent >= 0 else -1
    wanted = Spec(1000, **{"min_milli": 500, "mem_min_bytes": gib * GIB, "mem_max_bytes": gib * GIB} | spec)  # type: ignore[arg-type]
    return job(Ask(wanted, utilisation_milli=known_milli, kind=kind))


def put(cluster: Cluster, *jobs: Job) -> list[str]:
    """The device of each."""
    found = []
    for one in jobs:
        placement = cluster.place(one)
        assert placement is not None
        cluster.take(placement)
        found.append(devices_of(placement)[0][0])
    return found


def make_cluster(gpus: int = 3, rule: str = "colocate(120,2)", spread: bool = False) -> Cluster:
    cluster = Cluster([node("a", gpus)])
    cluster.rules({"default": (rule, spread)})
    return cluster


# ---- where ----


@pytest.mark.parametrize(("spread", "fourth"), [(False, "a/1"), (True, "a/2")])
def test_empty_devices_first_then_the_fullest_below_the_limit(spread: bool, fourth: str) -> None:
    cluster = make_cluster(spread=spread)
    assert put(cluster, uses(80), uses(60), uses(30)) == ["a/0", "a/1", "a/2"]
    assert put(cluster, uses(50)) == [fourth]


def test_the_sum_is_a_soft_limit_and_memory_a_hard_one() -> None:
    cluster = make_cluster(1)
    put(cluster, uses(60, gib=50))
    assert cluster.place(uses(61)) is None
    assert cluster.place(uses(20, gib=31)) is None
    assert devices_of(cluster.place(uses(60, gib=30))) == [("a/0",)]


def test_alone_a_job_may_use_more_than_the_limit() -> None:
    cluster = make_cluster(2, "colocate(80,2)")
    assert put(cluster, uses(95), uses(100)) == ["a/0", "a/1"]
    assert cluster.place(uses(1)) is None


def test_what_is_not_known_counts_as_all_that_it_may_use() -> None:
    cluster = make_cluster(1)
    put(cluster, uses(-1, max_milli=1000))
    assert cluster.place(uses(21)) is None and cluster.place(uses(20)) is not None
    quarter = make_cluster(1, "colocate(120,4)")
    for _ in range(4):
        put(quarter, job(250))
    assert devices_of(make_cluster(1).place(job(300))) == [("a/0",)]


def test_nodes_that_differ_in_who_is_there_are_not_alike() -> None:
    """A new ranking ranks nodes that are alike once."""
    cluster = Cluster([node("a", 1), node("b", 1), node("c", 1)], rule=registry.make("colocate(120,2)"))
    assert put(cluster, uses(90), uses(20), uses(90)) == ["a/0", "b/0", "c/0"]
    assert at(cluster.place(uses(50))) == ["b"]


def test_no_more_jobs_than_may_share() -> None:
    cluster = make_cluster(1, "colocate(1000,3)")
    put(cluster, *[uses(5, min_milli=100)] * 3)
    assert cluster.place(uses(5, min_milli=100)) is None


def test_whole_devices_are_shared_with_no_other() -> None:
    cluster = make_cluster(2)
    put(cluster, uses(10, min_milli=1000))
    assert put(cluster, uses(10)) == ["a/1"]
    assert cluster.place(uses(10, min_milli=1000)) is None, "a minimum that was asked for is not divided"


def test_members_of_a_gang_see_each_other() -> None:
    cluster = make_cluster(2)
    gang = replace(uses(70).spec, members=2)
    assert at(cluster.place(Job(1, gang, 0))) == ["a", "a"]
    assert len({*devices_of(cluster.place(Job(1, gang, 0)))}) == 2
    assert cluster.place(Job(1, replace(gang, members=3), 0)) is None


def test_slices_that_are_no_jobs_count_with_their_guarantee() -> None:
    cluster = make_cluster(1)
    cluster.change("a", (("a/0", 400, 0),), ("a/0",))
    assert cluster.place(uses(81)) is None and cluster.place(uses(80)) is not None
    cluster.change("a", (), ("a/0",))
    assert cluster.place(uses(81)) is not None


def test_who_is_paused_uses_nothing() -> None:
    cluster = make_cluster(1)
    (place,) = cluster.place(uses(90)) or ()
    paused: Placement = (replace(place, shares=(replace(place.shares[0], min_milli=0),), utilisation_milli=-1),)
    cluster.take(paused)
    assert cluster.place(uses(90)) is not None
    put(cluster, uses(90))
    assert not cluster.suits(uses(90), (place,)), "it does not go on beside who came meanwhile"
    assert cluster.fits((place,))


def test_other_rules_do_not_look_at_who_is_there() -> None:
    cluster = Cluster([node("a", 1)])
    cluster.rules({"default": ("best-fit", False)})
    assert put(cluster, uses(90), uses(90)) == ["a/0", "a/0"]
    placement = Cluster([node("a", 1)]).place(uses(90, kind="k"))
    assert placement is not None and (placement[0].utilisation_milli, placement[0].kind) == (0, "")


# ---- pairs that lose ----


def test_pairs_that_lose_are_kept_apart_from_then_on() -> None:
    cluster = make_cluster(2)
    put(cluster, uses(50, "a"), uses(50, "b"))
    assert devices_of(cluster.place(uses(50, "b"))) == [("a/0",)], (
        "ranked before it is known, and no node changes after"
    )
    cluster.lose("b", "a")
    assert devices_of(cluster.place(uses(50, "b"))) == [("a/1",)]
    cluster.lose("b", "b")
    assert cluster.place(uses(50, "b")) is None
    assert cluster.place(uses(50, "c")) is not None
    assert cluster.pairs() == (("a", "b"), ("b", "b"))


def test_pairs_are_remembered_up_to_a_bound() -> None:
    pairs = Pairs()
    assert pairs.add("b", "a") and not pairs.add("a", "b") and not pairs.add("", "a")
    for number in range(PAIRS_MAX):
        pairs.add("x", f"y{number}")
    assert len(pairs.all()) == PAIRS_MAX and not pairs.lose("a", "b") and pairs.lose("y0", "x")


# ---- why not ----


@pytest.mark.parametrize(
    ("job_", "why"),
    [
        (
            uses(70),
            "no device can be shared with this job: device 1 of a would be 125 % used; at most 120 % is allowed",
        ),
        (
            uses(1, min_milli=100),
            "no device can be shared with this job: device 1 of a has 2 job(s), and 2 may share it",
        ),
        (
            uses(5, "k"),
            "no device can be shared with this job: device 1 of a has a job beside which such jobs lose more than",
        ),
        (uses(5, gib=78), "no device has 0.5 GPU and 78GiB free"),
    ],
)
def test_why_there_is_no_capacity(job_: Job, why: str) -> None:
    cluster = make_cluster(2)
    put(cluster, uses(115), uses(55, "other"))
    cluster.lose("k", "other")
    cluster.lose("k", "")
    if "2 job" in why:
        put(cluster, uses(1, min_milli=100))
        put(cluster, uses(1, min_milli=100))
    elif "lose" in why:
        put(cluster, uses(5, "one"))
    assert cluster.why_not(job_).startswith(why)
    assert cluster.place(job_) is None


# ---- what a job is guaranteed ----


@pytest.mark.parametrize(
    ("spec", "jobs", "min_milli"),
    [
        (Spec(1000), 2, 500),
        (Spec(1000), 3, 333),
        (Spec(500), 2, 250),
        (Spec(1), 2, 1),
        (Spec(1000), 1, None),
        (Spec(1000, min_milli=800), 2, 800),
        (Spec(1000, min_milli=0), 2, 0),
        (Spec(2000), 2, None),
        (Spec(500, spread=2), 2, None),
        (Spec(0), 2, None),
    ],
)
def test_guarantees(spec: Spec, jobs: int, min_milli: int | None) -> None:
    found = shared(JobSpec(Ask(spec)), jobs)
    assert found.ask.spec.min_milli == min_milli
    assert shared(found, jobs) == found, "once is enough"


def test_gangs_and_elastic_jobs_keep_theirs() -> None:
    gang = JobSpec(Ask(Spec(1000)), members=2)
    slice_ = JobSpec(Ask(Spec(250)), elastic=Elastic(least_milli=250, most_milli=1000))
    assert (shared(gang, 2), shared(slice_, 2)) == (gang, slice_)


def test_what_is_known_is_rounded_and_its_kind_noted() -> None:
    spec = JobSpec(Ask(Spec(1000), utilisation_milli=431), kinds=("narrow", "wide"))
    found = shared(spec, 2).ask
    assert (found.utilisation_milli, found.kind) == (450, "narrow")
    assert shared(JobSpec(Ask(Spec(1000), utilisation_milli=3, kind="set")), 2).ask.kind == "set"
    assert shared(JobSpec(Ask(Spec(1000), utilisation_milli=3)), 2).ask.utilisation_milli == 50
    assert shared(JobSpec(Ask(Spec(1000))), 2).ask.utilisation_milli == -1


# ---- how it is written ----


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colocate(0,2)", "0 % of a device is out of range: write 1 to 1000, for example 120"),
        ("colocate(120,0)", "0 jobs on a device is out of range: write 1 to 16, for example 2"),
        ("colocate(120,17)", "17 jobs on a device is out of range"),
        ("colocate(1.5)", "it takes two whole numbers: write for example colocate(120,2)"),
        ("colocate(120,2,3)", "it takes two whole numbers"),
        ("colocate(x)", "colocate does not take 'x': it takes % of a device, jobs on it"),
        ("colocate(120", "placement 'colocate(120' has no closing bracket"),
        ("best-fit(2)", "best-fit does not take '2': it takes nothing"),
    ],
)
def test_what_is_invalid_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as refused:
        registry.make(text)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("text", "limit_milli", "jobs"), [("colocate", 1600, 4), ("colocate(90)", 900, 4), (" colocate( 80 , 3 ) ", 800, 3)]
)
def test_parameters(text: str, limit_milli: int, jobs: int) -> None:
    sharing = registry.make(text).sharing
    assert sharing is not None and sharing.jobs_per_device == jobs
    assert sharing.welcome((limit_milli - 100, ""), [(100, "")]) and not sharing.welcome(
        (limit_milli - 99, ""), [(100, "")]
    )
