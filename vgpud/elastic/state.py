"""Agreement of a generation's workers before they continue: their progress, and the most advanced one's state.

The state is broadcast from one worker to all: first its structure (numbers, strings, and tensors without contents),
then each tensor's bytes. It is read with `weights_only`, so nothing from the wire is executed.
"""

from __future__ import annotations

import io
import pickle
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

#: completed steps of a worker without state
NEWCOMER = -1


class Stateful(Protocol):
    """A model, an optimizer, a scheduler, a scaler: anything with these two methods."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


def agree(objects: Sequence[Stateful], completed: int) -> bool:
    """Brings every worker to the state of the one that has completed most steps. True: this worker's was replaced.
    Raises RuntimeError if the process group fails."""
    tensors = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(tensors, torch.tensor([completed], dtype=torch.int64))
    steps = [int(tensor) for tensor in tensors]
    source = steps.index(max(steps))
    if min(steps) == max(steps) != NEWCOMER:
        return False
    if dist.get_rank() == source:
        _send([*(made.state_dict() for made in objects), _random_state()], source)
        return False
    states = _receive(source)
    if completed == steps[source] != NEWCOMER:
        return False  # the same as this worker's
    if len(states) != len(objects) + 1:
        raise StateError(f"the first worker has {len(states) - 1} objects of state, this one {len(objects)}")
    for made, state in zip(objects, states[:-1], strict=True):
        made.load_state_dict(state)
    _set_random_state(states[-1])
    return True


def check(objects: Sequence[Stateful]) -> None:
    """Raises StateError if the state could not be sent to new workers: at the start, not when the first one joins."""
    for place, made in enumerate(objects):
        try:
            _load_shape(_shape(made.state_dict(), []))
        except StateError as error:
            raise StateError(
                f"state[{place}], a {type(made).__name__}, cannot be sent to new workers: {error}"
            ) from None


class StateError(Exception):
    """The program's workers have different state objects, or state that cannot be sent; one line for the user."""


def _shape(states: Any, tensors: list[Any]) -> bytes:
    """The state without the contents of its tensors, which are appended to the list."""

    def empty(tensor: Any) -> Any:
        tensors.append(tensor)
        return torch.empty_like(tensor, device="meta")

    file = io.BytesIO()
    torch.save(_with_tensors(states, empty), file)
    return file.getvalue()


def _load_shape(shape: bytes) -> Any:
    try:
        return torch.load(io.BytesIO(shape), weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"{found[1]} was found in it" if found else "it cannot be read"
        raise StateError(f"{what}: state_dict() may hold numbers, strings, tensors, lists and dictionaries") from None


def _send(states: list[Any], source: int) -> None:
    tensors: list[Any] = []
    shape = torch.frombuffer(bytearray(_shape(states, tensors)), dtype=torch.uint8)
    dist.broadcast(torch.tensor([shape.numel()], dtype=torch.int64), source)
    dist.broadcast(shape, source)
    for tensor in tensors:
        if tensor.numel():
            dist.broadcast(_bytes_of(tensor.detach().cpu().contiguous()), source)


def _receive(source: int) -> list[Any]:
    length = torch.zeros(1, dtype=torch.int64)
    dist.broadcast(length, source)
    shape = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(shape, source)

    def receive_tensor(meta: Any) -> Any:
        tensor = torch.empty(meta.shape, dtype=meta.dtype)
        if tensor.numel():
            dist.broadcast(_bytes_of(tensor), source)
        return tensor

    states: list[Any] = _with_tensors(_load_shape(shape.numpy().tobytes()), receive_tensor)
    return states


def _bytes_of(tensor: Any) -> Any:
    return tensor.reshape(-1).view(torch.uint8)


def _with_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with each tensor in it transformed, in the same order for all workers."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _with_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_with_tensors(item, change) for item in value])
    numpy = sys.modules.get("numpy")  # whose scalars get into learning rates and best losses
    return value.item() if numpy and isinstance(value, numpy.generic) else value


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (name, keys.tolist(), *rest)
    return state


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(state["numpy"])
