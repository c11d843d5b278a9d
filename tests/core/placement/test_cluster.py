"""The cluster: where jobs go, all members or none, and that what it remembers is what a fresh one would say."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import GIB, ask, at, devices_of, fresh, job, node, state
from tests.examples import examples
from vgpud.core.jobs.model import DEFAULT_QUEUE, Ask, Job, JobSpec, Node, Place, Placement
from vgpud.core.model import Denied, SiteLimits, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.placement import ranking, registry
from vgpud.core.placement import shape as shape_module
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.shape import Shape
from vgpud.core.slices import admission

# ---- properties ----

ASKS = st.builds(
    Ask,
    spec=st.one_of(
        st.builds(Spec, st.sampled_from([0, 1, 250, 300, 500, 700, 1000, 1500, 2000, 2500, 3000])),
        st.builds(Spec, st.sampled_from([500, 1000]), min_milli=st.sampled_from([0, 100, 400])),
        st.builds(Spec, st.sampled_from([300, 1000]), mem_min_bytes=st.sampled_from([GIB, 30 * GIB, 70 * GIB])),
        st.builds(
            Spec,
            st.sampled_from([250, 300]),
            mem_min_bytes=st.sampled_from([10, 40, 75]).map(GIB.__mul__),
            mem_swap=st.just(True),
        ),
        st.builds(Spec, st.just(1000), spread=st.just(2)),
        st.builds(Spec, st.just(500), device_uuids=st.sampled_from([("n0/0",), ("n1/1",)])),
    ),
    cpu_milli=st.sampled_from([0, 1000, 4000]),
    ram_bytes=st.sampled_from([0, GIB]),
    gpu_models=st.sampled_from([(), (), ("A",), ("A", "B")]),
    utilisation_milli=st.sampled_from([-1, 300, 700]),
    kind=st.sampled_from(["", "a", "b"]),
)
JOBS = st.builds(JobSpec, ASKS, members=st.sampled_from([1, 1, 1, 2, 3, 5]), skew_ppm=st.sampled_from([-1, 900_000]))


@st.composite
def clusters(draw: st.DrawFn) -> list[Node]:
    nodes = []
    for index in range(draw(st.integers(1, 4))):
        gpus = draw(st.integers(0, 4))
        groups = draw(st.sampled_from([(), (0, 0, 1, 1)[:gpus], (0, 1, 0, 1)[:gpus]]))
        nodes.append(
            node(
                f"n{index}",
                gpus,
                memory_bytes=draw(st.sampled_from([80, 40])) * GIB,
                cpu_milli=draw(st.sampled_from([4000, 16_000])),
                ram_bytes=draw(st.sampled_from([2, 64])) * GIB,
                model=draw(st.sampled_from(["A", "B", "C"])),
                groups=groups,
            )
        )
    return nodes


def make_cluster(nodes: list[Node], rule: str) -> Cluster:
    cluster = Cluster(nodes)
    cluster.rules({"default": (rule, False)})
    return cluster


@dataclass
class World:
    """A cluster in use, and what has been done to it."""

    cluster: Cluster
    rule: str
    held: list[tuple[JobSpec, Placement]]
    changes: dict[str, tuple[tuple[tuple[str, int, int], ...], tuple[str, ...]]]

    def rebuild_cluster(self) -> Cluster:
        """One that remembers nothing, in the same state."""
        other = make_cluster(fresh(self.cluster.nodes), self.rule)
        for name, (direct, offered) in self.changes.items():
            other.change(name, direct, offered)
        for _, placement in self.held:
            other.take(placement)
        for pair in self.cluster.pairs():
            other.lose(*pair)
        return other


def sound(cluster: Cluster) -> None:
    offered_free = 0
    for n in cluster.nodes:
        assert all(0 <= milli <= 1000 for milli in n.free_milli)
        assert all(0 <= left <= d.memory_bytes for left, d in zip(n.free_bytes, n.devices, strict=True))
        assert 0 <= n.free_cpu_milli <= n.cpu_milli
        assert 0 <= n.free_ram_bytes <= n.ram_bytes
        offered_free += sum(milli for milli, yes in zip(n.free_milli, n.offered, strict=True) if yes)
    assert cluster.free_milli() == offered_free
    assert cluster.total_milli() == 1000 * sum(sum(n.offered) for n in cluster.nodes)


def as_asked(cluster: Cluster, spec: JobSpec, placement: Placement) -> None:
    """Every member has the parts that admission makes of its spec, on devices of one node where it may be."""
    assert len(placement) == spec.members
    shape, names = Shape(spec.ask, SiteLimits()), spec.ask.spec.device_uuids
    for place in placement:
        n = cluster.node(place.node)
        by_uuid = {d.uuid: i for i, d in enumerate(n.devices)}
        where = [by_uuid[share.device_uuid] for share in place.shares]
        assert where == sorted(set(where))
        assert all(n.offered[i] for i in where)
        assert sorted(share.min_milli for share in place.shares) == sorted(part.min_milli for part in shape.parts)
        for i, share in zip(where, place.shares, strict=True):
            assert share in [part.compute_share(n.devices[i]) for part in shape.parts]
        assert (place.cpu_milli, place.ram_bytes) == (spec.ask.cpu_milli, spec.ask.ram_bytes)
        assert not spec.ask.gpu_models or n.gpu_model in spec.ask.gpu_models
        assert not names or {share.device_uuid for share in place.shares} == set(names)


def fits_somewhere(cluster: Cluster, request: Ask) -> bool:
    """One member, by trying every choice of devices."""
    shape = Shape(request, SiteLimits())
    for n in cluster.nodes:
        if request.gpu_models and n.gpu_model not in request.gpu_models:
            continue
        for chosen in itertools.permutations(n.devices, len(shape.parts)):
            shares = tuple(part.compute_share(d) for part, d in zip(shape.parts, chosen, strict=True))
            if not all(
                s.mem_min_bytes <= s.mem_max_bytes <= d.memory_bytes for s, d in zip(shares, chosen, strict=True)
            ):
                continue
            if shape.named_uuids and {d.uuid for d in chosen} != shape.named_uuids:
                continue
            least = [admission.smallest_limit_bytes(d.context_bytes, d.granule_bytes) for d in chosen]
            if any(s.mem_max_bytes < size for s, size in zip(shares, least, strict=True)):
                continue
            place = Place(n.name, shares, request.cpu_milli, request.ram_bytes, in_turn=request.spec.mem_swap)
            if cluster.suits(one := job(request), cluster.annotate_placement(one, (place,))):
                return True
    return False


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), clusters(), st.sampled_from([*registry.NAMES, "colocate(100,3)"]))
def test_any_sequence(data: st.DataObject, nodes: list[Node], rule: str) -> None:
    """Never too much, all or nothing, nothing overlooked, and as if nothing had been remembered."""
    world = World(make_cluster(nodes, rule), rule, [], {})
    empty = state(world.cluster.nodes)
    for _ in range(data.draw(st.integers(1, 14))):
        cluster = world.cluster
        action = data.draw(st.sampled_from(["place", "place", "place", "release", "change", "lose"]))
        if action == "release" and world.held:
            _, placement = world.held.pop(data.draw(st.integers(0, len(world.held) - 1)))
            cluster.release(placement)
        elif action == "change":
            n = data.draw(st.sampled_from(cluster.nodes))
            offered = tuple(d.uuid for d in n.devices if data.draw(st.booleans()))
            before = {uuid: milli for uuid, milli, _ in world.changes.get(n.name, ((), ()))[0]}
            direct = tuple(
                (d.uuid, data.draw(st.integers(0, n.free_milli[i] + before.get(d.uuid, 0))), 0)
                for i, d in enumerate(n.devices)
            )
            cluster.change(n.name, direct, offered)
            world.changes[n.name] = direct, offered
        elif action == "lose":
            cluster.lose(*data.draw(st.sampled_from([("a", "b"), ("b", "b")])))
        elif action == "place":
            spec = data.draw(JOBS)
            before_state, versions = state(cluster.nodes), [n.version for n in cluster.nodes]
            found = cluster.place(Job(1, spec, 0))
            assert (state(cluster.nodes), [n.version for n in cluster.nodes]) == (before_state, versions)
            assert found == world.rebuild_cluster().place(Job(1, spec, 0))
            if spec.members == 1:
                assert bool(cluster.why_not(Job(1, spec, 0))) == (found is None)
            if found is None:
                assert spec.members > 1 or not fits_somewhere(cluster, spec.ask)
                continue
            as_asked(cluster, spec, found)
            assert cluster.suits(Job(1, spec, 0), found)
            assert not cluster.never_fits_reason(Job(1, spec, 0))
            cluster.take(found)
            world.held.append((spec, found))
        sound(world.cluster)
    for name in world.changes:
        world.cluster.change(name, (), tuple(d.uuid for d in world.cluster.node(name).devices))
    for _, placement in world.held:
        world.cluster.release(placement)
    assert state(world.cluster.nodes) == empty


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(ASKS, min_size=1, max_size=8), st.integers(1, 4))
def test_one_node_places_as_admission_does(asks: list[Ask], gpus: int) -> None:
    """On one node best fit gives what `vgpu slice create` would: the same devices and the same four numbers."""
    n = node("n0", gpus, memory_bytes=48 * GIB - (5 << 20), context_bytes=(13 * GIB) + 7)
    cluster, policy = Cluster([n]), SiteLimits()
    held = State(policy=policy, devices={d.uuid: d for d in n.devices})
    for number, wanted in enumerate(asks):
        if not wanted.spec.gpus_milli:
            continue
        placement = cluster.place(job(replace(wanted, gpu_models=())))
        shares = admission.place(wanted.spec, held)
        assert (placement is None) == isinstance(shares, Denied)
        if placement is None or isinstance(shares, Denied):
            continue
        assert placement[0].shares == shares
        cluster.take(placement)
        held.slices[str(number)] = Slice(User(str(number)), str(number), number, wanted.spec, shares, 0, 0)


# ---- cases ----


def test_a_gang_is_all_or_nothing() -> None:
    cluster = Cluster([node("a", 2), node("b", 2)])
    assert len(at(cluster.place(job(1000, 4)))) == 4
    assert cluster.place(job(1000, 5)) is None
    assert len(at(cluster.place(job(500, 8)))) == 8
    assert cluster.place(job(700, 5)) is None


def test_two_and_a_half_devices_are_of_one_node() -> None:
    cluster = Cluster([node("a", 2), node("b", 3)])
    found = cluster.place(job(2500))
    assert devices_of(found) == [("b/0", "b/1", "b/2")]
    assert found is not None and [share.min_milli for share in found[0].shares] == [1000, 1000, 500]
    cluster.take(found)
    assert cluster.place(job(2500)) is None
    assert devices_of(cluster.place(job(500))) == [("b/2",)]


def test_named_devices_and_models() -> None:
    cluster = Cluster([node("a", 2, model="T4"), node("b", 2, model="H100")])
    assert devices_of(cluster.place(job(ask(500, device_uuids=("b/1",))))) == [("b/1",)]
    assert at(cluster.place(job(ask(500, models=("H100",))))) == ["b"]
    assert cluster.place(job(ask(500, models=("H100",), device_uuids=("a/0",)))) is None
    assert cluster.place(job(ask(1000, device_uuids=("a/0", "a/1")))) is None  # two named, one needed


def test_what_is_not_offered_or_reserved_otherwise_is_not_given() -> None:
    cluster = Cluster([node("a", 2)])
    cluster.change("a", (), ("a/1",))
    assert devices_of(cluster.place(job(300))) == [("a/1",)]
    assert cluster.place(job(2000)) is None
    cluster.change("a", (("a/1", 800, 0),), ("a/1",))
    assert cluster.place(job(300)) is None
    assert (cluster.total_milli(), cluster.free_milli()) == (1000, 200)
    cluster.change("a", (("a/1", 300, 79 * GIB),), ("a/0", "a/1"))
    assert (cluster.total_milli(), cluster.free_milli()) == (2000, 1700)
    assert devices_of(cluster.place(job(ask(300, mem_min_bytes=2 * GIB)))) == [("a/0",)]


def test_capacity_of_a_suspended_job_is_asked_for_exactly() -> None:
    cluster = Cluster([node("a", 1), node("b", 1)])
    mine = cluster.place(job(700))
    assert mine is not None
    kept = tuple(replace(p, shares=tuple(replace(s, min_milli=0) for s in p.shares)) for p in mine)
    cluster.take(kept)  # paused: its memory stays
    assert devices_of(cluster.place(job(ask(1000, mem_min_bytes=30 * GIB)))) == [("b/0",)]
    other = cluster.place(job(ask(500, mem_min_bytes=GIB, device_uuids=("a/0",))))
    assert other is not None
    cluster.take(other)
    cluster.release(kept)
    assert not cluster.fits(mine)
    cluster.release(other)
    assert cluster.fits(mine)
    assert not cluster.fits((Place("gone", ()),))


def test_what_runs_already_is_taken_whatever_there_is() -> None:
    cluster = Cluster([node("a", 1)])
    whole = cluster.place(job(1000))
    assert whole is not None
    cluster.take(whole)
    cluster.take(whole)
    assert cluster.free_milli() == 0
    cluster.release(whole)
    assert cluster.free_milli() == 0
    cluster.release(whole)
    assert cluster.free_milli() == 1000


@pytest.mark.parametrize(("skew_ppm", "nodes"), [(-1, 3), (100_000, 3), (900_000, 2)])
def test_only_skewed_jobs_are_kept_together(skew_ppm: int, nodes: int) -> None:
    """Free: 1, 3, 4 of 4. Best fit begins with the fullest node; a skewed job of 5 takes 4 + 1."""
    cluster = Cluster([node("a", 4), node("b", 4), node("c", 4)])
    cluster.rules({DEFAULT_QUEUE: ("tiresias", False)})
    for where, taken in (("a", 3), ("b", 1)):
        for index in range(taken):
            held = cluster.place(job(ask(1000, device_uuids=(f"{where}/{index}",))))
            assert held is not None
            cluster.take(held)
    found = at(cluster.place(job(1000, 5, skew_ppm=skew_ppm)))
    assert len(set(found)) == nodes
    if nodes == 2:
        assert sorted(found) == ["a", "c", "c", "c", "c"]
        assert set(at(cluster.place(job(1000, 3, skew_ppm=skew_ppm)))) == {"b"}


def test_linked_devices_go_together() -> None:
    split = node("split", 4, groups=(0, 1, 0, 1))
    cluster = Cluster([split])
    assert devices_of(cluster.place(job(2000))) == [("split/0", "split/2")]
    held = cluster.place(job(ask(1000, device_uuids=("split/0",))))
    assert held is not None
    cluster.take(held)
    assert devices_of(cluster.place(job(2000))) == [("split/1", "split/3")]
    assert devices_of(cluster.place(job(3000))) == [("split/1", "split/2", "split/3")]


def test_a_node_where_they_are_linked_comes_first() -> None:
    cluster = Cluster([node("far", 2, groups=(0, 1)), node("near", 4, groups=(0, 0, 1, 1))])
    assert at(cluster.place(job(2000))) == ["near"]
    assert at(cluster.place(job(1000))) == ["far"]  # best fit


def test_each_queue_has_its_rule() -> None:
    cluster = Cluster([node("a", 2), node("b", 2)])
    cluster.rules({"packed": ("best-fit", False), "wide": ("best-fit", True)})
    held = cluster.place(job(200))
    assert held is not None
    cluster.take(held)
    assert devices_of(cluster.place(job(200, queue="packed"))) == [("a/0",)]
    assert devices_of(cluster.place(job(200, queue="wide"))) == [("b/0",)]
    assert sorted(at(cluster.place(job(200, 3, queue="wide")))) == ["a", "b", "b"]


def test_many_shapes_are_not_remembered_for_ever() -> None:
    cluster = Cluster([node("a", 2)])
    for ram_bytes in range(2000):
        assert cluster.place(job(ask(100, ram_bytes=ram_bytes))) is not None
    assert len(cluster._rankings) <= 512


def test_shares_of_few_devices_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_module, "SHARES_MAX", 4)
    cluster, one = Cluster([node("a", 8)]), Shape(ask(1000), SiteLimits())
    for device in (*range(8), 0):
        (share,) = one.place(cluster.nodes[0], (device,)).shares
        assert share == one.parts[0].compute_share(cluster.nodes[0].devices[device])
    assert len(one._shares) <= 4


def test_many_states_of_nodes_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "STATES_MAX", 8)
    cluster = Cluster([node("a", 1), node("b", 1)])
    for _ in range(30):
        placement = cluster.place(job(10))
        assert placement is not None
        cluster.take(placement)
    (one,) = cluster._rankings.values()
    assert len(one._by_state) <= 8
