"""How long kubelet waits for a claim: Prepare and Unprepare of claims one after another, beside some that stay.

Measured at kubelet's end of the driver's socket: the driver's process, its read of the claim from the API server, and
vgpud's transaction and CDI file are all in it. Then claims that come at once, as after a node's start.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import harness, results
from benchmarks.kubernetes.node import Api, Claim, Kubelet, node, part
from benchmarks.table import at_most, judge
from vgpud.cli.demo.private_system import PartError

GOAL_P50_MS, GOAL_P99_MS = 20.0, 60.0
DEVICES = 8
SIM = {"devices": str(DEVICES)}
#: longest pause between two claims
PAUSE_S = 0.02


def timed_ms(call: Any, *claims: Claim) -> float:
    """How long a call took. Raises PartError with its error."""
    begin = time.perf_counter()
    error = call(*claims)
    took_ms = (time.perf_counter() - begin) * 1000
    if error:
        raise PartError(error)
    return took_ms


def one_by_one(api: Api, kubelet: Kubelet, count: int, staying: int, rng: random.Random) -> dict[str, list[float]]:
    """ms of each Prepare and Unprepare; the claim before the last `staying` ones is released each time."""
    taken: dict[str, list[float]] = {"prepare_ms": [], "unprepare_ms": []}
    there: list[Claim] = []
    for number in range(-staying, count):
        claim = api.add(part(f"c{number + staying}", number % DEVICES, 100, 1024))
        time.sleep(rng.uniform(0, PAUSE_S))
        took_ms = timed_ms(kubelet.prepare, claim)
        there.append(claim)
        if number < 0:
            continue
        taken["prepare_ms"].append(took_ms)
        oldest = there.pop(0)
        taken["unprepare_ms"].append(timed_ms(kubelet.unprepare, oldest))
        api.remove(oldest)
    for claim in there:
        timed_ms(kubelet.unprepare, claim)
        api.remove(claim)
    return taken


def at_once(api: Api, kubelet: Kubelet, crowd: int) -> list[float]:
    """ms of each Prepare when kubelet asks for all of them at a time, each in a call of its own."""
    claims = [api.add(part(f"crowd{n}", n % DEVICES, 50, 1024)) for n in range(crowd)]
    with ThreadPoolExecutor(crowd) as pool:
        taken = list(pool.map(lambda claim: timed_ms(kubelet.prepare, claim), claims))
    timed_ms(kubelet.unprepare, *claims)
    return taken


def quantile(values: Sequence[float], of_100: int) -> float:
    """Percentile, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * of_100 // 100)]


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--count", type=int, default=200, help="claims one after another (default: %(default)s)")
    made.add_argument("--staying", type=int, default=16, help="claims that are there beside (default: %(default)s)")
    made.add_argument("--crowd", type=int, default=32, help="claims at once (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the pauses between claims (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("how long a claim takes does not depend on the device: run it on the simulated one")
    with node(SIM) as (cluster, api):
        device, server = cluster.system.device_name(), api.name
        kubelet = Kubelet(cluster.kubelet.endpoint)
        taken = one_by_one(api, kubelet, args.count, args.staying, random.Random(args.seed))
        taken["crowd_prepare_ms"] = at_once(api, kubelet, args.crowd)
        kubelet.close()
    figures: dict[str, Any] = {"api_server": server}
    for name, values in taken.items():
        figures[name] = {"p50": statistics.median(values), "p99": quantile(values, 99), "max": max(values)}
        print(f"  {name:<18} " + "  ".join(f"{key} {value:7.1f}" for key, value in figures[name].items()))
    p50, p99 = figures["prepare_ms"]["p50"], figures["prepare_ms"]["p99"]
    good = judge("Prepare of a claim, p50, ms", p50, at_most(GOAL_P50_MS))
    good &= judge("Prepare of a claim, p99, ms", p99, at_most(GOAL_P99_MS))
    path = results.write(
        "kubernetes_prepare",
        is_simulated=True,
        device=device,
        parameters={"count": args.count, "staying": args.staying, "crowd": args.crowd, "devices": DEVICES},
        goals={"prepare_p50_ms": GOAL_P50_MS, "prepare_p99_ms": GOAL_P99_MS},
        figures=figures,
        raw={name: [round(value, 3) for value in values] for name, values in taken.items()},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
