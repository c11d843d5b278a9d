"""A fake queue beside the fake daemon: jobs in a dictionary, which start and end when a test says so."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import code_pb2, status_pb2
from grpc_status import rpc_status

from vgpud.client import calls
from vgpud.core.slices.queue_quota import name_queues
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

NODE = "testnode"
SUBMITTED_S = 1_700_000_000
ENDED = calls.ENDED


def _refuse(context: grpc.ServicerContext, code: int, message: str) -> None:
    context.abort_with_status(rpc_status.to_status(status_pb2.Status(code=code, message=message)))


class FakeQueue(stubs.JobServiceServicer, stubs.QueueServiceServicer):
    """Keeps what is asked in `requests`; tests move jobs with change()."""

    def __init__(self) -> None:
        self.jobs: dict[int, pb.Job] = {}
        self.queues = {"default": pb.Queue(name="default", weight=1, policy="fifo")}
        self.rows: list[pb.Usage] = []
        self.reservations: dict[str, pb.Reservation] = {}
        self.facts: list[pb.Fact] = []
        self.environments = pb.ListEnvironmentsResponse()
        self.requests: list[Any] = []
        self._made: dict[str, pb.SubmitJobResponse] = {}
        self.page = 1000
        self.lost_answers = 0  # so many submissions are carried out and not answered
        self.has_too_many_watchers = False  # as many watch as may
        self.first_state, self.first_reason = "pending", "no room: 0.5 GPUs asked, device 0 has 0.25 free"
        self._changed = threading.Condition()
        self._changes: list[int] = []

    def serve(self, server: grpc.Server) -> None:
        stubs.add_JobServiceServicer_to_server(self, server)
        stubs.add_QueueServiceServicer_to_server(self, server)

    # ---- what tests do ----

    def add(self, job_id: int, state: str = "pending", **fields: Any) -> pb.Job:
        """A job as if it had been submitted."""
        spec = pb.JobSpec(name="train", queue="default", members=1, command=["train.py"], directory="/home/a")
        spec.slice.gpus_milli = 500
        values = {"node": NODE, "uid": os.getuid(), "submit_time": Timestamp(seconds=SUBMITTED_S)}
        job = pb.Job(**{**values, "job_id": job_id, "spec": spec, "state": words.JOB_STATE.to_number(state), **fields})
        self.jobs[job_id] = job
        return job

    def state(self, job_id: int) -> str:
        """As a word."""
        return words.JOB_STATE.to_word(self.jobs[job_id].state)

    def change(self, job_id: int, **fields: Any) -> None:
        with self._changed:
            for name, value in fields.items():
                number = words.JOB_STATE.to_number(value) if name == "state" else value
                setattr(self.jobs[job_id], name, number)
            self._changes.append(job_id)
            self._changed.notify_all()

    def end(self, job_id: int, code: int = 0, state: str = "") -> None:
        self.change(job_id, exit_code=code, state=state or ("failed" if code else "completed"))

    # ---- the API ----

    def SubmitJob(self, request: pb.SubmitJobRequest, context: grpc.ServicerContext) -> pb.SubmitJobResponse:
        self.requests.append(request)
        made = self._made.get(request.request_id)
        if made is None:
            made = self._made[request.request_id] = self._submit(request, context)
        self.lost_answers -= 1
        if self.lost_answers >= 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        return made

    def _submit(self, request: pb.SubmitJobRequest, context: grpc.ServicerContext) -> pb.SubmitJobResponse:
        spec = request.spec
        if spec.queue and spec.queue not in self.queues:
            _refuse(context, code_pb2.NOT_FOUND, f"no queue {spec.queue!r}: {name_queues(self.queues)}")
        if spec.slice.gpus_milli * (spec.members or 1) > 8000:
            _refuse(context, code_pb2.RESOURCE_EXHAUSTED, f"a gang of {spec.members} is more than the cluster has")
        count = len(spec.array_indices) or 1
        ids = [len(self.jobs) + 1 + i for i in range(count)]
        for index, job_id in enumerate(ids):
            array = {"array_id": ids[0], "array_index": spec.array_indices[index]} if spec.array_indices else {}
            log = Path(spec.directory) / (spec.log or "vgpu-%j.log").replace("%j", str(job_id))
            self.add(job_id, self.first_state, spec=spec, reason=self.first_reason, log=str(log), **array)
        return pb.SubmitJobResponse(job_ids=ids)

    def _find(self, job_id: int, context: grpc.ServicerContext) -> pb.Job:
        if job_id not in self.jobs:
            _refuse(context, code_pb2.NOT_FOUND, f"no job {job_id}: `vgpu job ls --all` lists yours")
        return self.jobs[job_id]

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobResponse:
        return pb.GetJobResponse(job=self._find(request.job_id, context))

    def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: grpc.ServicerContext
    ) -> pb.ListEnvironmentsResponse:
        return self.environments

    def ExplainJob(self, request: pb.ExplainJobRequest, context: grpc.ServicerContext) -> pb.ExplainJobResponse:
        return pb.ExplainJobResponse(job=self._find(request.job_id, context), facts=self.facts)

    def ListJobs(self, request: pb.ListJobsRequest, context: grpc.ServicerContext) -> pb.ListJobsResponse:
        self.requests.append(request)
        after = int(request.page_token or 0)
        ended = request.include_ended or not set(ENDED).isdisjoint(request.states)
        found = [j for i, j in sorted(self.jobs.items()) if i > after and (ended or j.state not in ENDED)]
        found = [j for j in found if not request.states or j.state in request.states]
        found = [j for j in found if request.queue in ("", j.spec.queue)]
        found = [j for j in found if not request.HasField("uid") or j.uid == request.uid]
        shown = found[: self.page]
        token = str(shown[-1].job_id) if len(found) > len(shown) else ""
        return pb.ListJobsResponse(jobs=shown, next_page_token=token)

    def _act(self, request: Any, context: grpc.ServicerContext, state: str) -> None:
        self.requests.append(request)
        job = self._find(request.job_id, context)
        if job.state in ENDED:
            _refuse(
                context,
                code_pb2.FAILED_PRECONDITION,
                f"job {job.job_id} has {self.state(job.job_id)}: it cannot be changed",
            )
        self.change(job.job_id, state=state)

    def CancelJob(self, request: pb.CancelJobRequest, context: grpc.ServicerContext) -> pb.CancelJobResponse:
        self._act(request, context, "cancelled")
        return pb.CancelJobResponse()

    def HoldJob(self, request: pb.HoldJobRequest, context: grpc.ServicerContext) -> pb.HoldJobResponse:
        self._act(request, context, "held")
        return pb.HoldJobResponse()

    def ReleaseJob(self, request: pb.ReleaseJobRequest, context: grpc.ServicerContext) -> pb.ReleaseJobResponse:
        self._act(request, context, "pending")
        return pb.ReleaseJobResponse()

    def RequeueJob(self, request: pb.RequeueJobRequest, context: grpc.ServicerContext) -> pb.RequeueJobResponse:
        self._act(request, context, "pending")
        return pb.RequeueJobResponse()

    def SuspendJob(self, request: pb.SuspendJobRequest, context: grpc.ServicerContext) -> pb.SuspendJobResponse:
        self._act(request, context, "suspended")
        return pb.SuspendJobResponse()

    def ResumeJob(self, request: pb.ResumeJobRequest, context: grpc.ServicerContext) -> pb.ResumeJobResponse:
        self._act(request, context, "running")
        return pb.ResumeJobResponse()

    def UpdateJob(self, request: pb.UpdateJobRequest, context: grpc.ServicerContext) -> pb.UpdateJobResponse:
        self.requests.append(request)
        return pb.UpdateJobResponse(job=self._find(request.job_id, context))

    def WatchJobs(self, request: pb.WatchJobsRequest, context: grpc.ServicerContext) -> Iterator[pb.WatchJobsResponse]:
        if self.has_too_many_watchers:
            _refuse(context, code_pb2.RESOURCE_EXHAUSTED, "16 watch already, which is the limit of a user")
        seen = len(self._changes)
        ids = list(request.job_ids) or list(self.jobs)
        yield pb.WatchJobsResponse(jobs=[self._find(job_id, context) for job_id in ids])
        while context.is_active():
            with self._changed:
                if len(self._changes) == seen:
                    self._changed.wait(0.05)
                changed, seen = self._changes[seen:], len(self._changes)
            jobs = [self.jobs[job_id] for job_id in dict.fromkeys(changed) if job_id in ids]
            if jobs:
                yield pb.WatchJobsResponse(jobs=jobs)

    def ListQueues(self, request: pb.ListQueuesRequest, context: grpc.ServicerContext) -> pb.ListQueuesResponse:
        return pb.ListQueuesResponse(queues=list(self.queues.values()))

    def SetQueue(self, request: pb.SetQueueRequest, context: grpc.ServicerContext) -> pb.SetQueueResponse:
        self.requests.append(request)
        queue = self.queues.setdefault(request.queue.name, pb.Queue(name=request.queue.name, weight=1, policy="fifo"))
        for field in request.update_mask.paths:
            queue.ClearField(field)
        queue.MergeFrom(request.queue)
        return pb.SetQueueResponse(queue=queue)

    def DeleteQueue(self, request: pb.DeleteQueueRequest, context: grpc.ServicerContext) -> pb.DeleteQueueResponse:
        if request.name not in self.queues:
            _refuse(context, code_pb2.NOT_FOUND, f"no queue {request.name!r}: {name_queues(self.queues)}")
        del self.queues[request.name]
        return pb.DeleteQueueResponse()

    def ListReservations(
        self, request: pb.ListReservationsRequest, context: grpc.ServicerContext
    ) -> pb.ListReservationsResponse:
        return pb.ListReservationsResponse(reservations=list(self.reservations.values()))

    def CreateReservation(
        self, request: pb.CreateReservationRequest, context: grpc.ServicerContext
    ) -> pb.CreateReservationResponse:
        self.reservations[request.reservation.name] = request.reservation
        return pb.CreateReservationResponse(reservation=request.reservation)

    def DeleteReservation(
        self, request: pb.DeleteReservationRequest, context: grpc.ServicerContext
    ) -> pb.DeleteReservationResponse:
        del self.reservations[request.name]
        return pb.DeleteReservationResponse()

    def GetUsage(self, request: pb.GetUsageRequest, context: grpc.ServicerContext) -> pb.GetUsageResponse:
        self.requests.append(request)
        return pb.GetUsageResponse(usage=self.rows)


def wait_until(look: Any, timeout_s: float = 10) -> None:
    """Until look() is true."""
    until_ns = time.monotonic_ns() + int(timeout_s * 1e9)
    while not look():
        assert time.monotonic_ns() < until_ns, "it did not come"
        time.sleep(0.01)
