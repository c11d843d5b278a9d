"""Peak memory of a training step, from the graph alone: DNNMem's way (Gao et al., ESEC/FSE'20).

Some steps are walked tensor by tensor against PyTorch's caching allocator: weights, what the forward pass keeps for the
backward pass, a loss, gradients as they come and go, the optimizer's states and temporaries, libraries' workspaces. A
context comes on top. The interval is conformal, by groups of models (benchmarks/predict/published.py): it covers what
no graph shows, such as the algorithms that cuDNN takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from vgpud.predict import convolution, graph
from vgpud.predict.allocator import WORKSPACE, Allocator, Block
from vgpud.predict.graph import Graph, Keeps, Kind, Op, Role
from vgpud.predict.graph_counts import Sizes

#: of an optimizer's states: so many numbers for each parameter
STATES = {"none": 0, "sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "adam": 2, "adamw": 2}
#: those that work on all parameters at once and need one more of each while they do
_FOREACH = ("adam", "adamw", "rmsprop")
#: halves: of a recurrence's gates, with the states that go with them
_RESERVE_PARTS = 3
#: the first makes the optimizer's states, the second needs its activations beside them, and from then on it repeats
_STEPS = 3
#: what stays from step to step: cuBLAS' workspaces of the two threads, and the answer before this one
_WORKSPACES, _OLD_ANSWER = "workspace", "old answer"
#: the answer is a number, so it is the loss
_LOSS_BYTES = 4
#: what was measured over what was replayed: at least (over the tensors alone), likely and at most, for graphs with
#: convolutions, for those with recurrences (never measured: the wider of the others), and for all others
_SPREADS = {graph.CONV: (0.89, 1.08, 1.4), graph.RNN: (0.89, 1.0, 1.4)}
_SPREAD = (0.95, 1.01, 1.15)
#: ... and at most for a graph with unknown operations
_HIGH_UNKNOWN = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes on the device at the peak, without the context, and between which ones they are most likely."""

    low: int
    value: int
    high: int
    kept_bytes: int = 0  # of these: activations, inputs among them, that wait for the backward pass
    replayed_bytes: int = 0  # what the allocator held in the replay: the interval is made from it


def estimate(model_graph: Graph, batch: int, optimizer: str, half: bool) -> Estimate:
    """The peak of training with this optimizer; `half`: as torch.autocast has it, weights in 32 bits."""
    walk = _Walk(model_graph, Sizes(model_graph, batch, half), optimizer)
    replayed_bytes = walk.run()
    low, value, high = find_spread(op.kind for op in model_graph.ops)
    return Estimate(
        int(low * walk.peak),  # no program does with less than its tensors, whatever its allocator's cache is
        int(value * replayed_bytes),
        int(high * replayed_bytes),
        walk.kept_bytes,
        replayed_bytes,
    )


def find_spread(kinds: Iterable[Kind]) -> tuple[float, float, float]:
    """What is measured over what is replayed: at least, likely and at most, for a graph of these operations."""
    there = set(kinds)
    low, value, high = next((spread for kind, spread in _SPREADS.items() if kind in there), _SPREAD)
    return low, value, max(high, _HIGH_UNKNOWN) if graph.UNKNOWN in there else high


class _Walk:
    """Some steps. Tensors are known by the name of the memory that they are in."""

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
        self.answer = _find_answer(model_graph)

    def run(self) -> int:
        """What the allocator has reserved in the end."""
        for name, tensor in self.model_graph.tensors.items():
            if tensor.role not in (Role.VALUE, Role.INPUT) and self.model_graph.root(name) == name:
                self._take(name, self.sizes.size_bytes(name))
        for number in range(_STEPS if self.training else 1):
            self._copy_inputs(number)
            self._give_each(self._find_held("gradient "))  # zero_grad sets them to none
            kept = self._run_forward_pass()
            self._give(_OLD_ANSWER)
            if self.training:
                self._take_loss()
                self._backward(kept)
                self._update()
            self._end_step()
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

    def _give_each(self, names: Iterable[str]) -> None:
        for name in names:
            self._give(name)

    def _take_briefly(self, name: str, size: int) -> None:
        """For as long as a kernel runs."""
        self._take(name, size)
        self._give(name)

    def _find_held(self, prefix: str) -> list[str]:
        return [name for name in self.blocks if name.startswith(prefix)]

    def _rename(self, old: str, new: str) -> None:
        if old in self.blocks:
            self.blocks[new], self.bytes[new] = self.blocks.pop(old), self.bytes.pop(old)

    def _roots(self, names: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(map(self.model_graph.root, names)))

    def _copy_inputs(self, number: int) -> None:
        """A program's variable holds the batch before until the next one is there."""
        names = [name for name, tensor in self.model_graph.tensors.items() if tensor.role is Role.INPUT]
        for name in names:
            self._rename(name, f"old {name}")
            self._take(name, self.sizes.size_bytes(name))
        self._give_each(f"old {name}" for name in names)

    def _end_step(self) -> None:
        """The answer lives until the next one is there; whatever else came from this step is gone."""
        if self.answer:
            self._rename(self.answer, _OLD_ANSWER)
        tensors = self.model_graph.tensors
        stay = ("gradient ", "state ", _WORKSPACES, _OLD_ANSWER)
        self._give_each(
            name
            for name in list(self.blocks)
            if not name.startswith(stay) and (name not in tensors or tensors[name].role is Role.VALUE)
        )

    def _run_forward_pass(self) -> list[tuple[str, ...]]:
        """Tensors that each operation keeps until its backward pass."""
        last = {name: number for number, op in enumerate(self.model_graph.ops) for name in self._roots(op.inputs)}
        kept: list[tuple[str, ...]] = []
        needed: set[str] = set()
        for number, op in enumerate(self.model_graph.ops):
            if op.kind in graph.CONTRACTIONS:
                self._take(f"{_WORKSPACES} forward", WORKSPACE)
            for name in self._roots(op.outputs):
                self._take(name, self.sizes.size_bytes(name))
            self._take_briefly("convolution", convolution.measure_copies(op, self.sizes))
            kept.append(tuple(self._keep(number, op)) if self.gradient_names.intersection(op.outputs) else ())
            needed.update(kept[-1])
            for name in self._roots((*op.inputs, *op.outputs)):
                gone = last.get(name, number) <= number and name not in needed and name != self.answer
                if gone and self.model_graph.tensors[name].role is Role.VALUE:
                    self._give(name)
        self.kept_bytes = sum(self.bytes.get(name, 0) for name in needed)
        return kept

    def _keep(self, number: int, op: Op) -> Iterable[str]:
        outputs = sum(self.sizes.elements(name) for name in op.outputs[:1])
        for name in self.model_graph.kept_by(op):
            yield self._take_half_copy(name) if op.kind in graph.CONTRACTIONS else name
        if self.sizes.half and op.kind in graph.CONTRACTIONS:
            for name in self._roots(op.inputs):
                if self.model_graph.tensors[name].role is Role.PARAMETER:
                    yield self._take_half_copy(name)
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

    def _take_loss(self) -> None:
        """A loss of the answer: logarithms of its probabilities and their gradient, beside the answer's own, in 32 bits
        (an answer of one number is the loss itself)."""
        size = self.sizes.elements(self.answer) * 4 if self.answer in self.gradient_names else 0
        if self.answer and size > _LOSS_BYTES:
            self._take("loss", size)
            self._take("gradient of the loss", size)
            self._take(f"gradient {self.answer}", self.sizes.size_bytes(self.answer))
            self._give_each(("gradient of the loss", "loss"))

    def _backward(self, kept_names: list[tuple[str, ...]]) -> None:
        """Gradients of activations live from the last use of a tensor to its making, those of parameters stay."""
        first = {name: number for number in range(len(kept_names) - 1, -1, -1) for name in kept_names[number]}
        for number in range(len(kept_names) - 1, -1, -1):
            op = self.model_graph.ops[number]
            if self.gradient_names.intersection(op.outputs):
                if op.kind in graph.CONTRACTIONS:
                    self._take(f"{_WORKSPACES} backward", WORKSPACE)
                for name in self._roots((*op.outputs, *op.inputs)):
                    if name in self.gradient_names:
                        self._take(f"gradient {name}", self.sizes.size_bytes(name))
                self._take_briefly("convolution", convolution.measure_copies(op, self.sizes))
                for name in self._roots(op.outputs):
                    if name not in self._roots(op.inputs) and self.model_graph.tensors[name].role is Role.VALUE:
                        self._give(f"gradient {name}")
            for name in kept_names[number]:
                if first[name] == number and self._passing(name):
                    self._give(name)

    def _passing(self, name: str) -> bool:
        tensor = self.model_graph.tensors.get(name)
        return (tensor is None or tensor.role is Role.VALUE) and name != self.answer

    def _update(self) -> None:
        """States are made at the first step; temporaries of all parameters where the optimizer works on all at once."""
        parameters = [name for name, tensor in self.model_graph.tensors.items() if tensor.role is Role.PARAMETER]
        for name in parameters:
            for number in range(STATES[self.optimizer]):
                self._take(f"state {number} {name}", self.sizes.size_bytes(name))
        if self.optimizer in _FOREACH:
            for name in parameters:
                self._take(f"temporary {name}", self.sizes.size_bytes(name))
            self._give_each(self._find_held("temporary "))


def _find_answer(model_graph: Graph) -> str:
    """The memory of what the model answers: what its last kernel writes; "" for a graph without any."""
    written = (op.outputs for op in reversed(model_graph.ops) if op.kind.forward_kernels and op.outputs)
    name = model_graph.root(next(written, ("",))[0])
    return name if name in model_graph.tensors and model_graph.tensors[name].role is Role.VALUE else ""


def _find_gradient_names(model_graph: Graph) -> Iterable[str]:
    """The tensors that have a gradient: parameters, and floating ones that are made from such."""
    found = {name for name, tensor in model_graph.tensors.items() if tensor.role is Role.PARAMETER}
    for op in model_graph.ops:
        if any(name in found for name in op.inputs):
            found.update(name for name in op.outputs if model_graph.tensors[name].floating)
    return found
