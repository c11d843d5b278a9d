"""Sizes that an ONNX graph computes from shapes: folded to constants, so that inference knows every shape.

Exporters write a reshape to "batch x length x -1" as a dozen small operations on whole numbers. Those, and nothing that
is large or floating, are computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, numpy_helper

from vgpud.predict.onnx_ops import DOMAINS

#: each round of inference lets more be folded
ROUNDS_MAX = 12
ELEMENTS_MAX = 256

Values = NDArray[Any]


def infer(model: ModelProto) -> GraphProto:
    """The graph with the shapes that can be inferred, by turns with folding."""
    for _ in range(ROUNDS_MAX):
        body = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        if not _fold(model.graph, _shapes(body)):
            break
    return body


def _shapes(body: GraphProto) -> dict[str, tuple[int, ...]]:
    """Of every tensor that is known whole."""
    found = {tensor.name: tuple(tensor.dims) for tensor in body.initializer}
    for one in (*body.input, *body.value_info, *body.output):
        shape = one.type.tensor_type.shape
        if one.type.tensor_type.HasField("shape") and all(size.HasField("dim_value") for size in shape.dim):
            found.setdefault(one.name, tuple(size.dim_value for size in shape.dim))
    return found


def _fold(body: GraphProto, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Replaces what can be computed by initializers; whether there was anything."""
    values = {t.name: array for t in body.initializer if (array := _read_integers(t)) is not None}
    left: list[NodeProto] = []
    for node in body.node:
        array = _compute_output(node, values, shapes)
        if array is None:
            left.append(node)
            continue
        values[node.output[0]] = array
        body.initializer.append(numpy_helper.from_array(array, node.output[0]))
    folded = len(left) < len(body.node)
    if folded:
        del body.node[:]
        body.node.extend(left)
    return folded


def _read_integers(tensor: onnx.TensorProto) -> Values | None:
    """A small tensor of whole numbers."""
    elements = 1
    for size in tensor.dims:
        elements *= size
    integer_types = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL)
    if (
        elements > ELEMENTS_MAX
        or elements < 0
        or tensor.data_type not in integer_types
        or tensor.HasField("data_location")
    ):
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return None  # its numbers are not there


def _compute_output(
    node: NodeProto, values: Mapping[str, Values], shapes: Mapping[str, tuple[int, ...]]
) -> Values | None:
    """What it makes, where that is a few whole numbers that follow from what is known."""
    if node.domain not in DOMAINS or len(node.output) != 1:
        return None
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "Constant":
        return _read_integers(attributes["value"].t) if "value" in attributes else None
    if node.op_type == "Shape":
        shape = shapes.get(node.input[0])
        if shape is None:
            return None
        start, end = (attributes[n].i if n in attributes else None for n in ("start", "end"))
        return np.array(shape[start:end], np.int64)
    function = _FUNCTIONS.get(node.op_type)
    if function is None or not node.input or any(name and name not in values for name in node.input):
        return None
    try:
        given = [values[name] if name else None for name in node.input]
        with np.errstate(all="ignore"):
            made = np.asarray(function(given, attributes))
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, OverflowError):
        return None
    return made if made.size <= ELEMENTS_MAX and made.dtype.kind in "ib" else None


Function = Callable[[Sequence[Any], Mapping[str, Any]], Any]


def _axis(attributes: Mapping[str, Any]) -> int:
    return attributes["axis"].i if "axis" in attributes else 0


def _axes(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[int]:
    return [int(x) for x in inputs[1]] if len(inputs) > 1 else list(attributes["axes"].ints)


def _divide(inputs: Sequence[Any], _attributes: Mapping[str, Any]) -> Any:
    """Whole numbers are cut towards zero."""
    return (np.sign(inputs[0]) * np.sign(inputs[1]) * (np.abs(inputs[0]) // np.abs(inputs[1]))).astype(np.int64)


def _unsqueeze(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    return np.expand_dims(inputs[0], tuple(_axes(inputs, attributes)))


def _squeeze(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    axes = _axes(inputs, attributes) if len(inputs) > 1 or "axes" in attributes else None
    return np.squeeze(inputs[0], None if axes is None else tuple(axes))


def _slice_sizes(inputs: Sequence[Any], _attributes: Mapping[str, Any]) -> Any:
    """Of one dimension, as sizes are."""
    data, start, end = inputs[:3]
    if data.ndim != 1:
        raise ValueError("of one dimension only")
    step = int(inputs[4][0]) if len(inputs) > 4 and inputs[4] is not None else 1
    return data[int(start[0]) : int(end[0]) : step]


def _fill_constant(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    if int(np.prod(inputs[0])) > ELEMENTS_MAX:
        raise ValueError("too large to be a size")
    value = numpy_helper.to_array(attributes["value"].t) if "value" in attributes else np.zeros(1)
    return np.full([int(x) for x in inputs[0]], value.reshape(-1)[0])


def _make_range(inputs: Sequence[Any], _attributes: Mapping[str, Any]) -> Any:
    start, end, step = (int(x) for x in inputs)
    if abs(end - start) > ELEMENTS_MAX * abs(step):
        raise ValueError("too large to be a size")
    return np.arange(start, end, step, dtype=np.int64)


def _cast(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Between whole numbers; a size that goes through floats is not followed."""
    numpy_types = {onnx.TensorProto.INT64: np.int64, onnx.TensorProto.INT32: np.int32, onnx.TensorProto.BOOL: np.bool_}
    return inputs[0].astype(numpy_types[attributes["to"].i])


def _pair(function: Callable[[Any, Any], Any]) -> Function:
    return lambda given, _attributes: function(given[0], given[1])


_FUNCTIONS: dict[str, Function] = {
    "Add": _pair(np.add),
    "Sub": _pair(np.subtract),
    "Mul": _pair(np.multiply),
    "Div": _divide,
    "Mod": _pair(np.mod),
    "Equal": _pair(np.equal),
    "Max": _pair(np.maximum),
    "Min": _pair(np.minimum),
    "Gather": lambda given, attributes: np.take(given[0], given[1], _axis(attributes)),
    "Concat": lambda given, attributes: np.concatenate(given, _axis(attributes)),
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice_sizes,
    "Cast": _cast,
    "Identity": lambda given, _attributes: given[0],
    "Where": lambda given, _attributes: np.where(given[0], given[1], given[2]),
    "Reshape": lambda given, _attributes: np.reshape(given[0], [int(x) for x in given[1]]),
    "ReduceProd": lambda given, _attributes: np.array([np.prod(given[0])]),
    "ConstantOfShape": _fill_constant,
    "Range": _make_range,
}
