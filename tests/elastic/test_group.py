"""Meetings: all continue or none does, whatever becomes known in between; and whose state all take over."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.ports import find_free_ports  # noqa: E402
from vgpud.elastic import group, state  # noqa: E402


@pytest.fixture
def store() -> Any:
    return torch.distributed.HashStore()


def test_all_that_meet_go_on(store: Any) -> None:
    said: list[bool] = []
    others = [threading.Thread(target=lambda: said.append(group.meet(store, 3, lambda: False))) for _ in range(2)]
    for other in others:
        other.start()
    said.append(group.meet(store, 3, lambda: False))
    for other in others:
        other.join()
    assert said == [True] * 3


def test_who_knows_of_a_later_generation_does_not_wait(store: Any) -> None:
    assert not group.meet(store, 2, lambda: True)
    assert not group.meet(store, 2, lambda: False), "who comes then does not go on alone"


def test_who_hears_of_it_when_others_have_continued_goes_with_them(store: Any) -> None:
    def meet_other() -> bool:
        assert group.meet(store, 2, lambda: False)  # the other comes, finds us there, and goes
        return True

    assert group.meet(store, 2, meet_other)


def test_a_store_is_on_the_loopback_and_reached_by_its_address() -> None:
    stores, others = group.Stores(), group.Stores()
    address = stores.make(3)
    assert address.startswith("127.0.0.1:") and stores.make(3) == address
    stores.reach(3, address).set("a", "b")
    assert others.reach(3, address).get("a") == b"b"


def test_a_store_whose_maker_is_gone_is_not_waited_for() -> None:
    (port,) = find_free_ports(1)
    begin_s = time.monotonic()
    with pytest.raises(RuntimeError, match=f"no store answers at 127.0.0.1:{port}: Connection refused"):
        group.Stores().reach(1, f"127.0.0.1:{port}")
    assert time.monotonic() - begin_s < group.STORE_S / 2


class Kept:
    """An object of state that says what was done with it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.value = state_dict["value"]


@pytest.mark.parametrize(
    ("steps", "source", "receives"),
    [
        ([4, 5, 5, -1], 1, [True, False, False, True]),
        ([-1, -1], 0, [False, True]),
        ([0, -1], 0, [False, True]),
        ([7, 7, 7], None, [False, False, False]),
    ],
)
def test_who_has_done_most_gives_its_state(
    monkeypatch: pytest.MonkeyPatch, steps: list[int], source: int | None, receives: list[bool]
) -> None:
    sent: list[Any] = []

    def gather(tensors: list[Any], own: Any) -> None:
        for tensor, number in zip(tensors, steps, strict=True):
            tensor.fill_(number)

    def as_rank(rank: int) -> tuple[bool, int]:
        left = list(sent)

        def broadcast(tensor: Any, root: int) -> None:
            assert root == source
            if rank == source:
                sent.append(tensor.clone())
            else:
                tensor.copy_(left.pop(0))

        monkeypatch.setattr(state.dist, "get_rank", lambda: rank)
        monkeypatch.setattr(state.dist, "broadcast", broadcast)
        kept = Kept(rank)
        return state.agree([kept], steps[rank]), kept.value

    monkeypatch.setattr(state.dist, "get_world_size", lambda: len(steps))
    monkeypatch.setattr(state.dist, "all_gather", gather)
    if source is not None:
        assert as_rank(source) == (False, source)
    assert bool(sent) == (source is not None)
    for rank in range(len(steps)):
        if rank != source:
            assert as_rank(rank) == (receives[rank], source if receives[rank] else rank)


def test_a_group_that_fails_again_and_again_is_the_programs_fault(tmp_path: Any, capsys: Any) -> None:
    from vgpud.elastic.peers import Elastic

    env = {"VGPU_JOB_ID": "1", "VGPU_WORKER": "2", "VGPU_HOST": f"unix://{tmp_path}/nobody.sock"}
    peers = Elastic(env, timeout_s=1)
    fault = RuntimeError("shapes differ\nat length")
    for _ in range(2):
        peers._strike(fault)
    peers.step_done(1, 1, 0.1, 0.0)
    for _ in range(2):
        peers._strike(fault)
    with pytest.raises(RuntimeError, match="shapes differ"):
        peers._strike(fault)
    peers.end(completed=False)
    assert capsys.readouterr().err.splitlines()[0].endswith("the group of generation 0 has failed: shapes differ")
