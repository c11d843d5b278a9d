"""A graph as the operations that features count, scaled to the batch that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from vgpud.predict import graph
from vgpud.predict.graph import Graph, Op, Role
from vgpud.predict.ops import Op as Counted

#: kind of the graph -> kind of features; a matmul is linear where one side is a parameter
_WORDS = {
    graph.CONV.name: "convolution",
    graph.ATTENTION.name: "attention",
    graph.RNN.name: "recurrent",
    graph.EMBEDDING.name: "embedding",
    graph.BATCH_NORM.name: "norm",
    graph.LAYER_NORM.name: "norm",
}
#: from a softmax back to the product of queries and keys: masks, scales and views are between them
_SCORES_AWAY = 8
#: with half precision, autocast keeps these in 32 bits
_FULL = (graph.LAYER_NORM, graph.SOFTMAX)
#: names of unknown operations that are listed
UNKNOWN_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Counts:
    """What a graph has, for a batch."""

    ops: tuple[Counted, ...]
    batch: int
    inputs: int  # elements of one sample
    outputs: int
    family: str
    unknown: tuple[str, ...] = ()  # operations whose cost is a guess


@dataclass(slots=True)
class Sizes:
    """Elements and bytes of a graph's tensors at a batch and a precision (half: as autocast has them)."""

    graph: Graph
    batch: int
    half: bool = False
    _items: dict[str, int] = field(default_factory=dict)
    _ratio: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        self._ratio = Fraction(self.batch, self.graph.batch)
        if not self.half:
            return
        for op in self.graph.ops:
            floats = [n for n in op.outputs if self.graph.tensors[n].floating]
            if op.kind in graph.CONTRACTIONS:
                width = 2
            elif op.kind in _FULL or op.kind is graph.EMBEDDING:
                width = 4
            else:
                given = [self.item(n) for n in op.inputs if self._wide(n)]
                width = max(given, default=4)
            self._items.update((name, min(width, self.graph.tensors[name].item_bytes)) for name in floats)

    def _wide(self, name: str) -> bool:
        """Whether a tensor's width passes on to what is made with it: scalars do not widen."""
        tensor = self.graph.tensors[name]
        return tensor.floating and (bool(tensor.shape) or tensor.role is Role.VALUE)

    def item(self, name: str) -> int:
        return self._items.get(name, self.graph.tensors[name].item_bytes)

    def elements(self, name: str) -> int:
        elements = self.graph.tensors[name].elements
        return int(elements * self._ratio) if name in self.graph.batch_scaled_names else elements

    def size_bytes(self, name: str) -> int:
        return self.elements(name) * self.item(name)


def count(model_graph: Graph, batch: int, half: bool = False) -> Counts:
    """Operations of the forward pass over a batch. Parameters are counted where they are first used."""
    counter = _Counter(model_graph, Sizes(model_graph, batch, half))
    ops = tuple(counter.count_op(op) for op in model_graph.ops if op.kind.forward_kernels)
    given = [name for name, tensor in model_graph.tensors.items() if tensor.role is Role.INPUT]
    produced = next((op.outputs for op in reversed(model_graph.ops) if op.kind.forward_kernels and op.outputs), ())
    unknown = tuple(dict.fromkeys(op.name for op in model_graph.ops if op.kind is graph.UNKNOWN))
    return Counts(
        ops,
        batch,
        sum(counter.sizes.elements(name) for name in given) // batch,
        sum(counter.sizes.elements(name) for name in produced[:1]) // batch,
        family(model_graph),
        unknown[:UNKNOWN_SHOWN_MAX],
    )


class _Counter:
    """One graph at one batch."""

    def __init__(self, model_graph: Graph, sizes: Sizes) -> None:
        self.model_graph = model_graph
        self.sizes = sizes
        self.ratio = Fraction(sizes.batch, model_graph.batch)
        self.scores = {id(op) for op in _find_attention_softmaxes(model_graph)}
        self.kept_names = {name for op in model_graph.ops for name in model_graph.kept_by(op)}
        self.order = {name: number for number, name in enumerate(model_graph.tensors)}
        self.used: set[str] = set()

    def count_op(self, op: Op) -> Counted:
        parameters = [
            n
            for n in dict.fromkeys(map(self.model_graph.root, op.inputs))
            if self.model_graph.role(n) is Role.PARAMETER
        ]
        # as the model defines them: a weight before its bias, whatever the operation takes first
        new = sorted((name for name in parameters if name not in self.used), key=self.order.__getitem__)
        self.used.update(new)
        outputs = sum(self.sizes.elements(name) for name in op.outputs)
        grown = any(name in self.model_graph.batch_scaled_names for name in op.outputs)
        flops = int(op.flops * self.ratio) if grown else op.flops
        moved = sum(self.sizes.size_bytes(name) for name in (*op.inputs, *op.outputs))
        if op.kind is graph.EMBEDDING:  # only the rows that are looked up
            moved = 2 * sum(self.sizes.size_bytes(name) for name in op.outputs)
        return Counted(
            "attention" if id(op) in self.scores else _word(op, bool(parameters)),
            outputs,
            flops or op.kind.work * outputs,
            moved,
            tuple(self.model_graph.tensors[name].elements for name in new),
            op.kind.forward_kernels * op.steps,
            any(self.model_graph.root(name) in self.kept_names for name in op.outputs),
        )


def _word(op: Op, has_weights: bool) -> str:
    if op.kind is graph.MATMUL:
        return "linear" if has_weights else "matmul"
    return _WORDS.get(op.kind.name, op.kind.name)


def family(model_graph: Graph) -> str:
    """The class of models that it is of, by the operations that it has: rnn, transformer, cnn, mlp or other."""
    op_kinds = {op.kind for op in model_graph.ops}
    if graph.RNN in op_kinds:
        return "rnn"
    if graph.ATTENTION in op_kinds or any(_find_attention_softmaxes(model_graph)):
        return "transformer"
    if graph.CONV in op_kinds:
        return "cnn"
    weighted = any(model_graph.role(n) is Role.PARAMETER for op in model_graph.ops for n in op.inputs)
    return "mlp" if graph.MATMUL in op_kinds and weighted and graph.UNKNOWN not in op_kinds else "other"


def _find_attention_softmaxes(model_graph: Graph) -> Iterator[Op]:
    """The softmax of each attention that is written out: its scores are a product of two activations."""
    maker = {name: op for op in model_graph.ops for name in op.outputs}
    for op in model_graph.ops:
        if op.kind is not graph.SOFTMAX:
            continue
        before, away = op, 0
        while before.kind is not graph.MATMUL and away < _SCORES_AWAY:
            found = [maker[name] for name in before.inputs if name in maker]
            if not found:
                break
            before, away = found[0], away + 1
        if before.kind is graph.MATMUL and not any(model_graph.role(n) is Role.PARAMETER for n in before.inputs):
            yield op
