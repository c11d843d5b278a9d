"""Pods on a real Kubernetes node: are five of a fifth each held to it, when does a sixth start, what does a claim cost.

All of Kubernetes is real (KUBEBUILDER_ASSETS names the folder of its programs): API server, scheduler, controllers,
kubelet, containerd; the device is simulated. Shares come from the device's own log over the whole of --seconds. The
sixth pod waits for capacity: its delay is from the end of another's program to its own first line. A pod's start is
from its creation in the API to the first line of its only command, with a claim of ours that exists already and
without, in random order; both wait for scheduler and kubelet.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import harness, results
from benchmarks.container_latency import quartiles
from benchmarks.table import at_most, judge
from tests.k8s import control_plane as plane
from tests.k8s import node as nodes
from tests.k8s.node import RealNode, cluster
from tests.k8s.pods import LOAD, amounts, claim, pod
from vgpud.cli.demo.private_system import wait_for
from vgpud.host import processes
from vgpud.simdevice.busy_log import SECOND_NS, mean_share, read_busy_log

COUNT, MILLI, MEMORY = 5, 200, "2Gi"
#: what containers print the time by: the same clock as ours
SAY_TIME = ("sh", "-c", 'echo "{\\"wall_ns\\": $(date +%s%N)}"')
GOAL_ERROR_PP, GOAL_SIXTH_S, GOAL_ADDED_MS = 1.0, 5.0, 100.0
WITH, WITHOUT = "with_claim", "without"
WAIT_S = 60.0


def fifth(node: RealNode, name: str) -> None:
    """A pod that keeps its fifth of the device busy."""
    node.api.create(claim(name, amounts(MILLI, MEMORY)))
    node.run(pod(name, LOAD, claim_name=name))


def shares(node: RealNode, names: Sequence[str], seconds: float) -> dict[str, float]:
    """Pod -> its share (0..1) of the device."""
    pids = node.at_work(*names)
    begin_ns = time.monotonic_ns() + 2 * SECOND_NS
    end_ns = begin_ns + int(seconds * SECOND_NS)
    time.sleep((end_ns - time.monotonic_ns()) / SECOND_NS + 0.5)  # the log is written behind the device's time
    spans = read_busy_log(node.system.busy_log())
    return {name: mean_share(spans, pid, begin_ns, end_ns) for name, pid in zip(names, pids, strict=True)}


def next_start_s(node: RealNode, ends: str, waits: str) -> float:
    """Deletes a pod. Returns the time from its program's end to the first line of the pod that waited for it."""
    (pid,) = node.pids(ends)
    node.api.client().delete(plane.Pod, ends, namespace="default")
    _wait_until(lambda: not processes.runs(pid), f"the end of {ends}")
    ended_ns = time.monotonic_ns()
    _wait_until(lambda: bool(node.read_output(waits)), f"{waits}'s first line")
    return float(node.read_output(waits)[0]["time_ns"] - ended_ns) / 1e9


def sixth_starts_s(node: RealNode, names: Sequence[str], rounds: int) -> list[float]:
    """One pod waits, one of the others ends: again and again."""
    running, taken = list(names), []
    for number in range(rounds):
        waiting = f"waits-{number}"
        fifth(node, waiting)
        _wait_until(lambda name=waiting: bool(node.events(name)), f"the scheduler's verdict on {waiting}")  # type: ignore[misc]
        taken.append(next_start_s(node, running.pop(0), waiting))
        node.at_work(waiting)
        running.append(waiting)
    return taken


def start_ms(node: RealNode, name: str, claim_name: str) -> float:
    """The time from a pod's creation to its first line."""
    given = pod(name, SAY_TIME, claim_name=claim_name)
    begin_ns = time.time_ns()
    node.run(given)
    _wait_until(lambda: bool(node.read_output(name)), f"{name}'s first line")
    return float(node.read_output(name)[0]["wall_ns"] - begin_ns) / 1e6


def starts_ms(node: RealNode, rounds: int, seed: int) -> dict[str, list[float]]:
    """Each kind's times, one of each in a round, after one that is not counted."""
    order = random.Random(seed)
    taken: dict[str, list[float]] = {WITH: [], WITHOUT: []}
    for number in range(-1, rounds):
        for kind in order.sample(list(taken), len(taken)):
            name = f"{kind.replace('_', '-')}-{number + 1}"
            if kind == WITH:
                node.api.create(claim(name, amounts(MILLI, MEMORY)))
            took_ms = start_ms(node, name, name if kind == WITH else "")
            if number >= 0:
                taken[kind].append(took_ms)
            node.wait_for_end(name)
            node.clear()
    return taken


def _wait_until(ready: Callable[[], bool], what: str) -> None:
    wait_for(what, ready, WAIT_S)


def figures_of(
    pod_shares: Mapping[str, float], sixth_s: Sequence[float], start_times_ms: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Differences of starts are taken within a round."""
    added = [ours - plain for ours, plain in zip(start_times_ms[WITH], start_times_ms[WITHOUT], strict=True)]
    low, high = quartiles(added)
    return {
        "share_error_worst_pp": max(abs(share - MILLI / 1000) * 100 for share in pod_shares.values()),
        "share_sum": sum(pod_shares.values()),
        "sixth_start_worst_s": max(sixth_s),
        "sixth_start_median_s": statistics.median(sixth_s),
        "start_with_claim_median_ms": statistics.median(start_times_ms[WITH]),
        "start_without_median_ms": statistics.median(start_times_ms[WITHOUT]),
        "start_added_median_ms": statistics.median(added),
        "start_added_p25_ms": low,
        "start_added_p75_ms": high,
    }


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed, 3 where no node can run."""
    made = harness.parser(__doc__)
    made.add_argument("--seconds", type=float, default=10.0, help="that shares are measured (default: %(default)s)")
    made.add_argument("--sixths", type=int, default=5, help="pods that wait for another's end (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=20, help="starts of each kind (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the order within a round (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("shares come from the simulated device's own log: run it on the simulated one")
    if args.rounds < 2 or args.sixths < 1:
        made.error("--rounds: at least 2, for quartiles; --sixths: at least 1")
    reason = nodes.missing()
    if reason:
        print(f"cannot measure here: {reason}")
        return 3
    names = [f"fifth-{number}" for number in range(COUNT)]
    with cluster(harness.one_device()) as node:
        device = node.system.device_name()
        for name in names:
            fifth(node, name)
        got = shares(node, names, args.seconds)
        sixth_s = sixth_starts_s(node, names, args.sixths)
        node.clear()
        taken = starts_ms(node, args.rounds, args.seed)
    figures = figures_of(got, sixth_s, taken)
    error, late, added = (figures[k] for k in ("share_error_worst_pp", "sixth_start_worst_s", "start_added_median_ms"))
    good = [
        judge("five pods of 0.2: worst share error, points", error, at_most(GOAL_ERROR_PP)),
        judge("a sixth starts after one ends, worst, s", late, at_most(GOAL_SIXTH_S)),
        judge("added to a pod's start by a claim, median, ms", added, at_most(GOAL_ADDED_MS)),
    ]
    print(f"  a pod's start without a claim, median, ms {figures['start_without_median_ms']:8.1f}")
    path = results.write(
        "kubernetes_pods",
        is_simulated=True,
        device=device,
        parameters={"seconds": args.seconds, "sixths": args.sixths, "rounds": args.rounds, "seed": args.seed},
        goals={
            "share_error_worst_pp": GOAL_ERROR_PP,
            "sixth_start_worst_s": GOAL_SIXTH_S,
            "start_added_median_ms": GOAL_ADDED_MS,
        },
        figures=figures,
        raw={"shares": got, "sixth_starts_s": sixth_s, **{f"{kind}_ms": values for kind, values in taken.items()}},
        folder=args.results,
    )
    print(path)
    return 0 if all(good) else 1


if __name__ == "__main__":
    raise SystemExit(main())
