"""The daemon's queue, as a service's owner sees it: replicas are jobs of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from google.protobuf import json_format

from vgpud.client import calls
from vgpud.client.async_connection import AsyncConnection
from vgpud.core.jobs.session import REPLICA, TOKEN
from vgpud.services.core.model import JobPhase, RecordError, Service
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: in the environment of a replica: of which generation it is
GENERATION = "VGPU_SERVICE_GENERATION"
CALL_S = 10.0


def phase_of(job: pb.Job) -> JobPhase:
    if job.state in calls.ENDED:
        return JobPhase.ENDED
    if job.state == pb.JOB_STATE_RUNNING:
        return JobPhase.RUNNING
    return JobPhase.SUSPENDED if job.state == pb.JOB_STATE_SUSPENDED else JobPhase.WAITING


def token_of(job: pb.Job) -> str:
    return str(job.spec.environment.get(TOKEN, ""))


def generation_of(job: pb.Job) -> int:
    """0: it is not known."""
    word = job.spec.environment.get(GENERATION, "")
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else 0


def parse_template(template: dict[str, Any]) -> pb.JobSpec:
    """The job of a replica. Raises RecordError: a field is none of a job's, or has a value of another type."""
    try:
        return json_format.ParseDict(template, pb.JobSpec())
    except json_format.ParseError as error:
        raise RecordError(f"its template is no job: {str(error).splitlines()[0][:200]}") from error


class Queue:
    """Methods raise ClientError."""

    def __init__(self, host: str | None) -> None:
        self._daemon = AsyncConnection(host, timeout_s=CALL_S, check=False)

    async def find_replicas(self, name: str) -> list[int]:
        """The jobs of this service that have not ended."""
        jobs = await self._daemon.all(calls.jobs(False, "", self._daemon.own_uid))
        return [job.job_id for job in jobs if job.spec.session == REPLICA and job.spec.name == name]

    async def get(self, job_id: int) -> pb.Job:
        return await self._daemon.send(calls.job(job_id))

    async def start(self, service: Service, log: str) -> int:
        spec = parse_template(service.template)
        spec.name, spec.session, spec.log = service.name, REPLICA, log
        spec.environment[GENERATION] = str(service.generation)
        return (await self._daemon.send(calls.submit(spec)))[0]

    async def cancel(self, job_id: int) -> None:
        await self._daemon.send(calls.cancel(job_id))

    async def suspend(self, job_id: int) -> None:
        await self._daemon.send(calls.suspend_job(job_id))

    async def resume(self, job_id: int) -> None:
        await self._daemon.send(calls.resume_job(job_id))

    async def watch(self, job_ids: Sequence[int]) -> AsyncIterator[list[int]]:
        """Which of these jobs have changed, as they do; all of them at first."""
        async for jobs in self._daemon.watch(calls.watch_jobs(job_ids)):
            yield [job.job_id for job in jobs]

    async def close(self) -> None:
        await self._daemon.close()
