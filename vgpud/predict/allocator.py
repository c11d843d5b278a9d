"""Memory that PyTorch's caching allocator holds while a model trains, by replaying its rules with sizes alone. Pure.

Sizes are rounded to 512 bytes; up to 1 MiB come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, larger
ones get a segment of their own in steps of 2 MiB; the best fit is split, neighbours that are free are merged, and no
segment goes back. As in PyTorch 2 without PYTORCH_CUDA_ALLOC_CONF (c10/cuda/CUDACachingAllocator.cpp).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from vgpud.predict.ops import Op, Step

MIB = 1 << 20
ROUND = 512
SMALL = MIB  # largest block of a small segment
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
OWN_ROUND = 2 * MIB
#: cuBLAS' workspace: one for the thread that goes forward, one for the thread that goes backward
WORKSPACE = (4096 * 2 * 1024) + (16 * 8 * 1024)

Block = tuple[int, int, int]  # pool, segment, offset


class Allocator:
    """Segments by number; in each, blocks by offset. What is free is sorted by size, segment and offset."""

    def __init__(self) -> None:
        self.reserved = 0
        self._free: tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]] = ([], [])
        self._sizes: list[dict[int, int]] = []  # of each segment: offset -> size
        self._unused: list[dict[int, int]] = []  # of its free blocks: end -> offset

    def take(self, size: int) -> Block:
        """A block of so many bytes."""
        size = max(ROUND, -(-size // ROUND) * ROUND)
        pool = 0 if size <= SMALL else 1
        free = self._free[pool]
        at = bisect.bisect_left(free, (size, -1, -1))
        if at < len(free):
            found, segment, offset = free.pop(at)
            del self._unused[segment][offset + found]
        else:
            found, segment, offset = self._segment(size), len(self._sizes), 0
            self._sizes.append({})
            self._unused.append({})
            self.reserved += found
        rest = found - size
        if rest >= ROUND if pool == 0 else rest > SMALL:
            self._put(pool, segment, offset + size, rest)
            found = size
        self._sizes[segment][offset] = found
        return pool, segment, offset

    @staticmethod
    def _segment(size: int) -> int:
        if size <= SMALL:
            return SMALL_SEGMENT
        return LARGE_SEGMENT if size < OWN_SEGMENT else -(-size // OWN_ROUND) * OWN_ROUND

    def _put(self, pool: int, segment: int, offset: int, size: int) -> None:
        self._sizes[segment][offset] = size
        self._unused[segment][offset + size] = offset
        bisect.insort(self._free[pool], (size, segment, offset))

    def _drop(self, pool: int, segment: int, offset: int) -> int:
        """A free block goes into a neighbour; its size."""
        size = self._sizes[segment].pop(offset)
        del self._unused[segment][offset + size]
        free = self._free[pool]
        del free[bisect.bisect_left(free, (size, segment, offset))]
        return size

    def give(self, *blocks: Block) -> None:
        """Frees blocks that are no longer needed."""
        for pool, segment, offset in blocks:
            size = self._sizes[segment].pop(offset)
            after = self._sizes[segment].get(offset + size)
            if after is not None and self._unused[segment].get(offset + size + after) == offset + size:
                size += self._drop(pool, segment, offset + size)
            before = self._unused[segment].get(offset)
            if before is not None:
                size += self._drop(pool, segment, before)
                offset = before
            self._put(pool, segment, offset, size)


def reserved(ops: Sequence[Op], step: Step) -> int:
    """Bytes that the allocator holds in the end; the context, kernels and libraries come on top.

    The operations are taken as a chain: each reads what the one before it wrote. Gradients of activations, the
    optimizer's states and one temporary of all parameters (as `foreach` optimizers make it) are counted; what a kernel
    needs besides is not, cuBLAS' workspaces excepted.
    """
    return _Run(ops, step).memory.reserved


class _Run:
    """Some steps of a model, tensor by tensor."""

    def __init__(self, ops: Sequence[Op], step: Step) -> None:
        self.memory = Allocator()
        self.ops, self.step = ops, step
        self.tensors = [size * step.parameter_bytes for op in ops for size in op.parameters]
        self.samples: Block | None = None
        self.answers: Block | None = None  # of the step before
        self.gradients: list[Block] = []
        self.workspaces = 0
        for size in self.tensors:
            self.memory.take(size)
        rest = step.samples % step.batch  # the last step of an epoch is shorter
        for number, batch in enumerate((step.batch, rest, step.batch)):
            if batch:
                self._step(batch, number == 0)

    def _step(self, batch: int, first: bool) -> None:
        fresh = self._take(batch * self.step.inputs * self.step.element_bytes)
        self._give(self.samples)
        self.samples = fresh
        self._give(*self.gradients)  # zero_grad sets them to none
        written = self._run_forward_pass(batch)
        self._give(self.answers)
        self.answers = written[-1] if written else None
        if not self.step.training:
            return
        self.gradients = self._backward(batch, written)
        if first:
            for size in self.tensors:
                for _ in range(self.step.states):
                    self._take(size)
        if self.step.states > 1:
            self._give(*[self._take(size) for size in self.tensors])

    def _take(self, size: int) -> Block:
        return self.memory.take(size)

    def _give(self, *blocks: Block | None) -> None:
        self.memory.give(*[block for block in blocks if block is not None])

    def _take_output(self, number: int, batch: int) -> Block:
        return self._take(self.ops[number].outputs * batch // self.step.batch * self.step.element_bytes)

    def _workspace(self, thread: int) -> None:
        """The first that a thread multiplies takes it one."""
        if self.workspaces < thread:
            self.workspaces = thread
            self._take(WORKSPACE)

    def _run_forward_pass(self, batch: int) -> list[Block | None]:
        """What each operation wrote: None where that is gone again."""
        written: list[Block | None] = []
        for number in range(len(self.ops)):
            self._workspace(1)
            written.append(self._take_output(number, batch))
            if number and not (self.step.training and self.ops[number - 1].is_kept):
                self._give(written[number - 1])
                written[number - 1] = None
        return written

    def _backward(self, batch: int, output_blocks: list[Block | None]) -> list[Block]:
        """Gradients of the parameters; those of activations live from one operation to the next."""
        made: list[Block] = []
        if not self.ops:
            return made
        last = len(self.ops) - 1
        # log-probabilities and their gradient
        loss, once = self._take_output(last, batch), self._take_output(last, batch)
        flowing = self._take_output(last, batch)
        self._give(once, loss)
        for number in range(last, -1, -1):
            self._workspace(2)
            further = self._take_output(number - 1, batch) if number else None
            made += [self._take(size * self.step.parameter_bytes) for size in self.ops[number].parameters]
            self._give(flowing, output_blocks[number] if number < last else None)
            if further is not None:
                flowing = further
        return made
