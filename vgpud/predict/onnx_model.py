"""An ONNX file read as data: weights are dropped, shapes inferred, files beside it (external data) never opened.

Only ever imported in the child process that graph_reading starts: the inference is native code on a foreign file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from vgpud.predict import graph, onnx_ops, onnx_sizes
from vgpud.predict.graph import ITEM_BYTES, Graph, GraphError, Role, Tensor, label, refuse_unused

#: a protobuf message holds no more
FILE_BYTES_MAX = 2**31 - 1
#: of subgraphs in subgraphs
NESTING_MAX = 16


def read(path: Path, batch: int, dims: Mapping[str, int]) -> Graph:
    """The model's graph, with `batch` examples where its first dimension is free. Raises GraphError."""
    model = _parse_file(path)
    body = model.graph
    if not body.node:
        raise GraphError(f"{path.name} is not an ONNX model: it has no operations")
    weights = {tensor.name for tensor in body.initializer}
    inputs = [one for one in body.input if one.name not in weights]
    _strip(body, 0)
    made = Graph(_settle(path.name, inputs, batch, dims))
    body.ClearField("value_info")
    for output in body.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        body = onnx_sizes.infer(model)
    except Exception as error:  # whatever the native code makes of it
        raise GraphError(f"{path.name} has shapes that do not fit together: {label(str(error))}") from error
    _Reader(path.name, body, {one.name for one in inputs}).read(made)
    return made


def _parse_file(path: Path) -> ModelProto:
    try:
        size = os.stat(path).st_size
        if size > FILE_BYTES_MAX:
            text = f"{path.name} has {size / 2**30:.1f} GiB, but an ONNX file has at most 2 GiB"
            raise GraphError(f"{text}: save it with its weights beside it (save_as_external_data=True)")
        return onnx.load(str(path), format="protobuf", load_external_data=False)
    except (DecodeError, ValueError, EOFError, RecursionError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(f"{path.name} is not an ONNX model: {label(str(error))}") from error
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error


def _strip(body: GraphProto, depth: int) -> None:
    """Drops the weights' numbers, here and in subgraphs: what is left is small, whatever the file was."""
    if depth > NESTING_MAX:
        raise GraphError(f"the model has subgraphs {NESTING_MAX} deep: predict a part of it")
    if depth and len(body.node) > graph.OPS_MAX:
        raise GraphError(f"the model has more than {graph.OPS_MAX} operations: predict a part of it")
    for tensor in body.initializer:
        _drop(tensor)
    for node in body.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _drop(attribute.t)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _strip(inner, depth + 1)


def _drop(tensor: TensorProto) -> None:
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    elements = 1
    for size in tensor.dims:
        elements *= size
    if elements > onnx_sizes.ELEMENTS_MAX or elements < 0:
        for name in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
            tensor.ClearField(name)


def _settle(name: str, inputs: list[ValueInfoProto], batch: int, dims: Mapping[str, int]) -> int:
    """Gives every free dimension of the inputs its number; returns the batch that the shapes are of."""
    found: list[int] = []
    given, unused = dict(dims), set(dims)
    for one in inputs:
        shape = one.type.tensor_type.shape
        for index, size in enumerate(shape.dim):
            symbol = size.dim_param or f"{one.name}.{index}"
            if not size.HasField("dim_value") or size.dim_value < 1:
                unused.discard(symbol)
                if index == 0 and symbol not in given:
                    given[symbol] = batch
                if symbol not in given:
                    where = f"dimension {index} of input {label(one.name)}"
                    raise GraphError(f"{where} is dynamic: give it with --dim {_word(symbol)}=N")
                size.dim_value = given[symbol]
            if index == 0:
                found.append(size.dim_value)
    if not found:
        raise GraphError(f"{name} has no input with a batch dimension")
    refuse_unused(name, unused)
    return found[0]


def _word(symbol: str) -> str:
    return symbol if symbol.isprintable() and symbol.isascii() and len(symbol) <= 60 else label(symbol)


class _Reader:
    """One model whose shapes are known."""

    def __init__(self, name: str, body: GraphProto, inputs: set[str]) -> None:
        self.name = name
        self.body = body
        self.inputs = inputs

    def read(self, model_graph: Graph) -> None:
        norms = [node for node in self.body.node if node.op_type == "BatchNormalization"]
        means = {name for node in norms for name in node.input[3:5]}
        for given in self.body.initializer:
            tensor = Tensor(tuple(given.dims), _dtype(given.data_type))
            role = Role.BUFFER if given.name in means else _role(tensor)
            model_graph.tensor(given.name, Tensor(tensor.shape, tensor.dtype, role))
        constants = {name for node in self.body.node if node.op_type == "Constant" for name in node.output}
        for one in (*self.body.input, *self.body.value_info, *self.body.output):
            if one.name not in model_graph.tensors and one.type.HasField("tensor_type"):
                shape = one.type.tensor_type.shape.dim
                if all(size.HasField("dim_value") for size in shape) and one.type.tensor_type.HasField("shape"):
                    tensor = Tensor(tuple(size.dim_value for size in shape), _dtype(one.type.tensor_type.elem_type))
                    role = Role.INPUT if one.name in self.inputs else Role.VALUE
                    role = _role(tensor) if one.name in constants else role
                    model_graph.tensor(one.name, Tensor(tensor.shape, tensor.dtype, role))
        for node in self.body.node:
            self._node(model_graph, node, 0)

    def _node(self, model_graph: Graph, node: NodeProto, depth: int) -> None:
        inputs = [name for name in node.input if name in model_graph.tensors]
        outputs = [name for name in node.output if name]
        kind = onnx_ops.kind_of(node.op_type, node.domain)
        for name in outputs:
            if name not in model_graph.tensors:  # nothing is known of it: as large as what it is made from
                alike = model_graph.tensors[inputs[0]] if inputs else Tensor(())
                model_graph.tensor(name, Tensor(alike.shape, alike.dtype))
                if kind is not graph.SHAPE and kind is not graph.VIEW:
                    kind = graph.UNKNOWN
        if node.op_type == "Gather" and node.domain in onnx_ops.DOMAINS:
            kind = self._gather(model_graph, inputs)
        for inner in _subgraphs(node):
            for name in (*(one.name for one in inner.input), *(one.name for one in inner.initializer)):
                model_graph.tensors.setdefault(name, Tensor(()))
            for child in inner.node:
                self._node(model_graph, child, depth + 1)
        flops = _flops(node, kind, model_graph.get_tensors(inputs), model_graph.get_tensors(outputs))
        steps = _steps(kind, model_graph.get_tensors(inputs))
        model_graph.op(graph.Op(_name(node), kind, tuple(inputs), tuple(outputs), flops, steps=steps))

    @staticmethod
    def _gather(model_graph: Graph, inputs: list[str]) -> graph.Kind:
        """A table of weights that is looked up is an embedding; of anything else it is a copy."""
        table = bool(inputs) and model_graph.tensors[inputs[0]].role is Role.PARAMETER
        return graph.EMBEDDING if table else graph.COPY


def _role(tensor: Tensor) -> Role:
    """Of what is in the file: tables of numbers are trained, single numbers and whole ones are constants."""
    return Role.PARAMETER if tensor.floating and tensor.shape and tensor.elements > 1 else Role.BUFFER


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _name(node: NodeProto) -> str:
    return node.op_type if node.domain in onnx_ops.DOMAINS else f"{node.domain}.{node.op_type}"


def _dtype(number: int) -> str:
    """Of ONNX's type; what is narrower than a byte is counted as one."""
    try:
        name = TensorProto.DataType.Name(number).lower()
    except ValueError:
        return "float32"
    names = {"float": "float32", "double": "float64", "string": "int64"}
    name = names.get(name, "float8" if name.startswith("float8") else name.removeprefix("u"))
    return name if name in ITEM_BYTES else "int8"


def _flops(node: NodeProto, kind: graph.Kind, inputs: list[Tensor], outputs: list[Tensor]) -> int:
    if not inputs or not outputs:
        return 0
    if kind is graph.CONV and len(inputs) > 1:
        return graph.convolution_flops(inputs[0], inputs[1], outputs[0])
    if kind is graph.ATTENTION and len(inputs) > 2:
        return graph.attention_flops(*inputs[:3])
    if kind is graph.RNN:
        return graph.recurrent_flops(inputs[0], inputs[1:3])
    if kind is graph.MATMUL:
        turned = any(a.name == "transA" and a.i for a in node.attribute)
        return graph.matmul_flops(inputs[0], outputs[0], inputs[0].shape[0] if turned and inputs[0].shape else None)
    return 0


def _steps(kind: graph.Kind, inputs: list[Tensor]) -> int:
    """ONNX's recurrences are over [time, batch, size]."""
    return max(1, inputs[0].shape[0]) if kind is graph.RNN and inputs and inputs[0].shape else 1
