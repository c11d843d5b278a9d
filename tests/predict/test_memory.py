"""The replay of a training's memory, its intervals, and utilisation by roofline: without torch."""

from __future__ import annotations

import pytest

from tests.predict.test_graph import perceptron
from vgpud.predict import analytic, convolution, graph, hardware, memory, names
from vgpud.predict.features import FEATURES, Features
from vgpud.predict.graph import Graph, Op, Role, Tensor
from vgpud.predict.graph_counts import Sizes

MIB = 1 << 20


def chain(batch: int, elements: int, layers: int) -> Graph:
    """Products of square matrices, whose answer is as wide as each layer."""
    return perceptron(batch, (elements,) * (layers + 1))


def convolve(channels: int = 3, width: int = 64) -> Graph:
    """One convolution of 3 x 3 over eight images of 32 x 32."""
    made = Graph(8)
    made.tensor("x", Tensor((8, channels, 32, 32), role=Role.INPUT))
    made.tensor("w", Tensor((width, channels, 3, 3), role=Role.PARAMETER))
    made.tensor("y", Tensor((8, width, 32, 32)))
    made.op(Op("convolution", graph.CONV, ("x", "w"), ("y",)))
    return made


def test_the_second_step_needs_states_and_activations_at_once() -> None:
    """In the first one the states get what activations have left."""
    weights, activations = 8 * 1024 * 1024 * 4, 8 * 8192 * 1024 * 4
    found = memory.estimate(chain(8192, 1024, 8), 8192, "adam", False).replayed_bytes
    without = memory.estimate(chain(8192, 1024, 8), 8192, "sgd", False).replayed_bytes
    assert found > 3 * weights + activations and found - without > 1.9 * weights


def test_a_loss_is_as_large_as_the_answer() -> None:
    """A table of words behind one layer: the answer, its logarithms, and the gradients of both."""
    answer = 4096 * 32768 * 4
    made = perceptron(4096, (16, 32768))
    found = memory.estimate(made, 4096, "sgd", False).replayed_bytes
    assert found > 4 * answer
    assert memory.estimate(made, 4096, "none", False).replayed_bytes < 3 * answer, "answering needs none"


def test_a_model_that_answers_with_its_loss_has_no_other() -> None:
    made = perceptron(4096, (16, 4096))
    made.tensor("sum", Tensor(()))
    made.op(Op("sum", graph.REDUCE, ("active0",), ("sum",)))
    plain = memory.estimate(perceptron(4096, (16, 4096)), 4096, "sgd", False).replayed_bytes
    assert memory.estimate(made, 4096, "sgd", False).replayed_bytes < plain


def test_tensor_cores_work_on_copies_with_channels_filled_up() -> None:
    """Three channels become four: sixteen bytes at a time are read."""
    made = convolve()
    images, filters, answer = 8 * 32 * 32 * 4 * 4, 64 * 9 * 4 * 4, 8 * 64 * 32 * 32 * 4
    assert convolution.measure_copies(made.ops[0], Sizes(made, 8)) == images + filters + answer
    assert convolution.measure_copies(perceptron(8).ops[1], Sizes(perceptron(8), 8)) == 0


def test_the_interval_is_of_the_group() -> None:
    lower, _, upper = memory.find_spread([graph.MATMUL])
    wider = memory.find_spread([graph.MATMUL, graph.CONV])
    assert wider[0] < lower and wider[2] > upper
    assert memory.find_spread([graph.RNN])[2] == wider[2], "never measured: the widest"
    assert memory.find_spread([graph.MATMUL, graph.UNKNOWN])[2] > wider[2]


def test_a_context_that_was_measured_has_cudnn_where_it_is_used() -> None:
    measured, estimated = hardware.BY_NAME["a100-40g"], hardware.BY_NAME["h200"]
    low, value, high = measured.context_bytes()
    assert low < value < high < measured.context_bytes(has_convolutions=True)[0]
    assert estimated.context_bytes() == estimated.context_bytes(has_convolutions=True)


def job(**values: float) -> Features:
    return Features({**dict.fromkeys(FEATURES, 0.0), **values})


def test_utilisation_is_the_devices_part_of_a_step() -> None:
    launches = 1000 * analytic.LAUNCH_NS
    even = analytic.predict_utilisation(job(device_ns=launches, kernels=1000))
    busy = analytic.predict_utilisation(job(device_ns=1e12, kernels=10))
    copying = analytic.predict_utilisation(job(device_ns=1e9, copy_bytes=4e9))
    assert even is not None and busy is not None and copying is not None
    assert even.value == pytest.approx(busy.value / 2, rel=0.01) == pytest.approx(copying.value, rel=0.01)
    for found in (even, busy, copying):
        assert 0 < found.low < found.value < found.high < 1
    assert busy.high - busy.low < even.high - even.low
    assert analytic.predict_utilisation(job()) is None


@pytest.mark.parametrize(
    ("name", "words"), [("h20O", "h200"), ("resnet5.onnx", ""), ("", "")], ids=["near", "far", "none"]
)
def test_near_names(name: str, words: str) -> None:
    found = names.suggest(name, hardware.BY_NAME)
    assert (words in found and found.startswith(", did you mean ")) if words else found == ""


def test_names_are_listed_as_people_do() -> None:
    assert names.list_names("a", "or") == "a"
    assert names.list_names("abc", "or") == "a, b or c"
    assert names.list_names("abc") == "a, b, c"
