"""The balancer: keeps one service as its owner wants it, and serves its address. A job of the queue without GPUs, so it
runs as the owner, with their rights at the daemon, and outlives the daemon.

What it knows is in the queue (its replicas are jobs) and in the service's folder (the record): one that was killed
begins again from there. While the daemon does not answer, requests are passed on as before, and nothing is decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from vgpud.client.failures import ClientError
from vgpud.core.jobs import session
from vgpud.errors import ExitCode, VgpudError
from vgpud.host import descriptors
from vgpud.services.core import health
from vgpud.services.core.model import JobPhase, RecordError, Replica, Service, read_record
from vgpud.services.core.reconcile import Action, End, Reconciler, Resume, Start, Suspend
from vgpud.services.shell import checks, starting
from vgpud.services.shell.address import Address
from vgpud.services.shell.control import Control
from vgpud.services.shell.folder import Folder
from vgpud.services.shell.queue import Queue, generation_of, parse_template, phase_of, token_of
from vgpud.services.shell.replicas import Replicas

log = logging.getLogger("vgpu.service")

#: between two steps where nothing happens; before a replica that starts is checked again; before the daemon is asked
#: again for what it did not say
STEP_S, START_CHECK_S, AGAIN_S = 1.0, 0.2, 1.0
#: how often all jobs are looked through for replicas that are not known, beside after a submission without an answer
ADOPT_S = 600.0
#: before an order that had no effect yet is given again, and one that was refused
END_S, ORDER_S, REFUSED_S = 20.0, 5.0, 0.5
#: before a port that is taken is tried again
PORT_S = 2.0
#: connections that wait to be accepted
BACKLOG = 1024


class Balancer:
    """Made on a running loop. run() ends when the service is stopped."""

    def __init__(self, folder: Folder, service: Service, queue: Queue, control_port: int, token: str) -> None:
        self.service = service
        self._folder, self._queue = folder, queue
        self._reconciler = Reconciler(time.monotonic())
        self._due = asyncio.Event()
        self._due.set()
        self._stopping = asyncio.Event()
        self._watched = asyncio.Event()
        self.replicas = Replicas(self._due.set)
        self.address = Address(lambda: self.service, self.replicas)
        self._control = Control(token, self.status, lambda: self.service, self.change, self.stop)
        self._control_port = control_port
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: dict[int, asyncio.Task[None]] = {}
        self._orders: dict[int, tuple[type[Action], float]] = {}  # the last one, and until when it is not repeated
        self._trouble = ""  # what keeps the service from being as it is wanted
        self._port = 0  # where it listens; 0: not yet
        self._is_listening_failing = ""
        self._has_adopted = self._has_begun = False

    # ---- from outside ----

    def stop(self) -> None:
        self._stopping.set()
        self._due.set()

    async def change(self, service: Service) -> None:
        """Raises RecordError, VgpudError."""
        now = self.service
        if (service.name, service.host, service.token) != (now.name, now.host, now.token) or service.port != now.port:
            raise RecordError("its name, address and token stay: stop the service, and start it again")
        parse_template(service.template)
        await asyncio.to_thread(self._folder.save, service)  # a disk may take its time
        if service.generation != now.generation:
            log.info("generation %d: its replicas are replaced, one at a time", service.generation)
        self.service = service
        self._due.set()

    def status(self) -> dict[str, Any]:
        now_s = time.monotonic()
        reconciler, traffic = self._reconciler, self.replicas.traffic
        wait_s = reconciler.not_before_s - now_s
        return {
            "name": self.service.name,
            "generation": self.service.generation,
            "wanted": self.service.replicas,
            "asleep": reconciler.is_asleep,
            "port": self._port,
            "host": self.service.host,
            "trouble": self._is_listening_failing or self._trouble,
            "last_end": reconciler.last_end,
            "failures": reconciler.failures,
            "retry_s": round(wait_s, 1) if wait_s > 0 and reconciler.failures else None,
            "finished": reconciler.finished_count,
            "waiting": traffic.waiting,
            "under_way": traffic.under_way,
            "replicas": [
                {
                    "job_id": one.job_id,
                    "generation": one.generation,
                    "state": one.words,
                    "reason": one.reason or one.last_failure,
                    "outstanding": one.outstanding,
                    "port": one.port or None,
                }
                for one in self._list()
            ],
        }

    def _list(self) -> list[Replica]:
        return [one for _, one in sorted(self.replicas.by_id.items())]

    # ---- its life ----

    async def run(self) -> None:
        """Raises OSError: the control port is taken."""
        control = await asyncio.start_server(self._control.serve, "127.0.0.1", self._control_port)
        self._spawn(self._listen())
        self._spawn(self._watch())
        try:
            while not self._stopping.is_set():
                await self._step()
            log.info("stopping: its replicas are drained, and ended")
            await self._end_all()
        finally:
            control.close()
            for task in (*self._tasks, *self._checking.values()):
                task.cancel()
            await asyncio.gather(*self._tasks, *self._checking.values(), return_exceptions=True)
            await self.address.close()
            await self._queue.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen(self) -> None:
        """Takes the port of the service as soon as it is free."""
        while True:
            service = self.service
            try:
                server = await asyncio.start_server(
                    self.address.serve, service.host, service.port, backlog=BACKLOG, reuse_address=True
                )
            except OSError as error:
                text = f"cannot listen at {service.host} port {service.port}: {error.strerror or error}; trying again"
                if text != self._is_listening_failing:
                    log.error("%s", text)
                self._is_listening_failing = text
                await asyncio.sleep(PORT_S)
                continue
            self._port, self._is_listening_failing = server.sockets[0].getsockname()[1], ""
            log.info("serving %s at http://%s:%d", service.name, service.host, self._port)
            async with server:
                await server.serve_forever()

    async def _end_all(self) -> None:
        """Drains all replicas, then ends them."""
        self.service = replace(self.service, replicas=0, idle_s=0.0)
        self.replicas.are_ending = True
        self.replicas.note_change()
        until_s = time.monotonic() + self.service.drain_s + END_S
        while self.replicas.by_id and time.monotonic() < until_s:
            await self._step()
        for one in self._list():
            log.warning("replica %d has not ended: `vgpu job cancel %d`", one.job_id, one.job_id)

    # ---- decisions ----

    async def _step(self) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._due.wait(), 0.1 if self._is_something_due() else STEP_S)
        self._due.clear()
        try:
            if not self._has_adopted:
                await self._adopt()
                self._has_adopted = True
                if not self._has_begun:
                    self._reconciler.begin(self._list())
                    self._has_begun = True
            await self._refresh_incomplete()
            await self._decide()
            self._trouble = ""
        except ClientError as error:
            if self._trouble != error.message:
                log.warning("%s", error.message)
            self._trouble = error.message
            if error.is_unanswered:
                self._has_adopted = False  # it may have been a submission, which the daemon has all the same
            if error.exit_code not in (ExitCode.UNREACHABLE, ExitCode.TIMED_OUT):
                self._reconciler.note_failure(error.message, None, time.monotonic())
            await asyncio.sleep(AGAIN_S)

    def _is_something_due(self) -> bool:
        """Whether something will be due soon that no event announces."""
        return bool(self.replicas.traffic.waiting) or any(
            one.draining_since_s is not None or (one.phase is JobPhase.RUNNING and not one.port) for one in self._list()
        )

    async def _decide(self) -> None:
        now_s = time.monotonic()
        for action in self._reconciler.step(self.service, self._list(), self.replicas.traffic, now_s):
            await self._carry_out(action, now_s)
        self._look_after_checks()
        self.replicas.note_change()

    async def _carry_out(self, action: Action, now_s: float) -> None:
        """Raises ClientError."""
        if isinstance(action, Start):
            job_id = await self._queue.start(self.service, self._folder.log_pattern)
            one = self.replicas.by_id.setdefault(job_id, Replica(job_id, self.service.generation))
            log.info("replica %d was submitted, of generation %d", job_id, self.service.generation)
            self._watched.set()
            await self._refresh(one)
            self._folder.remove_old_logs(set(self.replicas.by_id))
            return
        order, until_s = self._orders.get(action.job_id, (Start, 0.0))
        if order is type(action) and now_s < until_s:
            return
        if isinstance(action, End):
            if self.address.sockets.end(action.job_id):
                return  # they are closed first; it is said again
            log.info("replica %d is ended: %s", action.job_id, action.why)
        carry_out = {End: self._queue.cancel, Suspend: self._queue.suspend, Resume: self._queue.resume}[type(action)]
        self._orders[action.job_id] = type(action), now_s + (END_S if isinstance(action, End) else ORDER_S)
        try:
            await carry_out(action.job_id)
        except ClientError as error:
            if error.exit_code not in (ExitCode.CONFLICT, ExitCode.NOT_FOUND):
                raise
            log.debug("replica %d: %s", action.job_id, error.message)  # it has changed meanwhile
            self._orders[action.job_id] = type(action), now_s + REFUSED_S
        else:
            if isinstance(action, Suspend | Resume):
                log.info("replica %d %s", action.job_id, "sleeps" if isinstance(action, Suspend) else "is woken")
        if known := self.replicas.by_id.get(action.job_id):
            await self._refresh(known)

    # ---- what the daemon knows ----

    async def _adopt(self) -> None:
        """Replicas that this balancer, or one before it, has submitted. Raises ClientError."""
        for job_id in await self._queue.find_replicas(self.service.name):
            one = Replica(job_id, 0)
            if job_id not in self.replicas.by_id and await self._refresh(one):
                self.replicas.by_id.setdefault(job_id, one)
                self._watched.set()
                log.info("replica %d is taken over", job_id)

    async def _refresh_incomplete(self) -> None:
        for one in self._list():
            if one.phase is JobPhase.RUNNING and not one.port:
                await self._refresh(one)

    async def _refresh(self, one: Replica) -> bool:
        """What the daemon says of a replica now. Whether it has not ended. Raises ClientError."""
        try:
            job = await self._queue.get(one.job_id)
        except ClientError as error:
            if error.exit_code != ExitCode.NOT_FOUND:
                raise
            job = None
        now_s = time.monotonic()
        if job is None:
            self._note_end(one, now_s)
            return False
        one.generation = generation_of(job) or one.generation
        health.see_job(one, phase_of(job), job.attempt, now_s)
        one.reason = job.reason
        if one.phase is JobPhase.ENDED:
            one.exit_code = job.exit_code if job.HasField("exit_code") else 1
            self._note_end(one, now_s)
        elif job.HasField("session_port"):
            one.port, one.token = job.session_port, token_of(job)
            one.is_published = bool(job.spec.image)
        self.replicas.note_change()
        return one.phase is not JobPhase.ENDED

    def _note_end(self, one: Replica, now_s: float) -> None:
        if self.replicas.by_id.get(one.job_id) is not one:
            return  # it is known already
        one.phase = JobPhase.ENDED
        if one.draining_since_s is None:
            log.warning("replica %d has ended: %s", one.job_id, one.reason or "it is not known any more")
            self._reconciler.note_end(self.service, one, now_s)
        self.replicas.forget(one.job_id)
        self._orders.pop(one.job_id, None)
        if task := self._checking.pop(one.job_id, None):
            task.cancel()
        self._due.set()

    async def _watch(self) -> None:
        """Hears of changes of replicas; asks again for all when there are other replicas."""
        while True:
            self._watched.clear()
            hearing = asyncio.create_task(self._hear(sorted(self.replicas.by_id)))
            changing = asyncio.create_task(self._watched.wait())
            try:
                done, _ = await asyncio.wait((hearing, changing), return_when=asyncio.FIRST_COMPLETED, timeout=ADOPT_S)
                if not done:
                    self._has_adopted = False
            finally:
                for task in (hearing, changing):
                    task.cancel()
                await asyncio.gather(hearing, changing, return_exceptions=True)
            if not self._watched.is_set():
                await asyncio.sleep(AGAIN_S)

    async def _hear(self, job_ids: list[int]) -> None:
        if not job_ids:
            await asyncio.sleep(2 * ADOPT_S)  # until there is one
            return
        try:
            async for changed in self._queue.watch(job_ids):
                for one in [self.replicas.by_id[job_id] for job_id in changed if job_id in self.replicas.by_id]:
                    await self._refresh(one)
                self._due.set()
        except ClientError as error:
            log.debug("%s", error.message)

    # ---- checks ----

    def _look_after_checks(self) -> None:
        for one in self._list():
            known = self._checking.get(one.job_id)
            if known is None or known.done():
                self._checking[one.job_id] = asyncio.create_task(self._check(one))

    async def _check(self, one: Replica) -> None:
        """Checks a replica again and again."""
        while one.phase is not JobPhase.ENDED:
            if one.phase is JobPhase.RUNNING and one.port:
                was_healthy, attempt = one.healthy_since_s is not None, one.attempt
                directory = str(self.service.template.get("directory", "/"))
                why_not = await checks.check(one, self.service.health, self.replicas.upstreams, directory)
                if one.attempt == attempt:
                    health.see_check(one, why_not, time.monotonic())
                if (one.healthy_since_s is not None) != was_healthy and one.words in ("healthy", "unhealthy"):
                    log.info("replica %d is %s%s", one.job_id, one.words, f": {why_not}" if why_not else "")
                self.replicas.note_change()
                self._due.set()
            await self._wait_for_next_check(one)

    async def _wait_for_next_check(self, one: Replica) -> None:
        """A suspect is checked at once, one that starts more often."""
        until_s = time.monotonic() + (self.service.health.every_s if one.was_healthy else START_CHECK_S)
        while time.monotonic() < until_s and not (one.is_suspect and one.failures == 0):
            await asyncio.sleep(min(0.05, max(0.0, until_s - time.monotonic())))


def read_environment() -> tuple[int, str]:
    """The control port and the token of the balancer's job. Raises VgpudError."""
    port, token = os.environ.get(session.PORT, ""), os.environ.get(session.TOKEN, "")
    if not port.isdigit() or not token:
        raise VgpudError("a balancer is started by `vgpu service start`, as a job", ExitCode.USAGE)
    return int(port), token


def open_folder(folder: Folder) -> Service | None:
    """The record of the service; None: there is none. Raises VgpudError."""
    text = os.environ.pop(session.SERVICE_RECORD, "")  # it is no health command's
    if text:
        folder.make()
    if not folder.lock():
        raise VgpudError(f"another balancer keeps the service in {folder.path}", ExitCode.CONFLICT)
    if text:
        folder.link_log()
        try:
            starting.begin(folder, read_record(text))
        except RecordError as error:
            raise VgpudError(f"cannot use {session.SERVICE_RECORD}: {error}", ExitCode.NOT_FOUND) from error
    return folder.load()


async def keep(folder: Folder) -> None:
    """Keeps the service of this folder until it is stopped. Raises VgpudError, OSError."""
    port, token = read_environment()
    descriptors.raise_limit()
    service = open_folder(folder)
    if service is None:
        raise VgpudError(f"there is no record of a service in {folder.path}: start it again", ExitCode.NOT_FOUND)
    try:
        parse_template(service.template)
    except RecordError as error:
        text = f"cannot use {folder.path / 'service.json'}: {error}; start the service again"
        raise VgpudError(text, ExitCode.NOT_FOUND) from error
    balancer = Balancer(folder, service, Queue(None), port, token)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, balancer.stop)
    await balancer.run()
