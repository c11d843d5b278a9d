"""Division of a global batch, and the samples of a data set for each part. Pure.

The samples of a step depend only on the number of samples before it, not on how many workers there are or were. So a
resized job sees the data in the same order as a job of fixed size.
"""

from __future__ import annotations


def share(batch: int, workers: int, rank: int) -> tuple[int, int]:
    """(first, count) of this rank's samples of the batch; counts differ by at most one."""
    each, over = divmod(batch, workers)
    return rank * each + min(rank, over), each + (rank < over)


def places(part: range, size: int) -> list[tuple[int, int]]:
    """(epoch, index in that epoch) of these samples of the training, for a data set of `size` samples."""
    return [divmod(number, size) for number in part]
