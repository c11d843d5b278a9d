"""Attackers that write what they like into their own report page (tenants/hostile_page.c)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.hostile.frame import Points
from benchmarks.hostile.phases import Figure, Judge
from benchmarks.sharing.bench import built
from vgpud.cli.own_system import OwnSystem, Part, wait_for

SLICE = "attacker"


class PageAttack:
    """The program in its slice. capped: a neighbour's maximum, which must hold whatever the page says."""

    probes: Mapping[str, Callable[[], None]] = {}

    def __init__(self, part: Part) -> None:
        self._part = part
        self._pid = 0
        self._changes: list[tuple[int, float]] = []
        self._rings: list[tuple[int, float]] = []

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def switch(self, attacking: bool) -> None:
        os.kill(self._pid, signal.SIGUSR1 if attacking else signal.SIGUSR2)

    def poll(self) -> None:
        for line in self._part.lines():
            self._read(line)
        self._part.check()

    def _read(self, line: Mapping[str, Any]) -> None:
        self._pid = line["pid"]
        self._changes.append((line["time_ns"], line["gate_changes"]))
        self._rings.append((line["time_ns"], line["rings"]))

    def ready(self) -> bool:
        self.poll()
        return self._pid != 0

    def figures(self, judge: Judge, calls: Mapping[str, Points]) -> list[Figure]:
        return [
            judge.rate("attacker: gate changes, 1/s", self._changes),
            judge.rate("attacker: doorbells of one process, 1/s", self._rings),
        ]


@contextlib.contextmanager
def page_attack(
    own: OwnSystem, mode: str, period_us: int, processes: int, amounts: Sequence[str]
) -> Iterator[PageAttack]:
    """Starts the attacker in a slice of its own, honest at first. Raises PartError."""
    command = [str(built("tenants/hostile_page.c")), mode, str(period_us), str(processes)]
    attack = PageAttack(own.run(SLICE, amounts, command))
    wait_for("the attacker", attack.ready)
    yield attack
