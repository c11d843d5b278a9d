"""The link between host and device, shared: a request's time beside a slice that copies all the time, parts of the link
of slices that both do, and what a counted copy costs.

The simulated link is slow (--link), since a host moves the bytes of all copies: so one program fills it. Shares come
from the device's own log of links. A request copies its input, runs a kernel and copies 4 KiB back; its time on the
device is separate from what the host's processors add. `--without` is another build of libvgpu.so, for what the
counter adds to a copy's call: pairs of runs over a stub driver, in turn.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness, overhead, results
from benchmarks.table import at_most, judge
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.simdevice.link_log import TO_DEVICE, link_share, read_link_log

MIB = 1 << 20
BLOCK = 16 * MIB
KERNEL_US, PERIOD_US = 5000, 20_000
#: of the simulated link in its time: as 12.5 MiB over 50 GB/s
REQUEST_PART_US = 250
SETTLE_S = 2.0
GOAL_LATENCY, GOAL_SHARE, GOAL_COPY_NS = 1.2, 0.02, 10.0
CALLS = 1000

Requests = list[tuple[float, float]]


def start(own: OwnSystem, name: str, *words: object) -> tuple[Part, list[dict[str, Any]]]:
    """A tenant that is ready, and what it says."""
    flags = ("-iquote", str(harness.ROOT / "shim"), f"-L{paths.sim_lib_dir()}", "-l:libcuda.so.1")
    program = str(harness.build("tenants/copies.c", *flags))
    part = own.run(name, (), [program, *(str(word) for word in words)], talk=True)
    said: list[dict[str, Any]] = []

    def has_said() -> bool:
        said.extend(part.lines())
        return bool(said)

    wait_for("the tenant", has_said)
    return part, said


def go(part: Part) -> None:
    """Lets a tenant begin."""
    assert part.process.stdin
    part.process.stdin.write(b"\n")
    part.process.stdin.flush()


@contextmanager
def copying(own: OwnSystem, seconds: float, *names: str) -> Iterator[list[int]]:
    """Tenants that copy all the time in these slices: their pids."""
    parts = [start(own, name, "all", BLOCK, seconds) for name in names]
    for part, _ in parts:
        go(part)
    time.sleep(SETTLE_S)
    pids = [int(said[0]["ready"]) for _, said in parts]
    yield pids
    for (part, _), pid in zip(parts, pids, strict=True):
        os.kill(pid, signal.SIGKILL)  # the program itself: `vgpu run` ends with it
        part.process.wait(60)


def request(own: OwnSystem, bytes_: int, seconds: float) -> Requests:
    """Microseconds of each request by the host's clock and by the device's."""
    part, said = start(own, "infer", "infer", bytes_, KERNEL_US, PERIOD_US, seconds)
    go(part)
    part.process.wait(seconds + 120)
    said.extend(part.lines())
    return [(host, device) for host, device in said[-1]["requests_us"]]


def p99(values: list[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[int(len(values) * 0.99)]


def set_link(own: OwnSystem, **parts: tuple[str, str]) -> None:
    """Each slice's minimum and maximum of the link."""
    for name, (low, high) in parts.items():
        own.vgpu("slice", "set", name, "--copy-min", low, "--copy-max", high)


def measure_shares(own: OwnSystem, seconds: float) -> tuple[float, float]:
    """Parts of the link of two slices that copy all the time."""
    with copying(own, seconds + 60, "infer", "copy") as pids:
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns() - 200_000_000
        log = read_link_log(own.sim_dir / "links-0.log")
    first, second = (link_share(log, pid, TO_DEVICE, begin_ns, end_ns) for pid in pids)
    return first, second


def copy_cost(other_hook: Path, repeats: int) -> dict[str, list[float]]:
    """ns of a copy's call through the hook over the direct call, with this build and with another, in turn."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as folder, harness.system(harness.one_device()) as own:
        stub = overhead.build_stub(Path(folder))
        for _ in range(repeats):
            for name, hook in (("with", None), ("without", other_hook)):
                run = overhead.measure(own, stub, "solo", "copy", 1, CALLS, hook=hook)
                found[name].append(run["difference_ns"])
    return found


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument("--seconds", type=float, default=20.0, help="of each row (default: %(default)s)")
    made.add_argument("--without", type=Path, metavar="FILE", help="another libvgpu.so, for the cost of a counted copy")
    made.add_argument("--link", type=int, default=500, help="MB/s of the simulated link (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("shares of a link are measured by the simulated device's log: leave out --real")
    bytes_ = args.link * REQUEST_PART_US
    config = harness.one_device() | {"link_bytes_per_us": str(args.link)}
    load = [os.getloadavg()[0]]
    with harness.system(config, lengths_us=(KERNEL_US,)) as own:
        for name in ("infer", "copy"):
            own.vgpu("slice", "create", name, "--gpus", "0.5", "--mem", "4G")
        alone = request(own, bytes_, args.seconds)
        with copying(own, args.seconds + 120, "copy"):
            unpaced = request(own, bytes_, args.seconds)
        set_link(own, infer=("0.3", "default"))
        with copying(own, args.seconds + 120, "copy"):
            paced = request(own, bytes_, args.seconds)
        minimum = measure_shares(own, args.seconds)
        set_link(own, infer=("default", "0.3"))
        maximum = measure_shares(own, args.seconds)
        device = own.device_name()
    figures: dict[str, Any] = {}
    cost = copy_cost(args.without, 5) if args.without else {}
    load.append(os.getloadavg()[0])
    for name, runs in cost.items():
        figures[f"copy_{name}_counter_ns"] = round(statistics.median(runs), 2)
    for index, clock in enumerate(("host", "device")):
        figures[f"p99_alone_{clock}_us"] = round(p99([one[index] for one in alone]), 1)
        for name, row in (("without_parts", unpaced), ("with_minimum", paced)):
            figures[f"p99_{name}_{clock}_us"] = round(p99([one[index] for one in row]), 1)
            figures[f"p99_{name}_{clock}_ratio"] = round(
                figures[f"p99_{name}_{clock}_us"] / figures[f"p99_alone_{clock}_us"], 3
            )
    figures["median_alone_device_us"] = round(statistics.median(one[1] for one in alone), 1)
    figures["shares_minimum"] = [round(share, 4) for share in minimum]
    figures["shares_maximum"] = [round(share, 4) for share in maximum]
    expected = {"minimum": (0.65, 0.35), "maximum": (0.3, 0.7)}
    errors = [
        abs(share - wanted)
        for name, shares in (("minimum", minimum), ("maximum", maximum))
        for share, wanted in zip(shares, expected[name], strict=True)
    ]
    figures["share_error"] = round(max(errors), 4)
    print(json.dumps(figures, indent=2))
    good = judge(
        "request p99 beside copies, over alone", figures["p99_with_minimum_device_ratio"], at_most(GOAL_LATENCY)
    )
    good &= judge("link shares, largest error", figures["share_error"], at_most(GOAL_SHARE))
    if cost:
        added_ns = round(figures["copy_with_counter_ns"] - figures["copy_without_counter_ns"], 2)
        figures["counter_ns"] = added_ns
        good &= judge("what the counter adds to a copy's call, ns", added_ns, at_most(GOAL_COPY_NS))
    parameters = {
        "seconds": args.seconds,
        "link_bytes_per_us": args.link,
        "request_bytes": bytes_,
        "kernel_us": KERNEL_US,
        "period_us": PERIOD_US,
        "block_bytes": BLOCK,
        "load_average": load,
    }
    goals = {"p99_with_minimum_device_ratio": GOAL_LATENCY, "share_error": GOAL_SHARE, "counter_ns": GOAL_COPY_NS}
    raw = {"alone": alone, "unpaced": unpaced, "paced": paced, "copy_call_ns": cost}
    path = results.write(
        "copies",
        is_simulated=True,
        device=device,
        parameters=parameters,
        goals=goals,
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
