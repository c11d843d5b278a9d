"""Shell of the helper that moves processes off their devices: starts it, reads it, and kills it at its deadline."""

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

AWAY, RUNS, UNKNOWN = "checkpointed", "running", "unknown"


@dataclass(frozen=True, slots=True)
class Moved:
    """`state`: of the process, as the driver reports it at the end. `refusal`: why it is not the requested one, "" = it
    is."""

    state: str
    refusal: str = ""


async def move(action: str, pid: int, driver: str, sim_dir: str, deadline_s: float) -> Moved:
    """`evict`, `restore` or `settle` one process. Never takes longer than the deadline and a settling after it."""
    lock_ms = max(1, int((deadline_s - _SPARE_S) * 1000))
    moved = await _run(action, pid, driver, sim_dir, lock_ms, deadline_s)
    if moved is not None:
        return moved
    settled = await _run("settle", pid, driver, sim_dir, 1, _SETTLE_S)
    late = f"the driver took longer than {deadline_s:g} s"
    return Moved(settled.state, late) if settled else Moved(UNKNOWN, f"{late} and does not answer any more")


async def _run(action: str, pid: int, driver: str, sim_dir: str, lock_ms: int, deadline_s: float) -> Moved | None:
    """None: it had to be killed."""
    env = {"PATH": os.defpath}  # nothing of the daemon's own: no hook is to be in the helper
    if sim_dir:
        env = process.environment(Path(sim_dir), env)
    made = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(HELPER), action, driver, str(pid), str(lock_ms)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        out, err = await asyncio.wait_for(made.communicate(), deadline_s)
    except asyncio.TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            made.kill()
    try:
        said = json.loads(out)
        return Moved(said["state"], said["refused"])
    except (ValueError, KeyError):
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        return Moved(UNKNOWN, f"the helper ended with {made.returncode}: {last or 'nothing said'}")
