"""Reports of running programs of jobs: their progress, and the streams of elastic jobs' workers.

A stream belongs to one worker: its first message names the worker, and the answers say in which membership it works
(core/elastic/members.py). Each message is checked here; an invalid one ends the stream with a sentence, and the
program continues without a stream.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from vgpud.api.caller import caller
from vgpud.api.rpc import RefusedError, abort, refuse, unary
from vgpud.api.turns import charge_message
from vgpud.core.elastic.worker_group import Membership, ProgressReport
from vgpud.core.jobs.model import SECOND_NS
from vgpud.core.model import Denied, Reason
from vgpud.core.units import PORT_MAX, parse_whole
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: a stream must begin with a message that names its worker within this time
HELLO_S = 10.0
#: streams of one user that may be open before their first message
SILENT_PER_USER_MAX = 128
#: a program reports progress once a second; more reports are read at this rate
EVERY_S = 0.005
COUNT_MAX = 1 << 53
SECONDS_MAX = 366 * 86_400.0
STORE_BYTES_MAX = 300


class Mailbox:
    """What is still to be sent to one worker: only the newest message counts."""

    def __init__(self, job_id: int, worker: int) -> None:
        self.job_id = job_id
        self.worker = worker
        self._message: Membership | Denied | None = None
        self._closed = False
        self._changed = asyncio.Event()

    def put(self, message: Membership | Denied) -> None:
        self._message = message
        self._changed.set()

    def close(self) -> None:
        """No message follows."""
        self._closed = True
        self._changed.set()

    async def take(self) -> Membership | Denied | None:
        """The next message, as soon as there is one; None: none follows."""
        while self._message is None and not self._closed:
            self._changed.clear()
            await self._changed.wait()
        message, self._message = self._message, None
        return message


class WorkerBackend(Protocol):
    """What hears the programs of jobs. Called on the loop; must not wait."""

    def open_stream(self, report: ProgressReport) -> Mailbox | Denied: ...
    def close_stream(self, mailbox: Mailbox) -> None: ...
    def hear(self, report: ProgressReport) -> None: ...
    def progress(self, report: ProgressReport) -> Denied | None: ...


def said_from(request: pb.WorkRequest | pb.ReportProgressRequest) -> ProgressReport:
    """A checked message. Raises RefusedError."""
    for name in ("samples", "steps"):
        _count(getattr(request, name), name)
    work = request if isinstance(request, pb.WorkRequest) else pb.WorkRequest()
    _count(work.generation, "generation")
    seconds_ns, waited_ns = _ns(request.seconds, "seconds"), _ns(work.waited_seconds, "waited_seconds")
    if waited_ns > seconds_ns:
        text = f"waited_seconds {work.waited_seconds:g} are more than the seconds {request.seconds:g} they are part of"
        raise refuse(Reason.INVALID, f"{text}: report both for the same period", "waited_seconds")
    if request.samples and not seconds_ns:
        raise refuse(Reason.INVALID, f"samples {request.samples} in no time: report the seconds as well", "seconds")
    return ProgressReport(
        job_id=request.job_id,
        attempt=request.attempt,
        worker=request.worker,
        generation=work.generation,
        store=_store(work.store),
        samples=request.samples,
        seconds_ns=seconds_ns,
        steps=request.steps,
        waited_ns=waited_ns,
        has_lost_peers=work.lost,
        has_joined=work.joined,
        idle_ns=_ns(work.idle_seconds, "idle_seconds"),
    )


def _count(value: int, field: str) -> None:
    if value > COUNT_MAX:
        raise refuse(Reason.INVALID, f"{field} {value} is out of range: at most {COUNT_MAX}", field)


def _ns(seconds: float, field: str) -> int:
    if not (math.isfinite(seconds) and 0 <= seconds <= SECONDS_MAX):
        raise refuse(Reason.INVALID, f"{field} {seconds:g} is out of range: write 0 to {SECONDS_MAX:.0f}", field)
    return round(seconds * SECOND_NS)


def _store(store: str) -> str:
    host, _, port = store.rpartition(":")
    known = len(store) <= STORE_BYTES_MAX and store.isascii() and store.isprintable() and " " not in store
    if store and not (known and host and parse_whole(port, PORT_MAX)):
        raise refuse(Reason.INVALID, f"store {store[:80]!r} is not an address: write HOST:PORT", "store")
    return store


def _view(membership: Membership) -> pb.WorkResponse:
    return pb.WorkResponse(
        generation=membership.generation,
        workers=membership.workers,
        store=membership.store,
        batch=membership.batch,
        reason=membership.reason,
    )


class WorkCalls:
    """Part of JobService. `find_owner`: the owner of a job; None: there is no such job."""

    def __init__(self, workers: WorkerBackend, find_owner: Callable[[int], int | None]) -> None:
        self._workers = workers
        self._find_owner = find_owner
        self._silent: Counter[int] = Counter()  # by uid

    def _may_speak(self, job_id: int) -> None:
        """For a job speak its owner's processes. Raises RefusedError."""
        owner = self._find_owner(job_id)
        if owner is None:
            raise refuse(Reason.NOT_FOUND, f"no job {job_id}: `vgpu job ls --all` lists yours", "job_id")
        if not caller().owns(owner):
            text = f"job {job_id} does not belong to uid {caller().uid}: only its own programs may report for it"
            raise refuse(Reason.DENIED, text, "job_id")

    @unary
    def ReportProgress(self, request: pb.ReportProgressRequest) -> pb.ReportProgressResponse:
        self._may_speak(request.job_id)
        denied = self._workers.progress(said_from(request))
        if denied:
            raise RefusedError(denied)
        return pb.ReportProgressResponse()

    async def Work(self, requests: AsyncIterator[pb.WorkRequest], context: Any) -> AsyncIterator[pb.WorkResponse]:
        """One worker's stream, from its start to its end or the daemon's."""
        box: Mailbox | None = None
        reader: asyncio.Task[None] | None = None
        try:
            hello = await self._hello(requests)
            answer = self._workers.open_stream(hello)
            if isinstance(answer, Denied):
                raise RefusedError(answer)
            box = answer
            reader = asyncio.create_task(self._read(requests, hello, box))
            while (message := await box.take()) is not None:
                if isinstance(message, Denied):
                    raise RefusedError(message)
                yield _view(message)
        except RefusedError as refused:
            await abort(context, refused.refusal)
        finally:
            if reader:
                reader.cancel()
            if box:
                self._workers.close_stream(box)

    async def _hello(self, requests: AsyncIterator[pb.WorkRequest]) -> ProgressReport:
        uid = caller().uid
        if self._silent[uid] >= SILENT_PER_USER_MAX:
            text = f"uid {uid} has {SILENT_PER_USER_MAX} streams open on which no worker has introduced itself"
            raise refuse(Reason.NO_CAPACITY, f"{text}: let each send its first message at once")
        self._silent[uid] += 1
        try:
            first = await asyncio.wait_for(anext(requests), HELLO_S)
        except (asyncio.TimeoutError, StopAsyncIteration):
            text = f"no worker has introduced itself within {HELLO_S:.0f} s: send job_id, attempt and worker"
            raise refuse(Reason.INVALID, text, "job_id") from None
        finally:
            self._silent[uid] -= 1
            self._silent += Counter()  # removes zero counts
        self._may_speak(first.job_id)
        return said_from(first)

    async def _read(self, requests: AsyncIterator[pb.WorkRequest], hello: ProgressReport, box: Mailbox) -> None:
        """Until the worker closes its side. However this ends, no stream stays open that is not read."""
        who = hello.job_id, hello.attempt, hello.worker
        try:
            async for request in requests:
                said = said_from(request)
                if (said.job_id, said.attempt, said.worker) != who:
                    text = f"this stream is worker {hello.worker}'s of job {hello.job_id}: open another one"
                    raise refuse(Reason.INVALID, text, "worker")
                self._workers.hear(said)
                await asyncio.sleep(EVERY_S)
                await charge_message()
        except RefusedError as refused:
            box.put(refused.refusal)
        finally:
            box.close()
