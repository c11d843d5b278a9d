"""The daemon's API for programs: typed, without protobuf in sight.

Made from the one for asyncio: change that, and run `make gen`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.client import calls, model
from vgpud.client.connection import Connection
from vgpud.client.failures import ClientError
from vgpud.client.held_slice import Holder, check_own_slice, hold_slice
from vgpud.client.logs import read_log
from vgpud.client.messages import read, wall_ns, write
from vgpud.client.offline import one_model, predict, simulate
from vgpud.client.sizes import size
from vgpud.v1alpha1 import vgpud_pb2 as pb

if TYPE_CHECKING:
    from vgpud.predict.looked import Looked
    from vgpud.simulate.results import Figures


class Client(Connection):
    """Slices, jobs, events and devices of a daemon, in dataclasses (vgpud.client.model).

    Use it in a `with`. Amounts are as in the API: thousandths of a GPU, bytes. Methods raise ClientError, which has
    one sentence, gRPC's status and the exit code that `vgpu` would have.
    """

    # ---- the node, its devices, events ----

    def node(self) -> model.Node:
        """The daemon's machine and version."""
        return read(model.Node, self.send(calls.node()))

    def devices(self) -> list[model.Device]:
        """All devices, by index."""
        return [read(model.Device, one) for one in self.all(calls.devices())]

    def drain_device(self, device: str, reason: str) -> model.Device:
        """Places nothing new on the device with this UUID or index. For admins."""
        return read(model.Device, self.send(calls.drain_device(device, reason)))

    def undrain_device(self, device: str) -> model.Device:
        """Offers a drained device again. For admins."""
        return read(model.Device, self.send(calls.undrain_device(device)))

    def events(self) -> list[model.Event]:
        """What the event log has, oldest first."""
        return [read(model.Event, one) for one in self.all(calls.events())]

    def watch_events(self, after_sequence: int = 0) -> Iterator[model.Event]:
        """Events later than this one, as they come; never ends by itself."""
        for event in self.watch(calls.watch_events(after_sequence)):
            yield read(model.Event, event)

    # ---- slices ----

    def slices(self) -> list[model.Slice]:
        """All slices that the user may see, by name."""
        return [read(model.Slice, one) for one in self.all(calls.slices())]

    def get_slice(self, name: str) -> model.Slice:
        """The slice of this name."""
        return read(model.Slice, self.send(calls.get_slice(name)))

    def create_slice(
        self,
        name: str,
        spec: model.SliceSpec,
        *,
        owner_uid: int | None = None,
        every_user: bool = False,
        cdi_device: bool = False,
        queue: str = "",
    ) -> model.Slice:
        """Creates a slice that stays; name "": the daemon chooses one. owner_uid None: the caller. every_user: every
        user may use it. Only admins may name another user, or say every_user."""
        call = calls.create_slice(
            name,
            write(pb.SliceSpec, spec),
            ephemeral=False,
            owner_uid=owner_uid,
            every_user=every_user,
            cdi_device=cdi_device,
            queue=queue,
        )
        return read(model.Slice, self.send(call))

    def update_slice(self, name: str, spec: model.SliceSpec, fields: Sequence[str] = ()) -> model.Slice:
        """Sets these fields as in `spec`, unset ones to their defaults; no fields: those that `spec` sets."""
        return read(model.Slice, self.send(calls.update_slice(name, write(pb.SliceSpec, spec), fields)))

    def delete_slice(self, name: str, force: bool = False) -> None:
        """Deletes a slice; `force`: also one that programs use."""
        self.send(calls.delete_slice(name, force))

    def suspend_slice(self, name: str, *, evict: bool = False, deadline_s: float = 30.0) -> model.Slice:
        """Pauses a slice; `evict`: also moves its device memory to the host."""
        return read(model.Slice, self.send(calls.suspend_slice(name, evict, deadline_s)))

    def resume_slice(self, name: str, deadline_s: float = 30.0) -> model.Slice:
        """Lets a suspended slice continue."""
        return read(model.Slice, self.send(calls.resume_slice(name, deadline_s)))

    def processes(self, slice_name: str = "") -> list[model.Process]:
        """The processes in a slice, "": in all that the user may see."""
        return [read(model.Process, one) for one in self.all(calls.processes(slice_name))]

    def watch_slices(self, interval_ms: int = 1000) -> Iterator[model.Snapshot]:
        """All slices and devices, again at every change and every interval_ms; never ends by itself."""
        for answer in self.watch(calls.watch_slices(interval_ms)):
            yield read(model.Snapshot, answer)

    def use_slice(self, name: str) -> Slice:
        """The slice of this name, to be asked and changed: `client.use_slice("team").resize(0.25)`."""
        return Slice(self, name)

    @contextmanager
    def slice(self, gpus: float | str, *, name: str = "", queue: str = "", **sizes: Any) -> Iterator[Slice]:
        """A slice for a while: `with client.slice(0.5, max=1, mem="20G") as part`. Programs join it by
        `vgpu run --slice NAME` (part.name). It ends with the block, or with its last program if that is later; and
        with this program, however that dies. sizes: min, max, mem and the like, as vgpud.client.size takes them."""
        check_own_slice(self.remote, self.has_token)
        spec = write(pb.SliceSpec, size(gpus, **sizes))
        call = calls.create_slice(name, spec, ephemeral=True, queue=queue)
        made = self.send(call)
        holder: Holder | None = None
        try:
            holder = hold_slice(made.attach_socket)
            yield Slice(self, made.name)
        finally:
            if holder is not None:
                holder.close()
            else:  # not held, or given up meanwhile: it would keep its guarantee for its grace
                with suppress(ClientError):  # why it is not held is the error to raise
                    self.delete_slice(made.name, force=True)

    # ---- jobs and queues ----

    def use_job(self, job_id: int) -> Job:
        """The job of this number, to be asked and changed: `client.use_job(12).wait()`."""
        return Job(self, job_id)

    def wait(self, job_ids: Sequence[int]) -> list[model.Job]:
        """Waits until all of these jobs have ended; how they did, in the order of the numbers given. As all streams,
        it ends with an UnreachableError when the daemon is started again: wait once more then."""
        if not job_ids:
            return []
        latest: dict[int, model.Job] = {}
        for one in self.watch_jobs(job_ids):
            latest[one.job_id] = one
        return [latest[job_id] for job_id in job_ids]

    def logs(self, job_id: int, *, member: int = 0) -> str:
        """What a job, or this member of a gang, has printed so far. Of a daemon of this machine alone, and of jobs
        whose files the user may read."""
        job = self.job(job_id)
        return read_log(job, member, self.remote)

    def submit(self, spec: model.JobSpec, request_id: str = "") -> list[int]:
        """Queues a job, or an array of them; the numbers. The directory must be absolute, on the daemon's machine."""
        return self.send(calls.submit(write(pb.JobSpec, spec), request_id))

    def environments(self) -> list[model.Environment]:
        """The site's environments that the user may use; `JobSpec.environment_name` names one."""
        answer = self.send(calls.environments())
        return [read(model.Environment, one) for one in answer.environments]

    def job(self, job_id: int) -> model.Job:
        """The job of this number."""
        return read(model.Job, self.send(calls.job(job_id)))

    def jobs(
        self,
        *,
        include_ended: bool = False,
        queue: str = "",
        uid: int | None = None,
        states: Sequence[str] = (),
        since: datetime | None = None,
    ) -> list[model.Job]:
        """The user's jobs, for admins those of all; `include_ended`: with those that have; `states`: only in one of
        them; `since`: only those that were active at any time since then."""
        listed = calls.jobs(include_ended, queue, uid, states, wall_ns(since))
        return [read(model.Job, one) for one in self.all(listed)]

    def explain(self, job_id: int) -> list[model.Fact]:
        """Why a job waits, runs where it does, and has its size, in reading order."""
        answer = self.send(calls.explain_job(job_id))
        return [read(model.Fact, fact) for fact in answer.facts]

    def cancel(self, job_id: int, *, whole_array: bool = False) -> None:
        """Ends a job; `whole_array`: all jobs of the array whose first it is."""
        self.send(calls.cancel(job_id, whole_array))

    def hold(self, job_id: int) -> None:
        """Keeps a pending job from starting."""
        self.send(calls.hold(job_id))

    def release(self, job_id: int) -> None:
        """Lets a held job start."""
        self.send(calls.release(job_id))

    def requeue(self, job_id: int) -> None:
        """Stops a job and queues it again."""
        self.send(calls.requeue(job_id))

    def suspend_job(self, job_id: int) -> None:
        """Takes a running job's GPUs for others, until resume_job(); its memory moves to the host."""
        self.send(calls.suspend_job(job_id))

    def resume_job(self, job_id: int) -> None:
        """Lets a job that was suspended continue, as soon as its capacity is free."""
        self.send(calls.resume_job(job_id))

    def update_job(self, job_id: int, spec: model.JobSpec, fields: Sequence[str]) -> model.Job:
        """Sets these fields of a job as in `spec`, unset ones to their defaults."""
        return read(model.Job, self.send(calls.update_job(job_id, write(pb.JobSpec, spec), fields)))

    def watch_jobs(self, job_ids: Sequence[int] = ()) -> Iterator[model.Job]:
        """These jobs' present state (none named: all of the user's), then each job whenever it changes; ends when all
        that are named have ended."""
        unended = calls.Unended(job_ids)
        for found in self.watch(calls.watch_jobs(job_ids)):
            for one in found:
                unended.see(one)
                yield read(model.Job, one)
            if unended.is_over:
                return

    def attach_job(
        self, job_id: int, keystrokes: Iterator[bytes], *, rows: int = 24, columns: int = 80
    ) -> Iterator[bytes]:
        """What a job prints at its terminal, its last output of before first; `keystrokes` is typed there, at most 4096
        bytes at a time. Waits for the job's start, ends with the job or when another viewer joins; a job that has
        ended is an error. Closing the iterator leaves the job running."""

        def requests() -> Iterator[pb.AttachJobRequest]:
            yield pb.AttachJobRequest(job_id=job_id, size=pb.TerminalSize(rows=rows, columns=columns))
            for keys in keystrokes:
                yield pb.AttachJobRequest(input=keys)

        for answer in self.watch(calls.attach_job(requests())):
            if answer.replay or answer.output:
                yield answer.replay + answer.output

    def queues(self) -> list[model.Queue]:
        """All queues, by name."""
        return [read(model.Queue, one) for one in self.all(calls.queues())]

    def set_queue(self, queue: model.Queue, fields: Sequence[str] = ()) -> model.Queue:
        """Creates or changes a queue: these fields, none: those that are set. For admins."""
        return read(model.Queue, self.send(calls.set_queue(write(pb.Queue, queue), fields)))

    def delete_queue(self, name: str) -> None:
        """Deletes an empty queue. For admins."""
        self.send(calls.delete_queue(name))

    def reservations(self) -> list[model.Reservation]:
        """All reservations of devices, by their begin."""
        return [read(model.Reservation, one) for one in self.send(calls.reservations())]

    def create_reservation(self, reservation: model.Reservation) -> model.Reservation:
        """Reserves devices for a queue, or for maintenance. For admins."""
        call = calls.create_reservation(write(pb.Reservation, reservation))
        return read(model.Reservation, self.send(call))

    def delete_reservation(self, name: str) -> None:
        """Ends a reservation. For admins."""
        self.send(calls.delete_reservation(name))

    def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: str = "job",
        uid: int | None = None,
    ) -> list[model.Usage]:
        """GPU time by job, user, queue, namespace or pod; without times all that is kept; `uid`: of this user."""
        listed = calls.usage(wall_ns(since), wall_ns(until), by, uid)
        return [read(model.Usage, one) for one in self.all(listed)]

    def history(
        self,
        kind: str,
        name: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: timedelta | None = None,
    ) -> model.History:
        """What was recorded of a device, slice, job, queue or user (`kind`), without times in the last hour. Ended
        ones are kept for a year. step None: as short as possible."""
        step_ns = None if step is None else round(step / timedelta(microseconds=1)) * 1000
        call = calls.history(kind, name, wall_ns(since), wall_ns(until), step_ns)
        return read(model.History, self.send(call))

    # ---- tokens ----

    def create_token(self, user: str = "", *, ttl_s: float = 3600.0, note: str = "") -> tuple[model.Token, str]:
        """A token for the caller, admins may name another user; and its secret, which is shown once."""
        answer = self.send(calls.create_token(user, ttl_s, note))
        return read(model.Token, answer.token), answer.secret

    def tokens(self) -> list[model.Token]:
        """The user's valid tokens, for admins those of all."""
        return [read(model.Token, one) for one in self.send(calls.tokens())]

    def revoke_token(self, token_id: str) -> None:
        """Ends a token at once."""
        self.send(calls.revoke_token(token_id))

    # ---- computed here ----

    def predict(self, model: str, *, gpu: str = "", **options: Any) -> Looked:
        """What training a model will use of a device, before it runs: `vgpu predict`. gpu "": the daemon's device;
        options: batch, optimizer, precision, dims, predictor (vgpud.predict.looked.look)."""
        name = gpu or one_model([device.name for device in self.devices()])
        return predict(model, name, options)

    def simulate(
        self, trace: Path, cluster: str, policies: Sequence[str] = ("fifo",), placement: str = ""
    ) -> dict[str, Figures]:
        """The figures of a trace of jobs on a cluster ("1x8") under each policy: `vgpu whatif`."""
        return simulate(trace, cluster, policies, placement)


class Slice:
    """A slice by its name. Nothing is asked of the daemon until a method is called."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def get(self) -> model.Slice:
        """As it is now."""
        return self._client.get_slice(self.name)

    def resize(self, gpus: float | str | None = None, **sizes: Any) -> model.Slice:
        """Changes what is given, while its programs run: resize(0.25, mem="10G"). Other values stay."""
        return self._client.update_slice(self.name, size(gpus, **sizes))

    def pause(self, *, evict: bool = False) -> model.Slice:
        """Its programs wait; `evict`: their device memory moves to the host meanwhile."""
        return self._client.suspend_slice(self.name, evict=evict)

    def resume(self) -> model.Slice:
        """Lets it continue."""
        return self._client.resume_slice(self.name)

    def processes(self) -> list[model.Process]:
        """The processes in it."""
        return self._client.processes(self.name)

    def delete(self, *, force: bool = False) -> None:
        """Deletes it; `force`: also while programs use it."""
        self._client.delete_slice(self.name, force)


class Job:
    """A job by its number. Nothing is asked of the daemon until a method is called."""

    def __init__(self, client: Client, job_id: int) -> None:
        self.job_id = job_id
        self._client = client

    def get(self) -> model.Job:
        """As it is now."""
        return self._client.job(self.job_id)

    def wait(self) -> model.Job:
        """Waits for its end; how it ended."""
        (job,) = self._client.wait([self.job_id])
        return job

    def logs(self, *, member: int = 0) -> str:
        """What it has printed so far."""
        return self._client.logs(self.job_id, member=member)

    def explain(self) -> list[model.Fact]:
        """Why it waits, or runs where it does."""
        return self._client.explain(self.job_id)

    def cancel(self) -> None:
        """Ends it."""
        self._client.cancel(self.job_id)

    def hold(self) -> None:
        """Keeps it from starting."""
        self._client.hold(self.job_id)

    def release(self) -> None:
        """Lets it start."""
        self._client.release(self.job_id)

    def requeue(self) -> None:
        """Stops it and queues it again."""
        self._client.requeue(self.job_id)
