"""The ledger under random operations and kills: what `python -m benchmarks.ledger` does, for a few seconds."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import ledger
from vgpud.cli.demo.private_system import OwnSystem

OPERATIONS = 20_000


def test_random_operations_and_kills_leave_the_ledger_exact(make_system: Callable[..., OwnSystem]) -> None:
    found = ledger.stress(make_system(ledger.DEVICE), OPERATIONS, rounds=4, seed=7)
    assert found.wrong == []
    assert found.kills == 2
    assert found.operations > OPERATIONS // 2  # those of the killed ones' last rounds are not reported
    assert found.refused > 100  # it was full at times
    assert found.samples > 100
