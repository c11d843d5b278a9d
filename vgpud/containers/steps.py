"""Steps of Slurm jobs: their slices, made and ended at the request of Slurm's daemons. Used by server.py.

To the core a step is a container: its slurmstepd stands for it, its cgroup identifies its programs, and without cgroups
their uid does. A step joins the slice of the job's batch script where that runs, which has all that the job has on this
node; else its slice is its own. `srun --overlap` gives a step what other steps of its job have already: it joins the
largest of their slices, so that all of them together have no more than the job. A job that a Prolog reports has no
slurmstepd yet: its slice stays until the Epilog.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from vgpud.containers.watch import ContainerWatch
from vgpud.core.events import ContainerCreated, ContainerStarted, CreateSlice, DeleteSlice
from vgpud.core.model import Container, Denied, Reason, Slice, Spec
from vgpud.core.origins import SlurmStep
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.host import cgroups, processes
from vgpud.libraries.environment import variables
from vgpud.paths import attach_socket
from vgpud.slurm.request import Request, StepError, parse_request, parse_step, step_cgroup

NS_PER_MS = 1_000_000


class StepSite(Protocol):
    """Values common to all steps of this node (server.Site)."""

    @property
    def runtime(self) -> Path: ...
    @property
    def driver(self) -> Path: ...
    @property
    def nvml(self) -> Path | None: ...
    @property
    def sim_dir(self) -> str: ...
    @property
    def mode(self) -> str: ...


class StepBackend(Protocol):
    """The daemon's side. Called on the loop; methods that are not `async` must not block."""

    def container(self, container_id: str) -> Container | None: ...
    def slice(self, name: str) -> Slice | None: ...
    def slices(self) -> Iterable[Slice]: ...
    def uuids(self, spec: Spec) -> frozenset[str]: ...
    def used_ns(self, slice_: Slice) -> int: ...
    def device_count(self) -> int: ...
    async def create_container(self, event: ContainerCreated) -> Slice | Denied: ...
    async def start_container(self, event: ContainerStarted) -> Slice | Denied: ...
    async def create_job_slice(self, event: CreateSlice) -> Slice | Denied: ...
    async def delete_job_slice(self, event: DeleteSlice) -> Denied | None: ...
    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None: ...


class Steps:
    """Begins and ends steps. Raises StepError with one line for the user."""

    def __init__(self, backend: StepBackend, watch: ContainerWatch) -> None:
        self._backend = backend
        self._watch = watch
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, step: SlurmStep) -> asyncio.Lock:
        """Each task of a step asks, and the first one makes its slice; steps of one job may share one."""
        return self._locks.setdefault(SlurmStep(step.job_id, "").slice_name(), asyncio.Lock())

    async def begin(self, body: bytes, peer_pid: int) -> Slice | None:
        """The slice of the step that the body describes, made unless it exists. None: what the whole job has on this
        node must be known first, and the caller can find out."""
        asked = parse_request(body)
        given, has = len(asked.spec.device_uuids), self._backend.device_count()
        if given > has:
            raise StepError(
                f"Slurm gives {given} GPUs, vgpud has {has} here: see `vgpu gpu ls`, then correct gres.conf"
            )
        lock = self._lock(asked.step)
        async with lock:
            return await (self._step(asked, peer_pid) if asked.stepd_pid else self._job(asked))

    async def _step(self, request: Request, peer_pid: int) -> Slice | None:
        name, begun = request.step.slice_name(), processes.start_time(request.stepd_pid)
        if not begun:
            raise StepError(f"slurmstepd {request.stepd_pid} does not exist: run vgpud in the host's pid namespace")
        known = self._backend.container(name)
        if known and known.started and (known.pid, known.pid_start) == (request.stepd_pid, begun):
            return self._slice(known)
        joined = self._find_shared_slice(request)
        if joined is None:
            return None
        event = ContainerCreated(
            container_id=name,
            engine_name=f"Slurm step {name.partition('-')[2]}",
            spec=None if joined else request.spec,
            join=joined,
            origin=request.step,
            caller_uid=0,  # Slurm has decided; the user's own limits here are for slices that it knows nothing of
            pid=request.stepd_pid,
            pid_start=begun,
            uid=str(uuid.uuid4()),
            wall_ns=time.time_ns(),
            owner_uid=request.uid,
        )
        _require_slice(await self._backend.create_container(event))
        paths = [*cgroups.paths_of(peer_pid), *cgroups.paths_of(request.stepd_pid)]
        started = ContainerStarted(name, request.stepd_pid, begun, step_cgroup(paths, request.step))
        answer = await self._backend.start_container(started)
        container = self._backend.container(name)
        if isinstance(answer, Denied) or container is None:
            self._backend.end_container(name, "it could not be started")
            raise StepError(answer.message if isinstance(answer, Denied) else "the step has ended")
        self._watch.begin(container, processes.open_process(request.stepd_pid, begun))
        return answer

    def _find_shared_slice(self, request: Request) -> str | None:
        """The name of the slice that a step shares with others of its job, "": it has its own, None: see begin()."""
        script = next((made.name for made in self._whole_job(request.step) if made.owner_uid == request.uid), "")
        if script or not request.step.whole_job:
            return script
        beside = [made for made in self._find_sibling_slices(request.step) if made.owner_uid == request.uid]
        wanted = self._backend.uuids(request.spec)
        shared = [made for made in beside if wanted & _devices(made)]
        if not shared:
            return ""
        is_whole = request.spec.gpus_milli == MILLI_PER_DEVICE * len(wanted)  # a device that another step has as well
        if not is_whole and request.may_ask:
            return None
        if (
            not is_whole
            and sum(made.spec.gpus_milli for made in beside) + request.spec.gpus_milli <= request.total_milli
        ):
            return ""
        return max(shared, key=lambda made: (len(wanted & _devices(made)), made.spec.gpus_milli)).name

    def _find_sibling_slices(self, step: SlurmStep) -> list[Slice]:
        """Slices of other steps of its job."""
        steps = [(made, made.origin) for made in self._backend.slices() if isinstance(made.origin, SlurmStep)]
        return [made for made, other in steps if other.job_id == step.job_id and other.step not in ("", step.step)]

    def _whole_job(self, step: SlurmStep) -> list[Slice]:
        """Slices that the step may join: of a job of this id, which may be another user's that has not quite ended."""
        scripts = [self._backend.container(script.slice_name()) for script in step.whole_job]
        found = [self._backend.slice(script.slice_name) for script in scripts if script]
        return [made for made in found if made]

    def _slice(self, container: Container) -> Slice:
        found = self._backend.slice(container.slice_name)
        if found is None:
            raise StepError(f"slice {container.slice_name} was removed: start the step again")
        return found

    async def _job(self, request: Request) -> Slice:
        """By a Prolog: before the job's first process. Asked again for the same, it gives the same. One that differs is
        of an earlier run, or of an earlier job with this id, whose end was not reported."""
        name = request.step.slice_name()
        found = self._backend.slice(name)
        if found and found.owner_uid == request.uid and self._is_as_asked(found, request.spec):
            return found
        if found:
            await self._delete(name, force=False)
        event = CreateSlice(
            request_id="",
            origin=request.step,
            spec=request.spec,
            owner_uid=request.uid,
            uid=str(uuid.uuid4()),
            wall_ns=time.time_ns(),
        )
        return _require_slice(await self._backend.create_job_slice(event))

    def _is_as_asked(self, slice_: Slice, spec: Spec) -> bool:
        return slice_.spec.gpus_milli == spec.gpus_milli and _devices(slice_) == self._backend.uuids(spec)

    async def end(self, body: bytes) -> bytes:
        """Ends a step, or a Prolog's job. Lines KEY=VALUE: the slice that has ended with it, and its device time."""
        step = parse_step(body)
        lock = self._lock(step)
        async with lock:
            name = step.slice_name()
            container = self._backend.container(name)
            made = self._backend.slice(container.slice_name if container else name)
            if made is None:
                return b""
            used_ns = self._backend.used_ns(made)
            if container:
                self._backend.end_container(name, "the step ended")
            else:
                await self._delete(name, force=True)
        if self._backend.slice(made.name):
            return b""  # the batch script's, which still runs
        return f"slice={made.name}\nused_ms={used_ns // NS_PER_MS}\n".encode()

    async def _delete(self, name: str, *, force: bool) -> None:
        denied = await self._backend.delete_job_slice(DeleteSlice("", name, force))
        if denied and denied.reason is not Reason.NOT_FOUND:
            raise StepError(denied.message)


def _devices(slice_: Slice) -> frozenset[str]:
    return frozenset(share.device_uuid for share in slice_.shares)


def _require_slice(answer: Slice | Denied) -> Slice:
    if isinstance(answer, Denied):
        raise StepError(answer.message)
    return answer


def task_variables(slice_: Slice, site: StepSite) -> bytes:
    """What the tasks of a step get in their environment, as lines NAME=VALUE. LD_PRELOAD and LD_LIBRARY_PATH go before
    what the task has. CUDA_VISIBLE_DEVICES counts within the slice. May wait for a disk. Raises VgpudError."""
    socket = str(attach_socket(site.runtime, slice_.name))
    found = variables({}, (site.driver, site.nvml), socket, site.mode, site.sim_dir)
    found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(len(slice_.shares))))
    return "".join(f"{name}={value}\n" for name, value in found.items()).encode()
