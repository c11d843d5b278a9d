"""The client of the queue: one method per call, errors as in vgpud.cli.common.client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.cli.common.client import Client
from vgpud.cli.common.exits import CliError
from vgpud.cli.common.options import Settings
from vgpud.errors import ExitCode
from vgpud.v1 import vgpud_pb2 as pb
from vgpud.v1 import vgpud_pb2_grpc as stubs

#: the daemon takes messages of 256 KiB
SPEC_BYTES_MAX = 250_000


class JobClient(Client):
    """A connection to the daemon that also knows jobs and queues."""

    def __init__(self, settings: Settings, check: bool = True) -> None:
        super().__init__(settings, check)
        self._jobs = stubs.JobServiceStub(self._channel)
        self._queues = stubs.QueueServiceStub(self._channel)

    def submit(self, spec: pb.JobSpec, request_id: str = "") -> list[int]:
        """`request_id`: of a submission that is repeated because its answer was lost; "" = a new one."""
        if spec.ByteSize() > SPEC_BYTES_MAX:
            text = f"command and environment have {spec.ByteSize()} bytes, at most {SPEC_BYTES_MAX} are possible"
            raise CliError(f"{text}: use --no-env, and --env for what the job needs", ExitCode.USAGE)
        request = pb.SubmitJobRequest(request_id=request_id or str(uuid.uuid4()), spec=spec)
        ask_again = f"`vgpu submit --request-id {request.request_id} ...` asks again"
        return list(self._repeat(self._jobs.SubmitJob, request, ask_again).job_ids)

    def job(self, job_id: int) -> pb.Job:
        return self._call(self._jobs.GetJob, pb.GetJobRequest(job_id=job_id)).job

    def explain(self, job_id: int) -> pb.ExplainJobResponse:
        return self._call(self._jobs.ExplainJob, pb.ExplainJobRequest(job_id=job_id))

    def simulated(self) -> frozenset[int]:
        """The indices of the simulated devices."""
        return frozenset(device.index for device in self.devices() if device.simulated)

    def jobs(
        self,
        ended: bool = False,
        queue: str = "",
        uid: int | None = None,
        states: Sequence[str] = (),
        since_ns: int | None = None,
    ) -> list[pb.Job]:
        """uid None: of all users that the caller may see; states (): in any; since_ns: active at some time since."""
        request = pb.ListJobsRequest(all=ended, queue=queue, uid=uid, states=states, since=_stamp(since_ns))
        return self._pages(self._jobs.ListJobs, request, "jobs")

    def cancel(self, job_id: int, array: bool = False) -> None:
        self._call(self._jobs.CancelJob, pb.CancelJobRequest(job_id=job_id, array=array))

    def hold(self, job_id: int) -> None:
        self._call(self._jobs.HoldJob, pb.HoldJobRequest(job_id=job_id))

    def release(self, job_id: int) -> None:
        self._call(self._jobs.ReleaseJob, pb.ReleaseJobRequest(job_id=job_id))

    def requeue(self, job_id: int) -> None:
        self._call(self._jobs.RequeueJob, pb.RequeueJobRequest(job_id=job_id))

    def change(self, job_id: int, spec: pb.JobSpec, fields: Sequence[str]) -> pb.Job:
        """Sets these fields as in `spec`, fields that it leaves out to their defaults."""
        request = pb.UpdateJobRequest(job_id=job_id, spec=spec)
        request.update_mask.paths.extend(fields)
        return self._call(self._jobs.UpdateJob, request).job

    def watch_jobs(self, job_ids: Sequence[int]) -> Iterator[pb.Job]:
        """These jobs' present state, then each job whenever it changes."""
        for answer in self._stream(self._jobs.WatchJobs, pb.WatchJobsRequest(job_ids=job_ids)):
            yield from answer.jobs

    def queues(self) -> list[pb.Queue]:
        return self._pages(self._queues.ListQueues, pb.ListQueuesRequest(), "queues")

    def set_queue(self, queue: pb.Queue, fields: Sequence[str]) -> pb.Queue:
        """Sets these fields as in `queue`, fields that it leaves out to their defaults."""
        request = pb.SetQueueRequest(queue=queue)
        request.update_mask.paths.extend(fields)
        return self._call(self._queues.SetQueue, request).queue

    def delete_queue(self, name: str) -> None:
        self._call(self._queues.DeleteQueue, pb.DeleteQueueRequest(name=name))

    def reservations(self) -> list[pb.Reservation]:
        return list(self._call(self._queues.ListReservations, pb.ListReservationsRequest()).reservations)

    def create_reservation(self, reservation: pb.Reservation) -> pb.Reservation:
        request = pb.CreateReservationRequest(reservation=reservation)
        return self._call(self._queues.CreateReservation, request).reservation

    def delete_reservation(self, name: str) -> None:
        self._call(self._queues.DeleteReservation, pb.DeleteReservationRequest(name=name))

    def usage(self, since_ns: int | None, until_ns: int | None, by: str, uid: int | None = None) -> list[pb.Usage]:
        request = pb.GetUsageRequest(by=by, since=_stamp(since_ns), until=_stamp(until_ns), uid=uid)
        return self._pages(self._queues.GetUsage, request, "usage")


def _stamp(wall_ns: int | None) -> Timestamp | None:
    return None if wall_ns is None else Timestamp(seconds=wall_ns // 10**9, nanos=wall_ns % 10**9)
