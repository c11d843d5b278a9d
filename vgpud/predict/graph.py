"""A model's forward pass as operations on tensors with shapes: what every kind of model file becomes.

Readers (torch_pt2, torch_trace, onnx_model) make a Graph, graph_counts counts it, memory walks it. Shapes are those of
`batch` examples; what depends on an input grows with the batch that is asked for, parameters do not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from vgpud.errors import ExitCode, VgpudError

#: more of these than any model that trains on one device has: what a hostile file may cost
OPS_MAX = 200_000
TENSORS_MAX = 600_000
RANK_MAX = 16
#: elements of one tensor; a product of a few hostile dimensions is far beyond
ELEMENTS_MAX = 1 << 50

FLOATS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
ITEM_BYTES = {**FLOATS, "complex128": 16, "complex64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "bool": 1}


class GraphError(VgpudError):
    """An unreadable or invalid model: one line that names the error and the remedy."""

    exit_code = ExitCode.USAGE


def refuse_unused(model: str, names: set[str]) -> None:
    """Raises GraphError for names of --dim that the model does not have: the figures would be wrong."""
    if names:
        raise GraphError(f"{label(model)} has no free dimension {label(min(names))}: leave out --dim {min(names)}=N")


class Role(Enum):
    """What a tensor is to a training step."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    VALUE = "value"


class Keeps(Enum):
    """What an operation keeps until its backward pass."""

    NOTHING = "nothing"
    INPUT = "input"  # its first one
    INPUTS = "inputs"  # all that are no parameters
    FACTORS = "factors"  # each input that another one's gradient is multiplied by
    OUTPUT = "output"
    MASK = "mask"  # a byte for each element of the output
    PLACES = "places"  # its first input, and eight bytes for each element of the output
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Kind:
    """A class of operations that cost alike. Kernels are those of PyTorch's eager mode, for each operation."""

    name: str
    keeps: Keeps
    forward_kernels: int  # kernels
    backward: int
    work: int = 1  # FLOPs for each element of the output, where the operation has no count of its own


CONV = Kind("convolution", Keeps.INPUTS, 1, 3)
MATMUL = Kind("matmul", Keeps.INPUTS, 1, 2)
ATTENTION = Kind("attention", Keeps.ALL, 1, 2)
RNN = Kind("rnn", Keeps.ALL, 6, 9)
EMBEDDING = Kind("embedding", Keeps.NOTHING, 1, 1, work=0)
BATCH_NORM = Kind("batch norm", Keeps.INPUT, 1, 1, work=4)
LAYER_NORM = Kind("layer norm", Keeps.INPUT, 1, 2, work=5)
SOFTMAX = Kind("softmax", Keeps.OUTPUT, 1, 1, work=5)
ACTIVATION = Kind("activation", Keeps.OUTPUT, 1, 1)
CLIP = Kind("clip", Keeps.INPUT, 1, 1)
SMOOTH = Kind("smooth activation", Keeps.INPUT, 1, 1, work=8)
DROPOUT = Kind("dropout", Keeps.MASK, 1, 1)
MAX_POOL = Kind("max pooling", Keeps.PLACES, 1, 1)
POOL = Kind("pooling", Keeps.INPUT, 1, 1)
PRODUCT = Kind("product", Keeps.FACTORS, 1, 2)
CHOICE = Kind("choice", Keeps.INPUT, 1, 1)
POINTWISE = Kind("pointwise", Keeps.NOTHING, 1, 1)
CURVE = Kind("function", Keeps.INPUT, 1, 1, work=4)
REDUCE = Kind("reduction", Keeps.NOTHING, 1, 1)
COPY = Kind("copy", Keeps.NOTHING, 1, 1, work=0)
VIEW = Kind("view", Keeps.NOTHING, 0, 0, work=0)
SHAPE = Kind("shape", Keeps.NOTHING, 0, 0, work=0)  # no tensor of the device's: sizes, constants
UNKNOWN = Kind("unknown", Keeps.ALL, 1, 2)

#: what autocast computes in 16 bits, from copies of its inputs
CONTRACTIONS = (CONV, MATMUL, ATTENTION, RNN)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor by what it costs."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    role: Role = Role.VALUE

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def floating(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of the forward pass; tensors by name, `flops` = 0: by its kind."""

    name: str  # as its file calls it
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int = 0
    in_place: bool = False
    steps: int = 1  # of a recurrence: its kernels are launched so many times


@dataclass(slots=True)
class Graph:
    """A model. `batch_scaled_names`: the tensors that grow with the batch, as they come from an input.

    `roots`: views and what was written in place -> the tensor whose memory they are in.
    """

    batch: int  # examples that the shapes are of
    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    batch_scaled_names: set[str] = field(default_factory=set)
    roots: dict[str, str] = field(default_factory=dict)

    def tensor(self, name: str, tensor: Tensor) -> None:
        """Adds a tensor. Raises GraphError if it is invalid."""
        if len(tensor.shape) > RANK_MAX or any(size < 0 for size in tensor.shape) or tensor.elements > ELEMENTS_MAX:
            raise GraphError(f"tensor {label(name)} has the shape {label(list(tensor.shape))}, which is impossible")
        if len(self.tensors) >= TENSORS_MAX:
            raise GraphError(f"the model has more than {TENSORS_MAX} tensors: predict a part of it")
        self.tensors[name] = tensor
        if tensor.role is Role.INPUT:
            self.batch_scaled_names.add(name)

    def op(self, op: Op) -> None:
        """Adds the next operation; its tensors are known."""
        if len(self.ops) >= OPS_MAX:
            raise GraphError(f"the model has more than {OPS_MAX} operations: predict a part of it")
        self.ops.append(op)
        if any(name in self.batch_scaled_names for name in op.inputs):
            self.batch_scaled_names.update(op.outputs)
        if op.inputs and (op.kind is VIEW or op.in_place):
            self.roots.update((name, self.root(op.inputs[0])) for name in op.outputs)

    def root(self, name: str) -> str:
        return self.roots.get(name, name)

    def role(self, name: str) -> Role:
        """Its own, or that of the tensor that it is a view of."""
        return self.tensors[self.root(name)].role

    def kept_by(self, op: Op) -> list[str]:
        """The tensors that an operation keeps for its backward pass, by the memory that they are in; no parameters."""
        names: list[str] = []
        if op.kind.keeps in (Keeps.INPUT, Keeps.PLACES):
            names += op.inputs[:1]
        if op.kind.keeps in (Keeps.INPUTS, Keeps.ALL):
            names += op.inputs
        if op.kind.keeps in (Keeps.OUTPUT, Keeps.ALL):
            names += op.outputs
        if op.kind.keeps is Keeps.FACTORS:
            names += self._factors(op)
        roots = dict.fromkeys(map(self.root, names))
        return [name for name in roots if self.tensors[name].role is not Role.PARAMETER]

    def _factors(self, op: Op) -> Iterator[str]:
        """A number or a constant has no gradient, so what it is multiplied with need not be kept."""
        for place, name in enumerate(op.inputs):
            others = (*op.inputs[:place], *op.inputs[place + 1 :])
            if any(self.tensors[n].floating and self.role(n) is not Role.BUFFER for n in others):
                yield name

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        return [self.tensors[name] for name in names]


def label(what: object) -> str:
    """Untrusted text for a message: short, quoted, without control characters."""
    text = ascii(what)
    return text if len(text) <= 60 else f"{text[:57]}..."


def convolution_flops(data: Tensor, weight: Tensor, output: Tensor) -> int:
    """Two for each multiply-add; a transposed one works on the elements of its input."""
    widened = math.prod(output.shape[2:]) > math.prod(data.shape[2:])
    return 2 * (data if widened else output).elements * math.prod(weight.shape[1:])


def matmul_flops(left_factor: Tensor, output: Tensor, inner: int | None = None) -> int:
    """Two for each multiply-add: as many as `inner` (else the last dimension of the left) for each of the output."""
    return 2 * output.elements * (inner if inner is not None else left_factor.shape[-1] if left_factor.shape else 1)


def attention_flops(query: Tensor, key: Tensor, value: Tensor) -> int:
    """Scores and their product with the values, [..., length, size] each."""
    if min(len(query.shape), len(key.shape), len(value.shape)) < 2:
        return 0
    return 2 * math.prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1])


def recurrent_flops(data: Tensor, weights: Sequence[Tensor]) -> int:
    """Each weight is used at each step of each sequence, which is the data without its last dimension."""
    return 2 * math.prod(data.shape[:-1]) * sum(weight.elements for weight in weights if len(weight.shape) > 1)
