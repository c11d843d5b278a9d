"""The client of the queue: one method per call, errors as in vgpud.cli.common.client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vgpud.cli.common.client import Client
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb


class JobClient(Client):
    """A connection to the daemon that also knows jobs and queues."""

    def submit(self, spec: pb.JobSpec, request_id: str = "") -> list[int]:
        """`request_id`: of a submission that is repeated because its answer was lost; "" = a new one."""
        return self.send(calls.submit(spec, request_id))

    def job(self, job_id: int) -> pb.Job:
        return self.send(calls.job(job_id))

    def explain(self, job_id: int) -> pb.ExplainJobResponse:
        return self.send(calls.explain_job(job_id))

    def find_simulated_indices(self) -> frozenset[int]:
        """The indices of the simulated devices."""
        return frozenset(device.index for device in self.devices() if device.simulated)

    def jobs(
        self,
        include_ended: bool = False,
        queue: str = "",
        uid: int | None = None,
        states: Sequence[str] = (),
        since_ns: int | None = None,
    ) -> list[pb.Job]:
        """uid None: of all users that the caller may see; states (): in any; since_ns: active at some time since."""
        return self.all(calls.jobs(include_ended, queue, uid, states, since_ns))

    def cancel(self, job_id: int, array: bool = False) -> None:
        self.send(calls.cancel(job_id, array))

    def hold(self, job_id: int) -> None:
        self.send(calls.hold(job_id))

    def release(self, job_id: int) -> None:
        self.send(calls.release(job_id))

    def requeue(self, job_id: int) -> None:
        self.send(calls.requeue(job_id))

    def change(self, job_id: int, spec: pb.JobSpec, fields: Sequence[str]) -> pb.Job:
        """Sets these fields as in `spec`, fields that it leaves out to their defaults."""
        return self.send(calls.update_job(job_id, spec, fields))

    def watch_jobs(self, job_ids: Sequence[int]) -> Iterator[pb.Job]:
        """These jobs' present state, then each job whenever it changes."""
        for jobs in self.watch(calls.watch_jobs(job_ids)):
            yield from jobs

    def attach(self, requests: Iterator[pb.AttachJobRequest]) -> Iterator[pb.AttachJobResponse]:
        """One call of AttachJob; `requests` may come as they like, the first one names the job."""
        return self.watch(calls.attach_job(requests))

    def queues(self) -> list[pb.Queue]:
        return self.all(calls.queues())

    def set_queue(self, queue: pb.Queue, fields: Sequence[str]) -> pb.Queue:
        """Sets these fields as in `queue`, fields that it leaves out to their defaults."""
        return self.send(calls.set_queue(queue, fields))

    def delete_queue(self, name: str) -> None:
        self.send(calls.delete_queue(name))

    def reservations(self) -> list[pb.Reservation]:
        return self.send(calls.reservations())

    def create_reservation(self, reservation: pb.Reservation) -> pb.Reservation:
        return self.send(calls.create_reservation(reservation))

    def delete_reservation(self, name: str) -> None:
        self.send(calls.delete_reservation(name))

    def usage(self, since_ns: int | None, until_ns: int | None, by: str, uid: int | None = None) -> list[pb.Usage]:
        return self.all(calls.usage(since_ns, until_ns, by, uid))
