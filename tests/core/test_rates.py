"""Speeds by the names of models and GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.devices.rates import FASTEST_MILLI, model_key, relative, speed_on, words

POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
WORD = st.text("abkptv0123456789", min_size=1, max_size=4)


@pytest.mark.parametrize("spelling", ["resnet50", "ResNet-50", "RESNET_50", "resnet 50"])
def test_a_model_is_written_in_many_ways(spelling: str) -> None:
    assert model_key(spelling) == "resnet50"
    assert model_key(f"{spelling} (batch size 16)") == "resnet50batchsize16"


@pytest.mark.parametrize("gpu", ["v100", "V100", "Tesla V100-SXM2-16GB", "tesla_v100-pcie-32gb", "nvidia_v100"])
def test_a_name_stands_for_all_that_have_its_words(gpu: str) -> None:
    assert speed_on((("K80", 100), ("V100", 700)), gpu) == 700


@pytest.mark.parametrize("gpu", ["", "v10", "v1000", "p100", "100", "sxm2"])
def test_others_are_not_known(gpu: str) -> None:
    assert speed_on((("V100", 700), ("Tesla P100", 500)), gpu) is None


def test_the_longest_name_counts() -> None:
    speeds = (("A100", 800), ("A100 80GB", 1000), ("80GB", 1))
    assert speed_on(speeds, "NVIDIA A100 80GB PCIe") == 1000
    assert speed_on(speeds, "nvidia_a100-sxm4-40gb") == 800


@given(st.lists(WORD, min_size=1, max_size=5), st.data())
def test_every_run_of_words_of_a_name_finds_it(name: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(name) - 1))
    part = name[first : data.draw(st.integers(first + 1, len(name)))]
    assert words("-".join(name)) == tuple(name)
    assert speed_on((("_".join(part).upper(), 5),), " ".join(name)) == 5


@given(st.dictionaries(WORD, POSITIVE, min_size=1))
def test_relative_to_the_fastest(rates: dict[str, float]) -> None:
    found = dict(relative(rates))
    assert found.keys() == rates.keys()
    assert max(found.values()) == FASTEST_MILLI and min(found.values()) >= 1
    by_rate = sorted(rates, key=lambda gpu: (rates[gpu], found[gpu]))
    assert [found[gpu] for gpu in by_rate] == sorted(found.values())
