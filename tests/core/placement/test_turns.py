"""Jobs that have their memory in turn (--mem-swap): of a device the largest counts, of the host the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import GIB, ask, devices_of, fresh, job, node, state
from tests.examples import examples
from vgpud.core.jobs.model import Ask, Job, Node, Placement
from vgpud.core.model import EVICTED, PAUSED, Denied, Reason, SiteLimits, Slice, Spec, State
from vgpud.core.origins import User
from vgpud.core.placement.cluster import Cluster
from vgpud.core.slices import admission, swap_rules


def rotating(gib: int, milli: int = 250, **options: object) -> Job:
    return job(ask(milli, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB, mem_swap=True, **options))


def plain(gib: int, milli: int = 250, **options: object) -> Job:
    return job(ask(milli, mem_min_bytes=gib * GIB, mem_max_bytes=max(gib, 1) * GIB, **options))


def take(cluster: Cluster, new_job: Job) -> Placement:
    placement = cluster.place(new_job)
    assert placement is not None
    cluster.take(placement)
    return placement


def offer_all(cluster: Cluster, in_turn: tuple[tuple[str, int, bool], ...], swap_bytes: int) -> None:
    (n,) = cluster.nodes
    cluster.change(n.name, (), tuple(d.uuid for d in n.devices), in_turn, swap_bytes)


# ---- cases ----


def test_jobs_of_the_whole_memory_run_side_by_side() -> None:
    cluster = Cluster([node("a", 1)])
    for _ in range(4):
        take(cluster, rotating(80))
    (n,) = cluster.nodes
    assert (n.free_milli, n.free_bytes, n.swapped_bytes) == ([0], [0], 240 * GIB)
    assert cluster.place(rotating(80)) is None, "their time is not in turn"


def test_what_others_have_of_the_memory_is_not_in_turn() -> None:
    cluster = Cluster([node("a", 1)])
    first = take(cluster, rotating(50))
    take(cluster, rotating(40))
    take(cluster, plain(30))
    assert cluster.place(rotating(51)) is None and cluster.place(rotating(50)) is not None
    assert cluster.place(plain(1)) is None
    cluster.release(first)
    assert cluster.place(plain(10)) is not None and cluster.place(plain(11)) is None


def test_a_device_where_none_has_to_leave_comes_first() -> None:
    cluster = Cluster([node("a", 2)])
    assert [devices_of(take(cluster, rotating(80))) for _ in range(3)] == [[("a/0",)], [("a/1",)], [("a/0",)]]
    other = Cluster([node("a", 1), node("b", 1)])
    assert [devices_of(take(other, rotating(60))) for _ in range(2)] == [[("a/0",)], [("b/0",)]]


def test_slices_that_are_no_jobs_are_in_the_same_turn() -> None:
    cluster = Cluster([node("a", 1)])
    take(cluster, rotating(40))
    offer_all(cluster, (("a/0", 80 * GIB, True), ("a/0", 30 * GIB, True)), 1000 * GIB)
    (n,) = cluster.nodes
    assert (n.free_bytes, n.swapped_bytes) == ([0], 120 * GIB)
    take(cluster, rotating(80))
    offer_all(cluster, (("a/0", 30 * GIB, False),), 1000 * GIB)
    assert (n.free_bytes, n.swapped_bytes) == ([0], 120 * GIB)
    offer_all(cluster, (), 1000 * GIB)
    assert (n.free_bytes, n.swapped_bytes) == ([0], 80 * GIB)


def test_a_host_that_cannot_hold_the_others_is_named() -> None:
    cluster = Cluster([node("a", 1)])
    offer_all(cluster, (), 140 * GIB)
    for gib in (80, 60, 40):
        take(cluster, rotating(gib))
    assert cluster.place(rotating(1)) is None
    said = cluster.why_not(rotating(1))
    assert said.startswith("slices with mem-swap would need 180GiB of the host's RAM, of which 140GiB may be used")
    assert "suspended_bytes_max" in said
    assert cluster.place(job(ask(250, mem_min_bytes=0, mem_max_bytes=GIB))) is not None, "others do not need it"
    offer_all(cluster, (), 180 * GIB)
    assert cluster.place(rotating(1)) is not None and not cluster.why_not(rotating(1))
    offer_all(cluster, (), 0)
    held = cluster.place(plain(0, 100))
    assert held is not None and cluster.fits(held)


def test_what_a_suspended_job_waits_for_on_the_host_is_named() -> None:
    cluster = Cluster([node("a", 1)])
    mine = take(cluster, rotating(80))
    take(cluster, rotating(60))
    offer_all(cluster, (), 50 * GIB)
    cluster.release(mine)
    assert "would need 80GiB of the host's RAM" in cluster.shortage(mine)
    offer_all(cluster, (), 80 * GIB)
    assert not cluster.shortage(mine)


def test_the_host_holds_what_is_evicted_there() -> None:
    cluster = Cluster([node("a", 1)])
    offer_all(cluster, (("a/0", 80 * GIB, False),), 79 * GIB)
    assert cluster.place(rotating(40)) is None and "would need 80GiB" in cluster.why_not(rotating(40))
    offer_all(cluster, (("a/0", 80 * GIB, False),), 80 * GIB)
    assert cluster.place(rotating(30)) is not None


def test_one_in_turn_fits_where_another_does_not() -> None:
    cluster = Cluster([node("a", 1)])
    take(cluster, rotating(60))
    in_turn, alone = (cluster.ask_vacancy(new.spec, ()) for new in (rotating(40), plain(30)))
    assert in_turn is not None and alone is not None
    assert in_turn.fits() and not alone.fits()
    assert not in_turn.needs_all_of(alone) and in_turn.needs_all_of(in_turn)
    smaller = cluster.ask_vacancy(rotating(20).spec, ())
    assert smaller is not None and not alone.needs_all_of(smaller), "the host may be what that one lacks"


def test_rules_see_what_is_in_turn() -> None:
    """Both devices have 40 GiB free, of the first one 40 are in turn: best fit takes the fuller one, and fgd the one
    that is left with more."""
    for rule, uuid in (("best-fit", "a/1"), ("worst-fit", "a/0"), ("fgd", "a/0")):
        cluster = Cluster([node("a", 2)])
        cluster.rules({"default": (rule, False)})
        for new in (rotating(40, device_uuids=("a/0",)), plain(40, device_uuids=("a/1",))):
            take(cluster, new)
        assert devices_of(cluster.place(rotating(40))) == [(uuid,)], rule


def test_a_gang_has_the_memory_in_turn_with_itself() -> None:
    cluster = Cluster([node("a", 1)])
    gang = replace(rotating(80), spec=replace(rotating(80).spec, members=4))
    assert cluster.place(gang) is not None and not cluster.never_fits_reason(gang)
    offer_all(cluster, (), 100 * GIB)
    assert cluster.place(gang) is None
    assert "this node holds 2 when nothing else runs" in cluster.never_fits_reason(gang)
    offer_all(cluster, (), 240 * GIB)
    assert cluster.place(gang) is not None and not cluster.never_fits_reason(gang)


@pytest.mark.parametrize("options", [{"mem_swap": True}, {"idle_after_ns": 10**10}])
def test_a_driver_that_moves_nothing_takes_no_such_job(options: dict[str, object]) -> None:
    cluster = Cluster([node("a", 1)], SiteLimits(swap_fault="driver 535.1 cannot move memory to the host"))
    wanted = job(ask(500, **options))
    assert cluster.place(wanted) is None
    assert cluster.never_fits_reason(wanted).startswith("driver 535.1 cannot move memory to the host: leave out --")
    assert cluster.place(job(ask(500))) is not None


# ---- properties ----

SIZES = st.sampled_from([0, 1, 10, 40, 40, 79, 80])
SPECS = st.builds(
    lambda milli, gib, mem_swap: Spec(
        milli, mem_min_bytes=gib * GIB, mem_max_bytes=max(gib, 1) * GIB, mem_swap=mem_swap
    ),
    st.sampled_from([1, 100, 250, 500]),
    SIZES,
    st.booleans(),
)
#: a slice that is no job's: what it is, and how it is suspended
DIRECT = st.tuples(SPECS, st.sampled_from(["", "", PAUSED, EVICTED]))


def keep_suspended(placement: Placement, how: str) -> Placement:
    """As QueueState.kept_placement() has it."""
    (place,) = placement
    (share,) = place.shares
    if how == EVICTED:
        return (
            replace(place, shares=(), host_sizes=((share.device_uuid, share.mem_min_bytes),) if place.in_turn else ()),
        )
    return (replace(place, shares=(replace(share, min_milli=0),), utilisation_milli=-1),)


@settings(max_examples=examples(300), deadline=None)
@given(st.data(), st.integers(1, 3))
def test_what_is_free_after_any_order_is_as_in_another_cluster(data: st.DataObject, gpus: int) -> None:
    cluster = Cluster([node("a", gpus)])
    empty, held, direct = state(cluster.nodes), [], ()
    for _ in range(data.draw(st.integers(1, 16))):
        action = data.draw(st.sampled_from(["take", "take", "take", "release", "suspend", "direct"]))
        if action == "take" and (found := cluster.place(job(Ask(data.draw(SPECS))))):
            cluster.take(found)
            held.append(found)
        elif action == "direct":
            sizes = st.tuples(st.sampled_from([d.uuid for d in cluster.nodes[0].devices]), SIZES, st.booleans())
            direct = tuple(
                (uuid, gib * GIB, is_there) for uuid, gib, is_there in data.draw(st.lists(sizes, max_size=4))
            )
            offer_all(cluster, direct, 1000 * GIB)
        elif held and action != "take":
            one = held.pop(data.draw(st.integers(0, len(held) - 1)))
            cluster.release(one)
            if action == "suspend" and one[0].shares:
                held.append(keep_suspended(one, data.draw(st.sampled_from([PAUSED, EVICTED]))))
                cluster.take(held[-1])
        other = Cluster(fresh(cluster.nodes))
        for placement in data.draw(st.permutations(held)):
            other.take(placement)
        offer_all(other, direct, 1000 * GIB)
        assert sort_residents(state(cluster.nodes)) == sort_residents(state(other.nodes))
    for placement in held:
        cluster.release(placement)
    offer_all(cluster, (), 1000 * GIB)
    assert state(cluster.nodes) == empty


def sort_residents(states: list[tuple[object, ...]]) -> list[list[object]]:
    """Residents are in the order in which they came."""
    return [[sorted(map(sorted, value)) if i == 5 else value for i, value in enumerate(n)] for n in states]  # type: ignore[call-overload]


class Daemon:
    """The slices of a node as admission counts them, and what the queue knows of those that are no jobs'."""

    def __init__(self, nodes: list[Node], swap_bytes: int) -> None:
        (n,) = nodes
        self.state = State(policy=SiteLimits(swap_bytes=swap_bytes), devices={d.uuid: d for d in n.devices})
        self.direct: list[Slice] = []

    def refusal(self, spec: Spec, shares: object) -> Denied | None:
        """Why the slice of a job is not made, as slices.make has it."""
        found = admission.check_shares(shares, self.state, spec=spec)  # type: ignore[arg-type]
        return found if isinstance(found, Denied) else swap_rules.host_refusal(self.state, spec, found)

    def add(self, name: str, spec: Spec, shares: object, suspended: str = "") -> Slice:
        made = Slice(User(name), name, 1, spec, shares, 0, 0, suspended=suspended)  # type: ignore[arg-type]
        self.state.slices[name] = made
        return made

    def add_direct(self, spec: Spec, suspended: str) -> None:
        shares = admission.place(spec, self.state)
        if not isinstance(shares, Denied) and not swap_rules.host_refusal(self.state, spec, shares):
            self.direct.append(self.add(f"direct-{len(self.direct)}", spec, shares, suspended))

    def tell(self, cluster: Cluster) -> None:
        """As JobController._look_at_capacity() does."""
        shares = [(made, share) for made in self.direct for share in made.shares]
        reserved = tuple(
            (
                s.device_uuid,
                s.min_milli * made.keeps_time,
                s.mem_min_bytes * made.keeps_memory * (not made.spec.mem_swap),
            )
            for made, s in shares
        )
        in_turn = tuple((s.device_uuid, s.mem_min_bytes, made.keeps_memory) for made, s in shares if made.spec.mem_swap)
        swap_bytes = self.state.policy.swap_bytes
        cluster.change(cluster.nodes[0].name, reserved, tuple(self.state.devices), in_turn, swap_bytes)


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.integers(1, 3), st.sampled_from([0, 20, 80, 1000]))
def test_admission_takes_what_placement_takes(data: st.DataObject, gpus: int, swap_gib: int) -> None:
    """And on one device refuses what placement refuses."""
    cluster = Cluster([node("a", gpus)])
    daemon = Daemon(cluster.nodes, swap_gib * GIB)
    held: list[tuple[str, Placement]] = []
    for number in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["job", "job", "job", "direct", "end", "suspend"]))
        if action == "direct":
            daemon.add_direct(*data.draw(DIRECT))
        elif action == "job":
            daemon.tell(cluster)
            spec = data.draw(SPECS)
            found = cluster.place(job(Ask(spec)))
            if found is not None:
                assert daemon.refusal(spec, found[0].shares) is None
                cluster.take(found)
                held.append((f"job-{number}", found))
                daemon.add(f"job-{number}", spec, found[0].shares)
                continue
            shares = admission.place(spec, daemon.state)
            no_host = None if isinstance(shares, Denied) else swap_rules.host_refusal(daemon.state, spec, shares)
            assert isinstance(shares, Denied) or no_host
            assert cluster.why_not(job(Ask(spec)))
            if no_host and gpus == 1:
                assert no_host.reason is Reason.NO_CAPACITY
                assert no_host.message.startswith(cluster.why_not(job(Ask(spec))))
        elif held:
            name, placement = held.pop(data.draw(st.integers(0, len(held) - 1)))
            cluster.release(placement)
            made = daemon.state.slices.pop(name)
            if action == "suspend" and placement[0].shares and not made.suspended:
                how = data.draw(st.sampled_from([PAUSED, EVICTED]))
                daemon.state.slices[name] = replace(made, suspended=how)
                held.append((name, keep_suspended(placement, how)))
                cluster.take(held[-1][1])
