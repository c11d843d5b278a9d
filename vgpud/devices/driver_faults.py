"""Faults of NVIDIA's drivers that vgpud works around, by version."""

from __future__ import annotations

import asyncio

from vgpud.core.driver_faults import hangs_at_kill
from vgpud.devices import checkpoint_runner

#: of which a program is moved off its device before it is killed, at most
SUSPEND_S = 10.0


def suspend_before_kill(version: str, pid: int, driver: str, sim_dir: str) -> None:
    """On a driver that may hang the host when a restored program is killed: moves it off its device first.

    Any program: whether it was ever restored is not known of all. What the driver refuses is killed all the same.
    Waits: not for the loop.
    """
    if hangs_at_kill(version):
        asyncio.run(checkpoint_runner.move("evict", pid, driver, sim_dir, SUSPEND_S))
