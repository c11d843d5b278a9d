"""GPUMemNet's runs: what of them is known beforehand, the shipped model, and a traced model beside its row."""

from __future__ import annotations

import csv
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.predict import gpumemnet, gpumemnet_data
from vgpud.predict import allocator, model
from vgpud.predict.dataset import Row
from vgpud.predict.features import FEATURES, features
from vgpud.predict.ops import Hardware, Op, Step

MEASURED = ("Max GPU Memory (MiB)", "Avg GPUTL", "Avg GRACT", "Avg SMACT", "Avg SMOCC", "Avg FP32A")
EVERY = 40
MIB = 1 << 20


@pytest.fixture(scope="module")
def cells() -> list[dict[str, str]]:
    with gpumemnet_data.CSV.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def some(cells: list[dict[str, str]]) -> list[Row]:
    return [gpumemnet_data.row(each) for each in cells[::EVERY]]


def test_features_are_known_before_the_run(cells: list[dict[str, str]]) -> None:
    for each in cells[:20]:
        other = {**each, **dict.fromkeys(MEASURED, "7"), "Total Parameters": "1", "Depth": "1"}
        assert gpumemnet_data.row(each).features == gpumemnet_data.row(other).features


def test_parameters_are_those_that_were_counted(cells: list[dict[str, str]]) -> None:
    for each in cells[::EVERY]:
        found = gpumemnet_data.row(each).features
        assert found["parameters"] == int(each["Total Parameters"])
        assert found["activations"] == int(each["Total Activations"])
        assert found["layers"] == int(each["Depth"])


def test_the_allocator_holds_what_was_measured(some: list[Row]) -> None:
    """All but a constant: the context of CUDA and its libraries."""
    beyond = [row.memory_bytes - row.features["reserved_bytes"] for row in some if gpumemnet_data.ran(row)]
    context = statistics.median(beyond)
    assert 1400 * MIB < context < 1450 * MIB
    off = [
        abs(each - context) / row.memory_bytes
        for each, row in zip(beyond, filter(gpumemnet_data.ran, some), strict=True)
    ]
    assert statistics.fmean(off) < 0.004


def test_the_shipped_model(some: list[Row]) -> None:
    shipped = model.load()
    assert shipped.card["licence"] == "CC-BY-4.0"
    assert shipped.card["rows"] == 2978
    source = json.loads((gpumemnet_data.CSV.parent / "source.json").read_text())
    assert shipped.card["data"][0]["sha256"] == source["sha256"]["mlp_data_step1.csv"]
    assert (Path(model.__file__).with_name(model.SHIPPED)).stat().st_size < 2 * MIB
    ran = [row for row in some if gpumemnet_data.ran(row)]
    for row in ran:
        prediction = shipped.predict(row.features)
        assert prediction.in_range, prediction.why
        assert prediction.utilisation.value == pytest.approx(row.utilisation, rel=0.5)
        assert prediction.memory_bytes.value == pytest.approx(row.memory_bytes, rel=0.03)
        assert prediction.utilisation.low <= prediction.utilisation.value <= prediction.utilisation.high


A100 = gpumemnet_data.A100
CONVOLUTION = Op("convolution", 32 * 64 * 56 * 56, flops=10**9, bytes=10**8, parameters=(64 * 64 * 9, 64))
DENSE = Op("linear", 32 * 100, flops=2 * 32 * 100 * 100, bytes=4 * 26_500, parameters=(10_000, 100), is_kept=False)


@pytest.mark.parametrize(
    ("ops", "step", "says"),
    [
        ([CONVOLUTION], Step(32, 100, 100), "1 convolutions"),
        ([DENSE, DENSE], Step(32, 100, 100, training=False), "training"),
        ([DENSE, DENSE], Step(32, 100, 100, states=0), "optimizer_states"),
        ([DENSE, DENSE], Step(32, 100, 100, element_bytes=2), "element_bytes"),
        ([DENSE] * 40, Step(32, 100, 100), "layers"),
    ],
)
def test_other_models_are_out_of_its_range(ops: list[Op], step: Step, says: str) -> None:
    found = model.load().predict(features(ops, step, A100))
    assert not found.in_range
    assert says in found.why


def test_another_device_is_said() -> None:
    known = features([DENSE, DENSE], Step(32, 100, 100), Hardware("H200", 132, 4_800 * 10**9, 67 * 10**12))
    found = model.load().predict(known)
    assert found.in_range
    assert "A100" in found.why


def test_a_traced_model_has_the_features_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads graphs and what reads this table count alike, or the shipped model would be asked about others."""
    pytest.importorskip("torch")
    from vgpud.predict import entry
    from vgpud.predict.hardware import find_gpu

    (tmp_path / "perceptron.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def model(batch):\n"
        "    layers = [nn.Linear(300, 200), nn.ReLU(), nn.Linear(200, 80), nn.ReLU(), nn.Linear(80, 10)]\n"
        "    return nn.Sequential(*layers), (torch.zeros(batch, 300),)\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = entry.Asked("perceptron:model", batch=64)
    traced = entry.compute_features(entry.read(asked), asked, find_gpu("a100-40g"))
    layers = [("linear", 200), ("ReLU", 200), ("linear", 80), ("ReLU", 80), ("linear", 10)]
    traced_features = features(list(gpumemnet_data.operations(layers, 300, 64)), Step(64, 300, 10), A100)
    differ = {name: (traced[name], traced_features[name]) for name in FEATURES if traced[name] != traced_features[name]}
    assert differ == {}


def test_tasks_of_the_benchmark() -> None:
    made = gpumemnet.tasks(10)
    assert len({task.seed for task in made if task.case == gpumemnet.IN_FOLDS}) == 10
    assert {(task.case, task.target) for task in made} >= set(gpumemnet.GOALS)


# ---- the allocator ----


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 64 * MIB)), max_size=60))
def test_the_allocator_loses_nothing(requests: list[tuple[bool, int]]) -> None:
    memory = allocator.Allocator()
    held: list[tuple[allocator.Block, int]] = []
    for give, size in requests:
        if give and held:
            memory.give(held.pop(size % len(held))[0])
        else:
            held.append((memory.take(size), size))
        assert memory.reserved >= sum(each for _, each in held)
        for ((_, segment, offset), length), ((_, later, start), _) in itertools.pairwise(
            sorted(held, key=lambda each: each[0][1:])
        ):
            assert segment != later or offset + max(length, 1) <= start, "blocks do not overlap"


@given(st.lists(st.integers(1, 30 * MIB), min_size=1, max_size=30))
def test_the_same_again_needs_no_more(sizes: list[int]) -> None:
    memory = allocator.Allocator()
    memory.give(*[memory.take(size) for size in sizes])
    once = memory.reserved
    for _ in range(3):
        memory.give(*[memory.take(size) for size in sorted(sizes, reverse=True)])
        once = max(once, memory.reserved)
    again = memory.reserved
    memory.give(*[memory.take(size) for size in sorted(sizes, reverse=True)])
    assert memory.reserved == again == once


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([MIB, MIB], 2 * MIB),
        ([MIB, MIB, 1], 4 * MIB),
        ([MIB + 1], 20 * MIB),
        ([10 * MIB - 1] * 2, 20 * MIB),
        ([10 * MIB], 10 * MIB),
        ([10 * MIB + 1], 12 * MIB),
    ],
)
def test_segments(sizes: list[int], reserved: int) -> None:
    memory = allocator.Allocator()
    for size in sizes:
        memory.take(size)
    assert memory.reserved == reserved


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_free_neighbours_are_one_block(order: tuple[int, ...]) -> None:
    memory = allocator.Allocator()
    blocks = [memory.take(5 * MIB) for _ in range(3)]
    for number in order:
        memory.give(blocks[number])
    memory.take(19 * MIB)
    assert memory.reserved == 20 * MIB


def test_training_holds_more_than_answering() -> None:
    ops: list[Any] = [Op("linear", 64 * 4096, parameters=(4096 * 4096, 4096))] * 4
    answering = allocator.reserved(ops, Step(64, 4096, 4096, training=False))
    plain = allocator.reserved(ops, Step(64, 4096, 4096, states=0))
    adam = allocator.reserved(ops, Step(64, 4096, 4096, states=2))
    weights = 4 * 4 * 4096 * 4097
    assert weights <= answering < 1.3 * weights
    assert 2 * weights <= plain < 2.4 * weights
    assert 5 * weights <= adam < 5.4 * weights, "gradients, two states, and a temporary"
