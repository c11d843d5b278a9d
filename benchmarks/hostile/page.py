"""Attackers that write what they like into their own report page (tenants/hostile_page.c)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from benchmarks.hostile.attacker import Attacker
from benchmarks.sharing.bench import built
from vgpud.cli.demo.private_system import OwnSystem

RATES = {"gate_changes": "changes of its own gate", "rings": "doorbells of one process"}


@contextlib.contextmanager
def page_attack(
    own: OwnSystem, mode: str, period_us: int, processes: int, amounts: Sequence[str]
) -> Iterator[Attacker]:
    """Starts the attacker in a slice of its own, honest at first. Raises PartError."""
    command = [str(built("tenants/hostile_page.c")), mode, str(period_us), str(processes)]
    yield Attacker(own.run("attacker", amounts, command), RATES)
