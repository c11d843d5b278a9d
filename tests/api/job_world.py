"""The services of jobs and queues on a fake backend, called as any user."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from vgpud.api import jobs as api_jobs
from vgpud.api.caller import Caller, set_caller
from vgpud.api.job_backend import JobBackend
from vgpud.core.jobs.container_parts import Allowance
from vgpud.core.jobs.environments import Catalog
from vgpud.core.jobs.facts import Facts, JobFilter, QueueNow, Submission, UsageRow
from vgpud.core.jobs.model import SECOND_NS, Job, JobSpec, QueueSpec, Reservation
from vgpud.core.model import Asker, Denied, Quota, Reason
from vgpud.core.slices import queue_quota
from vgpud.host import processes
from vgpud.v1alpha1 import vgpud_pb2 as pb

PID, TICKS = os.getpid(), processes.start_time(os.getpid())
ALICE = Caller(1000, 1000, (44,), PID, admin=False, start_ticks=TICKS)
BOB = Caller(1001, 1001, (), PID, admin=False, start_ticks=TICKS)
ROOT = Caller(0, 0, (), PID, admin=True, start_ticks=TICKS)


class Backend:
    """Keeps the calls that it gets; nothing starts."""

    node = "n1"

    def __init__(self) -> None:
        self.table: dict[int, Job] = {}
        self.submissions: list[Submission] = []
        self.tree = {"default": QueueSpec("default"), "bob": QueueSpec("bob", limit_milli=4000)}
        self.members: dict[str, tuple[str, ...]] = {"bob": ("uid:1001",)}
        self.done: list[Any] = []
        self.changes: list[int] = []
        self.rows: list[UsageRow] = []
        self.looked_at = 0
        self.reserved: list[Reservation] = []

    def queue_for(self, name: str, asker: Asker) -> str | Denied:
        known = {q.name: Quota(q.name, q.parent, q.limit_milli, self.members.get(q.name, ())) for q in self.queues()}
        return queue_quota.choose(known, name, asker)

    def owner(self, job_id: int) -> int | None:
        return self.table[job_id].spec.uid if job_id in self.table else None

    async def submit_job(self, submission: Submission) -> Sequence[int] | Denied:
        self.submissions.append(submission)
        ids = [len(self.table) + 1 + i for i in range(submission.count)]
        for job_id in ids:
            self.table[job_id] = Job(job_id, submission.spec, submitted_ns=SECOND_NS)
            self.change(job_id)
        return ids

    def change(self, job_id: int, **values: Any) -> None:
        for name, value in values.items():
            setattr(self.table[job_id], name, value)
        self.changes.append(job_id)

    async def job(self, job_id: int) -> Job | None:
        return self.table.get(job_id)

    async def jobs(self, after: int, count: int, job_filter: JobFilter) -> Sequence[Job]:
        return [j for j in self.table.values() if j.job_id > after and job_filter.wants(j)][:count]

    def is_settled(self, job: Job) -> bool:
        return job.state.is_final

    def facts(self, job: Job) -> Facts:
        self.looked_at += 1
        return Facts(slices=("j-1",), device_indices=(3,), position=job.job_id, granted=1500 * SECOND_NS)

    async def array_of(self, job_id: int) -> Sequence[int]:
        return [j.job_id for j in self.table.values() if j.spec.array == job_id]

    async def cancel_jobs(self, job_ids: Sequence[int], why: str) -> Denied | None:
        self.done.append(("cancel", list(job_ids), why))
        return None

    async def hold_job(self, job_id: int) -> Denied | None:
        return Denied(Reason.PRECONDITION, f"job {job_id} runs: cancel or requeue it")

    async def release_job(self, job_id: int) -> Denied | None:
        self.done.append(("release", job_id))
        return None

    async def use_session(self, job_id: int) -> Denied | None:
        self.done.append(("use", job_id))
        return None

    async def change_job(self, job_id: int, spec: JobSpec, *, by_admin: bool) -> Denied | None:
        self.done.append(("change", job_id, by_admin))
        self.change(job_id, spec=spec)
        return None

    async def requeue_job(self, job_id: int) -> Denied | None:
        self.done.append(("requeue", job_id))
        return None

    async def suspend_job(self, job_id: int) -> Denied | None:
        self.done.append(("suspend", job_id))
        return None

    async def resume_job(self, job_id: int) -> Denied | None:
        self.done.append(("resume", job_id))
        return None

    def since(self, after: int) -> tuple[int, Sequence[int]]:
        return len(self.changes), list(dict.fromkeys(self.changes[after:]))

    async def wait(self, after: int, timeout_s: float) -> None:
        while len(self.changes) <= after:
            await asyncio.sleep(0.001)

    def queues(self) -> Sequence[QueueSpec]:
        return list(self.tree.values())

    def queue_now(self, name: str) -> QueueNow:
        return QueueNow(self.members.get(name, ()), 500, 1, 2, 2000 * SECOND_NS)

    async def set_queue(self, spec: QueueSpec, members: Sequence[str]) -> Denied | None:
        self.tree[spec.name], self.members[spec.name] = spec, tuple(members)
        return None

    async def delete_queue(self, name: str) -> Denied | None:
        del self.tree[name]
        return None

    def reservations(self) -> Sequence[Reservation]:
        return self.reserved

    async def create_reservation(self, reservation: Reservation) -> Reservation | Denied:
        self.reserved.append(reservation)
        return reservation

    async def delete_reservation(self, name: str) -> Denied | None:
        self.reserved = [one for one in self.reserved if one.name != name]
        return None

    async def usage(self, since_ns: int, until_ns: int, by: str, uid: int | None) -> Sequence[UsageRow]:
        self.done.append(("usage", since_ns, until_ns, by, uid))
        return self.rows


@dataclass
class Site:
    """What the site has written."""

    catalog: Catalog = field(default_factory=Catalog)
    problem: str = ""
    allowance: Allowance = field(default_factory=Allowance)


class AbortError(Exception):
    """What the fake context ends a call with."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Context:
    async def abort(self, code: grpc.StatusCode, message: str, metadata: object = None) -> None:
        raise AbortError(code, message)


class World:
    """The services, called as any user."""

    def __init__(self) -> None:
        self.backend = Backend()
        parts: Any = self.backend
        self.site = Site()
        jobs = JobBackend(self.backend.node, parts, parts, parts, parts, parts, parts, self.site)
        self.jobs = api_jobs.JobService(jobs, parts, None, lambda *_: None)  # type: ignore[arg-type]
        self.queues = api_jobs.QueueService(self.backend, lambda *_: None)

    def call(self, method: Any, request: Any, who: Caller = ALICE) -> Any:
        async def run() -> Any:
            set_caller(who)
            return await method(request, Context())

        return asyncio.run(run())

    def refusal(self, method: Any, request: Any, who: Caller = ALICE) -> tuple[str, str]:
        with pytest.raises(AbortError) as error:
            self.call(method, request, who)
        assert "\n" not in str(error.value)
        return error.value.code.name, str(error.value)

    def submit(self, who: Caller = ALICE, **fields: Any) -> list[int]:
        request = pb.SubmitJobRequest(request_id="r", spec=spec(**fields))
        return list(self.call(self.jobs.SubmitJob, request, who).job_ids)


def spec(**fields: Any) -> pb.JobSpec:
    given: dict[str, Any] = {"slice": pb.SliceSpec(gpus_milli=500), "command": ["train.py", "-n", "5"]}
    return pb.JobSpec(**{"directory": "/home/alice", **given, **fields})
