"""How a global batch is divided, and which samples of a data set that means. Pure.

What a step works on depends on how many samples were worked on before it and on nothing else: not on how many workers
there are or were. So a job that was stretched sees the data in the order in which one of a fixed size sees them.
"""

from __future__ import annotations


def share(batch: int, workers: int, rank: int) -> tuple[int, int]:
    """(first, how many) of the batch's samples that are this rank's; they differ by one sample at most."""
    each, over = divmod(batch, workers)
    return rank * each + min(rank, over), each + (rank < over)


def places(part: range, size: int) -> list[tuple[int, int]]:
    """(epoch, place in that epoch) of these samples of the training, of a data set with `size` samples."""
    return [divmod(number, size) for number in part]
