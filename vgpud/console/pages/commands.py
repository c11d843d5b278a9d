"""`vgpu` commands that the console runs in a process of their own: what they load is large, and what they read may be
damaged. They get a file and options; they connect to no daemon."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

TIMEOUT_S = 60.0
#: at one time: others wait
_ONE = asyncio.Semaphore(1)
_TEXT_BYTES_MAX = 4 << 20


async def _start(command: Sequence[str], env: dict[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**env, "HOME": "/nonexistent", "VGPU_HOST": "unix:///nonexistent"},
            cwd="/",
            limit=_TEXT_BYTES_MAX,
        )
    except OSError as error:
        raise ValueError(f"the console cannot run vgpu: {error.strerror}") from error


async def run(arguments: Sequence[str]) -> Any:
    """The JSON that `vgpu ... -o json` prints. Raises ValueError with its sentence when it fails."""
    env = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG", "TMPDIR") if name in os.environ}
    command = ["nice", "-n", "10", sys.executable, "-m", "vgpud.cli.main", *arguments, "-o", "json"]
    async with _ONE:
        process = await _start(command, env)
        try:
            out, complaint = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        except (asyncio.TimeoutError, asyncio.CancelledError) as error:
            process.kill()
            await process.wait()
            raise ValueError(f"vgpu {arguments[0]} did not end within {TIMEOUT_S:.0f} s") from error
    if process.returncode:
        lines = complaint.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise ValueError(lines[-1].removeprefix("vgpu: "))
    return json.loads(out)
