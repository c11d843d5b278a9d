"""What our runtime adds to `docker run`: the same container over runc, and over vgpu without a request and with one.

Each round runs all three once, in random order, so that what the machine does beside hits them alike; the difference
is taken within a round. `docker run --rm --network=none IMAGE /bin/true`, from the start of docker's command to its
end: creation, the daemon's answer, the preparation of the root, both hooks and the deletion are all in it. Needs root
and dockerd.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import engine, harness, results
from benchmarks.base_image import ImageError, base_tar
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import PartError

GOAL_MS = 25.0
#: what is run -> (runtime, options of docker run)
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "runc": ("runc", ()),
    "vgpu_without_request": ("vgpu", ()),
    "vgpu": ("vgpu", ("-e", "VGPU=0.5")),
}


def one_run_ms(docker: engine.Docker, variant: str) -> float:
    """The time of one `docker run`. Raises PartError when it fails."""
    runtime, options = VARIANTS[variant]
    begin = time.monotonic()
    done = docker.run(*options, engine.BASE, "/bin/true", runtime=runtime)
    took_ms = (time.monotonic() - begin) * 1000
    if done.returncode:
        raise PartError(f"docker run over {variant} ended with {done.returncode}: {done.stderr.strip()}")
    return took_ms


def measure(docker: engine.Docker, rounds: int, seed: int) -> dict[str, list[float]]:
    """variant -> ms of each round, after one round that is not counted (it fills caches and makes the library tree)."""
    order = random.Random(seed)
    taken: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for number in range(-1, rounds):
        for variant in order.sample(list(VARIANTS), len(VARIANTS)):
            took_ms = one_run_ms(docker, variant)
            if number >= 0:
                taken[variant].append(took_ms)
    return taken


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The values below which a quarter and three quarters lie."""
    low, _, high = statistics.quantiles(values, n=4)
    return low, high


def figures_of(times_ms: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Medians of each variant, and of the differences to runc within a round with their quartiles, in ms."""
    figures = {f"{variant}_median_ms": statistics.median(values) for variant, values in times_ms.items()}
    for variant in times_ms:
        if variant != "runc":
            added = [with_us - plain for with_us, plain in zip(times_ms[variant], times_ms["runc"], strict=True)]
            figures[f"{variant}_added_median_ms"] = statistics.median(added)
            figures[f"{variant}_added_p25_ms"], figures[f"{variant}_added_p75_ms"] = quartiles(added)
    return figures


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when the goal is missed, 3 where no engine can run."""
    made = harness.parser(__doc__)
    made.add_argument("--rounds", type=int, default=30, help="runs of each kind (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the order within a round (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("how a container starts does not depend on the device: run it on the simulated one")
    if args.rounds < 2:
        made.error(f"--rounds {args.rounds}: quartiles need at least 2")
    reason = engine.why_not("dockerd", "docker")
    if reason:
        print(f"cannot measure here: {reason}")
        return 3
    with tempfile.TemporaryDirectory(prefix="vge-") as name, harness.system(harness.one_device()) as own:
        device = own.device_name()
        try:
            with engine.Docker(Path(name), {"vgpu": engine.front_of(own)}) as docker:
                docker.import_base(base_tar())
                taken = measure(docker, args.rounds, args.seed)
        except ImageError as error:
            print(f"cannot measure here: {error}")
            return 3
    figures = figures_of(taken)
    for variant in VARIANTS:
        print(f"  {variant:<24} median {figures[f'{variant}_median_ms']:8.1f} ms")
    print(f"  added without a request  median {figures['vgpu_without_request_added_median_ms']:8.1f} ms")
    added = figures["vgpu_added_median_ms"]
    good = judge("added to docker run by a slice, median, ms", added, at_most(GOAL_MS))
    path = results.write(
        "container_latency",
        is_simulated=True,
        device=device,
        parameters={
            "rounds": args.rounds,
            "seed": args.seed,
            "command": "docker run --rm --network=none IMAGE /bin/true",
        },
        goals={"vgpu_added_median_ms": GOAL_MS},
        figures=figures,
        raw={f"{variant}_ms": values for variant, values in taken.items()},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
