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
from vgpud.services.shell.upstream import Request, Upstreams, connect

#: of what a check's command has written, for the sentence
SAID_MAX = 200
#: of an answer to a check, which is read and forgotten
ANSWER_BYTES_MAX = 1 << 20


class LateError(Exception):
    """The check has not ended by its deadline."""


async def check(replica: Replica, health: Health, upstreams: Upstreams, directory: str) -> str:
    """Why the replica is not healthy, one sentence; "": it is. Takes no longer than the check's deadline. `directory`:
    where a command runs. A check that is late counts only where the replica has answered no request meanwhile: one that
    has much to do is not to lose its requests to the others, which then have more."""
    answers = replica.answers
    try:
        if health.http_path:
            return await asyncio.wait_for(_ask(replica, health, upstreams), health.deadline_s)
        if health.command:
            return await _run(replica, health, directory)
        wire = await asyncio.wait_for(connect(replica.port, is_published=replica.is_published), health.deadline_s)
        wire.close()
        return ""
    except asyncio.TimeoutError:
        return f"it has not answered within {health.deadline_s:g} s" if replica.answers == answers else ""
    except LateError as error:
        return str(error) if replica.answers == answers else ""
    except BrokenError as error:
        return str(error)
    except OSError as error:
        return f"the check cannot be made: {error.strerror}"


async def _ask(replica: Replica, health: Health, upstreams: Upstreams) -> str:
    path = health.http_path
    headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer " + replica.token.encode())]
    wire, head = await upstreams.ask(replica, Request(b"GET", path.encode(), headers, b""))
    wire.close()
    if 200 <= head.status_code < 400:
        return ""
    return f"{path} answers {head.status_code}"


async def _run(replica: Replica, health: Health, directory: str) -> str:
    """In a process group of its own: what hangs is killed with all that it has started."""
    variables = {**os.environ, SERVICE_PORT: str(replica.port), SERVICE_TOKEN: replica.token}
    null = asyncio.subprocess.DEVNULL
    with _Output() as output:
        started = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            health.command,
            env=variables,
            cwd=directory,
            stdin=null,
            stdout=output.far_end,
            stderr=output.far_end,
            start_new_session=True,
        )
        try:
            code = await asyncio.wait_for(started.wait(), health.deadline_s)
        except asyncio.TimeoutError:
            raise LateError(f"the command has not ended within {health.deadline_s:g} s, and was killed") from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(started.pid, signal.SIGKILL)
            await started.wait()
        output.read()
        words = " ".join(output.text.decode(errors="replace").split())
    if code == 0:
        return ""
    return f"the command has ended with {code}" + (f": {words}" if words else "")


class _Output:
    """What a command writes, of which the beginning is kept. Its pipe is not asyncio's, whose wait() would wait for all
    that have the pipe open: a process that the command has left behind, too."""

    def __init__(self) -> None:
        self.text = b""
        self._near_end, self.far_end = os.pipe2(os.O_CLOEXEC)

    def __enter__(self) -> _Output:
        os.set_blocking(self._near_end, False)
        asyncio.get_running_loop().add_reader(self._near_end, self.read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._near_end)
        os.close(self._near_end)
        os.close(self.far_end)

    def read(self) -> None:
        """What is there now: a full pipe would stop the command."""
        with contextlib.suppress(BlockingIOError):
            self.text = (self.text + os.read(self._near_end, 65536))[:SAID_MAX]
