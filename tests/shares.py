"""What processes get of a simulated device, from the device's own log.

A busy machine starves programs and the daemon for many seconds at a time, and then no slice gets what it may have. So a
test asks for shares that show themselves once, in window after window; only what no slice may exceed holds in each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from vgpud.cli.demo.private_system import OwnSystem
from vgpud.simdevice import busy_log

#: looked at before a test gives up: about a minute of them
WINDOWS = 30


def shares(system: OwnSystem, pids: Sequence[int], seconds: float, device: int = 0) -> list[float]:
    """What each process gets of the device (0..1) during the next `seconds`."""
    begin_ns = time.monotonic_ns()
    time.sleep(seconds)
    end_ns = time.monotonic_ns()
    time.sleep(0.3)  # the log is written behind the device's time
    spans = busy_log.read_busy_log(system.busy_log(device))
    return [busy_log.mean_share(spans, pid, begin_ns, end_ns) for pid in pids]


def check_shares_sum(
    system: OwnSystem,
    pids: Sequence[int],
    seconds: float,
    is_expected: Callable[..., bool],
    *,
    first_max: float = 1,
    device: int = 0,
) -> None:
    """Waits for a window of so many seconds whose shares, one for each process, are as `is_expected` says.

    first_max: of the device, that the first process may have in no window at all. AssertionError with all that was
    seen.
    """
    seen: list[list[float]] = []
    for _ in range(WINDOWS):
        seen.append(shares(system, pids, seconds, device))
        assert seen[-1][0] <= first_max, seen
        if is_expected(*seen[-1]):
            return
    raise AssertionError(f"never in {len(seen)} windows of {seconds:g} s: {seen}")
