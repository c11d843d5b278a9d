"""Which daemon is killed when, by a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.cluster.acceptance.site import CONTROLLER, PROCESS_NAMES, SLURMCTLD, SLURMD, VGPUD
from tests.slurm.cluster import NODES

#: about how often each is killed
EVERY_S = {CONTROLLER: 100.0, SLURMCTLD: 170.0, SLURMD: 85.0, VGPUD: 75.0}
#: how long it is away, besides the time that its start takes; vgpud's unit starts it at once
AWAY_S = {CONTROLLER: (0.2, 2.0), SLURMCTLD: (0.5, 3.0), SLURMD: (0.5, 3.0), VGPUD: (0.0, 0.0)}


@dataclass(frozen=True, slots=True)
class Fault:
    at_s: float
    kind: str
    node: str  # "" where there is one for all
    away_s: float
    gentle: bool = False  # SIGTERM


def plan(span_s: float, seed: int, gentle: bool = False, slurmctld_every_s: float = EVERY_S[SLURMCTLD]) -> list[Fault]:
    """In the order of time; each kind at least once, and spread over the whole span. SIGKILL and SIGTERM take turns for
    slurmctld, which forgets what it did in the 5 s before by the first alone; `gentle`: SIGTERM each time."""
    draw = random.Random(seed)
    found = []
    every_s = EVERY_S | {SLURMCTLD: slurmctld_every_s}
    for kind in PROCESS_NAMES:
        count = max(1, round(span_s / every_s[kind]))
        for number in range(count):
            at_s = (number + draw.random()) * span_s / count
            node = draw.choice(NODES) if kind in (SLURMD, VGPUD) else ""
            is_gentle = kind == SLURMCTLD and (gentle or number % 2 == 1)
            found.append(Fault(round(at_s, 3), kind, node, round(draw.uniform(*AWAY_S[kind]), 3), is_gentle))
    return sorted(found, key=lambda fault: fault.at_s)
