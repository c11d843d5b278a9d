"""What pages that tell too little or too much are worth, in the reference model: the figures of
docs/security/tenants.md.

python -m tests.arbiter.liar_figures
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from models.arbiter.policy import Arbiter
from tests.arbiter.hostile_world import HostileWorld, attacker, boast
from tests.arbiter.sharing_world import MS, SECOND, US, Load, World, tenant

LOADS = {
    "bursts of 0.3 ms": Load(20 * US, 15, gap_ns=300 * US),
    "bursts of 1 ms": Load(20 * US, 50, gap_ns=MS),
    "bursts of 8 ms": Load(200 * US, 40, gap_ns=4 * MS),
    "saturating": Load(200 * US, 16),
}
TOO_LITTLE: dict[str, Callable[[str, int], int]] = {
    "nothing completed": lambda name, ns: 0 if name == "done" else ns,
    "half completed": lambda name, ns: ns // 2 if name == "done" else ns,
    "never busy": lambda name, ns: 0 if name == "busy" else ns,
    "nothing at all": lambda _name, _ns: 0,
}
SECONDS, SETTLED_NS = 2, SECOND // 2


def shares(world: World) -> list[float]:
    """Of the tenants, once their arbiter has settled."""
    world.run(SECONDS * SECOND)
    return [t.share(SETTLED_NS, world.now_ns) for t in world.tenants]


def measure_underreporting(minimum: int, load: Load, lie: Callable[[str, int], int]) -> float:
    """What a slice gets beside one that saturates."""
    neighbour = tenant(2, 1000 - minimum, 1000, LOADS["saturating"])
    return shares(World([tenant(1, minimum, 1000, replace(load, lie=lie)), neighbour], Arbiter()))[0]


def measure_double_reporting(maximum: int, load: Load) -> float:
    """What the neighbour gets beside one that works and reports twice as much."""
    liar = replace(load, lie=lambda name, ns: 2 * ns if name == "done" else ns)
    return shares(World([tenant(1, maximum, maximum, load), tenant(2, 500, 1000, liar)], Arbiter()))[0]


def neighbour_share(maximum: int, load: Load, busy: float, latency: bool) -> float:
    """What the neighbour gets beside one that runs nothing and reports all of the time."""
    world = HostileWorld([tenant(1, maximum, maximum, load), attacker(9, 500, latency=latency)], {9: boast(1, 1, busy)})
    return shares(world)[0]


def main() -> None:
    """Prints a line for each case."""
    for minimum in (100, 400):
        for what, load in LOADS.items():
            for lie, distort in TOO_LITTLE.items():
                print(f"min {minimum} {what}, {lie}: {measure_underreporting(minimum, load, distort):.3f}", flush=True)
    for maximum in (100, 200, 400):
        for what, load in LOADS.items():
            print(
                f"max {maximum} {what}, neighbour tells twice: {measure_double_reporting(maximum, load):.3f}",
                flush=True,
            )
            for busy, latency in ((1, False), (1, True), (0.8, False)):
                had = neighbour_share(maximum, load, busy, latency)
                print(f"max {maximum} {what}, neighbour boasts {busy} {latency}: {had:.3f}", flush=True)


if __name__ == "__main__":
    main()
