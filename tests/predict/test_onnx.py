"""ONNX files, made here: what is counted, what is refused in one line, and that nothing but the file is opened."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.examples import examples
from vgpud.predict import entry, graph_counts, memory, onnx_model
from vgpud.predict.entry import Asked
from vgpud.predict.graph import GraphError

Sizes = Sequence[int | str | None]


def weight(name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


def make_integers(name: str, *values: int) -> TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def file(
    path: Path,
    nodes: Sequence[NodeProto],
    inputs: dict[str, Sizes],
    weights: Sequence[TensorProto] = (),
    kind: int = TensorProto.FLOAT,
) -> Path:
    """A model file; the last node's first output is the model's."""
    given_ = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    out = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    body = helper.make_graph(list(nodes), "model", given_, [out], list(weights))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ours", 1)]
    path.write_bytes(helper.make_model(body, opset_imports=opsets).SerializeToString())
    return path


def perceptron(path: Path, batch: int | str = "batch") -> Path:
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("MatMul", ["a", "w1"], ["y"]),
    ]
    return file(path, nodes, {"x": (batch, 64)}, [weight("w0", 128, 64), weight("b0", 128), weight("w1", 128, 10)])


def convolutional(path: Path) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"]),
    ]
    weights = [weight("w", 16, 3, 3, 3), *(weight(n, 16) for n in "sbmv"), weight("g", 16, 10)]
    return file(path, nodes, {"x": ("N", 3, 32, 32)}, weights)


def attention(path: Path) -> Path:
    """Written out, with a reshape whose sizes are computed from the shape of the input, as exporters do."""
    constant = helper.make_node("Constant", [], ["parts"], value=make_integers("v", 4, 16))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Gather", ["shape", "one"], ["l"]),
        constant,
        helper.make_node("Concat", ["n", "l", "parts"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["q", "sizes"], ["h"]),
        helper.make_node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["h"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["t", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["part"]),
        helper.make_node("MatMul", ["part", "t"], ["y"]),
    ]
    return file(
        path,
        nodes,
        {"x": ("batch", "length", 64)},
        [weight("w", 64, 64), make_integers("zero", 0), make_integers("one", 1)],
    )


def count_file(path: Path, batch: int = 8, **dims: int) -> graph_counts.Counts:
    made = onnx_model.read(path, batch, dims)
    memory.estimate(made, batch, "adam", True)
    return graph_counts.count(made, batch)


# ---- what is counted ----


def test_a_perceptron(tmp_path: Path) -> None:
    found = count_file(perceptron(tmp_path / "m.onnx"))
    assert [op.kind for op in found.ops] == ["linear", "activation", "linear"]
    assert [op.flops for op in found.ops] == [2 * 8 * 64 * 128, 8 * 128, 2 * 8 * 128 * 10]
    assert [op.parameters for op in found.ops] == [(8192, 128), (), (1280,)]
    assert (found.inputs, found.outputs, found.family, found.unknown) == (64, 10, "mlp", ())


def test_a_batch_that_is_in_the_file_is_scaled(tmp_path: Path) -> None:
    fixed = count_file(perceptron(tmp_path / "fixed.onnx", 2))
    free = count_file(perceptron(tmp_path / "free.onnx"))
    assert fixed == free
    assert entry.read(Asked(str(perceptron(tmp_path / "own.onnx", 2)))).counts.batch == 2
    assert entry.read(Asked(str(perceptron(tmp_path / "any.onnx")))).counts.batch == entry.BATCH


def test_convolutions_norms_and_running_means(tmp_path: Path) -> None:
    found = count_file(convolutional(tmp_path / "m.onnx"))
    assert [op.kind for op in found.ops][:2] == ["convolution", "norm"]
    assert found.ops[0].flops == 2 * 8 * 16 * 32 * 32 * 27
    assert found.ops[1].parameters == (16, 16)  # scale and shift; mean and variance are not trained
    assert found.family == "cnn"


def test_weights_may_be_constants(tmp_path: Path) -> None:
    """As some tools write them; a single number is none."""
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight("w", 64, 32)),
        helper.make_node("Constant", [], ["half"], value=weight("half", 1)),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Mul", ["h", "half"], ["y"]),
    ]
    found = count_file(file(tmp_path / "m.onnx", nodes, {"x": (8, 64)}))
    assert [(op.kind, op.parameters) for op in found.ops] == [("linear", (64 * 32,)), ("product", ())]


def test_sizes_that_are_computed_are_folded(tmp_path: Path) -> None:
    found = count_file(attention(tmp_path / "m.onnx"), length=32)
    assert found.unknown == () and found.family == "transformer"
    scores = 2 * 8 * 4 * 32 * 32 * 16
    assert sum(op.flops for op in found.ops if op.kind == "matmul") == 2 * scores
    assert [op.kind for op in found.ops].count("attention") == 1


def test_it_is_as_torch_has_it(tmp_path: Path) -> None:
    """The same perceptron by way of a trace."""
    import torch
    from torch import nn

    from vgpud.predict import torch_trace
    from vgpud.predict.graph import Graph, Role

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10, bias=False))
    made = Graph(8)
    inputs = torch.randn(8, 64)
    with torch_trace._Recorder(made, model, inputs):
        model(inputs)
    found = graph_counts.count(made, 8)
    ours = count_file(perceptron(tmp_path / "m.onnx"))
    assert sum(op.flops for op in found.ops) == sum(op.flops for op in ours.ops)
    assert {t.elements for t in made.tensors.values() if t.role is Role.PARAMETER} == {8192, 128, 1280}


def test_external_weights_are_never_opened(tmp_path: Path) -> None:
    """Their shapes are in the file; where they lie is unknown."""
    model = onnx.load(str(perceptron(tmp_path / "m.onnx")))
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../../../etc/passwd")
        tensor.external_data.add(key="length", value=str(1 << 60))
    (tmp_path / "out.onnx").write_bytes(model.SerializeToString())
    assert count_file(tmp_path / "out.onnx") == count_file(tmp_path / "m.onnx")


# ---- what is not known ----


def test_custom_operations_are_unknown_and_widen(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("FlashThing", ["h"], ["z"], domain="ours"),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    path = file(tmp_path / "m.onnx", nodes, {"x": (4, 64)}, [weight("w", 64, 64)])
    found = count_file(path)
    assert "ours.FlashThing" in found.unknown and found.family == "other"
    known = memory.estimate(onnx_model.read(perceptron(tmp_path / "k.onnx"), 8, {}), 8, "adam", False)
    unknown = memory.estimate(onnx_model.read(path, 8, {}), 8, "adam", False)
    assert unknown.high / unknown.value > known.high / known.value


@pytest.mark.parametrize(("size", "remedy"), [("length", "--dim length=N"), (None, "--dim x.1=N"), (0, "--dim x.1=N")])
def test_other_free_dimensions_are_named_with_the_fix(tmp_path: Path, size: int | str | None, remedy: str) -> None:
    path = file(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": (4, size)})
    with pytest.raises(GraphError) as error_info:
        onnx_model.read(path, 4, {})
    assert str(error_info.value) == f"dimension 1 of input 'x' is dynamic: give it with {remedy}"
    name = remedy.split()[1].partition("=")[0]
    assert onnx_model.read(path, 4, {name: 32}).tensors["y"].shape == (4, 32)
    with pytest.raises(GraphError, match=r"m.onnx' has no free dimension 'nope': leave out --dim nope=N"):
        onnx_model.read(path, 4, {name: 32, "nope": 3})


# ---- files that are none ----


def test_subgraphs(tmp_path: Path) -> None:
    """A few deep they are counted and unknown, as it is not known how often they run; many deep they are refused."""
    inputs = {"x": (4, 8), "c": (1,)}
    for depth in (2, 18):
        node = helper.make_node("Relu", ["x"], ["y"])
        for level in range(depth):
            out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
            inner = helper.make_graph([node], "g", [], [out])
            branches = {"then_branch": inner} if level > 2 else {"then_branch": inner, "else_branch": inner}
            node = helper.make_node("If", ["c"], ["y"], **branches)
        file(tmp_path / f"{depth}.onnx", [node], inputs)
    assert "If" in count_file(tmp_path / "2.onnx", 4).unknown
    with pytest.raises(GraphError, match="subgraphs 16 deep"):
        onnx_model.read(tmp_path / "18.onnx", 4, {})


def test_a_file_of_ten_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    with path.open("wb") as made:
        made.truncate(10 << 30)
    with pytest.raises(
        GraphError, match=r"huge.onnx has 10.0 GiB, but an ONNX file has at most 2 GiB: save it with its weights"
    ):
        entry.read(Asked(str(path)))


@pytest.mark.parametrize("name", ["text", "empty", "noise", "cut", "elf"])
def test_files_that_are_no_models(tmp_path: Path, name: str) -> None:
    whole_ = perceptron(tmp_path / "whole.onnx").read_bytes()
    data = {
        "text": b"hello, world\n" * 9,
        "empty": b"",
        "noise": os.urandom(999),
        "cut": whole_[:-70],
        "elf": b"\x7fELF" * 99,
    }
    path = tmp_path / f"{name}.onnx"
    path.write_bytes(data[name])
    with pytest.raises(GraphError, match=f"{name}.onnx is not an ONNX model") as error_info:
        onnx_model.read(path, 1, {})
    assert "\n" not in str(error_info.value)


def test_sizes_that_no_device_has(tmp_path: Path) -> None:
    path = file(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": (1 << 40, 1 << 40)})
    with pytest.raises(GraphError, match="which is impossible"):
        onnx_model.read(path, 1, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_a_changed_file_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    """In its process, as the native code may do whatever it likes there: here only our own part sees it."""
    bytes_ = bytearray(attention(tmp_path / "m.onnx").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        bytes_[data.draw(st.integers(0, len(bytes_) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "changed.onnx"
    path.write_bytes(bytes(bytes_))
    answer: Any = None
    try:
        count_file(path, 4, length=16)
    except GraphError as error:
        answer = error
    assert answer is None or "\n" not in str(answer)


def test_in_its_process(tmp_path: Path) -> None:
    found = entry.read(Asked(str(perceptron(tmp_path / "m.onnx")), batch=8))
    assert found.counts == count_file(perceptron(tmp_path / "m.onnx"))


def test_the_reader_finds_vgpud_where_that_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that is not installed; what else lies there comes last."""
    root = Path(entry.__file__).parents[2]
    asked: list[list[str]] = []
    ran = entry._ran
    monkeypatch.setattr(entry, "_ran", lambda one, request, path: asked.append(path) or ran(one, request, path))
    monkeypatch.chdir(root)
    monkeypatch.setattr("sys.path", [str(root), *sys.path])
    entry.read(Asked(str(perceptron(tmp_path / "m.onnx"))))
    assert asked[0].index(str(root)) == len(asked[0]) - 1
