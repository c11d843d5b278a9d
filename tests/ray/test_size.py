"""Sizes in runtime environments: one form for what means the same, and a sentence for what cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.client.sizes import SizeError
from vgpud.core.model import Spec
from vgpud.core.units import format_gpus
from vgpud.ray.size import read

GIB = 1 << 30
#: of more digits than Python makes a text of
HUGE = 10**5000


def test_the_words_become_a_spec() -> None:
    size = read({"gpus": 0.5, "max": 1, "mem": "20G", "service_class": "latency", "priority": 3, "queue": "team"})
    assert size.spec == Spec(
        500,
        max_milli=1000,
        mem_min_bytes=20 * GIB,
        mem_max_bytes=20 * GIB,
        priority=3,
        service_class="latency",
    )
    assert (size.num_gpus, size.queue) == (0.5, "team")
    assert read({"gpus": 2}).num_gpus == 2 and isinstance(read({"gpus": "2.0"}).num_gpus, int)


@pytest.mark.parametrize(
    "value",
    [
        {"gpus": 0.5, "mem": "20G"},
        {"gpus": "0.5", "mem": "20GiB"},
        {"gpus": "0.500", "mem": 20 * GIB},
        {"gpus": 0.5, "mem_min": "20G", "mem_max": "20480M", "priority": 0, "weight": None, "queue": ""},
        {"gpus": 0.5, "mem": "20G", "service_class": "batch", "max": None},
    ],
)
def test_what_means_the_same_is_one_environment(value: dict[str, Any]) -> None:
    """Ray compares environments by their text: another text is another process."""
    assert json.dumps(read(value).as_field()) == '{"gpus": "0.5", "mem_min": 21474836480, "mem_max": 21474836480}'


@pytest.mark.parametrize(
    ("fraction", "milli"),
    [
        (0.1 + 0.2, 300),
        (0.3 - 0.1, 200),  # 0.19999999999999998
        (1 / 3, 333),
        (1 / 6, 166),
        (2 / 3, 666),
        (1 - 0.9, 100),
        (3 * (1 - 1e-16), 3000),
        (sum([0.1] * 10), 1000),
    ],
)
def test_a_computed_fraction_is_the_thousandths_that_fit(fraction: float, milli: int) -> None:
    """Rounded down: so many tasks of 1/N fit into one GPU as N says."""
    assert read({"gpus": fraction}).spec.gpus_milli == milli
    assert read({"gpus": fraction, "max": fraction}).spec.max_milli == milli
    assert read({"gpus": 16, "min": fraction}).spec.min_milli == milli


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, "vgpu is 0.5, not a table"),
        ({}, "vgpu has no gpus"),
        ({"gpu": 0.5}, "vgpu has no key 'gpu': write gpus, min, max"),
        ({"gpus": 0}, "gpus: 0 GPUs is too little"),
        ({"gpus": -1}, "gpus: '-1' is not a number of GPUs"),
        ({"gpus": True}, "gpus is True, not a number of GPUs"),
        ({"gpus": [0.5]}, "gpus is [0.5], not a number of GPUs"),
        ({"gpus": float("nan")}, "gpus: 'nan' is not a number of GPUs"),
        ({"gpus": "0.3333"}, "finer than one thousandth"),
        ({"gpus": 0.0004}, "finer than one thousandth"),
        ({"gpus": float("inf")}, "gpus: 'inf' is not a number of GPUs"),
        ({"gpus": 1.5}, "gpus 1.5: Ray gives out parts of one GPU or whole ones: ask for 1 or 2"),
        ({"gpus": 17}, "more than any node has"),
        ({"gpus": 0.5, "max": 0.3}, "max 0.3 is below gpus 0.5"),
        ({"gpus": 0.5, "max": 1.5}, "max 1.5 is more than the 1 device(s)"),
        ({"gpus": 0.5, "min": 0.6}, "min 0.6 is above gpus 0.5, which is all that Ray counts"),
        ({"gpus": 0.5, "min": 0, "service_class": "latency"}, "class latency with min 0"),
        ({"gpus": 0.5, "service_class": "fast"}, "no class 'fast'"),
        ({"gpus": 0.5, "mem": "20 apples"}, "mem: '20 apples' is not an amount of memory"),
        ({"gpus": 0.5, "mem": 0.5}, "mem is 0.5, not an amount of memory"),
        ({"gpus": 0.5, "mem": "1G", "mem_max": "2G"}, "mem sets both limits"),
        ({"gpus": 0.5, "mem_min": "2G", "mem_max": "1G"}, "mem-min 2GiB is above mem-max 1GiB"),
        ({"gpus": 0.5, "priority": 1.5}, "priority is 1.5, not a whole number"),
        ({"gpus": 0.5, "weight": 10_001}, "weight 10001 is out of range"),
        ({"gpus": 0.5, "queue": 7}, "queue is 7, not a word"),
        ({"gpus": HUGE}, "gpus is a number of 16610 bits: no size has more than 63"),
        ({"gpus": 0.5, "mem": -HUGE}, "mem is a number of 16610 bits"),
        ({"gpus": 0.5, "priority": HUGE}, "priority is a number of 16610 bits"),
        ({"gpus": 0.5, "weight": 1 << 63}, "weight is a number of 64 bits"),
        ({"gpus": "9" * 5000}, "9... is not a number of GPUs"),
        ({"gpus": [HUGE]}, "gpus is a value (list) that is too large to show, not a number of GPUs"),
        ({HUGE: 1}, "vgpu has no key a value (int) that is too large to show"),
        pytest.param(HUGE, "vgpu is a value (int) that is too large to show, not a table", id="huge"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(value: Any, message: str) -> None:
    with pytest.raises(SizeError) as caught:
        read(value)
    assert message in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


@settings(max_examples=examples(200), deadline=None)
@given(
    gpus=st.one_of(st.integers(1, 1000), st.integers(1, 16).map(lambda whole: whole * 1000)),
    extra_milli=st.integers(0, 1000),
    mem=st.one_of(st.none(), st.integers(1 << 20, 1 << 40)),
    low=st.one_of(st.none(), st.integers(0, 1000)),
)
def test_the_form_reads_as_what_it_was_made_of(gpus: int, extra_milli: int, mem: int | None, low: int | None) -> None:
    top = -(-gpus // 1000) * 1000
    asked = {
        "gpus": format_gpus(gpus),
        "max": format_gpus(min(top, gpus + extra_milli)),
        "min": None if low is None else format_gpus(min(low, gpus)),
        "mem": mem,
    }
    size = read(asked)
    assert read(size.as_field()) == size
    assert json.loads(json.dumps(size.as_field())) == size.as_field(), "Ray keeps it as JSON"
