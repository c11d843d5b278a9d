"""What kube-scheduler makes of the published devices, by a model of its arithmetic; the node admits all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core.test_containers import send
from tests.core.test_machine import answer, device, make_state
from tests.examples import examples
from tests.k8s.core.allocator import Allocator, Request, compute_amount
from vgpud.core import events as core
from vgpud.core.model import ALL_DEVICES, Denied, Device, Share, Slice, State
from vgpud.core.model import SiteLimits as NodePolicy
from vgpud.core.origins import Claim
from vgpud.core.slices.machine import step
from vgpud.k8s.core.claim_objects import read_claim
from vgpud.k8s.core.model import Asked, Gpu, Ref
from vgpud.k8s.core.published import Policy, offers, specs
from vgpud.k8s.core.quantities import memory_unit_bytes

NODE = "n1"
MIB = 1 << 20
DEVICE = device(0)
MEMORY_MIB = DEVICE.memory_bytes // MIB
UUID = "uuid"


def gpus(count: int) -> list[Gpu]:
    return make_gpus([device(n) for n in range(count)])


def allocator(count: int = 1, **policy: Any) -> Allocator:
    return Allocator(specs(gpus(count), NODE, Policy(**policy)))


def part(milli: int, **amounts: str) -> Request:
    return Request({"sm": str(milli), "memory": f"{MEMORY_MIB * milli // 1000}Mi"} | amounts)


def places(allocation: list[tuple[str, dict[str, int]]] | None) -> list[str]:
    return [name for name, _ in allocation or []]


# ---- amounts ----


@pytest.mark.parametrize(
    ("name", "quantity", "amount"),
    [
        ("sm", None, 1000),
        ("sm", "0", 0),
        ("sm", "500", 500),
        ("sm", "1k", 1000),
        ("sm", "500m", 1),  # rounded up: amounts are whole numbers
        ("sm", "-1", 0),
        ("sm", "1001", None),
        ("memory", None, MEMORY_MIB * MIB),
        ("memory", "1", 514 * MIB),  # the least: a context and a granule
        ("memory", "515Mi", 516 * MIB),  # whole granules
        ("memory", f"{MEMORY_MIB}Mi", MEMORY_MIB * MIB),
        ("memory", f"{MEMORY_MIB + 2}Mi", None),
        ("slices", None, 1),
        ("slices", "0", 1),
        ("slices", "2", None),
        ("smMax", None, 0),
        ("smMax", "1000", 1000),
        ("smMax", "1001", None),
        ("memoryMax", None, 0),
        ("memoryMax", "3Mi", 4 * MIB),
    ],
)
def test_what_an_amount_consumes(name: str, quantity: str | None, amount: int | None) -> None:
    assert compute_amount(quantity, allocator().devices["gpu-0"]["capacity"][name]) == amount


def test_a_capacity_that_no_device_has_is_never_allocated() -> None:
    assert allocator().allocate("a", Request({"cores": "1"})) is None


# ---- devices ----


def test_five_fifths_and_a_sixth_when_one_has_ended() -> None:
    made = allocator()
    assert all(made.allocate(f"c{n}", part(200)) for n in range(5))
    assert made.allocate("c5", part(200)) is None
    del made.claims["c2"]
    assert places(made.allocate("c5", part(200))) == ["gpu-0"]


def test_nothing_asked_for_is_a_whole_gpu() -> None:
    made = allocator(2)
    assert [places(made.allocate(name, Request())) for name in "abc"] == [["gpu-0"], ["gpu-1"], []]


def test_two_and_a_half_gpus_are_three() -> None:
    made = allocator(3)
    assert made.allocate("half", part(500))
    found = made.allocate("many", Request(count=2), part(500), distinct=UUID)
    assert places(found) == ["gpu-1", "gpu-2", "gpu-0"]
    assert made.allocate("more", part(1)) is None


def test_without_a_constraint_two_requests_may_share_a_gpu() -> None:
    assert places(allocator(2).allocate("a", part(500), part(500))) == ["gpu-0", "gpu-0"]
    assert places(allocator(2).allocate("a", part(500), part(500), distinct=UUID)) == ["gpu-0", "gpu-1"]
    assert allocator(1).allocate("a", part(500), part(500), distinct=UUID) is None


def test_the_maxima_never_bind_and_slices_do() -> None:
    made = allocator()
    borrower = Request({"sm": "0", "memory": "2Mi", "smMax": "1000", "memoryMax": f"{MEMORY_MIB}Mi"})
    assert all(made.allocate(f"c{n}", borrower) for n in range(96))
    assert made.allocate("c96", borrower) is None


def test_a_gpu_is_used_by_amounts_or_in_fixed_parts() -> None:
    made = allocator(2)
    assert places(made.allocate("a", part(100))) == ["gpu-0"]
    assert places(made.allocate("b", Request(size="half"))) == ["gpu-1-half-0"]
    assert places(made.allocate("c", Request(size="quarter", count=2))) == ["gpu-1-quarter-0", "gpu-1-quarter-1"]
    assert made.allocate("d", Request(size="tenth")) is None
    assert places(made.allocate("e", part(100))) == ["gpu-0"]
    assert made.allocate("f", part(900)) is None
    del made.claims["a"], made.claims["e"]
    assert places(made.allocate("g", Request(size="half"))) == ["gpu-0-half-0"]


@pytest.mark.parametrize("size", ["free", "half"])
def test_monitors_see_a_gpu_that_is_full_and_take_nothing_of_it(size: str) -> None:
    made = allocator(monitors=True)
    assert made.allocate("full", Request({} if size == "half" else {"sm": "1k"}, 2 if size == "half" else 1, size))
    assert made.allocate("looks", Request(admin=True)) is None, "the scheduler asks for capacity, and counters"
    for number in range(3):
        assert places(made.allocate(f"m{number}", Request(size="monitor", admin=True))) == ["gpu-0-monitor"]
    del made.claims["full"]
    assert places(made.allocate("next", Request())) == ["gpu-0"]


# ---- whatever the scheduler allocates fits on the node ----

amounts = st.fixed_dictionaries(
    {},
    optional={
        "sm": st.integers(0, 1000).map(str),
        "memory": st.integers(0, MEMORY_MIB).map(lambda size: f"{size}Mi"),
        "smMax": st.integers(0, 1000).map(str),
        "memoryMax": st.integers(0, MEMORY_MIB).map(lambda size: f"{size}Mi"),
    },
)
requests = st.builds(Request, amounts, st.integers(1, 2), st.sampled_from(["free", "free", "half", "quarter"])).map(
    lambda one: one if one.size == "free" else Request({}, one.count, one.size)
)


def consistent(request: Request) -> bool:
    """What the chart's policy lets through."""
    low, high = int(request.capacity.get("sm", "1000")), int(request.capacity.get("smMax", "0"))
    memory = int(request.capacity.get("memory", f"{MEMORY_MIB}Mi").removesuffix("Mi"))
    most = int(request.capacity.get("memoryMax", "0Mi").removesuffix("Mi"))
    return (high == 0 or high >= low) and low + high > 0 and (most == 0 or most >= memory)


def shares(claim: Asked) -> tuple[Share, ...]:
    return tuple(
        Share(one.uuid, one.min_milli, one.max_milli, one.mem_min_bytes, one.mem_max_bytes) for one in claim.granted
    )


def make_gpus(nodes: Sequence[Device]) -> list[Gpu]:
    """As the driver sees these devices."""
    return [
        Gpu(one.uuid, one.index, one.name, usable_bytes(one), one.granule_bytes, context_bytes=one.context_bytes)
        for one in nodes
    ]


def usable_bytes(one: Device) -> int:
    return one.memory_bytes - one.memory_bytes % memory_unit_bytes(one.granule_bytes)


def prepare(state: State, claim_object: Mapping[str, Any], gpus_: Sequence[Gpu]) -> tuple[Asked, Slice | Denied | None]:
    """What the driver reads in an allocated claim, and what vgpud says to it."""
    uid, name = claim_object["metadata"]["uid"], claim_object["metadata"]["name"]
    read = read_claim(claim_object, Ref(uid, "team", name), offers(gpus_), NODE, 0)
    claim = Claim(uid, "team", name, ("pod",), shares(read), "boot")
    event = core.PrepareClaim(claim, service_class="batch", weight=0, priority=0, uid=f"u-{uid}", wall_ns=1)
    event = replace(event, tolerates_drain=read.tolerates_drain)
    return read, answer(send(state, event))


@settings(max_examples=examples(60))
@example([(Request(capacity={"sm": "0", "smMax": "1", "memory": "0Mi", "memoryMax": "1Mi"}), 0)])
@given(st.lists(st.tuples(requests.filter(consistent), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_node_admits_what_the_scheduler_allocates(steps: list[tuple[Request, int]]) -> None:
    """steps: a claim, and how many of the oldest are released before it."""
    made, state = allocator(3), make_state(3, kubernetes_devices=(ALL_DEVICES,))
    uids: dict[str, str] = {}
    for number, (asked, ended) in enumerate(steps):
        for name in list(uids)[:ended]:
            send(state, core.UnprepareClaim(uids.pop(name)))
            del made.claims[name]
        name = f"c{number}"
        if made.allocate(name, asked, distinct=UUID) is None:
            continue
        given_ = made.claim(name, "pod")
        uids[name] = given_["metadata"]["uid"]
        read, result = prepare(state, given_, gpus(3))
        assert isinstance(result, Slice), result
        assert result.shares == shares(read)


KIB = 1 << 10


@settings(max_examples=examples(200))
@given(
    st.integers(0, 8192 * KIB),  # memory of the device, contexts on it, in kibibytes: odd sizes, too
    st.integers(0, 2048 * KIB),
    st.sampled_from([64, 1024, 1536, 2048, 32 * KIB]),
    st.sampled_from(["", "1g.18gb"]),
    st.one_of(st.none(), st.integers(0, 4096 * KIB)),
    st.sampled_from(["free", "mig", "half", "quarter", "tenth"]),
)
def test_what_is_published_can_be_prepared_on_devices_of_any_size(
    memory: int, context: int, granule: int, profile: str, request_kib: int | None, size: str
) -> None:
    one = replace(
        device(0),
        memory_bytes=memory * KIB,
        context_bytes=context * KIB,
        granule_bytes=granule * KIB,
        profile=profile,
        parent_uuid="GPU-9" if profile else "",
    )
    state = State()
    step(state, core.Started(NodePolicy(kubernetes_devices=(ALL_DEVICES,)), (one,), (), ()), 0)
    given_gpus = [replace(gpu, profile=profile, parent_uuid=one.parent_uuid) for gpu in make_gpus([one])]
    made = Allocator(specs(given_gpus, NODE, Policy()))
    amounts_ = {"sm": "1"} | ({} if request_kib is None else {"memory": f"{request_kib}Ki"})
    claimed = made.allocate("c", Request({} if size in ("half", "quarter", "tenth") else amounts_, 1, size))
    if claimed is None:
        return
    read, result = prepare(state, made.claim("c", "pod"), given_gpus)
    assert isinstance(result, Slice), result
    assert result.shares == shares(read)


@pytest.mark.parametrize("slices_max", [1, 100, 128])
def test_as_many_borrowers_as_there_may_be_claims_and_no_maximum_binds(slices_max: int) -> None:
    made, count = allocator(slices_max=slices_max, fixed_sizes=False), 0
    all_ = f"{MEMORY_MIB}Mi"
    while made.allocate(str(count), Request({"sm": "0", "memory": "2Mi", "smMax": "1000", "memoryMax": all_})):
        count += 1
    assert count == slices_max
