"""The daemon's API for asyncio programs: typed, without protobuf in sight.

The client for other programs, sync_client.py, is made from this file (`make gen`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.client import calls, model
from vgpud.client.async_connection import AsyncConnection
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


class AsyncClient(AsyncConnection):
    """Slices, jobs, events and devices of a daemon, in dataclasses (vgpud.client.model).

    Use it in a `with`. Amounts are as in the API: thousandths of a GPU, bytes. Methods raise ClientError, which has
    one sentence, gRPC's status and the exit code that `vgpu` would have.
    """

    # ---- the node, its devices, events ----

    async def node(self) -> model.Node:
        """The daemon's machine and version."""
        return read(model.Node, await self.send(calls.node()))

    async def devices(self) -> list[model.Device]:
        """All devices, by index."""
        return [read(model.Device, one) for one in await self.all(calls.devices())]

    async def drain_device(self, device: str, reason: str) -> model.Device:
        """Places nothing new on the device with this UUID or index. For admins."""
        return read(model.Device, await self.send(calls.drain_device(device, reason)))

    async def undrain_device(self, device: str) -> model.Device:
        """Offers a drained device again. For admins."""
        return read(model.Device, await self.send(calls.undrain_device(device)))

    async def events(self) -> list[model.Event]:
        """What the event log has, oldest first."""
        return [read(model.Event, one) for one in await self.all(calls.events())]

    async def watch_events(self, after_sequence: int = 0) -> AsyncIterator[model.Event]:
        """Events later than this one, as they come; never ends by itself."""
        async for event in self.watch(calls.watch_events(after_sequence)):
            yield read(model.Event, event)

    # ---- slices ----

    async def slices(self) -> list[model.Slice]:
        """All slices that the user may see, by name."""
        return [read(model.Slice, one) for one in await self.all(calls.slices())]

    async def get_slice(self, name: str) -> model.Slice:
        """The slice of this name."""
        return read(model.Slice, await self.send(calls.get_slice(name)))

    async def create_slice(
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
        return read(model.Slice, await self.send(call))

    async def update_slice(self, name: str, spec: model.SliceSpec, fields: Sequence[str] = ()) -> model.Slice:
        """Sets these fields as in `spec`, unset ones to their defaults; no fields: those that `spec` sets."""
        return read(model.Slice, await self.send(calls.update_slice(name, write(pb.SliceSpec, spec), fields)))

    async def delete_slice(self, name: str, force: bool = False) -> None:
        """Deletes a slice; `force`: also one that programs use."""
        await self.send(calls.delete_slice(name, force))

    async def suspend_slice(self, name: str, *, evict: bool = False, deadline_s: float = 30.0) -> model.Slice:
        """Pauses a slice; `evict`: also moves its device memory to the host."""
        return read(model.Slice, await self.send(calls.suspend_slice(name, evict, deadline_s)))

    async def resume_slice(self, name: str, deadline_s: float = 30.0) -> model.Slice:
        """Lets a suspended slice continue."""
        return read(model.Slice, await self.send(calls.resume_slice(name, deadline_s)))

    async def processes(self, slice_name: str = "") -> list[model.Process]:
        """The processes in a slice, "": in all that the user may see."""
        return [read(model.Process, one) for one in await self.all(calls.processes(slice_name))]

    async def watch_slices(self, interval_ms: int = 1000) -> AsyncIterator[model.Snapshot]:
        """All slices and devices, again at every change and every interval_ms; never ends by itself."""
        async for answer in self.watch(calls.watch_slices(interval_ms)):
            yield read(model.Snapshot, answer)

    def use_slice(self, name: str) -> AsyncSlice:
        """The slice of this name, to be asked and changed: `await client.use_slice("team").resize(0.25)`."""
        return AsyncSlice(self, name)

    @asynccontextmanager
    async def slice(
        self, gpus: float | str, *, name: str = "", queue: str = "", **sizes: Any
    ) -> AsyncIterator[AsyncSlice]:
        """A slice for a while: `async with client.slice(0.5, max=1, mem="20G") as part`. Programs join it by
        `vgpu run --slice NAME` (part.name). It ends with the block, or with its last program if that is later; and
        with this program, however that dies. sizes: min, max, mem and the like, as vgpud.client.size takes them."""
        check_own_slice(self.remote, self.has_token)
        spec = write(pb.SliceSpec, size(gpus, **sizes))
        call = calls.create_slice(name, spec, ephemeral=True, queue=queue)
        made = await self.send(call)
        holder: Holder | None = None
        try:
            holder = await asyncio.to_thread(hold_slice, made.attach_socket)
            yield AsyncSlice(self, made.name)
        finally:
            if holder is not None:
                await asyncio.to_thread(holder.close)
            else:  # not held, or given up meanwhile: it would keep its guarantee for its grace
                with suppress(ClientError):  # why it is not held is the error to raise
                    await self.delete_slice(made.name, force=True)

    # ---- jobs and queues ----

    def use_job(self, job_id: int) -> AsyncJob:
        """The job of this number, to be asked and changed: `await client.use_job(12).wait()`."""
        return AsyncJob(self, job_id)

    async def wait(self, job_ids: Sequence[int]) -> list[model.Job]:
        """Waits until all of these jobs have ended; how they did, in the order of the numbers given. As all streams,
        it ends with an UnreachableError when the daemon is started again: wait once more then."""
        if not job_ids:
            return []
        latest: dict[int, model.Job] = {}
        async for one in self.watch_jobs(job_ids):
            latest[one.job_id] = one
        return [latest[job_id] for job_id in job_ids]

    async def logs(self, job_id: int, *, member: int = 0) -> str:
        """What a job, or this member of a gang, has printed so far. Of a daemon of this machine alone, and of jobs
        whose files the user may read."""
        job = await self.job(job_id)
        return await asyncio.to_thread(read_log, job, member, self.remote)

    async def submit(self, spec: model.JobSpec, request_id: str = "") -> list[int]:
        """Queues a job, or an array of them; the numbers. The directory must be absolute, on the daemon's machine."""
        return await self.send(calls.submit(write(pb.JobSpec, spec), request_id))

    async def environments(self) -> list[model.Environment]:
        """The site's environments that the user may use; `JobSpec.environment_name` names one."""
        answer = await self.send(calls.environments())
        return [read(model.Environment, one) for one in answer.environments]

    async def job(self, job_id: int) -> model.Job:
        """The job of this number."""
        return read(model.Job, await self.send(calls.job(job_id)))

    async def jobs(
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
        return [read(model.Job, one) for one in await self.all(listed)]

    async def explain(self, job_id: int) -> list[model.Fact]:
        """Why a job waits, runs where it does, and has its size, in reading order."""
        answer = await self.send(calls.explain_job(job_id))
        return [read(model.Fact, fact) for fact in answer.facts]

    async def cancel(self, job_id: int, *, whole_array: bool = False) -> None:
        """Ends a job; `whole_array`: all jobs of the array whose first it is."""
        await self.send(calls.cancel(job_id, whole_array))

    async def hold(self, job_id: int) -> None:
        """Keeps a pending job from starting."""
        await self.send(calls.hold(job_id))

    async def release(self, job_id: int) -> None:
        """Lets a held job start."""
        await self.send(calls.release(job_id))

    async def requeue(self, job_id: int) -> None:
        """Stops a job and queues it again."""
        await self.send(calls.requeue(job_id))

    async def suspend_job(self, job_id: int) -> None:
        """Takes a running job's GPUs for others, until resume_job(); its memory moves to the host."""
        await self.send(calls.suspend_job(job_id))

    async def resume_job(self, job_id: int) -> None:
        """Lets a job that was suspended continue, as soon as its capacity is free."""
        await self.send(calls.resume_job(job_id))

    async def update_job(self, job_id: int, spec: model.JobSpec, fields: Sequence[str]) -> model.Job:
        """Sets these fields of a job as in `spec`, unset ones to their defaults."""
        return read(model.Job, await self.send(calls.update_job(job_id, write(pb.JobSpec, spec), fields)))

    async def watch_jobs(self, job_ids: Sequence[int] = ()) -> AsyncIterator[model.Job]:
        """These jobs' present state (none named: all of the user's), then each job whenever it changes; ends when all
        that are named have ended."""
        unended = calls.Unended(job_ids)
        async for found in self.watch(calls.watch_jobs(job_ids)):
            for one in found:
                unended.see(one)
                yield read(model.Job, one)
            if unended.is_over:
                return

    async def attach_job(
        self, job_id: int, keystrokes: AsyncIterator[bytes], *, rows: int = 24, columns: int = 80
    ) -> AsyncIterator[bytes]:
        """What a job prints at its terminal, its last output of before first; `keystrokes` is typed there, at most 4096
        bytes at a time. Waits for the job's start, ends with the job or when another viewer joins; a job that has
        ended is an error. Closing the iterator leaves the job running."""

        async def requests() -> AsyncIterator[pb.AttachJobRequest]:
            yield pb.AttachJobRequest(job_id=job_id, size=pb.TerminalSize(rows=rows, columns=columns))
            async for keys in keystrokes:
                yield pb.AttachJobRequest(input=keys)

        async for answer in self.watch(calls.attach_job(requests())):
            if answer.replay or answer.output:
                yield answer.replay + answer.output

    async def queues(self) -> list[model.Queue]:
        """All queues, by name."""
        return [read(model.Queue, one) for one in await self.all(calls.queues())]

    async def set_queue(self, queue: model.Queue, fields: Sequence[str] = ()) -> model.Queue:
        """Creates or changes a queue: these fields, none: those that are set. For admins."""
        return read(model.Queue, await self.send(calls.set_queue(write(pb.Queue, queue), fields)))

    async def delete_queue(self, name: str) -> None:
        """Deletes an empty queue. For admins."""
        await self.send(calls.delete_queue(name))

    async def reservations(self) -> list[model.Reservation]:
        """All reservations of devices, by their begin."""
        return [read(model.Reservation, one) for one in await self.send(calls.reservations())]

    async def create_reservation(self, reservation: model.Reservation) -> model.Reservation:
        """Reserves devices for a queue, or for maintenance. For admins."""
        call = calls.create_reservation(write(pb.Reservation, reservation))
        return read(model.Reservation, await self.send(call))

    async def delete_reservation(self, name: str) -> None:
        """Ends a reservation. For admins."""
        await self.send(calls.delete_reservation(name))

    async def usage(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        by: str = "job",
        uid: int | None = None,
    ) -> list[model.Usage]:
        """GPU time by job, user, queue, namespace or pod; without times all that is kept; `uid`: of this user."""
        listed = calls.usage(wall_ns(since), wall_ns(until), by, uid)
        return [read(model.Usage, one) for one in await self.all(listed)]

    async def history(
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
        return read(model.History, await self.send(call))

    # ---- tokens ----

    async def create_token(self, user: str = "", *, ttl_s: float = 3600.0, note: str = "") -> tuple[model.Token, str]:
        """A token for the caller, admins may name another user; and its secret, which is shown once."""
        answer = await self.send(calls.create_token(user, ttl_s, note))
        return read(model.Token, answer.token), answer.secret

    async def tokens(self) -> list[model.Token]:
        """The user's valid tokens, for admins those of all."""
        return [read(model.Token, one) for one in await self.send(calls.tokens())]

    async def revoke_token(self, token_id: str) -> None:
        """Ends a token at once."""
        await self.send(calls.revoke_token(token_id))

    # ---- computed here ----

    async def predict(self, model: str, *, gpu: str = "", **options: Any) -> Looked:
        """What training a model will use of a device, before it runs: `vgpu predict`. gpu "": the daemon's device;
        options: batch, optimizer, precision, dims, predictor (vgpud.predict.looked.look)."""
        name = gpu or one_model([device.name for device in await self.devices()])
        return await asyncio.to_thread(predict, model, name, options)

    async def simulate(
        self, trace: Path, cluster: str, policies: Sequence[str] = ("fifo",), placement: str = ""
    ) -> dict[str, Figures]:
        """The figures of a trace of jobs on a cluster ("1x8") under each policy: `vgpu whatif`."""
        return await asyncio.to_thread(simulate, trace, cluster, policies, placement)


class AsyncSlice:
    """A slice by its name. Nothing is asked of the daemon until a method is called."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client

    async def get(self) -> model.Slice:
        """As it is now."""
        return await self._client.get_slice(self.name)

    async def resize(self, gpus: float | str | None = None, **sizes: Any) -> model.Slice:
        """Changes what is given, while its programs run: resize(0.25, mem="10G"). Other values stay."""
        return await self._client.update_slice(self.name, size(gpus, **sizes))

    async def pause(self, *, evict: bool = False) -> model.Slice:
        """Its programs wait; `evict`: their device memory moves to the host meanwhile."""
        return await self._client.suspend_slice(self.name, evict=evict)

    async def resume(self) -> model.Slice:
        """Lets it continue."""
        return await self._client.resume_slice(self.name)

    async def processes(self) -> list[model.Process]:
        """The processes in it."""
        return await self._client.processes(self.name)

    async def delete(self, *, force: bool = False) -> None:
        """Deletes it; `force`: also while programs use it."""
        await self._client.delete_slice(self.name, force)


class AsyncJob:
    """A job by its number. Nothing is asked of the daemon until a method is called."""

    def __init__(self, client: AsyncClient, job_id: int) -> None:
        self.job_id = job_id
        self._client = client

    async def get(self) -> model.Job:
        """As it is now."""
        return await self._client.job(self.job_id)

    async def wait(self) -> model.Job:
        """Waits for its end; how it ended."""
        (job,) = await self._client.wait([self.job_id])
        return job

    async def logs(self, *, member: int = 0) -> str:
        """What it has printed so far."""
        return await self._client.logs(self.job_id, member=member)

    async def explain(self) -> list[model.Fact]:
        """Why it waits, or runs where it does."""
        return await self._client.explain(self.job_id)

    async def cancel(self) -> None:
        """Ends it."""
        await self._client.cancel(self.job_id)

    async def hold(self) -> None:
        """Keeps it from starting."""
        await self._client.hold(self.job_id)

    async def release(self) -> None:
        """Lets it start."""
        await self._client.release(self.job_id)

    async def requeue(self) -> None:
        """Stops it and queues it again."""
        await self._client.requeue(self.job_id)
