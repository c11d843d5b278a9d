"""Shell of the helper that moves processes off their devices: starts it, reads it, and kills it at its deadline.

Starting the interpreter and the driver takes longer than moving a gigabyte. So while moves are expected, one helper
that has done both waits, and its successor starts while it works.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from vgpud.simdevice import process

HELPER = Path(__file__).with_name("checkpoint_helper.py")
#: what is left for the helper to take back what it began, of its deadline
_SPARE_S = 1.0
#: time limit for asking the driver for the state of a process
_SETTLE_S = 10.0
#: for how long a helper waits after a move, where none is expected
IDLE_S = 60.0

AWAY, RUNS, UNKNOWN = "checkpointed", "running", "unknown"


@dataclass(frozen=True, slots=True)
class Moved:
    """`state`: of the process, as the driver reports it at the end. `refusal`: why it is not the requested one, "" = it
    is."""

    state: str
    refusal: str = ""


class Helpers:
    """The helper that waits; one at most. All of one loop."""

    def __init__(self, driver: str, sim_dir: str) -> None:
        self._driver, self._sim_dir = driver, sim_dir
        self._waiting: asyncio.Task[asyncio.subprocess.Process] | None = None
        self._keepers: set[str] = set()

    def keep(self, keeper: str) -> None:
        """Moves are expected from now on, until release()."""
        self._keepers.add(keeper)
        self.prepare()

    def release(self, keeper: str) -> None:
        self._keepers.discard(keeper)
        self._expire_later()

    def prepare(self) -> None:
        """Starts one, if none waits."""
        if self._waiting is None:
            self._waiting = asyncio.create_task(_start(self._driver, self._sim_dir))
            self._expire_later()

    def _expire_later(self) -> None:
        if self._waiting and not self._keepers:
            asyncio.get_running_loop().call_later(IDLE_S, self._expire, self._waiting)

    def _expire(self, waiting: asyncio.Task[asyncio.subprocess.Process]) -> None:
        if waiting is self._waiting and not self._keepers:
            self._waiting = None
            _kill(waiting.result() if waiting.done() and not waiting.exception() else None)

    async def take(self) -> asyncio.subprocess.Process | None:
        """The one that waits, if it lives. It is the caller's to end."""
        waiting, self._waiting = self._waiting, None
        with contextlib.suppress(OSError):
            made = await waiting if waiting else None
            return made if made and made.returncode is None else None
        return None

    async def stop(self) -> None:
        """No move is under way any more."""
        self._keepers.clear()
        made = await self.take()
        _kill(made)
        if made:
            await made.wait()


async def move(
    action: str, pid: int, driver: str, sim_dir: str, deadline_s: float, helpers: Helpers | None = None
) -> Moved:
    """`evict`, `restore` or `settle` one process. Never takes longer than the deadline and a settling after it."""
    moved = None
    until_s = asyncio.get_running_loop().time() + deadline_s
    ready = await helpers.take() if helpers else None
    if helpers:
        helpers.prepare()
    if ready:
        moved, begun = await _ask(ready, action, pid, deadline_s)
    left_s = max(_SPARE_S, until_s - asyncio.get_running_loop().time())
    if not ready or (moved and not begun):  # a device may have come back since it loaded the driver
        moved, _ = await _ask(await _start(driver, sim_dir), action, pid, left_s)
    if moved is not None:
        return moved
    settled, _ = await _ask(await _start(driver, sim_dir), "settle", pid, _SETTLE_S)
    late = f"the driver took longer than {deadline_s:g} s"
    return Moved(settled.state, late) if settled else Moved(UNKNOWN, f"{late} and does not answer any more")


async def _start(driver: str, sim_dir: str) -> asyncio.subprocess.Process:
    env = {"PATH": os.defpath}  # nothing of the daemon's own: no hook is to be in the helper
    if sim_dir:
        env = process.environment(Path(sim_dir), env)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(HELPER), driver, str(os.getpid())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )


def _kill(helper: asyncio.subprocess.Process | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        if helper:
            helper.kill()


async def _ask(
    helper: asyncio.subprocess.Process, action: str, pid: int, deadline_s: float
) -> tuple[Moved | None, bool]:
    """None: it had to be killed. And whether it may have begun."""
    lock_ms = max(1, int((deadline_s - _SPARE_S) * 1000))
    try:
        out, err = await asyncio.wait_for(helper.communicate(f"{action} {pid} {lock_ms}\n".encode()), deadline_s)
    except asyncio.TimeoutError:
        return None, True
    finally:
        _kill(helper)
    try:
        said = json.loads(out)
        return Moved(said["state"], said["refused"]), said["begun"]
    except (ValueError, KeyError):
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        return Moved(UNKNOWN, f"the helper ended with {helper.returncode}: {last or 'nothing said'}"), True
