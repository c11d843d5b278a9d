"""The mean gradient of all workers: what it leaves alone, and what it refuses. What others add, the test says."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from vgpud.elastic import Workers, averaging  # noqa: E402


class Done:
    def wait(self) -> None:
        pass


def with_others(monkeypatch: pytest.MonkeyPatch, *parts: list[float]) -> None:
    """What all_reduce adds, call by call."""
    left = list(parts)

    def all_reduce(tensor: Any, async_op: bool) -> Done:
        tensor += torch.tensor(left.pop(0), dtype=tensor.dtype)
        return Done()

    monkeypatch.setattr(averaging.dist, "all_reduce", all_reduce)


def parameters(*gradients: list[float] | None) -> list[Any]:
    made = []
    for gradient in gradients:
        made.append(torch.nn.Parameter(torch.ones(1)))
        made[-1].grad = None if gradient is None else torch.tensor(gradient)
    return made


def test_what_no_worker_used_has_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an optimizer's weight decay would shrink it, but not where one worker trains alone."""
    made = parameters([4.0], None, None)
    with_others(monkeypatch, [1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 3.0, 0.0])  # the other one has used the second, too
    assert averaging.exchange(made, 0.5, 2.0, False) == (2.0, False)
    assert made[0].grad.tolist() == [3.0] and made[1].grad.tolist() == [3.0] and made[2].grad is None


def test_who_has_no_samples_has_used_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = parameters([4.0])
    with_others(monkeypatch, [1.0, 0.0, 0.0], [0.0])
    averaging.exchange(made, 0.0, 9.0, False)
    assert made[0].grad is None


def test_a_sparse_gradient_is_refused_at_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not hours later, when a second worker comes."""
    for name in ("VGPU_JOB_ID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    table = torch.nn.Embedding(10, 4, sparse=True)
    with Workers([table], batch=2) as workers:
        for _ in workers.steps(1):
            table(workers.indices(10)).sum().backward()
            with pytest.raises(TypeError, match=r"shape \(10, 4\) is sparse: make its layer with sparse=False"):
                workers.average(table)
