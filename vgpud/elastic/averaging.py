"""The exchange at the end of a step: the mean gradients of the whole batch, the mean loss, and a flag for a change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist


def exchange(parameters: Iterable[Any], weight: float, loss: float, word: bool) -> tuple[float, bool]:
    """Replaces each gradient by the mean over the batch; returns (mean loss, whether any worker set the flag).

    `weight`: this worker's part of the batch. Its gradients are means over its samples, so their weighted sum is the
    mean over all. Raises RuntimeError if the process group fails; gradients are unusable then.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    used = [float(weight > 0 and parameter.grad is not None) for parameter in trained]
    said = torch.tensor([weight * loss if weight else 0.0, float(word), *used], dtype=torch.float64)
    works = [dist.all_reduce(said, async_op=True)]
    flats = []
    for gradients in _alike(trained):
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        # an empty part has no mean
        flat = flat.mul_(weight) if weight else torch.zeros_like(flat)
        works.append(dist.all_reduce(flat, async_op=True))
        flats.append((flat, gradients))
    for work in works:
        work.wait()
    for flat, gradients in flats:
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))
    for parameter, users in zip(trained, said[2:].tolist(), strict=True):
        if not users:  # as for a single worker: optimizers do not decay parameters without a gradient
            parameter.grad = None
    return float(said[0]), bool(said[1])


def _alike(parameters: Iterable[Any]) -> list[list[Any]]:
    """The gradients, grouped by type and device. A missing one is zero: other workers may have it."""
    found: dict[tuple[Any, Any], list[Any]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        found[parameter.dtype, parameter.device].append(parameter.grad)
    return list(found.values())


def check(parameters: Iterable[Any]) -> None:
    """Raises TypeError if gradients cannot be averaged: at the first step, not when a second worker joins."""
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.layout is not torch.strided:
            shape = tuple(parameter.shape)
            raise TypeError(f"the gradient of a parameter of shape {shape} is sparse: make its layer with sparse=False")


def settle(parameters: Iterable[Any]) -> None:
    """Waits until the gradients are computed, so that waiting for other workers does not count as work."""
    if torch.cuda.is_available() and any(parameter.is_cuda for parameter in parameters):
        torch.cuda.synchronize()
