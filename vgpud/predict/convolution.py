"""What cuDNN works in while it convolves, by the shapes alone: see shim/simcuda/cudnn/workspace.c, which has the same
rule for a dry run. Pure.

Tensor cores take channels as the last dimension: tensors that are not so are copied, and their channels filled up to
16 bytes. Which algorithm cuDNN takes is known to cuDNN alone.
"""

from __future__ import annotations

from vgpud.predict import graph
from vgpud.predict.graph import Op
from vgpud.predict.graph_counts import Sizes

VECTOR_BYTES = 16
#: batch, channels and one dimension that a filter moves along
_RANK_LEAST = 3


def measure_copies(op: Op, sizes: Sizes) -> int:
    """Bytes of the copies of input, filters and output; 0 for what is no convolution."""
    if op.kind is not graph.CONV or len(op.inputs) < 2:
        return 0
    return sum(_measure_copy(name, sizes) for name in (*op.inputs[:2], *op.outputs[:1]))


def _measure_copy(name: str, sizes: Sizes) -> int:
    shape = sizes.graph.tensors[name].shape
    if len(shape) < _RANK_LEAST or not shape[1]:
        return 0
    vector = VECTOR_BYTES // sizes.item(name)
    return sizes.size_bytes(name) // shape[1] * (-(-shape[1] // vector) * vector)
