"""What a container asks for: each way to say it, and a line with value and fix for each way to say it wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.model import Spec
from vgpud.oci.request import TOOLS, TWINS, Limits, Request, RequestError, parse_request

CAP = Limits(gpus_milli=4000)
#: as an image that may have brought the annotations is bounded
IMAGE = Limits(gpus_milli=4000, from_image=True)
GIB = 1 << 30


def ask(*env: str, **annotations: str) -> Request | None:
    """parse_request; annotations by their last word, `mem_min` for `mem-min`."""
    named = {f"dev.vgpu/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return parse_request(env, named, CAP)


def refusal(*env: str, **annotations: str) -> str:
    with pytest.raises(RequestError) as caught:
        ask(*env, **annotations)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300
    return text


# ---- valid ----


@pytest.mark.parametrize(
    "env", [(), ("PATH=/bin",), ("VGPU=",), ("VGPU=none",), ("VGPU=", "VGPU_MEM=8g"), ("VGPU_MEM=",)]
)
def test_no_request(env: tuple[str, ...]) -> None:
    assert ask(*env) is None


def test_a_bare_fraction() -> None:
    assert ask("VGPU=0.5") == Request(Spec(500))


def test_every_number() -> None:
    env = (
        "VGPU=2.5",
        "VGPU_MIN=2",
        "VGPU_MAX=3",
        "VGPU_MEM=8g",
        "VGPU_MEM_MIN=4g",
        "VGPU_NAME=train",
        "VGPU_CLASS=latency",
        "VGPU_PRIORITY=7",
        "VGPU_SPREAD=4",
    )
    spec = Spec(2500, 2000, 3000, 4 * GIB, 8 * GIB, priority=7, service_class="latency", spread=4)
    assert parse_request(env, {}, Limits(4000, priority=7, latency=True)) == Request(spec, name="train")


def test_memory_alone_is_minimum_and_maximum() -> None:
    assert ask("VGPU=0.5", "VGPU_MEM=8g") == Request(Spec(500, None, None, 8 * GIB, 8 * GIB))


def test_memory_minimum_alone_leaves_the_maximum_to_the_default() -> None:
    assert ask("VGPU=0.5", "VGPU_MEM_MIN=1g") == Request(Spec(500, None, None, GIB, None))


def test_no_guarantee() -> None:
    assert ask("VGPU=0.5", "VGPU_MIN=0", "VGPU_MEM=1g", "VGPU_MEM_MIN=0") == Request(Spec(500, 0, None, 0, GIB))


def test_memory_that_bends() -> None:
    asked = ask("VGPU=0.5", "VGPU_MEM_SWAP=1", "VGPU_IDLE_AFTER=10m")
    assert asked.spec == Spec(500, mem_swap=True, idle_after_ns=600_000_000_000)
    assert ask(gpus="0.5", **{"mem-swap": "1", "idle-after": "10m"}) == asked
    assert ask("VGPU=0.5", "VGPU_MEM_SWAP=0").spec == Spec(500)


def test_annotations_say_the_same() -> None:
    amounts = ["VGPU=0.5", "VGPU_MIN=0.25", "VGPU_MAX=1", "VGPU_MEM=2g", "VGPU_MEM_MIN=1g", "VGPU_NAME=a"]
    env = ask(*amounts, "VGPU_SPREAD=2", "VGPU_CLASS=batch", "VGPU_PRIORITY=0")
    shares = {"spread": "2", "class": "batch", "priority": "0"}
    assert ask(gpus="0.5", min="0.25", max="1", mem="2g", mem_min="1g", name="a", **shares) == env


def test_a_queue_by_environment_may_be_the_images_request() -> None:
    assert ask("VGPU=0.5", "VGPU_QUEUE=team") == Request(Spec(500), queue="team", open_queue=True)
    assert ask("VGPU=0.5", "VGPU_QUEUE=x", queue="team") == Request(Spec(500), queue="team")
    podman = Limits(4000, from_image=True)
    asked = parse_request(("VGPU=0.5",), {"dev.vgpu/queue": "team"}, podman)
    assert asked == Request(Spec(500), queue="team", open_queue=True)


def test_an_annotation_wins_over_its_twin_only() -> None:
    assert ask("VGPU=0.25", "VGPU_MEM=1g", gpus="0.5") == Request(Spec(500, None, None, GIB, GIB))


def test_an_annotation_can_take_the_variable_away() -> None:
    assert ask("VGPU=0.5", gpus="none") is None
    assert ask("VGPU=0.5", gpus="") is None


def test_an_annotation_can_ask_where_the_image_says_none() -> None:
    assert ask("VGPU=none", gpus="0.5") == Request(Spec(500))


def test_of_a_variable_that_is_there_twice_the_last_counts() -> None:
    assert ask("VGPU=8", "VGPU=0.5") == Request(Spec(500))


def test_joining() -> None:
    assert ask("VGPU_SLICE=train") == Request(None, join="train")
    assert ask(slice="train") == Request(None, join="train")
    assert ask("VGPU=", "VGPU_SLICE=train") == Request(None, join="train")


def test_none_takes_away_the_slice_as_well() -> None:
    assert ask("VGPU=none", "VGPU_SLICE=train") is None


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_variables_of_the_tools_ask_for_nothing(name: str) -> None:
    assert ask(f"{name}=x") is None
    assert ask(f"{name}=x", "VGPU=1") == Request(Spec(1000))


@pytest.mark.parametrize("service", ["VGPU", "VGPU_METRICS"])
def test_links_to_services_of_kubernetes_ask_for_nothing(service: str) -> None:
    ends = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_80_TCP", "PORT_80_TCP_ADDR"]
    links = [f"{service}_{end}=10.0.0.1" for end in ends]
    assert ask(*links) is None
    assert ask("VGPU=0.5", *links) == Request(Spec(500))


def test_other_peoples_annotations_and_variables() -> None:
    assert parse_request(["VGPUS=1", "XVGPU=1", "NOVALUE"], {"dev.vgpux/a": "1", "cdi.k8s.io/x": "y"}, CAP) is None


# ---- invalid ----


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (["VGPU=abc"], ["VGPU", "'abc'", "0.5"]),
        (["VGPU=0"], ["VGPU", "0 GPUs is too little", "0.001"]),
        (["VGPU=-1"], ["'-1'"]),
        (["VGPU=1e3"], ["'1e3'"]),
        (["VGPU=inf"], ["'inf'"]),
        (["VGPU=1.0001"], ["1.0001", "one thousandth"]),
        (["VGPU=9"], ["VGPU=9", "(4)", "dev.vgpu/gpus=9", "VGPU_SLICE"]),
        (["VGPU=1", "VGPU_MAX=9"], ["VGPU_MAX=9", "dev.vgpu/max=9"]),
        (["VGPU=99"], ["99", "16"]),
        (["VGPU=0.5", "VGPU_MIN=0.5", "VGPU_MAX=0.25"], ["VGPU_MIN=0.5", "VGPU_MAX=0.25", "lower the minimum"]),
        (["VGPU=0.5", "VGPU_MAX=0.25"], ["VGPU=0.5", "VGPU_MAX=0.25", "VGPU_MIN"]),
        (["VGPU=0.5", "VGPU_MAX=0"], ["VGPU_MAX", "0 GPUs is too little"]),
        (["VGPU=0.5", "VGPU_MEM=8x"], ["VGPU_MEM", "'8x'", "8G"]),
        (["VGPU=0.5", "VGPU_MEM=0"], ["VGPU_MEM"]),
        (["VGPU=0.5", "VGPU_MEM=1g", "VGPU_MEM_MIN=2g"], ["VGPU_MEM_MIN=2g", "VGPU_MEM=1g"]),
        (["VGPU=0.5", "VGPU_PRIORITY=high"], ["VGPU_PRIORITY=high", "1000"]),
        (["VGPU=0.5", "VGPU_PRIORITY=-1"], ["VGPU_PRIORITY=-1"]),
        (["VGPU=0.5", "VGPU_PRIORITY=1001"], ["VGPU_PRIORITY=1001"]),
        (["VGPU=0.5", "VGPU_PRIORITY=²"], ["VGPU_PRIORITY=²"]),
        (["VGPU=0.5", "VGPU_PRIORITY=1"], ["VGPU_PRIORITY=1 is more", "(0)", "--annotation dev.vgpu/priority=1"]),
        (["VGPU=0.5", "VGPU_CLASS=fast"], ["VGPU_CLASS=fast is not a class", "batch or latency"]),
        (["VGPU=0.5", "VGPU_CLASS=latency"], ["more than", "(batch)", "--annotation dev.vgpu/class=latency"]),
        (["VGPU=0.5", "VGPU_SPREAD=0"], ["VGPU_SPREAD=0", "1 to 16"]),
        (["VGPU=0.5", "VGPU_MEM_SWAP=yes"], ["VGPU_MEM_SWAP=yes is neither 0 nor 1"]),
        (["VGPU=0.5", "VGPU_IDLE_AFTER=soon"], ["VGPU_IDLE_AFTER: 'soon' is not a time", "2h30m"]),
        (["VGPU=0.5", "VGPU_SLICE=train"], ["VGPU=0.5", "VGPU_SLICE=train", "with VGPU= (empty),"]),
        (["VGPU_MEM=1g", "VGPU_SLICE=train"], ["VGPU_MEM=1g", "VGPU_SLICE=train"]),
        (["VGPU_MEM=8g"], ["VGPU_MEM=8g", "VGPU=0.5"]),
        (["VGPU_GPUS=1"], ["VGPU_GPUS=1", "VGPU_"]),
        (["VGPU=1", "VGPU_MEMORY=8g"], ["unknown variable VGPU_MEMORY=8g", "write VGPU_MEM,"]),
        (["VGPU=1", "VGPU_PRIO=1"], ["write VGPU_PRIORITY,"]),
        (["VGPU=1", "VGPU_=1"], ["VGPU_=1"]),
        (["VGPU=a\nb"], ["'a\\nb'"]),
        (["VGPU=1", "VGPU_X=a\nb"], ["a\\nb"]),
        (["VGPU=1", "VGPU_X=" + "y" * 5000], ["VGPU_X=yyy", "..."]),
        (["VGPU=" + "9" * 5000], ["VGPU"]),
    ],
)
def test_refused(env: list[str], words: list[str]) -> None:
    text = refusal(*env)
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"gpus": "abc"}, ["dev.vgpu/gpus", "'abc'"]),
        ({"gpu": "1"}, ["dev.vgpu/gpu=1", "write dev.vgpu/gpus,"]),
        ({"gpus": "1", "memory": "1g"}, ["write dev.vgpu/mem,"]),
        ({"gpus": "0.5", "min": "0.5", "max": "0.25"}, ["dev.vgpu/min=0.5", "dev.vgpu/max=0.25"]),
        ({"gpus": "0.5", "slice": "train"}, ["dev.vgpu/gpus=0.5", "dev.vgpu/slice=train", "no dev.vgpu/gpus"]),
    ],
)
def test_refused_annotations(annotations: dict[str, str], words: list[str]) -> None:
    text = refusal(**annotations)
    assert [word for word in words if word not in text] == []


def test_annotations_that_an_image_may_have_brought_are_bounded_as_well() -> None:
    greedy = {"dev.vgpu/gpus": "0.5", "dev.vgpu/max": "8"}
    with pytest.raises(RequestError, match=r"^dev.vgpu/max=8 is more .* raise container_gpus_max .* VGPU_SLICE$"):
        parse_request([], greedy, IMAGE)
    with pytest.raises(RequestError, match="raise container_gpus_max"):
        parse_request(["VGPU=8"], {}, IMAGE)
    half = {"dev.vgpu/gpus": "0.5"}
    with pytest.raises(RequestError, match=r"\(0\): raise container_priority_max in"):
        parse_request([], half | {"dev.vgpu/priority": "1"}, IMAGE)
    with pytest.raises(RequestError, match=r"\(batch\): set container_latency = true in"):
        parse_request([], half | {"dev.vgpu/class": "latency"}, IMAGE)
    assert parse_request([], half | {"dev.vgpu/class": "batch", "dev.vgpu/priority": "0"}, IMAGE) is not None


def test_an_annotation_may_ask_for_more_than_the_environment() -> None:
    assert ask(gpus="9") == Request(Spec(9000))
    first = ask(gpus="1", priority="1000", **{"class": "latency"})
    assert first == Request(Spec(1000, priority=1000, service_class="latency"))


def test_the_site_may_let_containers_be_served_first() -> None:
    site = Limits(4000, priority=5, latency=True)
    env = ["VGPU=0.5", "VGPU_CLASS=latency"]
    assert parse_request([*env, "VGPU_PRIORITY=5"], {}, site) is not None
    with pytest.raises(RequestError, match=r"VGPU_PRIORITY=6 is more .* \(5\)"):
        parse_request([*env, "VGPU_PRIORITY=6"], {}, site)


def test_the_cap_counts_for_each_source_by_itself() -> None:
    assert "VGPU_MAX=9" in refusal("VGPU_MAX=9", gpus="8")
    assert ask("VGPU_MIN=1", gpus="8", max="9") == Request(Spec(8000, 1000, 9000))


# ---- anything ----

VALUES = st.one_of(st.text(max_size=12), st.sampled_from(["0.5", "1", "0", "none", "", "8g", "8x", "train", "latency"]))
NAMES = st.sampled_from([*TWINS, "VGPU_X", "PATH"])


@given(st.lists(st.tuples(NAMES, VALUES), max_size=6), st.dictionaries(st.sampled_from([*TWINS.values(), "a"]), VALUES))
def test_every_input_gives_a_request_or_one_line(env: list[tuple[str, str]], annotations: dict[str, str]) -> None:
    request, text = None, ""
    try:
        request = parse_request([f"{name}={value}" for name, value in env], annotations, CAP)
    except RequestError as error:
        text = str(error)
    assert "\n" not in text
    assert not text or text.isprintable()
    assert request is None or (request.spec is None) == bool(request.join)
    if request and request.spec and "dev.vgpu/gpus" not in annotations:
        assert 0 < request.spec.gpus_milli <= CAP.gpus_milli
    if request and request.spec and not {"dev.vgpu/class", "dev.vgpu/priority"} & annotations.keys():
        assert (request.spec.service_class, request.spec.priority) == ("batch", 0)
