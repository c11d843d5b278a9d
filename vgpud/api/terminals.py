"""AttachJob: joins the terminal of a job, from the first line of waiting to the job's end.

A call is one viewer. Keys go to the job while it runs, its output comes back; what the queue does with the job
meanwhile is shown as well. Neither the end of a call nor that of the daemon touches the job: its terminal is held by a
process of its own (jobs/terminal.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from vgpud.api.caller import caller
from vgpud.api.job_backend import JobBackend, Terminal
from vgpud.api.rpc import RefusedError, refuse
from vgpud.api.turns import charge_message
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import NEVER_NS, Job, JobState
from vgpud.core.jobs.terminal import INPUT_BYTES_MAX, SIZE_MAX, Heard, Kind
from vgpud.core.model import Denied, Reason
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: a call must name its job within this time
HELLO_S = 10.0
#: how often a terminal is looked for whose job has been started; how long a waiting job is left alone without a change
JOIN_S, WAIT_S = 0.1, 60.0
#: after this time without the terminal of a job that runs, its keeper is not there any more
GONE_S = 10.0
#: least time between two looks at a job that may have changed
REPORT_INTERVAL_S = 0.1


class _Viewer:
    """One call: its window, and the terminal that its keys go to."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.terminal: Terminal | None = None
        self.refusal: Denied | None = None
        self._size = (0, 0)

    async def take(self, request: pb.AttachJobRequest) -> None:
        """Raises RefusedError."""
        if len(request.input) > INPUT_BYTES_MAX:
            text = f"input of {len(request.input)} bytes: send at most {INPUT_BYTES_MAX} in a message"
            raise refuse(Reason.INVALID, text, "input")
        if request.HasField("size"):
            rows, columns = request.size.rows, request.size.columns
            if not (1 <= rows <= SIZE_MAX and 1 <= columns <= SIZE_MAX):
                text = f"a window of {rows} lines and {columns} columns: each is from 1 to {SIZE_MAX}"
                raise refuse(Reason.INVALID, text, "size")
            self._size = rows, columns
            if self.terminal:
                await self.terminal.resize(rows, columns)
        if request.input and self.terminal:
            await self.terminal.type(request.input)

    async def read(self, requests: AsyncIterator[pb.AttachJobRequest]) -> None:
        """Until the caller has typed all."""
        try:
            async for request in requests:
                await self.take(request)
                await charge_message()
        except RefusedError as refused:
            self.refusal = refused.refusal

    async def set_terminal(self, terminal: Terminal) -> None:
        self.terminal = terminal
        if all(self._size):
            await terminal.resize(*self._size)

    def leave(self) -> None:
        if self.terminal:
            self.terminal.close()
        self.terminal = None


class Viewing:
    """The calls of one service. `find`: a job that the caller may see, raises RefusedError; `show`: as it is shown."""

    def __init__(
        self, backend: JobBackend, find: Callable[[int], Awaitable[Job]], show: Callable[[Job], pb.Job]
    ) -> None:
        self._backend = backend
        self._find = find
        self._show = show
        self._viewers: dict[int, _Viewer] = {}  # the last one of each job

    def _check(self, hello: pb.AttachJobRequest, job: Job) -> None:
        """Whether the caller may join it, and it can be joined. Raises RefusedError."""
        who = caller()
        if who.uid != job.spec.uid and not (who.admin and hello.as_admin):
            text = f"job {job.job_id} is uid {job.spec.uid}'s: an admin joins another user's terminal with --as-admin,"
            raise refuse(Reason.DENIED, f"{text} which becomes an event of the job", "as_admin")
        if not (isinstance(job.spec.run, Launch) and job.spec.run.terminal):
            text = f"job {job.job_id} was submitted without --pty: `vgpu job logs -f {job.job_id}` follows its output"
            raise refuse(Reason.PRECONDITION, text, "job_id")
        if job.state.is_final:
            text = f"job {job.job_id} has ended ({job.state.value}): `vgpu job logs {job.job_id}` shows its output"
            raise refuse(Reason.PRECONDITION, text, "job_id")
        if who.uid != job.spec.uid:
            self._backend.notes.note("job.joined", job, f"uid {who.uid}, an admin, joins its terminal")

    async def view(self, requests: AsyncIterator[pb.AttachJobRequest]) -> AsyncGenerator[pb.AttachJobResponse, None]:
        """One call. Raises RefusedError."""
        try:
            hello = await asyncio.wait_for(anext(requests), HELLO_S)
        except (asyncio.TimeoutError, StopAsyncIteration):
            text = f"no job was named within {HELLO_S:.0f} s: send job_id first"
            raise refuse(Reason.INVALID, text, "job_id") from None
        self._check(hello, await self._find(hello.job_id))
        viewer = _Viewer(caller().uid)
        await viewer.take(hello)
        reading = asyncio.create_task(viewer.read(requests))
        try:
            async with contextlib.aclosing(self._messages(hello.job_id, viewer, reading)) as messages:
                async for message in messages:
                    yield message
            if viewer.refusal:
                raise RefusedError(viewer.refusal)
        finally:
            reading.cancel()
            viewer.leave()

    async def _messages(
        self, job_id: int, viewer: _Viewer, reading: asyncio.Task[None]
    ) -> AsyncGenerator[pb.AttachJobResponse, None]:
        """Until the job has ended, another viewer has joined, or the caller has left. Raises RefusedError."""
        shown: object = None
        missed_s: float | None = None  # since when a terminal is not there that should be
        hearing: asyncio.Task[Heard] | None = None
        changing: asyncio.Task[None] | None = None
        try:
            while viewer.refusal is None:
                if changing is None:
                    seen, _ = self._backend.changes.since(NEVER_NS)
                    job = await self._backend.reader.job(job_id)
                    if job is None:
                        return
                    is_draining = job.state.is_final and viewer.terminal is not None  # its last output comes first
                    if (job.state, job.reason, job.attempt) != shown and not is_draining:
                        shown = (job.state, job.reason, job.attempt)
                        yield pb.AttachJobResponse(job=self._show(job))
                    if job.state.is_final and not is_draining:
                        return
                    if viewer.terminal is None and (found := self._backend.terminals.join_terminal(job)):
                        self._viewers[job_id] = viewer
                        await viewer.set_terminal(found)
                    is_expected = viewer.terminal is None and job.state is JobState.RUNNING
                    missed_s = (missed_s or time.monotonic()) if is_expected else None
                    if missed_s and time.monotonic() - missed_s > GONE_S:
                        text = f"job {job_id} runs, and its terminal is gone (its keeper was ended): "
                        text += f"`vgpu job logs -f {job_id}` follows what is in its log"
                        raise refuse(Reason.PRECONDITION, text, "job_id")
                    changing = asyncio.create_task(self._change(seen, JOIN_S if is_expected else WAIT_S))
                if viewer.terminal and hearing is None:
                    hearing = asyncio.create_task(viewer.terminal.hear())
                waited = {task for task in (reading, hearing, changing) if task and not task.done()}
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
                if hearing and hearing.done():
                    heard, hearing = hearing.result(), None
                    if heard.kind is Kind.ENDED and self._viewers.get(job_id, viewer) is not viewer:
                        heard = Heard(Kind.TAKEN)  # a viewer that was late has not been notified
                    if heard.kind is Kind.ENDED:
                        viewer.leave()
                        changing.cancel()  # the terminal of the next attempt may be there already
                        changing = None
                    else:
                        yield self._message(job_id, heard)
                        if heard.kind is Kind.TAKEN:
                            return
                if changing and changing.done():
                    changing = None
        finally:
            for task in (hearing, changing):
                if task:
                    task.cancel()
            if self._viewers.get(job_id) is viewer:
                del self._viewers[job_id]

    async def _change(self, change_number: int, timeout_s: float) -> None:
        await self._backend.changes.wait(change_number, timeout_s)
        await asyncio.sleep(min(REPORT_INTERVAL_S, timeout_s))

    def _message(self, job_id: int, keeper_message: Heard) -> pb.AttachJobResponse:
        if keeper_message.kind is Kind.REPLAY:
            return pb.AttachJobResponse(replay=keeper_message.data)
        if keeper_message.kind is Kind.OUTPUT:
            return pb.AttachJobResponse(output=keeper_message.data)
        if keeper_message.kind is Kind.LOST:
            text = f"{keeper_message.count} bytes of output were left out, because"
            text += " they were not taken in time: the log has them"
            return pb.AttachJobResponse(notice=text)
        other = self._viewers.get(job_id)
        who = f"uid {other.uid}" if other else "another viewer"
        return pb.AttachJobResponse(notice=f"{who} has joined the terminal of job {job_id} from elsewhere")
