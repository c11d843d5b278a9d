"""What kube-scheduler makes of the published devices, by a model of its arithmetic; the node admits all of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_containers import send
from tests.core.test_machine import answer, device, started
from tests.examples import examples
from tests.k8s.core.allocator import Allocator, Request, consumed
from vgpud.core import events as core
from vgpud.core.model import ALL_DEVICES, Claim, Share, Slice
from vgpud.k8s.core.claims import read_claim
from vgpud.k8s.core.model import Asked, Gpu, Ref
from vgpud.k8s.core.published import Policy, offers, specs

NODE = "n1"
MIB = 1 << 20
DEVICE = device(0)
MEMORY_MIB = DEVICE.memory_bytes // MIB
UUID = "uuid"


def gpus(count: int) -> list[Gpu]:
    given = [device(n) for n in range(count)]
    return [Gpu(one.uuid, one.index, one.name, one.memory_bytes, one.granule_bytes) for one in given]


def allocator(count: int = 1, **policy: Any) -> Allocator:
    return Allocator(specs(gpus(count), NODE, Policy(**policy)))


def part(milli: int, **more: str) -> Request:
    return Request({"sm": str(milli), "memory": f"{MEMORY_MIB * milli // 1000}Mi"} | more)


def places(made: list[tuple[str, dict[str, int]]] | None) -> list[str]:
    return [name for name, _ in made or []]


# ---- amounts ----


@pytest.mark.parametrize(
    ("name", "asked", "amount"),
    [
        ("sm", None, 1000),
        ("sm", "0", 0),
        ("sm", "500", 500),
        ("sm", "1k", 1000),
        ("sm", "500m", 1),  # rounded up: amounts are whole numbers
        ("sm", "-1", 0),
        ("sm", "1001", None),
        ("memory", None, MEMORY_MIB * MIB),
        ("memory", "1", 2 * MIB),  # the least
        ("memory", "3Mi", 4 * MIB),  # whole granules
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
def test_what_an_amount_consumes(name: str, asked: str | None, amount: int | None) -> None:
    assert consumed(asked, allocator().devices["gpu-0"]["capacity"][name]) == amount


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


# ---- the node has room for whatever the scheduler allocates ----

amounts = st.fixed_dictionaries(
    {},
    optional={
        "sm": st.integers(0, 1000).map(str),
        # enough for a context
        "memory": st.integers(1024, MEMORY_MIB).map(lambda size: f"{size}Mi"),
        "smMax": st.integers(0, 1000).map(str),
        "memoryMax": st.integers(0, MEMORY_MIB).map(lambda size: f"{size}Mi"),
    },
)
requests = st.builds(Request, amounts, st.integers(1, 2), st.sampled_from(["free", "free", "half", "quarter"])).map(
    lambda one: one if one.size == "free" else Request({}, one.count, one.size)
)


def consistent(asked: Request) -> bool:
    """What the chart's policy lets through."""
    low, high = int(asked.capacity.get("sm", "1000")), int(asked.capacity.get("smMax", "0"))
    memory = int(asked.capacity.get("memory", f"{MEMORY_MIB}Mi").removesuffix("Mi"))
    most = int(asked.capacity.get("memoryMax", "0Mi").removesuffix("Mi"))
    return (high == 0 or high >= low) and low + high > 0 and (most == 0 or most >= memory)


def shares(asked: Asked) -> tuple[Share, ...]:
    return tuple(
        Share(one.uuid, one.min_milli, one.max_milli, one.mem_min_bytes, one.mem_max_bytes) for one in asked.granted
    )


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(requests.filter(consistent), st.integers(0, 3)), min_size=1, max_size=12))
def test_the_node_admits_what_the_scheduler_allocates(steps: list[tuple[Request, int]]) -> None:
    """steps: a claim, and how many of the oldest are released before it."""
    made, state = allocator(3), started(3, kubernetes_devices=(ALL_DEVICES,))
    uids: dict[str, str] = {}
    for number, (asked, ended) in enumerate(steps):
        for name in list(uids)[:ended]:
            send(state, core.UnprepareClaim(uids.pop(name)))
            del made.claims[name]
        name = f"c{number}"
        if made.allocate(name, asked, distinct=UUID) is None:
            continue
        given = made.claim(name, "pod")
        uid = uids[name] = given["metadata"]["uid"]
        read = read_claim(given, Ref(uid, "team", name), offers(gpus(3)), NODE, 0)
        claim = Claim(uid, "team", name, ("pod",), shares(read), "boot")
        event = core.PrepareClaim(claim, service_class="batch", weight=0, priority=0, uid=f"u-{uid}", wall_ns=1)
        result = answer(send(state, event))
        assert isinstance(result, Slice), result
        assert result.shares == shares(read)


@pytest.mark.parametrize("slices_max", [1, 100, 128])
def test_as_many_borrowers_as_there_may_be_claims_and_no_maximum_binds(slices_max: int) -> None:
    made, count = allocator(slices_max=slices_max, fixed_sizes=False), 0
    all_ = f"{MEMORY_MIB}Mi"
    while made.allocate(str(count), Request({"sm": "0", "memory": "2Mi", "smMax": "1000", "memoryMax": all_})):
        count += 1
    assert count == slices_max
