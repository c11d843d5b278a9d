"""Peak memory of a training step, from the graph alone: DNNMem's way (Gao et al., ESEC/FSE'20).

The step is walked tensor by tensor against PyTorch's caching allocator: weights, what the forward pass keeps for the
backward pass, gradients as they come and go, the optimizer's states and temporaries, libraries' workspaces. A context
comes on top. The interval covers effects that no graph shows: cuDNN's workspaces, when Python frees a tensor,
fragmentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from vgpud.predict import graph
from vgpud.predict.allocator import MIB, WORKSPACE, Allocator, Block
from vgpud.predict.graph import Graph, Keeps, Op, Role
from vgpud.predict.graph_counts import Sizes

#: of an optimizer's states: so many numbers for each parameter
STATES = {"none": 0, "sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2}
#: those that work on all parameters at once and need one more of each while they do
_FOREACH = ("adam", "adamw", "rmsprop")
#: cuDNN picks an algorithm by speed: up to so much for a convolution, and seldom more than its operands' sizes
_CONV_WORKSPACE_MAX = 256 * MIB
#: halves: of a recurrence's gates, with the states that go with them
_RESERVE_PARTS = 3
#: between the ends of the interval, of what is not context
_LOW, _HIGH = 0.9, 1.15
#: ... and for a graph with unknown operations
_HIGH_UNKNOWN = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the device at the peak, without the context, and between which ones they are most likely."""

    low: int
    value: int
    high: int
    kept_bytes: int = 0  # of these: activations, inputs among them, that wait for the backward pass


def estimate(model_graph: Graph, batch: int, optimizer: str, half: bool) -> Estimate:
    """The peak of a step with this optimizer; `half`: as torch.autocast has it, weights in 32 bits."""
    sizes = Sizes(model_graph, batch, half)
    walk = _Walk(model_graph, sizes, optimizer)
    value = walk.run()
    convolutions = [op for op in model_graph.ops if op.kind is graph.CONV]
    workspace = min(
        _CONV_WORKSPACE_MAX,
        max((sum(sizes.size_bytes(n) for n in (*op.inputs, *op.outputs)) for op in convolutions), default=0),
    )
    unknown = any(op.kind is graph.UNKNOWN for op in model_graph.ops)
    high = (value + workspace) * (_HIGH_UNKNOWN if unknown else _HIGH)
    return Estimate(int(walk.peak * _LOW), value, int(high), walk.kept_bytes)


class _Walk:
    """One step. Tensors are known by the name of the memory that they are in."""

    def __init__(self, model_graph: Graph, sizes: Sizes, optimizer: str) -> None:
        self.model_graph = model_graph
        self.sizes = sizes
        self.optimizer = optimizer
        self.training = optimizer != "none"
        self.memory = Allocator()
        self.blocks: dict[str, Block] = {}
        self.held = 0  # bytes in blocks
        self.peak = 0
        self.kept_bytes = 0
        self.bytes: dict[str, int] = {}
        self.gradient_names = set(_find_gradient_names(model_graph)) if self.training else set()

    def run(self) -> int:
        """What the allocator has reserved in the end."""
        for name, tensor in self.model_graph.tensors.items():
            if tensor.role is not Role.VALUE and self.model_graph.root(name) == name:
                self._take(name, self.sizes.size_bytes(name))
        kept = self._run_forward_pass()
        if self.training:
            self._backward(kept)
            self._update()
        return self.memory.reserved

    def _take(self, name: str, size: int) -> None:
        if name not in self.blocks and size:
            self.blocks[name] = self.memory.take(size)
            self.bytes[name] = size
            self.held += size
            self.peak = max(self.peak, self.held)

    def _give(self, name: str) -> None:
        if name in self.blocks:
            self.memory.give(self.blocks.pop(name))
            self.held -= self.bytes.pop(name)

    def _roots(self, names: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(map(self.model_graph.root, names)))

    def _run_forward_pass(self) -> list[tuple[str, ...]]:
        """Tensors that each operation keeps until its backward pass."""
        last = {name: number for number, op in enumerate(self.model_graph.ops) for name in self._roots(op.inputs)}
        kept: list[tuple[str, ...]] = []
        needed: set[str] = set()
        for number, op in enumerate(self.model_graph.ops):
            if op.kind in graph.CONTRACTIONS:
                self._take("workspace", WORKSPACE)
            for name in self._roots(op.outputs):
                self._take(name, self.sizes.size_bytes(name))
            kept.append(tuple(self._keep(number, op)) if self.gradient_names.intersection(op.outputs) else ())
            needed.update(kept[-1])
            for name in self._roots((*op.inputs, *op.outputs)):
                gone = last.get(name, len(self.model_graph.ops)) <= number and name not in needed
                if gone and self.model_graph.tensors[name].role is Role.VALUE:
                    self._give(name)
        self.kept_bytes = sum(self.bytes.get(name, 0) for name in needed)
        return kept

    def _keep(self, number: int, op: Op) -> Iterable[str]:
        outputs = sum(self.sizes.elements(name) for name in op.outputs[:1])
        for name in self.model_graph.kept_by(op):
            yield self._take_half_copy(name) if op.kind in graph.CONTRACTIONS else name
        more = {"mask": outputs, "places": 8 * outputs}.get(op.kind.keeps.value, 0)
        if op.in_place and op.kind.keeps is Keeps.INPUT:  # what it overwrites is copied first
            more = self.sizes.size_bytes(op.inputs[0])
        if op.kind is graph.RNN:
            more = self._reserve(op)
        if more:
            self._take(f"of {number}", more)
            yield f"of {number}"

    def _reserve(self, op: Op) -> int:
        """What cuDNN keeps of a recurrence: gates and states of each step and layer; two weights make a gate."""
        steps = (
            math.prod(self.model_graph.tensors[op.inputs[0]].shape[:-1]) * self.sizes.batch // self.model_graph.batch
        )
        weights = [
            t for t in self.model_graph.get_tensors(op.inputs[1:]) if t.role is Role.PARAMETER and len(t.shape) > 1
        ]
        gates = sum(tensor.shape[-2] for tensor in weights) // 2
        return steps * gates * (2 if self.sizes.half else 4) * _RESERVE_PARTS // 2

    def _take_half_copy(self, name: str) -> str:
        """Autocast keeps a copy in 16 bits where the tensor itself has 32."""
        if not self.sizes.half or not self.model_graph.tensors[name].floating or self.sizes.item(name) < 4:
            return name
        self._take(f"half {name}", self.sizes.size_bytes(name) // 2)
        return f"half {name}"

    def _backward(self, kept_names: list[tuple[str, ...]]) -> None:
        """Gradients of activations live from the last use of a tensor to its making, those of parameters stay."""
        first = {name: number for number in range(len(kept_names) - 1, -1, -1) for name in kept_names[number]}
        for number in range(len(kept_names) - 1, -1, -1):
            op = self.model_graph.ops[number]
            if self.gradient_names.intersection(op.outputs):
                for name in self._roots((*op.outputs, *op.inputs)):
                    if name in self.gradient_names:
                        self._take(f"gradient {name}", self.sizes.size_bytes(name))
                for name in self._roots(op.outputs):
                    if name not in self._roots(op.inputs) and self.model_graph.tensors[name].role is Role.VALUE:
                        self._give(f"gradient {name}")
            for name in kept_names[number]:
                if first[name] == number and self._passing(name):
                    self._give(name)

    def _passing(self, name: str) -> bool:
        tensor = self.model_graph.tensors.get(name)
        return tensor is None or tensor.role is Role.VALUE

    def _update(self) -> None:
        """States are made at the first step; temporaries of all parameters where the optimizer works on all at once."""
        parameters = [name for name, tensor in self.model_graph.tensors.items() if tensor.role is Role.PARAMETER]
        copies = [f"state {number}" for number in range(STATES[self.optimizer])]
        copies += ["temporary"] if self.optimizer in _FOREACH else []
        for copy in copies:
            for name in parameters:
                self._take(f"{copy} {name}", self.sizes.size_bytes(name))


def _find_gradient_names(model_graph: Graph) -> Iterable[str]:
    """The tensors that have a gradient: parameters, and floating ones that are made from such."""
    found = {name for name, tensor in model_graph.tensors.items() if tensor.role is Role.PARAMETER}
    for op in model_graph.ops:
        if any(name in found for name in op.inputs):
            found.update(name for name in op.outputs if model_graph.tensors[name].floating)
    return found
