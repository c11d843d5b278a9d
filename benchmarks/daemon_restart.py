"""kill -9 of the daemon while two tenants run at 0.25 and 0.75: do they continue, and do shares hold afterwards?

Shares come from the simulated device's busy log, in sliding one-second windows: before the kill, while coasting, and
after the restarted daemon has both tenants again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from benchmarks import harness, results, shares
from benchmarks.table import at_most, judge
from benchmarks.windows import shares_by_tenant, worst_window
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.client import calls
from vgpud.errors import CliError
from vgpud.simdevice.busy_log import SECOND_NS, Span, read_busy_log

TENANTS = shares.MIXES["25-75"]
GOAL_COAST_PP = 10.0
GOAL_AFTER_PP = 3.0
#: how long after a change the shares are given to settle
SETTLE_NS = SECOND_NS


def longest_gap_ms(spans: list[Span], pid: int, begin_ns: int, end_ns: int) -> float:
    """The longest time in [begin_ns, end_ns) in which a process had nothing of the device."""
    last_ns, longest_ns = begin_ns, 0
    for span in sorted((s for s in spans if s.pid == pid and s.end_ns > begin_ns), key=lambda s: s.begin_ns):
        longest_ns = max(longest_ns, min(span.begin_ns, end_ns) - last_ns)
        last_ns = max(last_ns, span.end_ns)
        if span.begin_ns >= end_ns:
            break
    return max(longest_ns, end_ns - last_ns) / 1e6


def both_listed(own: OwnSystem, pids: set[int]) -> Callable[[], bool]:
    """Whether `vgpu ps` would show all the tenants."""

    def is_listed() -> bool:
        try:
            with own.client() as client:
                return pids <= {process.pid for process in client.all(calls.processes())}
        except CliError:
            return False

    return is_listed


def run(own: OwnSystem, phase_s: float) -> dict[str, Any]:
    """Before, without daemon, after. Returns the figures."""
    reports = shares.Reports(shares.start(own, TENANTS, random.Random(1), 4 * phase_s + 60))
    wait_for("the tenants", reports.all_ready, 30)
    pids = dict(reports.pids)
    phases = {}
    begin_ns = time.monotonic_ns()
    time.sleep(phase_s)
    assert own.daemon
    own.daemon.kill()
    killed_ns = time.monotonic_ns()
    phases["before"] = (begin_ns, killed_ns)
    time.sleep(phase_s)
    reports.poll()
    started_ns = time.monotonic_ns()
    phases["coasting"] = (killed_ns, started_ns)
    own.start_daemon()
    answered_ns = time.monotonic_ns()
    wait_for("both tenants in vgpu ps", both_listed(own, set(pids.values())))
    attached_ns = time.monotonic_ns()
    with own.client() as client:
        resumed = sum(process.resumed for process in client.all(calls.processes()))
    time.sleep(phase_s)
    reports.poll()
    phases["after"] = (attached_ns, time.monotonic_ns())
    alive = sum(part.running for part in reports.parts.values())
    spans = read_busy_log(own.busy_log())
    wanted = {t.name: t.minimum for t in TENANTS}
    figures: dict[str, Any] = {
        "tenants_alive": alive,
        "resumed": resumed,
        "restart_to_answer_ms": (answered_ns - started_ns) / 1e6,
        "answer_to_listed_ms": (attached_ns - answered_ns) / 1e6,
    }
    for name, (begin, end) in phases.items():
        found = shares_by_tenant(spans, pids, begin + SETTLE_NS, end - SETTLE_NS // 4)
        figures[f"{name}_error_pp"] = worst_window(found, wanted).error_pp
        figures[f"{name}_shares"] = {tenant: sum(s) / len(s) for tenant, s in found.items()}
        figures[f"{name}_longest_gap_ms"] = {
            tenant: longest_gap_ms(spans, pid, begin, end) for tenant, pid in pids.items()
        }
    return figures


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed."""
    made = harness.parser(__doc__)
    made.add_argument(
        "--seconds", type=float, default=12.0, help="length of each of the three phases (default: %(default)s)"
    )
    args = made.parse_args()
    if args.real:
        made.error("shares while coasting need the simulated device's busy log")
    with harness.system(harness.one_device()) as own:
        device = own.device_name()
        figures = run(own, args.seconds)
    good = figures["tenants_alive"] == len(TENANTS)
    print(f"tenants alive: {figures['tenants_alive']} of {len(TENANTS)}, resumed: {figures['resumed']}")
    for phase, goal in (("before", GOAL_AFTER_PP), ("coasting", GOAL_COAST_PP), ("after", GOAL_AFTER_PP)):
        error = figures[f"{phase}_error_pp"]
        good &= judge(f"worst one-second share error, {phase}, pp", error, at_most(goal))
    print(f"  listed again {figures['answer_to_listed_ms']:.0f} ms after the new daemon answered")
    path = results.write(
        "daemon_restart",
        is_simulated=True,
        device=device,
        parameters={"seconds": args.seconds, "tenants": {t.name: t.minimum for t in TENANTS}},
        goals={"coasting_error_pp": GOAL_COAST_PP, "after_error_pp": GOAL_AFTER_PP, "tenants_alive": len(TENANTS)},
        figures=figures,
        raw={},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
