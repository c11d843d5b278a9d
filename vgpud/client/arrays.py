"""Arrays of jobs as text, as indices and in the API's messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: as vgpud.core.queue.check.ARRAY_JOBS_MAX; the largest index as a number of the API
ARRAY_JOBS_MAX, INDEX_MAX = 10_000, (1 << 32) - 1
_ARRAY_PART = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")


def parse_array(text: str) -> tuple[tuple[int, ...], int]:
    """(indices in order, how many run at once, 0 = all) of 1-10, 1,3,5, 1-9:2 or 1-10%2. Raises ValueError, one
    line with the remedy."""
    listed, percent, most = text.strip().partition("%")
    if percent and not re.fullmatch(r"[1-9]\d{0,4}", most):
        raise ValueError(f"{text!r} has no limit behind its %: write for example 1-10%2")
    found: list[int] = []
    for part in listed.split(","):
        match = _ARRAY_PART.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{part!r} of the array {text!r} is not a range: write for example 1-8, 1,3,5 or 1-9:2")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first:
            raise ValueError(f"{part!r} of the array {text!r} is an empty range: the last must not be below the first")
        if not step or last > INDEX_MAX:
            wrong = f"step {step}" if not step else f"index {last}"
            fix = "write 1 or more" if not step else f"write {INDEX_MAX} or less"
            raise ValueError(f"{wrong} of the array {text!r} is out of range: {fix}")
        if len(found) + (last - first) // step + 1 > ARRAY_JOBS_MAX:
            raise ValueError(f"the array {text!r} has more than {ARRAY_JOBS_MAX} jobs: submit it in parts")
        found += range(first, last + 1, step)
    indices = tuple(sorted(set(found)))
    if len(indices) < len(found):
        twice = next(index for index, other in zip(sorted(found), sorted(found)[1:], strict=False) if index == other)
        raise ValueError(f"the array {text!r} has index {twice} twice: name each once")
    return indices, int(most or 0)


def format_array(indices: Sequence[int], limit: int) -> str:
    """The same as text, as Slurm takes it: 1-8,10%2."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][1] + 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
    return f"{text}%{limit}" if limit else text


def set_array(spec: pb.JobSpec, indices: Sequence[int], limit: int) -> None:
    """An array of these indices, `limit` of them at once (0: all)."""
    spec.array_limit = limit
    spec.array_indices.extend(indices)
