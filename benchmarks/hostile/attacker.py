"""An attacking program that begins and ends its attack at a signal and says in JSON lines what it has done."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from benchmarks.hostile.phases import Judge, PhaseFigure, highest
from vgpud.cli.demo.private_system import Part, wait_for

BEGIN, END = signal.SIGUSR1, signal.SIGUSR2
#: for all attaches there are, on a busy host
SETTLED_S = 120.0


class Attacker:
    """The program. Its lines: {"pid", "time_ns", and numbers}. rates, levels: number -> the figure that it becomes.

    One that needs a while until its attack is complete says in each line what it is doing ("attacking"), and whether it
    has done so completely ("settled").
    """

    def __init__(
        self,
        part: Part,
        rates: Mapping[str, str],
        levels: Mapping[str, str] | None = None,
        probes: Mapping[str, Part] | None = None,
        own_probes: Collection[str] = (),
    ) -> None:
        self.probes = dict(probes or {})
        self.own_probes = own_probes
        self._part = part
        self._last: Mapping[str, Any] = {}
        self._pid = 0
        self._rates = rates
        self._levels = levels or {}
        self._points: dict[str, list[tuple[int, float]]] = {name: [] for name in (*self._rates, *self._levels)}
        wait_for("the attacker", self._ready, 60)

    @property
    def pids(self) -> Sequence[int]:
        return [self._pid]

    def switch(self, attacking: bool) -> None:
        os.kill(self._pid, BEGIN if attacking else END)
        wait_for("the attack" if attacking else "the attack's end", lambda: self._has_settled(attacking), SETTLED_S)

    def _has_settled(self, attacking: bool) -> bool:
        self.poll()
        return self._last.get("attacking", attacking) == attacking and bool(self._last.get("settled", True))

    def poll(self) -> None:
        for line in self._part.lines():
            self._last, self._pid = line, line["pid"]
            for name, points in self._points.items():
                points.append((line["time_ns"], line[name]))
        self._part.check()

    def _ready(self) -> bool:
        self.poll()
        return self._pid != 0

    def figures(self, judge: Judge) -> list[PhaseFigure]:
        found = [judge.rate(f"attacker: {what}, 1/s", self._points[name]) for name, what in self._rates.items()]
        for name, what in self._levels.items():
            measure = functools.partial(highest, self._points[name])
            found.append(judge.by_phase(f"attacker: {what}", measure))
        return found
