"""The API for one user: one coroutine per call. The only module of the console that imports grpc.

Errors are vgpud.cli.common.exits.CliError, with the sentence that the command line prints.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.cli.common.client import told
from vgpud.client.channel import ANSWER_BYTES_MAX
from vgpud.client.failures import explain
from vgpud.client.grpc_import import grpc
from vgpud.v1 import vgpud_pb2 as pb
from vgpud.v1 import vgpud_pb2_grpc as stubs

TIMEOUT_S = 10.0
PAGE_SIZE = 1000


def span(span_ns: int) -> Duration:
    return Duration(seconds=span_ns // 10**9, nanos=span_ns % 10**9)


def stamp(wall_ns: int) -> Timestamp:
    return Timestamp(seconds=wall_ns // 10**9, nanos=wall_ns % 10**9)


class Api:
    """A connection with one user's rights. All calls raise CliError."""

    def __init__(self, target: str) -> None:
        options: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
        options.append(("grpc.max_receive_message_length", ANSWER_BYTES_MAX))
        options += [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._node = stubs.NodeServiceStub(self._channel)
        self._slices = stubs.SliceServiceStub(self._channel)
        self._events = stubs.EventServiceStub(self._channel)
        self._jobs = stubs.JobServiceStub(self._channel)
        self._queues = stubs.QueueServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close(None)

    async def _call(self, method: Callable[..., Any], request: Any, timeout_s: float = TIMEOUT_S) -> Any:
        try:
            return await method(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise told(explain(error, "vgpud", timeout_s)) from error

    async def _stream(self, method: Callable[..., Any], request: Any) -> AsyncIterator[Any]:
        call = method(request)
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as error:
            raise told(explain(error, "vgpud", TIMEOUT_S)) from error
        finally:
            call.cancel()

    async def _pages(self, method: Callable[..., Any], request: Any, field: str) -> list[Any]:
        rows: list[Any] = []
        request.page_size = PAGE_SIZE
        while True:
            answer = await self._call(method, request)
            rows.extend(getattr(answer, field))
            if not answer.next_page_token:
                return rows
            request.page_token = answer.next_page_token

    # ---- nodes, slices, events ----

    async def node(self) -> pb.Node:
        answer: pb.GetNodeResponse = await self._call(self._node.GetNode, pb.GetNodeRequest())
        return answer.node

    async def devices(self) -> list[pb.Device]:
        return await self._pages(self._node.ListDevices, pb.ListDevicesRequest(), "devices")

    async def drain(self, device: str, reason: str) -> None:
        await self._call(self._node.DrainDevice, pb.DrainDeviceRequest(device_uuid=device, reason=reason))

    async def undrain(self, device: str) -> None:
        await self._call(self._node.UndrainDevice, pb.UndrainDeviceRequest(device_uuid=device))

    def watch_slices(self, interval_ms: int) -> AsyncIterator[pb.WatchSlicesResponse]:
        return self._stream(self._slices.WatchSlices, pb.WatchSlicesRequest(interval_ms=interval_ms))

    async def slice(self, name: str) -> pb.Slice:
        answer: pb.GetSliceResponse = await self._call(self._slices.GetSlice, pb.GetSliceRequest(name=name))
        return answer.slice

    async def processes(self, slice_name: str) -> list[pb.Process]:
        return await self._pages(self._slices.ListProcesses, pb.ListProcessesRequest(slice=slice_name), "processes")

    async def update_slice(self, name: str, spec: pb.SliceSpec, fields: Sequence[str]) -> None:
        request = pb.UpdateSliceRequest(request_id=str(uuid.uuid4()), name=name, spec=spec)
        request.update_mask.paths.extend(fields)
        await self._call(self._slices.UpdateSlice, request)

    async def pause_slice(self, name: str) -> None:
        await self._call(self._slices.SuspendSlice, pb.SuspendSliceRequest(name=name, deadline=span(2 * 10**9)))

    async def resume_slice(self, name: str) -> None:
        request = pb.ResumeSliceRequest(name=name, deadline=span(30 * 10**9))
        await self._call(self._slices.ResumeSlice, request, 45.0)

    async def delete_slice(self, name: str, force: bool) -> None:
        request = pb.DeleteSliceRequest(request_id=str(uuid.uuid4()), name=name, force=force)
        await self._call(self._slices.DeleteSlice, request)

    async def events(self) -> list[pb.Event]:
        return await self._pages(self._events.ListEvents, pb.ListEventsRequest(), "events")

    def watch_events(self, after_sequence: int) -> AsyncIterator[pb.WatchEventsResponse]:
        return self._stream(self._events.WatchEvents, pb.WatchEventsRequest(after_sequence=after_sequence))

    # ---- jobs ----

    async def submit(self, spec: pb.JobSpec, request_id: str) -> list[int]:
        answer = await self._call(self._jobs.SubmitJob, pb.SubmitJobRequest(request_id=request_id, spec=spec))
        return list(answer.job_ids)

    async def job(self, job_id: int) -> pb.Job:
        answer: pb.GetJobResponse = await self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id))
        return answer.job

    async def explain(self, job_id: int) -> pb.ExplainJobResponse:
        answer: pb.ExplainJobResponse = await self._call(self._jobs.ExplainJob, pb.ExplainJobRequest(job_id=job_id))
        return answer

    async def jobs(self, states: Sequence[str]) -> list[pb.Job]:
        """In one of these states; final ones include jobs that have ended."""
        return await self._pages(self._jobs.ListJobs, pb.ListJobsRequest(states=states), "jobs")

    async def update_job(self, job_id: int, spec: pb.JobSpec, fields: Sequence[str]) -> None:
        request = pb.UpdateJobRequest(job_id=job_id, spec=spec)
        request.update_mask.paths.extend(fields)
        await self._call(self._jobs.UpdateJob, request)

    def watch_jobs(self) -> AsyncIterator[pb.WatchJobsResponse]:
        """All jobs that have not ended, then the changed ones."""
        return self._stream(self._jobs.WatchJobs, pb.WatchJobsRequest())

    async def cancel(self, job_id: int, array: bool) -> None:
        await self._call(self._jobs.CancelJob, pb.CancelJobRequest(job_id=job_id, array=array))

    async def hold(self, job_id: int) -> None:
        await self._call(self._jobs.HoldJob, pb.HoldJobRequest(job_id=job_id))

    async def release(self, job_id: int) -> None:
        await self._call(self._jobs.ReleaseJob, pb.ReleaseJobRequest(job_id=job_id))

    async def requeue(self, job_id: int) -> None:
        await self._call(self._jobs.RequeueJob, pb.RequeueJobRequest(job_id=job_id))

    # ---- queues ----

    async def queues(self) -> list[pb.Queue]:
        return await self._pages(self._queues.ListQueues, pb.ListQueuesRequest(), "queues")

    async def set_queue(self, queue: pb.Queue, fields: Sequence[str]) -> None:
        request = pb.SetQueueRequest(queue=queue)
        request.update_mask.paths.extend(fields)
        await self._call(self._queues.SetQueue, request)

    async def delete_queue(self, name: str) -> None:
        await self._call(self._queues.DeleteQueue, pb.DeleteQueueRequest(name=name))

    async def usage(self, since_ns: int | None, by: str) -> list[pb.Usage]:
        request = pb.GetUsageRequest(by=by, since=None if since_ns is None else stamp(since_ns))
        return await self._pages(self._queues.GetUsage, request, "usage")
