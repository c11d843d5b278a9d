"""A model's step by what it costs: operations with sizes, how they are run, on what. Readers of models make these."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a forward pass over a whole batch."""

    kind: str  # linear, convolution, attention, recurrent, embedding, norm, or anything else
    outputs: int  # elements that it writes
    flops: int = 0
    bytes: int = 0  # that it reads and writes, parameters included
    parameters: tuple[int, ...] = ()  # elements of each tensor
    kernels: int = 1
    is_kept: bool = True  # what it writes is needed until its backward pass


def list_ingredients(ops: Iterable[Op]) -> tuple[str, ...]:
    """The types of operations, in order of their names."""
    return tuple(sorted({op.kind for op in ops}))


@dataclass(frozen=True, slots=True)
class Step:
    """How the model is run."""

    batch: int
    inputs: int  # elements of one sample
    outputs: int  # elements of the answer to one sample
    training: bool = True
    states: int = 2  # of the optimizer for each parameter: Adam 2, momentum 1, plain SGD 0
    element_bytes: int = 4  # of activations: 4 = fp32, 2 = fp16 or bf16
    parameter_bytes: int = 4  # of parameters, gradients and states
    samples: int = 0  # in an epoch, whose last step may be shorter; 0 = a multiple of the batch


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device as its data sheet has it, at the precision that the model computes in."""

    name: str
    sm_count: int
    bandwidth: int  # bytes per second
    peak_flops: int
