"""State on its way from one worker to another: everything arrives as it was, and nothing that arrives is run."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from vgpud.elastic import state  # noqa: E402


class Wire:
    """What torch.distributed's broadcast would carry: the first pass is the source's, the second the newcomer's."""

    def __init__(self) -> None:
        self.tensors: list[Any] = []

    def send(self, tensor: Any, source: int) -> None:
        self.tensors.append(tensor.clone())

    def receive(self, tensor: Any, source: int) -> None:
        tensor.copy_(self.tensors.pop(0))


def send_states(monkeypatch: pytest.MonkeyPatch, states: list[Any]) -> list[Any]:
    wire = Wire()
    monkeypatch.setattr(state.dist, "broadcast", wire.send)
    state._send(states, 0)
    monkeypatch.setattr(state.dist, "broadcast", wire.receive)
    found = state._receive(0)
    assert not wire.tensors
    return found


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6, dtype=torch.float64).reshape(2, 3),
        torch.tensor(3.5, dtype=torch.bfloat16),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.zeros(0, 4),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.arange(8)[::2],
    ],
)
def test_tensors_of_all_types(monkeypatch: pytest.MonkeyPatch, tensor: Any) -> None:
    (found,) = send_states(monkeypatch, [{"a": [tensor, (1, "b", None)], 3: {"c": tensor}}])
    assert found["a"][1] == (1, "b", None)
    for made in (found["a"][0], found[3]["c"]):
        assert made.dtype == tensor.dtype and torch.equal(made, tensor)


def test_an_optimizer_continues_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    models = [torch.nn.Linear(3, 2) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    models[0](torch.ones(1, 3)).sum().backward()
    optimizers[0].step()
    found = send_states(monkeypatch, [models[0].state_dict(), optimizers[0].state_dict()])
    models[1].load_state_dict(found[0])
    optimizers[1].load_state_dict(found[1])
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.zero_grad()
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_random_numbers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy

    def draw_numbers() -> tuple[float, float, float]:
        return float(torch.rand(())), random.random(), float(numpy.random.rand())

    (found,) = send_states(monkeypatch, [state._random_state()])
    wanted = draw_numbers()
    assert draw_numbers() != wanted
    state._set_random_state(found)
    assert draw_numbers() == wanted


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("it was run",))


def test_what_arrives_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(state.StateError, match="pytest"):
        send_states(monkeypatch, [{"a": Bomb()}])


def test_numbers_of_numpy_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learning rate that numpy has computed does not end a job hours later, when the first newcomer comes."""
    import numpy

    assert send_states(monkeypatch, [{"lr": numpy.float64(0.5), "best": [numpy.int32(3)]}]) == [
        {"lr": 0.5, "best": [3]}
    ]


def test_state_that_cannot_be_sent_is_refused_at_the_start() -> None:
    class Odd:
        def state_dict(self) -> Any:
            return {"a": {1, Bomb}}

    state.check([torch.nn.Linear(3, 2)])
    with pytest.raises(
        state.StateError, match=r"state\[1\], a Odd, cannot be sent to new workers: .* was found in it: "
    ) as error:
        state.check([torch.nn.Linear(3, 2), Odd()])  # type: ignore[list-item]
    assert "\n" not in str(error.value)
