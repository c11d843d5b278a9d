"""Checks of replicas: over HTTP, by a command, or whether the port is open. Each has a deadline, and runs as the user
whose service it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from vgpud.core.jobs.session import SERVICE_PORT, SERVICE_TOKEN
from vgpud.services.core.model import Health, Replica
from vgpud.services.shell.http1 import BrokenError
from vgpud.services.shell.upstream import Sent, Upstreams, connect

#: of what a check's command has written, for the sentence
SAID_MAX = 200
#: of an answer to a check, which is read and forgotten
ANSWER_BYTES_MAX = 1 << 20


async def check(replica: Replica, health: Health, upstreams: Upstreams) -> str:
    """Why the replica is not healthy, one sentence; "": it is. Takes no longer than the check's deadline."""
    try:
        if health.http_path:
            return await asyncio.wait_for(_ask(replica, health, upstreams), health.deadline_s)
        if health.command:
            return await _run(replica, health)
        wire = await asyncio.wait_for(connect(replica.port), health.deadline_s)
        wire.close()
        return ""
    except asyncio.TimeoutError:
        return f"it has not answered within {health.deadline_s:g} s"
    except BrokenError as error:
        return str(error)
    except OSError as error:
        return f"the check cannot be made: {error.strerror}"


async def _ask(replica: Replica, health: Health, upstreams: Upstreams) -> str:
    path = health.http_path
    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + replica.token.encode())]
    wire, head = await upstreams.ask(replica, Sent(b"GET", path.encode(), headers, b""))
    wire.close()
    if 200 <= head.status_code < 400:
        return ""
    return f"{path} answers {head.status_code}"


async def _run(replica: Replica, health: Health) -> str:
    """In a process group of its own: what hangs is killed with all that it has started."""
    variables = {**os.environ, SERVICE_PORT: str(replica.port), SERVICE_TOKEN: replica.token}
    null = asyncio.subprocess.DEVNULL
    started = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        health.command,
        env=variables,
        stdin=null,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    reading = asyncio.create_task(_read_some(started))
    try:
        code = await asyncio.wait_for(started.wait(), health.deadline_s)
    except asyncio.TimeoutError:
        return f"the command has not ended within {health.deadline_s:g} s, and was killed"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()
        reading.cancel()
        said = (await asyncio.gather(reading, return_exceptions=True))[0]
    if code == 0:
        return ""
    words = " ".join(said.decode(errors="replace").split())[:SAID_MAX] if isinstance(said, bytes) else ""
    return f"the command has ended with {code}" + (f": {words}" if words else "")


async def _read_some(process: asyncio.subprocess.Process) -> bytes:
    """What it writes, of which the beginning is kept: a full pipe would stop it."""
    assert process.stdout
    kept = b""
    try:
        while data := await process.stdout.read(4096):
            kept = (kept + data)[:SAID_MAX]
    except asyncio.CancelledError:
        pass  # a process that it has left behind holds the pipe
    return kept
