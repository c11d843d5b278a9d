"""The daemon is stopped for a while (SIGSTOP, a debugger, a frozen cgroup) and continues: slices do not pay for what
they did meanwhile. By what a slice computes before and after, in the same run.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.shares import shares
from vgpud.cli.demo.private_system import OwnSystem, Part

from .conftest import wait_for_work

MEMORY = ("--mem", "1G")
STOPPED_S = 3
#: of several times that a daemon is stopped: in how many a busy machine may starve the slice itself
TRIES, SPOILT = 5, 1


@pytest.mark.slow
def test_a_capped_slice_computes_at_its_share_after_the_daemon_was_stopped(
    system: OwnSystem, tenant: Callable[..., Part]
) -> None:
    """In the second after the stop it has about what it had in the second before. When the daemon is stopped the slice
    may be at work, which hides the defect, or wait at its gate: it is stopped several times."""
    pid = wait_for_work(tenant("capped", "--gpus", "0.1", *MEMORY))["pid"]
    assert system.daemon
    seen: list[tuple[float, float]] = []
    for _ in range(TRIES):
        before = shares(system, [pid], 1)[0]
        system.daemon.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(STOPPED_S)
        finally:
            system.daemon.process.send_signal(signal.SIGCONT)
        seen.append((before, shares(system, [pid], 1)[0]))
    assert sum(after < 0.5 * before for before, after in seen) <= SPOILT, seen
