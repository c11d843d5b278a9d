"""What a claim asks for: quantities, amounts, words, and every way to be wrong with its sentence."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.k8s.parts import NODE, allocated
from vgpud.k8s.core.claim_objects import ClaimError, pods_of, read_claim
from vgpud.k8s.core.model import Asked, Gpu, Ref, Words
from vgpud.k8s.core.published import offers
from vgpud.k8s.core.quantities import QuantityError, format_memory, parse_quantity

MIB = 1 << 20
GPUS = tuple(Gpu(f"GPU-{n}", n, "H200", 140_400 * MIB, 2 * MIB) for n in range(3))
OFFERS = offers(GPUS)


def read(claim: dict[str, Any], **options: Any) -> Asked:
    metadata = claim["metadata"]
    ref = Ref(options.pop("uid", metadata["uid"]), metadata["namespace"], metadata["name"])
    return read_claim(claim, ref, OFFERS, options.pop("pool", NODE), options.pop("priority_max", 0))


def amounts(claim: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    return [
        (one.min_milli, one.max_milli, one.mem_min_bytes // MIB, one.mem_max_bytes // MIB)
        for one in read(claim).granted
    ]


# ---- quantities ----


@pytest.mark.parametrize(
    ("text", "value"),
    [("500", 500), ("1k", 1000), ("140400Mi", 140_400 * MIB), ("1.5Gi", 3 << 29), ("2e3", 2000), (7, 7), ("1000m", 1)],
)
def test_a_quantity_is_what_the_api_means_by_it(text: object, value: int) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "500m", "1.5", "5 k", "0x10", "1KiB", "nan", None, True, 1.5, "9" * 30, "1e9999"])
def test_no_whole_number_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("quantity", [10**5000, "9" * 5000], ids=["number", "text"])
def test_a_quantity_of_more_digits_than_python_reads(quantity: object) -> None:
    with pytest.raises(QuantityError, match="is not a quantity: write for example 500 or 70200Mi") as caught:
        parse_quantity(quantity)
    assert len(str(caught.value)) < 200


@settings(max_examples=examples(500))
@given(st.integers(0, 1 << 60))
def test_memory_is_published_in_whole_mebibytes_and_read_back(size: int) -> None:
    assert parse_quantity(format_memory(size)) == size - size % MIB
    assert Fraction(parse_quantity(format_memory(size)), MIB).denominator == 1


# ---- amounts ----


def test_half_a_gpu_and_a_maximum_beside_it() -> None:
    assert amounts(allocated("c", ("gpu-0", {"sm": "500", "memory": "70200Mi"}))) == [(500, 500, 70_200, 70_200)]
    both = {"sm": "500", "memory": "70200Mi", "smMax": "1k", "memoryMax": "140400Mi"}
    assert amounts(allocated("c", ("gpu-0", both))) == [(500, 1000, 70_200, 140_400)]


def test_two_and_a_half_gpus() -> None:
    whole = {"sm": "1k", "memory": "140400Mi"}
    claim = allocated("c", ("gpu-0", whole), ("gpu-1", whole), ("gpu-2", {"sm": "500", "memory": "70200Mi"}))
    assert [one[0] for one in amounts(claim)] == [1000, 1000, 500]
    assert [one.uuid for one in read(claim).granted] == ["GPU-0", "GPU-1", "GPU-2"]


def test_a_borrower_and_a_fixed_size_and_a_server_without_capacities() -> None:
    borrower = {"sm": "0", "memory": "1Gi", "smMax": "1k", "memoryMax": "20Gi"}
    assert amounts(allocated("c", ("gpu-1", borrower))) == [(0, 1000, 1024, 20_480)]
    assert amounts(allocated("c", ("gpu-1-quarter-3", {}))) == [(250, 250, 35_100, 35_100)]
    assert amounts(allocated("c", ("gpu-1", {}))) == [(1000, 1000, 140_400, 140_400)]


@pytest.mark.parametrize(
    ("devices", "share"),
    [
        (("gpu-0-half-0", "gpu-0-half-1"), [("GPU-0", 1000, 140_400)]),
        (("gpu-0-quarter-1", "gpu-0-half-1"), [("GPU-0", 750, 105_300)]),
        (("gpu-0-half-0", "gpu-1-half-0"), [("GPU-0", 500, 70_200), ("GPU-1", 500, 70_200)]),
        (("gpu-2-half-0", "gpu-0-half-0", "gpu-2-half-1"), [("GPU-2", 1000, 140_400), ("GPU-0", 500, 70_200)]),
    ],
)
def test_fixed_parts_of_one_gpu_are_one_share_of_it(devices: list[str], share: list[tuple[str, int, int]]) -> None:
    """`limits: {vgpu.dev/half: 2}`, or two containers with a half each: the scheduler takes the first that are free."""
    made = read(allocated("c", *((name, {}) for name in devices)))
    assert [(one.uuid, one.min_milli, one.mem_min_bytes // MIB) for one in made.granted] == share
    assert all((one.max_milli, one.mem_max_bytes) == (one.min_milli, one.mem_min_bytes) for one in made.granted)
    assert [one.device for one in made.results] == list(devices)
    assert [one.uuid for one in made.results] == [f"GPU-{name[4]}" for name in devices]


def test_an_alternative_is_known_by_its_requests_name() -> None:
    """kubelet and containers do not know which entry of firstAvailable was taken."""
    made = read(allocated("c", ("gpu-0", {"sm": "5"}), request="gpu/large"))
    assert [one.request for one in made.results] == ["gpu"]


def test_memory_is_whole_granules() -> None:
    assert amounts(allocated("c", ("gpu-0", {"sm": "500", "memory": "71Mi"}))) == [(500, 500, 70, 70)]


def test_each_result_has_its_own_amounts_whatever_their_order() -> None:
    claim = allocated("c", ("gpu-1", {"sm": "100", "memory": "1Gi"}), ("gpu-0", {"sm": "200", "memory": "2Gi"}))
    assert [(one.uuid, one.min_milli) for one in read(claim).granted] == [("GPU-1", 100), ("GPU-0", 200)]


def test_other_drivers_results_are_theirs() -> None:
    claim = allocated("c", ("gpu-0", {"sm": "500", "memory": "1Gi"}))
    claim["status"]["allocation"]["devices"]["results"].append({"driver": "nic.example.com", "device": "eth0"})
    assert len(read(claim).granted) == len(read(claim).results) == 1


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([("gpu-0", {"sm": "500", "smMax": "300"})], "smMax 0.3 is below sm 0.5: smMax is the maximum, 0 = as sm"),
        ([("gpu-0", {"sm": "0"})], "sm 0 without smMax allows nothing"),
        ([("gpu-0", {"sm": "1", "memory": "2Gi", "memoryMax": "1Gi"})], "memoryMax 1GiB is below memory 2GiB"),
        ([("gpu-0", {"sm": "500m"})], "sm: 500m is not a whole number: sm is in thousandths"),
        ([("gpu-0", {"sm": "-1"})], "sm: -1 is negative"),
        ([("gpu-0", {"cores": "5"})], "no capacity cores"),
        ([("gpu-9", {"sm": "5"})], "has device gpu-9, which this node does not have"),
        (
            [("gpu-0", {"sm": "5"})] * 2,
            "has GPU gpu-0 twice: add a constraint with distinctAttribute gpu.vgpu.dev/uuid",
        ),
        ([("gpu-0", {"sm": "5"}), ("gpu-0-half-0", {})], "has GPU gpu-0-half-0 twice"),
        ([("gpu-0-half-0", {}), ("gpu-0", {"sm": "5"})], "has GPU gpu-0 twice"),
    ],
)
def test_wrong_amounts_say_what_is_wrong(devices: list[tuple[str, dict[str, str]]], message: str) -> None:
    with pytest.raises(ClaimError) as error:
        read(allocated("half", *devices))
    assert str(error.value).startswith("claim team/half") and message in str(error.value)


def test_wrong_claims_say_what_is_wrong() -> None:
    good = allocated("half", ("gpu-0", {"sm": "5"}))
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (good, {"uid": "another"}, "has another uid than kubelet asks for (another): it was deleted and created again"),
        (good, {"pool": "n2"}, "has a device of pool n1, and this node's is n2"),
        (good | {"status": {}}, {}, "is not allocated"),
        (allocated("half"), {}, "has no device of gpu.vgpu.dev"),
    ]
    for claim, more, said in cases:
        with pytest.raises(ClaimError) as error:
            read(claim, **more)
        assert said in str(error.value)


@settings(max_examples=examples(300))
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["status", "allocation", "devices", "results", "config", "driver", "metadata", "uid"]),
                x,
            )
        ),
    )
)
def test_whatever_the_server_sends_is_refused_with_a_sentence(answer: Any) -> None:
    if isinstance(answer, dict):
        with pytest.raises(ClaimError):
            read_claim(answer, Ref("u", "n", "c"), OFFERS, NODE, 0)


def test_pods_are_those_it_is_reserved_for() -> None:
    claim = allocated("c", ("gpu-0", {"sm": "5"}), pods=("b", "a"))
    assert pods_of(claim) == read(claim).pods == ("a", "b")


def test_a_claim_of_a_podgroup_is_refused() -> None:
    claim = allocated("half", ("gpu-0", {"sm": "5"}))
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": "g"}
    claim["status"]["reservedFor"] = [group]
    with pytest.raises(ClaimError) as error:
        read(claim)
    assert str(error.value) == (
        "claim team/half is reserved for podgroups workers: claims of a PodGroup do not work, name it in the pods"
    )


# ---- words ----

CONFIG = {"apiVersion": "vgpu.dev/v1alpha1", "kind": "SliceConfig"}


def with_config(*configs: tuple[str, Any]) -> dict[str, Any]:
    claim = allocated("half", ("gpu-0", {"sm": "5"}))
    claim["status"]["allocation"]["devices"]["config"] = [
        {"source": source, "opaque": {"driver": "gpu.vgpu.dev", "parameters": given}} for source, given in configs
    ]
    return claim


def test_the_claims_words_are_laid_over_the_classs() -> None:
    claim = with_config(
        ("FromClaim", CONFIG | {"weight": 4}), ("FromClass", CONFIG | {"class": "latency", "weight": 1, "priority": 9})
    )
    assert read(claim).words == Words("latency", 4, 9)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"class": "gold"}, "class: 'gold' is no class: write batch or latency"),
        ({"weight": "4"}, "weight: '4' is out of range: write 0 to 10000"),
        ({"weight": True}, "weight: 'True' is out of range"),
        ({"priority": 1}, "priority: 1 is above 0, the highest that a claim may ask for: use a DeviceClass"),
        ({"max": 1}, "max: there is no such field: write class, weight, priority"),
        ({"a\nERROR \ud800": 1}, r"'a\nERROR \ud800': there is no such field"),
        ({"kind": "Slice"}, "apiVersion, kind: 'vgpu.dev/v1alpha1' 'Slice' is not known"),
        ({"apiVersion": None}, "apiVersion, kind: 'None' 'SliceConfig' is not known"),
        ({"class": "latency"}, "class: latency is not a claim's own to ask for: use the DeviceClass vgpu-latency"),
        ({"weight": 10**5000}, "weight: a number of more than 64 bits is out of range"),
        ({"weight": float("inf")}, "weight: 'inf' is out of range"),
        ({"weight": {"a": 1}}, "weight: an object is out of range"),
    ],
)
def test_wrong_words_name_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ClaimError) as error:
        read(with_config(("FromClaim", CONFIG | fields)))
    assert f"claim team/half, {message}" in str(error.value)


def test_a_claim_in_a_class_of_class_latency_may_repeat_or_leave_it() -> None:
    of_class = ("FromClass", CONFIG | {"class": "latency"})
    assert read(with_config(of_class, ("FromClaim", CONFIG | {"class": "latency"}))).words.service_class == "latency"
    assert read(with_config(of_class, ("FromClaim", CONFIG | {"class": "batch"}))).words.service_class == "batch"


@pytest.mark.parametrize("field", ["class", "weight", "priority", "apiVersion", "kind", ""])
def test_a_configuration_as_deep_as_a_parser_reads_is_refused_with_a_sentence(field: str) -> None:
    """Without nesting, what is wrong would be shown by its text, which no stack is deep enough for."""
    deep: list[Any] = []
    for _ in range(4000):
        deep = [deep]
    given: Any = CONFIG | {field: deep} if field else deep
    with pytest.raises(ClaimError, match="a list"):
        read(with_config(("FromClaim", given)))


def with_class_of(*requests: str) -> dict[str, Any]:
    """A claim with requests r0 and r1, of which these are of a class with words."""
    claim = allocated("half", ("gpu-0", {"sm": "1", "memory": "2Mi"}), ("gpu-1", {"sm": "1k"}))
    words = CONFIG | {"class": "latency", "priority": 900}
    claim["status"]["allocation"]["devices"]["config"] = [
        {"source": "FromClass", "requests": [request], "opaque": {"driver": "gpu.vgpu.dev", "parameters": words}}
        for request in requests
    ]
    return claim


@pytest.mark.parametrize("request_", ["r0", "r1"])
def test_a_class_gives_its_words_to_its_own_requests_only(request_: str) -> None:
    """Else one GPU of a class with a small quota would make a claim's other GPUs class latency, too."""
    with pytest.raises(ClaimError) as error:
        read(with_class_of(request_))
    assert str(error.value) == (
        "claim team/half has requests of different classes: r1 has another SliceConfig than r0, and a claim has one"
        " slice: use one DeviceClass for all, or a claim for each"
    )


def test_requests_of_one_class_have_its_words() -> None:
    assert read(with_class_of("r0", "r1")).words == Words("latency", 0, 900)
    assert read(with_class_of()).words == read(with_class_of("another drivers")).words == Words()


def test_a_claims_own_config_for_another_class_is_not_let_through() -> None:
    claim = with_class_of("r0")
    own = {"driver": "gpu.vgpu.dev", "parameters": CONFIG | {"class": "latency", "priority": 900}}
    config = {"source": "FromClaim", "requests": ["r1"], "opaque": own}
    claim["status"]["allocation"]["devices"]["config"].append(config)
    with pytest.raises(ClaimError, match="priority: 900 is above 0"):
        read(claim)
    own["parameters"] = CONFIG | {"class": "latency"}
    with pytest.raises(ClaimError, match="class: latency is not a claim's own to ask for"):
        read(claim)


@pytest.mark.parametrize(
    ("requests", "reaches"), [([], True), (["gpu"], True), (["gpu/large"], True), (["gpu/small"], False)]
)
def test_a_configuration_is_for_the_requests_and_alternatives_that_it_names(requests: list[str], reaches: bool) -> None:
    claim = allocated("half", ("gpu-0", {"sm": "5"}), request="gpu/large")
    own = {"driver": "gpu.vgpu.dev", "parameters": CONFIG | {"weight": 7}}
    claim["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "requests": requests, "opaque": own}]
    assert read(claim).words.weight == (7 if reaches else 0)


def test_others_configurations_are_not_read() -> None:
    claim = with_config()
    other = {"source": "FromClaim", "opaque": {"driver": "nic.example.com", "parameters": {"mtu": 9}}}
    claim["status"]["allocation"]["devices"]["config"] = [other]
    assert read(claim).words == Words()
