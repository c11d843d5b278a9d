"""Graphs, sizes, devices and the walk of a step's memory: pure arithmetic, without torch or ONNX."""

from __future__ import annotations

import contextlib
import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.predict import graph, graph_counts, graph_sizes, hardware, memory
from vgpud.predict.graph import Graph, GraphError, Op, Role, Tensor

MIB = 1 << 20


def perceptron(batch: int, widths: tuple[int, ...] = (64, 128, 32), kind: graph.Kind = graph.ACTIVATION) -> Graph:
    """Linear layers with an activation function after each."""
    made = Graph(batch)
    made.tensor("x", Tensor((batch, widths[0]), role=Role.INPUT))
    last = "x"
    for number, (given_, out) in enumerate(itertools.pairwise(widths)):
        names = [f"{what}{number}" for what in ("weight", "turned", "bias", "linear", "active")]
        weight, turned, bias, linear, active = names
        made.tensor(weight, Tensor((out, given_), role=Role.PARAMETER))
        made.tensor(turned, Tensor((given_, out)))
        made.tensor(bias, Tensor((out,), role=Role.PARAMETER))
        for name in (linear, active):
            made.tensor(name, Tensor((batch, out)))
        made.op(Op("t", graph.VIEW, (weight,), (turned,)))
        flops = graph.matmul_flops(made.tensors[last], made.tensors[linear])
        made.op(Op("addmm", graph.MATMUL, (bias, last, turned), (linear,), flops))
        made.op(Op("relu", kind, (linear,), (active,)))
        last = active
    return made


def test_parameters_are_counted_through_views() -> None:
    counts = graph_counts.count(perceptron(4), 4)
    assert [op.kind for op in counts.ops] == ["linear", "activation"] * 2
    assert [op.parameters for op in counts.ops if op.parameters] == [(8192, 128), (4096, 32)]
    assert counts.inputs == 64 and counts.outputs == 32 and counts.family == "mlp"


@given(st.integers(1, 64), st.integers(1, 64))
def test_what_comes_from_an_input_grows_with_the_batch(traced_batch: int, asked_batch: int) -> None:
    """Read at one batch and asked for another: the same as read at that one."""
    assert graph_counts.count(perceptron(traced_batch), asked_batch) == graph_counts.count(
        perceptron(asked_batch), asked_batch
    )


@given(st.integers(1, 512), st.integers(1, 512), st.sampled_from(list(memory.STATES)))
def test_memory_grows_with_the_batch(one: int, other: int, optimizer: str) -> None:
    small, great = sorted((one, other))
    made = perceptron(1, (64, 2048, 512, 10))
    low, high = (memory.estimate(made, batch, optimizer, False) for batch in (small, great))
    assert low.low <= high.low  # what the allocator reserves beyond that goes by segments
    for found in (low, high):
        assert found.low <= found.value <= found.high


def test_memory_is_weights_gradients_states_and_activations() -> None:
    """Large enough that what the allocator rounds to is little: 64 Mi parameters of 4 bytes, 4 times with Adam."""
    made = perceptron(1, (8192, 8192))
    parameters = 8192 * 8192 * 4
    plain, adam, nothing = (memory.estimate(made, 1, name, False).value for name in ("sgd", "adam", "none"))
    assert nothing == pytest.approx(parameters, rel=0.1)
    assert plain == pytest.approx(2 * parameters, rel=0.1)
    assert adam == pytest.approx(5 * parameters, rel=0.1)  # two states, and a temporary of all at once


def test_half_precision_halves_activations_not_weights() -> None:
    made = perceptron(65536, (256, 1024, 256))
    full, half = (memory.estimate(made, 65536, "sgd", half).value for half in (False, True))
    assert 0.45 < half / full < 0.7


def test_what_works_in_place_takes_nothing() -> None:
    plain = perceptron(65536, (256, 1024, 256))
    inplace = Graph(65536, dict(plain.tensors))
    inplace.batch_scaled_names.add("x")
    for op in plain.ops:
        inplace.op(Op(op.name, op.kind, op.inputs, op.outputs, op.flops, in_place=op.kind is graph.ACTIVATION))
    assert memory.estimate(inplace, 65536, "sgd", False).value < memory.estimate(plain, 65536, "sgd", False).value


def test_inference_keeps_nothing() -> None:
    """Of 32 equal layers two activations live at a time."""
    made = perceptron(65536, (256,) * 33)
    activation = 65536 * 256 * 4
    assert memory.estimate(made, 65536, "none", False).value < 8 * activation
    assert memory.estimate(made, 65536, "sgd", False).value > 30 * activation


def test_unknown_operations_widen_and_are_reported() -> None:
    made = perceptron(8, kind=graph.UNKNOWN)
    known = memory.estimate(perceptron(8), 8, "adam", False)
    unknown = memory.estimate(made, 8, "adam", False)
    assert graph_counts.count(made, 8).unknown == ("relu",)
    assert unknown.high / unknown.value > known.high / known.value
    assert graph_counts.family(made) == "other"


@pytest.mark.parametrize(
    ("shape", "words"), [((1 << 40, 1 << 40), "impossible"), ((1,) * 20, "impossible"), ((-1,), "-1")]
)
def test_shapes_that_no_device_has_are_refused(shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        Graph(1).tensor("x", Tensor(shape))


SIZES = [
    ("7", 7),
    ("s0", 5),
    ("s0 + 2*s1", 11),
    ("-s0 + 9", 4),
    ("s0*s1 - 1", 14),
    ("Symbol('s0', positive=True, integer=True)", 5),
    ("Add(Mul(Integer(2), Symbol('s1', integer=True)), Integer(1))", 7),
    ("Pow(Symbol('s1'), Integer(2))", 9),
    ("FloorDiv(Symbol('s0'), Integer(2))", 2),
    ("Max(1, s1)", 3),
    ("Mod(s0, 3)", 2),
]


@pytest.mark.parametrize(("text", "value"), SIZES)
def test_sizes(text: str, value: int) -> None:
    assert graph_sizes.evaluate(text, {"s0": 5, "s1": 3}) == value
    assert graph_sizes.symbols(text) <= {"s0", "s1"}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "(lambda: 1)()",
        "s0.__class__",
        "[1][0]",
        "1/0",
        "FloorDiv(1, 0)",
        "Pow(10, 10**9)",
        "10**10**10",
        "1" * 3000,
        "(" * 500,
        "-" * 1900 + "1",
        "s0 if s0 else 1",
        "2.5",
        "True",
        "FloorDiv(1)",
        "\0",
    ],
)
def test_hostile_sizes_are_refused(text: str) -> None:
    with pytest.raises(GraphError):
        graph_sizes.evaluate(text, {"s0": 1})


@given(st.text(max_size=60))
def test_no_size_is_anything_but_a_number_or_a_refusal(text: str) -> None:
    with contextlib.suppress(GraphError, KeyError):
        assert isinstance(graph_sizes.evaluate(text, {"a": 2, "b": 3}), int)


def test_labels_are_short_and_plain() -> None:
    assert graph.label("a\x1b[2J\n") == "'a\\x1b[2J\\n'"
    assert len(graph.label("x" * 999)) == 60


@pytest.mark.parametrize("gpu", hardware.GPUS, ids=lambda gpu: gpu.name)
def test_devices(gpu: hardware.Gpu) -> None:
    assert hardware.find_gpu(gpu.name) is gpu
    full, half = gpu.at("fp32"), gpu.at("bf16")
    assert half.peak_flops >= full.peak_flops > 10**12 and full.bandwidth > 10**11 and full.sm_count > 0
    low, value, high = gpu.context_bytes()
    assert 0 < low < value < high < 2 << 30


NVML = [
    ("NVIDIA H100 80GB HBM3", "h100"),
    ("NVIDIA H100 PCIe", "h100-pcie"),
    ("NVIDIA H200", "h200"),
    ("NVIDIA A100-SXM4-40GB", "a100-40g"),
    ("NVIDIA A100-SXM4-80GB", "a100"),
    ("NVIDIA A10G", "a10g"),
    ("NVIDIA A10", "a10"),
    ("Tesla V100-SXM2-32GB", "v100-32g"),
    ("Tesla V100-SXM2-16GB", "v100"),
    ("Tesla T4", "t4"),
    ("NVIDIA L40S", "l40s"),
    ("NVIDIA L4", "l4"),
    ("NVIDIA GeForce RTX 3090", "rtx-3090"),
    ("NVIDIA GeForce RTX 4070 Ti", "rtx-4070-ti"),
    ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
    ("NVIDIA GeForce GTX 1080 Ti", "gtx-1080-ti"),
    ("SIMULATED H200", "h200"),
    ("H200", "h200"),
    ("rtx 4090", "rtx-4090"),
]


@pytest.mark.parametrize(("name", "gpu_name"), NVML)
def test_devices_are_found_by_their_names(name: str, gpu_name: str) -> None:
    assert hardware.find_gpu(name).name == gpu_name


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("a100-40", "'a100-40g'"),
        ("NVIDIA A100-40", "'a100-40g'"),
        ("v100-32", "'v100-32g'"),
        ("H100 PCI", "'h100-pcie'"),
    ],
)
def test_a_name_that_is_cut_off_is_no_other_device(name: str, device: str) -> None:
    """Of the A100 with 40 GB not the one with 80."""
    with pytest.raises(GraphError, match=re.escape(f"did you mean {device}?")):
        hardware.find_gpu(name)


def test_an_unknown_device_names_those_that_are_known() -> None:
    with pytest.raises(GraphError, match=re.escape("'banana' is not in the table of devices: name one of b200,")):
        hardware.find_gpu("banana")
