"""Jobs under a real Slurm on this machine: are two shares of one device kept, and what does the plugin cost a start?

Shares: `shard:300` and `shard:700` on one simulated device, both saturating; shares are from the device's own log.
Memory: each job allocates what its slice allows, and one granule more. Starts: `srun --gres=shard:500 true`, with the
plugin and without it, as pairs in random order; the difference is taken within a pair. Needs root and Debian's packages
slurmctld, slurmd, slurm-client, munge and libslurm-dev.
"""

from __future__ import annotations

import json
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.table import at_most, judge
from tests.slurm.cluster import ROOT, Cluster, cluster, missing
from vgpud.cli.demo.private_system import wait_for
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS, mean_share, read_busy_log

NODE = "n1"
SHARDS = (300, 700)
KERNEL_US = 200
WARM_UP_NS = 2 * SECOND_NS
GOAL_SHARE_PP, GOAL_START_MS = 1.0, 50.0
OUT_OF_MEMORY = 2


def start_jobs(cluster: Cluster, run_s: int) -> dict[int, int]:
    """Starts a saturating job of each size; shards -> pid of its program."""
    program = str(harness.build("tenants/load.c"))
    found: dict[int, int] = {}
    for shards in SHARDS:
        known = set(cluster.names(NODE))
        command = [program, "--kernel-us", str(KERNEL_US), "--burst", "16", "--seconds", str(run_s)]
        cluster.begin(
            "srun", "-w", NODE, f"--gres=shard:{shards}", f"--output={cluster.folder}/job-{shards}.out", *command
        )

        def is_attached(shards: int = shards, known_names: set[str] = known) -> bool:
            with cluster.systems[NODE].client() as client:
                new = [p.pid for p in client.all(calls.processes()) if p.slice not in known_names]
            found.update({shards: new[0]} if new else {})
            return bool(new)

        wait_for(f"the job with shard:{shards}", is_attached, 60)
    return found


def shares(cluster: Cluster, seconds: float) -> dict[int, float]:
    """shards -> its share of the device, over `seconds`."""
    pids = start_jobs(cluster, round(seconds) + 60)
    begin_ns = time.monotonic_ns() + WARM_UP_NS
    end_ns = begin_ns + int(seconds * SECOND_NS)
    while time.monotonic_ns() < end_ns + SECOND_NS // 4:
        time.sleep(0.2)
    spans = read_busy_log(cluster.systems[NODE].busy_log())
    cluster.call("scancel", "--user=root", f"--signal={signal.SIGKILL.value}")
    wait_for("the end of both jobs", lambda: cluster.names(NODE) == [], 60)
    return {shards: mean_share(spans, pid, begin_ns, end_ns) for shards, pid in pids.items()}


def view(cluster: Cluster, shards: int, *arguments: str) -> dict[str, Any]:
    """What a program of a job sees."""
    done = cluster.call("srun", "-w", NODE, f"--gres=shard:{shards}", str(cluster.folder / "view"), *arguments)
    found: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return found


def memory(cluster: Cluster) -> dict[int, dict[str, int]]:
    """shards -> bytes of its limit, as asked for and as seen, and the codes of the last allocation that fits and of one
    granule more."""
    flags = ["-std=gnu11", "-I", "tests/sim", "-iquote", "shim", "-o", str(cluster.folder / "view")]
    sources = ["tests/containers/programs/view.c", "vgpud/lib/sim/libcuda.so.1", "-ldl"]
    subprocess.run(["gcc", *flags, *sources], cwd=ROOT, check=True)
    with cluster.systems[NODE].client() as client:
        device = client.all(calls.devices())[0]
    found = {}
    for shards in SHARDS:
        wanted = device.mem_total_bytes * shards // 1000
        wanted -= wanted % device.granule_bytes
        most = wanted - device.context_bytes
        found[shards] = {
            "wanted_bytes": wanted,
            "seen_bytes": view(cluster, shards)["cuda_bytes"],
            "all_of_it": view(cluster, shards, str(most))["alloc"],
            "a_granule_more": view(cluster, shards, str(most + device.granule_bytes))["alloc"],
        }
    return found


def is_exact(row: Mapping[str, int]) -> bool:
    """Whether a job had its memory to the byte."""
    codes = row["all_of_it"], row["a_granule_more"]
    return row["wanted_bytes"] == row["seen_bytes"] and codes == (0, OUT_OF_MEMORY)


def starts(cluster: Cluster, rounds: int, seed: int) -> dict[str, list[float]]:
    """ms of each `srun`, after a first pair that is not counted."""
    order = random.Random(seed)
    taken: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(-1, rounds):
        for variant in order.sample(list(taken), len(taken)):
            # srun and slurmstepd read it at each start
            cluster.plugstack.write_text(cluster.plugstack_text if variant == "with" else "")
            begin = time.monotonic()
            cluster.call("srun", "-w", NODE, "--gres=shard:500", "true")
            took_ms = (time.monotonic() - begin) * 1000
            if number >= 0:
                taken[variant].append(took_ms)
    cluster.plugstack.write_text(cluster.plugstack_text)
    return taken


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed, 3 where no Slurm can run."""
    made = harness.parser(__doc__)
    made.add_argument("--seconds", type=float, default=20.0, help="of the shares (default: %(default)s)")
    made.add_argument("--rounds", type=int, default=30, help="pairs of starts (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the order within a pair (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("two nodes on one machine need two devices each: run it on simulated ones")
    reason = missing()
    if reason:
        print(f"cannot measure here: {reason}")
        return 3
    harness.BUILD.mkdir(parents=True, exist_ok=True)
    model = {"VGPU_SIM_KERNELS": str(harness.spin_model(Path(harness.BUILD), [KERNEL_US]))}
    with cluster(sim=harness.one_device(), env=model) as site:
        device = site.systems[NODE].device_name()
        version = site.call("srun", "--version").stdout.strip()
        got, held = shares(site, args.seconds), memory(site)
        taken = starts(site, args.rounds, args.seed)
    added = [after - before for after, before in zip(taken["with"], taken["without"], strict=True)]
    errors = {shards: abs(share * 100 - shards / 10) for shards, share in got.items()}
    figures = {
        "shares": {str(shards): round(share, 5) for shards, share in got.items()},
        "share_error_pp": round(max(errors.values()), 3),
        "memory_exact": all(is_exact(row) for row in held.values()),
        "start_without_median_ms": statistics.median(taken["without"]),
        "start_with_median_ms": statistics.median(taken["with"]),
        "start_added_median_ms": statistics.median(added),
    }
    print(f"shares {figures['shares']}, memory {'exact' if figures['memory_exact'] else held}")
    print(f"srun: median {figures['start_without_median_ms']:.1f} ms without the plugin")
    good = judge("share error, pp", max(errors.values()), at_most(GOAL_SHARE_PP))
    good &= bool(figures["memory_exact"])
    cost = statistics.median(added)
    good &= judge("added to srun by the plugin, median, ms", cost, at_most(GOAL_START_MS))
    path = results.write(
        "slurm",
        is_simulated=True,
        device=device,
        parameters={"seconds": args.seconds, "rounds": args.rounds, "seed": args.seed, "slurm": version},
        goals={"share_error_pp": GOAL_SHARE_PP, "start_added_median_ms": GOAL_START_MS, "memory_exact": True},
        figures=figures,
        raw={"memory": {str(k): v for k, v in held.items()}, **{f"start_{k}_ms": v for k, v in taken.items()}},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
