"""What the parts of the job controller need of it, so that none of them imports it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from vgpud.core.jobs import events as qe
from vgpud.core.jobs.model import Job
from vgpud.core.queue.machine import Machine
from vgpud.daemon.jobs.clock import Clock
from vgpud.daemon.jobs.host import Host
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.jobs.messages import Result
from vgpud.jobs.runner import Jobs
from vgpud.store.jobs import JobStore

T = TypeVar("T")


class JobPort(Protocol):
    """What elastic.py, its parts and progress.py need."""

    host: Host
    machine: Machine  # its jobs are read, its decisions are not asked for
    slices: JobSlices

    def note(self, kind: str, job: Job, text: str) -> None: ...
    def enqueue_event(self, event: qe.Event) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]: ...


class AttemptSteps(Protocol):
    """What elastic.py and its parts need of attempts.py."""

    runner: Jobs

    def job_lock(self, job_id: int) -> AbstractAsyncContextManager[None]: ...
    async def begin_attempt(self, job: Job, slices: Sequence[tuple[str, str]], worker: int = -1) -> None: ...
    def start_again(self, job: Job) -> None: ...
    async def end(self, job_id: int, attempt: int, result: Result) -> None: ...


class WorkerPort(JobPort, Protocol):
    """What elastic.py and its parts need."""

    attempts: AttemptSteps
    saver: JobSaver


class MonitorPort(JobPort, Protocol):
    """What progress.py needs."""

    clock: Clock
    store: JobStore
