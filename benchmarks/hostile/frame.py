"""Runs one case: victims, an attacker that is honest and attacks in turn, and the neighbours' calls beside it."""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from benchmarks import harness
from benchmarks.hostile.phases import GOAL_PERCENT, Harm, Judge, Phase, PhaseFigure
from benchmarks.sharing.bench import SETTLE_S, WARM_UP_S, Process, Tenant, quietness
from benchmarks.sharing.measure import spans_by_tenant
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS, Span, read_busy_log

#: after a switch: the attack has begun, or what it had taken is given back
SWITCH_S = 0.5
#: how often counters are read
COUNTERS_S = 0.1
#: of the processors' time, that a virtual machine's host may take of a pair of phases before another one is made
#: in its place; how many pairs are made at most for each that is wanted
STOLEN_MAX, TRIES = 0.02, 3
#: of a victim; the rest is the attacker's
MEMORY = "2G"
#: the API for every user, so that an attacker needs no rights of its own
CONFIG = ('socket_mode = "0666"',)


@dataclass
class Calls:
    """Calls of a neighbour: (time_ns at the call's begin, ms that it took), and when one was refused and why."""

    took_ms: list[tuple[int, float]] = field(default_factory=list)
    refusals: list[tuple[int, str]] = field(default_factory=list)

    def read(self, part: Part) -> None:
        """New lines of neighbour.py. Raises PartError when it has ended."""
        for line in part.lines():
            if line["refused"]:
                self.refusals.append((line["time_ns"], line["refused"]))
            else:
                self.took_ms.append((line["time_ns"], line["took_ms"]))
        part.check()


@dataclass
class Counters:
    """Readings over time: (time_ns, value)."""

    daemon_s: list[tuple[int, float]] = field(default_factory=list)  # processor seconds
    gates_opened: list[tuple[int, float]] = field(default_factory=list)  # of all slices


class Attack(Protocol):
    """An attacker that runs, honest at first."""

    @property
    def pids(self) -> Sequence[int]:
        """Its processes that use the device."""
        ...

    @property
    def probes(self) -> Mapping[str, Part]:
        """Programs that make a kind of call again and again (neighbour.py), by what that is."""
        ...

    @property
    def own_probes(self) -> Collection[str]:
        """Those of them that are the attacker's own user's: they may be refused, but not when the attack is over."""
        ...

    def switch(self, attacking: bool) -> None:
        """Begins or ends the attack. Raises PartError when that is not complete in time."""
        ...

    def poll(self) -> None:
        """Reads what it says. Raises PartError when it has ended."""
        ...

    def figures(self, judge: Judge) -> list[PhaseFigure]:
        """What only this attack has. Called when all phases are over."""
        ...


@dataclass(frozen=True)
class Case:
    """One attack beside its victims. why_not: why this machine cannot run it; "" when it can. calls_percent: how much
    longer the p99 of neighbours' calls may be."""

    name: str
    what: str
    victims: Sequence[Tenant]
    start: Callable[[OwnSystem], contextlib.AbstractContextManager[Attack]]
    why_not: Callable[[], str] = lambda: ""
    calls_percent: float = GOAL_PERCENT


@dataclass(frozen=True)
class Plan:
    """How long: so many pairs of phases of so many seconds each."""

    seconds: float
    pairs: int

    @property
    def total_s(self) -> float:
        """At most."""
        return 2 * TRIES * self.pairs * (self.seconds + SWITCH_S)


def run(case: Case, host: str, plan: Plan) -> list[PhaseFigure]:
    """Runs the case once and judges it. Raises PartError when a part of it fails."""
    lengths_us = sorted({victim.kernel_us for victim in case.victims} | {200})
    with harness.system(harness.one_device(), CONFIG, lengths_us) as own:
        own.folder.chmod(0o755)  # the attacker may be another user
        victims = [_start(own, victim, plan.total_s + 600) for victim in case.victims]
        wait_for("the victims", lambda: all(victim.ready() for victim in victims))
        with case.start(own) as attack:
            time.sleep(WARM_UP_S)
            phases, call_times, counters = _alternate(own, attack, plan, victims)
        pids = {victim.program.name: [victim.pid] for victim in victims} | {"attacker": attack.pids}
        spans = spans_by_tenant(read_busy_log(own.busy_log()), pids)
        return _figures(case, Judge(case.name, host, phases), spans, attack, call_times, counters)


def _start(own: OwnSystem, victim: Tenant, seconds: float) -> Process:
    histogram = own.folder / f"{victim.name}.histogram"
    amounts = ["--gpus", f"{victim.minimum:g}", "--max", f"{victim.maximum:g}", "--mem", MEMORY]
    command = victim.command(random.Random(1), int(seconds), histogram)
    return Process(victim, own.run(victim.name, amounts, command), Path(histogram))


def _alternate(
    own: OwnSystem, attack: Attack, plan: Plan, victims: Sequence[Process]
) -> tuple[list[Phase], dict[str, Calls], Counters]:
    """The phases, what the neighbours' calls took, and what was counted meanwhile."""
    assert own.daemon
    daemon = psutil.Process(own.daemon.process.pid)
    counters = Counters()
    call_times = {name: Calls() for name in attack.probes}

    def pass_time(seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(COUNTERS_S, left))
            attack.poll()
            for victim in victims:
                victim.poll()
            for name, part in attack.probes.items():
                call_times[name].read(part)
            now_ns = time.monotonic_ns()
            counters.daemon_s.append((now_ns, sum(daemon.cpu_times()[:2])))
            opened = sum(device.grants for one in client.all(calls.slices()) for device in one.devices)
            counters.gates_opened.append((now_ns, opened))

    def make(attacking: bool) -> Phase:
        attack.switch(attacking)
        pass_time(SWITCH_S)
        begin_ns, before = time.monotonic_ns(), psutil.cpu_times()
        pass_time(plan.seconds)
        stolen = quietness(before, psutil.cpu_times())["stolen"]
        return Phase(attacking, begin_ns, begin_ns + int(plan.seconds * SECOND_NS), stolen)

    with own.client() as client:
        phases = choose_quiet_pairs(lambda: (make(False), make(True)), plan.pairs)
        attack.switch(False)
        pass_time(SETTLE_S)
    return phases, call_times, counters


def choose_quiet_pairs(make: Callable[[], tuple[Phase, Phase]], pairs: int) -> list[Phase]:
    """So many pairs of phases of which the host took next to nothing, or those of which it took least; in their order.

    Chosen by that alone, whatever they show.
    """
    made: list[tuple[Phase, Phase]] = []
    while len(made) < TRIES * pairs and sum(_stolen(pair) <= STOLEN_MAX for pair in made) < pairs:
        made.append(make())
    chosen = sorted(made, key=_stolen)[:pairs]
    return [phase for pair in made if pair in chosen for phase in pair]


def _stolen(pair: tuple[Phase, Phase]) -> float:
    return max(phase.stolen for phase in pair)


def _figures(
    case: Case,
    judge: Judge,
    spans: Mapping[str, list[Span]],
    attack: Attack,
    call_times: Mapping[str, Calls],
    counters: Counters,
) -> list[PhaseFigure]:
    found = []
    for victim in case.victims:
        found += judge.shares(victim.name, victim.maximum, spans[victim.name])
    for name, points in call_times.items():
        found += _of_calls(judge, name, points, name in attack.own_probes, case.calls_percent)
    if spans["attacker"]:
        found.append(judge.share("attacker: share", spans["attacker"]))
    found += attack.figures(judge)
    found.append(judge.rate("gates opened, all slices, 1/s", counters.gates_opened))
    found.append(judge.rate("daemon: processors used", counters.daemon_s))
    found.append(judge.by_phase("host: part of the processors' time taken", lambda phase: phase.stolen))
    return found


def _of_calls(judge: Judge, name: str, call_times: Calls, own: bool, goal_percent: float) -> list[PhaseFigure]:
    def count_refusals(phase: Phase) -> int:
        return sum(time_ns in phase for time_ns, _why in call_times.refusals) if not (own and phase.attacking) else 0

    for _time_ns, why in call_times.refusals[:1]:
        print(f"{judge.case}, {judge.host}: {name} was refused first with: {why}", file=sys.stderr)
    if own:
        return [judge.total(f"{name}: refused when no attack is on", count_refusals, Harm(at_most=0))]
    return [
        *judge.latencies(name, call_times.took_ms, goal_percent),
        judge.total(f"{name}: refused", count_refusals, Harm(at_most=0)),
    ]
