"""Both ends of a connection that is passed on, until it is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable

from vgpud.tunnels.ends import End

#: a connection on which neither side says anything
SILENCE_S = 3600.0


async def pass_between(near: End, far: End, *until: Awaitable[object]) -> None:
    """Bytes in both directions, until one side has gone, neither says anything any more, or one of `until` is over."""
    near.join(far)
    far.join(near)
    ends = near.closed.wait(), far.closed.wait(), _wait_for_silence(near, far)
    tasks = [asyncio.ensure_future(work) for work in (*ends, *until)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _wait_for_silence(*ends: End) -> None:
    while (left_s := max(end.passed_s for end in ends) + SILENCE_S - time.monotonic()) > 0:
        await asyncio.sleep(left_s)
