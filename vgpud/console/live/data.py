"""The API for one user: vgpud.client's connection and calls, with errors as vgpud.errors.CliError."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from google.protobuf.duration_pb2 import Duration

from vgpud.client import calls
from vgpud.client.async_connection import AsyncConnection
from vgpud.client.calls import Call, Listed, Watched
from vgpud.client.failures import ClientError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.errors import make_cli_error

T = TypeVar("T")

#: the daemon's own deadlines for pausing a slice and for letting it continue
PAUSE_S, RESUME_S = 2.0, 30.0


def span(span_ns: int) -> Duration:
    return Duration(seconds=span_ns // 10**9, nanos=span_ns % 10**9)


class Api:
    """A connection with one user's rights. All calls raise CliError."""

    def __init__(self, target: str) -> None:
        self._connection = AsyncConnection(target, check=False)

    async def close(self) -> None:
        await self._connection.close()

    async def _send(self, call: Call[T]) -> T:
        try:
            return await self._connection.send(call)
        except ClientError as error:
            raise make_cli_error(error) from error

    async def _all(self, list_call: Listed[T]) -> list[T]:
        try:
            return await self._connection.all(list_call)
        except ClientError as error:
            raise make_cli_error(error) from error

    async def _watch(self, watch_call: Watched[T]) -> AsyncIterator[T]:
        try:
            async for answer in self._connection.watch(watch_call):
                yield answer
        except ClientError as error:
            raise make_cli_error(error) from error

    # ---- nodes, slices, events ----

    async def node(self) -> pb.Node:
        return await self._send(calls.node())

    async def devices(self) -> list[pb.Device]:
        return await self._all(calls.devices())

    async def publication(self) -> pb.Publication:
        """What Kubernetes' scheduler sees of the node's devices."""
        return await self._send(calls.publication())

    async def drain(self, device: str, reason: str) -> None:
        await self._send(calls.drain_device(device, reason))

    async def undrain(self, device: str) -> None:
        await self._send(calls.undrain_device(device))

    def watch_slices(self, interval_ms: int) -> AsyncIterator[pb.WatchSlicesResponse]:
        return self._watch(calls.watch_slices(interval_ms))

    async def slice(self, name: str) -> pb.Slice:
        return await self._send(calls.get_slice(name))

    async def processes(self, slice_name: str) -> list[pb.Process]:
        return await self._all(calls.processes(slice_name))

    async def update_slice(self, name: str, spec: pb.SliceSpec, fields: Sequence[str]) -> None:
        await self._send(calls.update_slice(name, spec, fields))

    async def pause_slice(self, name: str) -> None:
        await self._send(calls.suspend_slice(name, False, PAUSE_S))

    async def resume_slice(self, name: str) -> None:
        await self._send(calls.resume_slice(name, RESUME_S))

    async def delete_slice(self, name: str, force: bool) -> None:
        await self._send(calls.delete_slice(name, force))

    async def history(self, kind: str, name: str, since_ns: int, until_ns: int) -> pb.History:
        """What the daemon has recorded of a node, device, slice or job; calls.history."""
        return await self._send(calls.history(kind, name, since_ns, until_ns))

    async def events(self) -> list[pb.Event]:
        return await self._all(calls.events())

    def watch_events(self, after_sequence: int) -> AsyncIterator[pb.Event]:
        return self._watch(calls.watch_events(after_sequence))

    # ---- jobs ----

    async def submit(self, spec: pb.JobSpec, request_id: str) -> list[int]:
        return await self._send(calls.submit(spec, request_id))

    async def environments(self) -> list[pb.Environment]:
        """Of the site, that the user may use."""
        return list((await self._send(calls.environments())).environments)

    async def job(self, job_id: int) -> pb.Job:
        return await self._send(calls.job(job_id))

    async def report_session_use(self, job_id: int) -> None:
        await self._send(calls.report_session_use(job_id))

    async def explain(self, job_id: int) -> pb.ExplainJobResponse:
        return await self._send(calls.explain_job(job_id))

    async def jobs(self, states: Sequence[str]) -> list[pb.Job]:
        """In one of these states; final ones include jobs that have ended."""
        return await self._all(calls.jobs(False, "", None, states, None))

    async def update_job(self, job_id: int, spec: pb.JobSpec, fields: Sequence[str]) -> None:
        await self._send(calls.update_job(job_id, spec, fields))

    def watch_jobs(self) -> AsyncIterator[list[pb.Job]]:
        """All jobs that have not ended, then the changed ones."""
        return self._watch(calls.watch_jobs(()))

    async def cancel(self, job_id: int, whole_array: bool) -> None:
        await self._send(calls.cancel(job_id, whole_array))

    async def hold(self, job_id: int) -> None:
        await self._send(calls.hold(job_id))

    async def release(self, job_id: int) -> None:
        await self._send(calls.release(job_id))

    async def requeue(self, job_id: int) -> None:
        await self._send(calls.requeue(job_id))

    def attach_job(self, requests: AsyncIterator[pb.AttachJobRequest]) -> AsyncIterator[pb.AttachJobResponse]:
        """The terminal of a job; calls.attach_job."""
        return self._watch(calls.attach_job(requests))

    # ---- queues ----

    async def queues(self) -> list[pb.Queue]:
        return await self._all(calls.queues())

    async def set_queue(self, queue: pb.Queue, fields: Sequence[str]) -> None:
        await self._send(calls.set_queue(queue, fields))

    async def delete_queue(self, name: str) -> None:
        await self._send(calls.delete_queue(name))

    async def usage(self, since_ns: int | None, by: str) -> list[pb.Usage]:
        return await self._all(calls.usage(since_ns, None, by, None))
