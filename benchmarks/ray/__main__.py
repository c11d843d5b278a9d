"""Eight actors of mixed fractions on two nodes, and twenty trials of a quarter each: is each held to its share and its
memory, and what does that cost against the same without slices?

Ray, its nodes and each node's vgpud are real and on this machine, the devices are simulated. Shares are from the
devices' own logs: of all time, which is what is promised, and of the time in which the device was busy. The difference
is time in which the device changed from one actor to another, or none had work on it since the machine's processors
were late: without slices, where contexts change each millisecond, it is more (steps per second).
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import vgpud.ray
from benchmarks import harness, results
from benchmarks.ray.workers import fenced_options, get, start, unfenced_options
from benchmarks.table import at_most, judge
from tests.ray import programs
from tests.ray.ray_cluster import RayCluster, missing, ray_cluster
from vgpud.simdevice import busy_log

CANNOT = 3
#: of each node's one device; each is one actor
FRACTIONS = ((0.5, 0.25, 0.15, 0.1), (0.4, 0.3, 0.2, 0.1))
DEVICE_BYTES = 8 << 30
SETTLE_S = 2.0
TRIALS, TRIAL_GPUS, TRIAL_MS = 20, 0.25, 500
GOALS = {"worst_share_points": 1.0, "over_memory": 0, "in_anothers_slice": 0}


def limit_bytes(gpus: float) -> int:
    """Memory of an actor: its part of the device, in whole 16 MiB."""
    return int(DEVICE_BYTES * gpus) // (16 << 20) * (16 << 20)


def steps_per_second(nodes: RayCluster, actors: Sequence[Any], seconds: float) -> tuple[float, int, int]:
    """(steps of all actors per second, begin_ns, end_ns) of a while after they have begun."""
    get(nodes, [actor.begin.remote() for actor in actors])
    time.sleep(SETTLE_S)
    before, begin_ns = get(nodes, [actor.steps.remote() for actor in actors]), time.monotonic_ns()
    time.sleep(seconds)
    after, end_ns = get(nodes, [actor.steps.remote() for actor in actors]), time.monotonic_ns()
    return (sum(after) - sum(before)) / ((end_ns - begin_ns) / 1e9), begin_ns, end_ns


def actors_row(nodes: RayCluster, seconds: float) -> dict[str, Any]:
    """All actors in slices: each one's share, memory and slice."""
    placed = [(number, gpus) for number, each in enumerate(FRACTIONS) for gpus in each]
    actors = [start(nodes, number, fenced_options(gpus, mem=limit_bytes(gpus))) for number, gpus in placed]
    seen = get(nodes, [actor.look_at_devices.remote() for actor in actors])
    slices = [{made.name.split("-")[1]: made for made in nodes.slices(number)} for number in range(len(FRACTIONS))]
    rate, begin_ns, end_ns = steps_per_second(nodes, actors, seconds)
    time.sleep(0.3)  # the log is written behind the device's time
    spans = [busy_log.read_busy_log(system.busy_log()) for system in nodes.systems]
    rows = []
    for (number, gpus), one in zip(placed, seen, strict=True):
        made = slices[number].get(str(one["pid"]))
        rows.append(
            {
                "node": number,
                "gpus": gpus,
                "share": busy_log.mean_share(spans[number], one["pid"], begin_ns, end_ns),
                "slice_is_its_own": made is not None and made.devices[0].min_milli == round(gpus * 1000),
                "shown_bytes": one["bytes"],
                "limit_bytes": limit_bytes(gpus),
            }
        )
    for row, most in zip(rows, get(nodes, [actor.most_memory.remote() for actor in actors]), strict=True):
        row["allocated_bytes"] = most + programs.Tenant.MEMORY_BYTES
    for actor in actors:
        nodes.ray.kill(actor)
    wait(lambda: not any(nodes.slices(number) for number in range(len(FRACTIONS))))
    return {"steps_per_second": rate, "actors": rows}


def unfenced_row(nodes: RayCluster, seconds: float) -> float:
    """Steps per second of the same actors, which nothing limits."""
    placed = [(number, gpus) for number, each in enumerate(FRACTIONS) for gpus in each]
    actors = [start(nodes, number, unfenced_options(gpus, nodes.systems[number])) for number, gpus in placed]
    rate, _begin_ns, _end_ns = steps_per_second(nodes, actors, seconds)
    for actor in actors:
        nodes.ray.kill(actor)
    return rate


def wait(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end_s = time.monotonic() + seconds
    while not condition() and time.monotonic() < end_s:
        time.sleep(0.2)


def tune_row(nodes: RayCluster, folder: Path) -> dict[str, Any]:
    """Twenty trials in slices: their memory, their processes, and the time of all."""
    from ray import tune

    def trial(config: dict[str, Any]) -> None:
        tune.report(programs.device_time(TRIAL_MS))

    place = tune.PlacementGroupFactory([{"CPU": 0.5, "GPU": TRIAL_GPUS}])
    environment = vgpud.ray.runtime_env(TRIAL_GPUS, max=1)
    nodes.ray.shutdown()
    nodes.ray.init(address=nodes.cluster.address, runtime_env=environment, log_to_driver=False)
    begin_s = time.monotonic()
    search = {"x": tune.grid_search(list(range(TRIALS)))}
    quiet = tune.RunConfig(storage_path=str(folder), verbose=0)
    found = tune.Tuner(tune.with_resources(trial, place), param_space=search, run_config=quiet).fit()
    seconds = time.monotonic() - begin_s
    metrics = [one.metrics or {} for one in found]
    return {
        "trials": len(metrics),
        "failed": len(found.errors),
        "seconds": seconds,
        "shown_bytes": sorted({one.get("bytes") for one in metrics}, key=str),
        "wanted_bytes": int(DEVICE_BYTES * TRIAL_GPUS),
        "processes": len({one.get("pid") for one in metrics}),
    }


def _busy(actors: Sequence[dict[str, Any]], number: int) -> float:
    """Part of the time in which a node's device computed."""
    return float(sum(one["share"] for one in actors if one["node"] == number))


def figures_of(row: dict[str, Any], plain: float, trials: dict[str, Any] | None) -> dict[str, Any]:
    actors = row["actors"]
    figures = {
        "worst_share_points": max(abs(one["share"] - one["gpus"]) for one in actors) * 100,
        "worst_share_of_busy_points": max(
            abs(one["share"] / _busy(actors, one["node"]) - one["gpus"]) for one in actors
        )
        * 100,
        "idle_points": max(1 - _busy(actors, number) for number in range(len(FRACTIONS))) * 100,
        "over_memory": sum(one["allocated_bytes"] > one["limit_bytes"] for one in actors),
        "in_anothers_slice": sum(not one["slice_is_its_own"] for one in actors),
        "steps_per_second_fenced": row["steps_per_second"],
        "steps_per_second_unfenced": plain,
        "fenced_over_unfenced": row["steps_per_second"] / plain,
    }
    if trials:
        wrong = trials["shown_bytes"] != [trials["wanted_bytes"]] or trials["processes"] != trials["trials"]
        figures |= {"trials_failed": trials["failed"], "trials_not_held": int(wrong), "trials_s": trials["seconds"]}
    return figures


def main() -> int:
    """Exit code 0: all goals were met; 3: Ray is not installed."""
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="of computing that is measured (default: 15)")
    given = parser.parse_args()
    if missing():
        print(missing(), file=sys.stderr)
        return CANNOT
    sim = {"devices": "1", "memory_bytes": f"{DEVICE_BYTES >> 30}G"}
    with tempfile.TemporaryDirectory(prefix="vgr-", dir="/tmp") as folder:
        with ray_cluster(Path(folder), len(FRACTIONS), sim) as nodes:
            row = actors_row(nodes, given.seconds)
            plain = unfenced_row(nodes, given.seconds)
            trials = tune_row(nodes, Path(folder) / "tune") if importlib.util.find_spec("pandas") else None
            device = nodes.systems[0].device_name()
    figures = figures_of(row, plain, trials)
    met = [judge(name, figures[name], at_most(goal)) for name, goal in GOALS.items()]
    print(f"  of busy time {figures['worst_share_of_busy_points']:.2f} points off, idle {figures['idle_points']:.2f}")
    print(f"  steps per second in slices {row['steps_per_second']:.1f}, without {plain:.1f}")
    print(f"  trials: {trials or 'not run: needs the package ray[tune]'}")
    path = results.write(
        "ray",
        is_simulated=True,
        device=device,
        parameters={"fractions": FRACTIONS, "seconds": given.seconds, "device_bytes": DEVICE_BYTES, "trials": TRIALS},
        goals=GOALS,
        figures=figures,
        raw={"actors": row, "unfenced_steps_per_second": plain, "trials": trials or {}},
        folder=given.results,
    )
    print(path)
    return 0 if all(met) else 1


if __name__ == "__main__":
    raise SystemExit(main())
