"""The composition root: the one loop, the one state, and the wires between core and shells.

Events come from the API and the attach sockets, go through core's machine.step(), and the commands that come out are
carried out here. A step that must be saved runs on a copy: the copy becomes the state only when the store has it, and a
step whose effects fail is taken back, so nothing is half-created. Launches and allocations never come here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from vgpud import __version__, metrics, paths
from vgpud.api import server
from vgpud.api.slice_messages import arbiter_view, timestamp
from vgpud.api.trace_streams import Tracing
from vgpud.attach.messages import ABI_VERSION
from vgpud.attach.server import SHARED, Tenants
from vgpud.config import LIVE_KEYS, Config, arbiter_items, check_arbiter
from vgpud.containers.server import Containers
from vgpud.core import events as ev
from vgpud.core.model import Denied, Device, Process, Reason, Slice, State, Taken
from vgpud.core.observed import Entry, ProcessStats, Reading, SliceStats, Snapshot
from vgpud.core.slices.attach_rules import may_keep_rules
from vgpud.core.slices.machine import request_key, step
from vgpud.core.slices.snapshot import take_snapshot
from vgpud.daemon.cdi import DeviceFiles
from vgpud.daemon.containers import ContainerBackend
from vgpud.daemon.event_log import EventLog
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.requests import JobRequests
from vgpud.daemon.monitor import UsageMonitor
from vgpud.daemon.policy import policy_of
from vgpud.daemon.suspend import SuspendController
from vgpud.daemon.tenants import AttachBackend
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.nvml import Devices
from vgpud.errors import ConfigError, StoreBusyError, StoreError, StoreUnwritableError, VgpudError
from vgpud.host.directories import RuntimeDirectory
from vgpud.host.upkeep import PeriodicTasks
from vgpud.oci.request import Limits
from vgpud.store.database import Store, saved_ones
from vgpud.store.flush import Flushing, while_busy
from vgpud.store.jobs import JobStore
from vgpud.v1alpha1 import vgpud_pb2 as pb

log = logging.getLogger("vgpud")

SAMPLE_S = 0.1
HOUSEKEEPING_S = 1.0
#: how often our CDI files are looked at: the driver may have been updated, or /var/run/cdi emptied
DEVICE_FILES_S = 5.0
#: changes that come close together wake the watchers once
COALESCE_S = 0.02


class SliceObserver(Protocol):
    """What hears of changes to slices and of the capacity that is left for others."""

    def slice_changed(self, slice_: Slice) -> None: ...

    def slice_goes(self, slice_: Slice) -> None:
        """Before its counters go."""
        ...

    def capacity_changed(self) -> None: ...


class Daemon:
    """One node. Make it on a running loop; start() serves, stop() ends and leaves the tenants coasting."""

    def __init__(self, config: Config, devices: Devices, inventory: tuple[Device, ...], store: Store) -> None:
        self.config = config
        self.node = config.node_name
        self.state = State()
        self._upkeep = PeriodicTasks(self.note)
        self._directory = RuntimeDirectory(config.runtime)
        self._private = self._directory.make_private()
        #: what is done again and again beside the repairs: (what it is, how it is done)
        self.chores: list[tuple[str, Callable[[], Any]]] = [
            ("looking whether the state can be written again", lambda: self._save_again()),
            ("the clock of the slices", lambda: self.run(ev.Tick())),
            ("the clock of the queue", lambda: self._queue.tick()),
            ("flushing the state database", lambda: self._flushing.begin()),
            ("writing the event log", lambda: self._flush_events()),
            ("the tokens", lambda: self._api.recheck()),
            ("the metrics", lambda: self._metrics.put(self._snapshot()) if self._metrics_server else None),
        ]
        self._devices = devices
        self._store = store
        self._flushing = Flushing(store)
        self._unsaved: list[ev.Command] = []  # of events of run(), while another process held the store
        loaded = store.load(config.events_max)
        self._log: EventLog = EventLog(loaded.events, config.events_max)
        self._arbiters = Arbiters(inventory, dict(arbiter_items(config.arbiter)))
        self._monitor = UsageMonitor(self, devices, self._arbiters)
        self.tracing = Tracing(self._arbiters)
        self._container_backend = ContainerBackend(self)
        self._attach = AttachBackend(self, self._arbiters, devices, self._container_backend)
        shared = paths.shared_attach_dir(config.runtime)
        self._tenants = Tenants(paths.slices_dir(config.runtime), shared, self.node, config.mode, self._attach)
        self._containers = Containers(self._container_backend)
        self._suspending = SuspendController(self)
        self._files = DeviceFiles(config.cdi, self._container_backend.facts, self.note)
        self._metrics = metrics.Metrics()
        self._metrics_server: Any = None
        self._slice_observers: list[SliceObserver] = []
        self._handlers = self._command_handlers()
        self._started_wall_ns = time.time_ns()
        self._changed = asyncio.Event()
        self.changes = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._store_fault = self._save_fault = ""
        kept = loaded.slices, loaded.requests, loaded.containers, loaded.drains
        self.run(ev.Started(policy_of(config), inventory, *kept))
        self._tell_of_state()
        self._tenants.open(SHARED)
        self._containers.adopt(list(self.state.containers.values()))
        # the second phase: what is made from the slices of the former daemon, and hears of changes from then on
        self._queue = JobController(self, JobStore(store))
        self._slice_observers.append(self._queue)
        self._job_requests = JobRequests(self, self._queue)
        self._api = server.Server(self, self._job_requests, self._private / paths.SOCKET_NAME)

    # ---- life ----

    def _tell_of_state(self) -> None:
        """What was found and done when the state database was opened, and whose slices it has no more."""
        for text in self._store.notes:
            self.note(ev.Log("state.repaired", text))
        self._store.notes.clear()
        if self._store.unwritable:
            self.note(ev.Log("state.unwritable", self._store.unwritable))
        for name in self._tenants.left_over(self.state.slices):
            # without a socket that answers, programs that start there would run without limits
            self._tenants.open(name)
            text = f"slice {name} is not in the state database: programs that start in it are refused, those that run"
            self.note(ev.Log("slice.lost", f"{text} keep their shares; make it again with vgpu slice create", name))

    def _save_again(self) -> None:
        """After a start at which the state database could not be written: whether it can be now."""
        if self._store.unwritable and self._store.recover():
            self.note(ev.Log("state.writable", "the state database can be written again"))
            self._tell_of_state()

    async def start(self, gid: int, admin_gid: int, metrics_address: tuple[str, int] | None) -> None:
        """Serves the API to the members of `gid` (by socket_mode) and the metrics. Raises OSError, VgpudError."""
        if metrics_address:
            self._serve_metrics(*metrics_address)
        self._monitor.start()
        for uuid in self.state.devices:
            log.info("arbiter of %s: %s", uuid, self._arbiters.standing(uuid))
        self._suspending.settle()
        self._metrics.put(self._snapshot())
        await self._files.refresh()
        await self._queue.start()
        await self._api.start(paths.grpc_socket(self.config.runtime), self.config.socket_mode, gid, admin_gid)
        front = paths.runtime_socket(self.config.runtime)
        # it serves root and the daemon: socket_mode may admit every user to the API, and none of them here
        self._containers.start(front, self._private / front.name, self.config.socket_mode & 0o770, gid)
        self._tasks = [
            asyncio.create_task(self._every(SAMPLE_S, self._sample)),
            asyncio.create_task(self._every(HOUSEKEEPING_S, self._housekeeping)),
            asyncio.create_task(self._every(DEVICE_FILES_S, self._files.refresh)),
        ]

    async def listen(self, host: str, port: int) -> None:
        """Serves users of other machines as well, from start() on. Raises VgpudError."""
        addresses = await self._api.listen(host, port, self.config.tls)
        log.info("serving users of other machines on %s", ", ".join(f"{a} port {p}" for a, p in addresses))

    async def stop(self) -> None:
        """Ends the API, then every connection: the tenants coast. Slices stay in the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._suspending.stop()
        await self._attach.stop()
        await self._containers.stop()
        await self._api.stop(1.0)
        await self._queue.stop()
        if self._metrics_server:
            self._metrics_server.close()
        self._tenants.close_all()
        await self._monitor.stop()
        self._arbiters.close()
        await self._save_rest()
        self._store.close()

    async def _save_rest(self) -> None:
        """What could not be written before; and what jobs leave behind goes from the disk."""
        try:
            await while_busy(lambda: self._save(()))
            await self._flushing.wait_until_saved()
        except StoreError as error:
            log.error("%s", error)
        self._flush_events()

    def _serve_metrics(self, host: str, port: int) -> None:
        try:
            tokens = metrics.read_tokens(self.config.metrics_tokens) if self.config.metrics_tokens else None
        except (OSError, ValueError) as error:
            raise VgpudError(f"metrics_tokens: {error}") from error
        try:
            self._metrics_server = self._metrics.serve(host, port, tokens)
        except OSError as error:
            text = f"metrics address {host}:{port}: {error.strerror}; choose another (--metrics ADDRESS:PORT) or off"
            raise VgpudError(text) from error

    async def _every(self, period_s: float, work: Callable[[], Any]) -> None:
        while True:
            try:
                result = work()
                if asyncio.iscoroutine(result):
                    await result
            except Exception:
                log.exception("housekeeping failed; continuing")
            await asyncio.sleep(period_s)

    async def _sample(self) -> None:
        busy = {uuid: now.utilization_ratio or 0.0 for uuid, now in self._monitor.readings.items()}
        self._arbiters.sample(time.monotonic_ns(), busy)

    async def _housekeeping(self) -> None:
        await self._repair("the runtime directory", self._directory.repair)
        await self._upkeep.do("looking at the attach sockets", self._repair_attach_sockets)
        await self._repair("the API's socket", self._api.repair)
        await self._repair("the runtime's socket", self._containers.repair)
        for what, work in self.chores:
            await self._upkeep.do(what, work)

    async def _repair_attach_sockets(self) -> None:
        for name in self._tenants.find_lost_sockets():
            whose = f"of slice {name}" if name else "that containers share"
            await self._repair(f"the attach socket {whose}", partial(self._tenants.reopen, name), name)

    async def _repair(self, what: str, work: Callable[[], Any], slice_name: str = "") -> None:
        """`work` says whether anything was missing."""

        async def repair() -> None:
            made = work()
            if await made if inspect.isawaitable(made) else made:
                self.note(ev.Log("socket.repaired", f"{what} was removed and is back", slice_name))

        await self._upkeep.do(what, repair)

    def charge(self, slice_name: str, device: str, unattributed_bytes: int) -> None:
        """What the driver counts for a slice beyond its ledger is the slice's from now on."""
        made = self.state.slices.get(slice_name)
        if made and made.share(device):
            self._arbiters.charge(made.serial, device, unattributed_bytes)
            self._wake()

    def devices_taken(self, taken_devices: tuple[Taken, ...]) -> None:
        """What others than slices have of the devices, as it is seen now."""
        self.run(ev.DevicesTaken(taken_devices))
        self._capacity_changed()

    def device_faulted(self, device_uuid: str, xid: int) -> None:
        """Notifies the owners of jobs on the device."""
        self._queue.progress.note_fault(device_uuid, xid)

    def dead(self) -> list[int]:
        return self._tenants.dead()

    def reload(self, config: Config) -> list[str]:
        """Takes over what can change while running; returns the keys that need a restart."""
        changed = [n for n in Config.__dataclass_fields__ if getattr(config, n) != getattr(self.config, n)]
        # the rest stays as it is in use: sockets do not move because a file says so
        self.config = replace(self.config, **{name: getattr(config, name) for name in LIVE_KEYS})
        if "mode" in changed:
            self._tenants.set_mode(config.mode)
        if "arbiter" in changed:
            self._arbiters.set_times(dict(arbiter_items(config.arbiter)))
        self.run(ev.PolicyChanged(policy_of(self.config)))
        return [name for name in changed if name not in LIVE_KEYS]

    def _snapshot(self) -> Snapshot:
        stats, queues = self._arbiters.slice_stats, self._queue.samples()
        return take_snapshot(
            self.state, self.node, __version__, self._monitor.readings, stats, self._arbiters.standing, queues
        )

    # ---- events in, commands out ----

    async def submit(self, event: ev.Event) -> Slice | Denied | None:
        """A user's request: decided, saved, carried out, in this order; wait_until_saved() says when the disk
        has it.

        New numbers of an existing slice do not wait for the store: the arbiters have them first, and get the old ones
        back when the new ones could not be saved. While another process holds the store, the request is decided again
        at each try, and other requests continue.
        """
        live: list[ev.ApplySlice] = []
        try:
            return await while_busy(lambda: self._try(event, live))
        except (StoreError, OSError) as error:
            log.error("%s", error)
            self._take_back(live)
            return Denied(Reason.UNAVAILABLE, f"nothing was changed: {error}")
        except asyncio.CancelledError:  # the user has gone while the store was held
            self._take_back(live)
            raise

    def _try(self, event: ev.Event, live: list[ev.ApplySlice]) -> Slice | Denied | None:
        """Decides and carries out. Raises StoreError and OSError: nothing was changed but what `live` then holds."""
        with self._tenants.settle_admissions():
            return self._try_settled(event, live)

    def _try_settled(self, event: ev.Event, live: list[ev.ApplySlice]) -> Slice | Denied | None:
        draft = self.state.copy()
        commands = step(draft, event, time.monotonic_ns())
        answer = next(c.result for c in commands if isinstance(c, ev.Answer))
        numbers = [c for c in commands if isinstance(c, ev.ApplySlice)] if isinstance(event, ev.UpdateSlice) else []
        if numbers != live:
            self._take_back(live)  # of an earlier try
            live[:] = numbers
            self._execute(live)
        self._save(commands)
        self.state = draft
        try:
            self._execute(commands)  # `live` again: another request of this slice may have been taken back meanwhile
        except OSError as error:
            log.error("%s: %s", type(event).__name__, error)
            said = "kept, but not carried out before a restart of vgpud"
            if isinstance(event, ev.ContainerCreated) and isinstance(answer, Slice):
                self.run(ev.ContainerEnded(event.container_id, "its slice could not be made"))
                said = "nothing was created"
            if isinstance(event, ev.CreateSlice) and isinstance(answer, Slice):
                self.run(ev.DeleteSlice("", answer.name, True))
                self._forget_request(request_key(event.asker.uid, event.request_id))
                said = "nothing was created"
            return Denied(Reason.UNAVAILABLE, f"{said}: {error.strerror or error}; see the daemon's log")
        return answer

    async def wait_until_saved(self) -> Denied | None:
        """Waits until the disk has what was carried out so far; why it may not have it."""
        try:
            await self._flushing.wait_until_saved()
        except StoreError as error:
            return Denied(Reason.UNAVAILABLE, f"carried out, but perhaps not kept when the machine ends: {error}")
        return None

    def _save(self, commands: Sequence[ev.Command]) -> None:
        """Writes what must outlive us, in the order in which it was decided. Raises StoreError."""
        self._store.apply([*self._unsaved, *commands])
        self._unsaved.clear()

    def _take_back(self, live: Iterable[ev.ApplySlice]) -> None:
        """Gives the arbiters the slices back as they are in our state."""
        for change in live:
            old = self.state.slices.get(change.slice.name)
            if old is None or old.serial != change.slice.serial:
                continue  # it has ended meanwhile
            kept = () if old.name in self.state.waiting else old.shares
            new = {share.device_uuid for share in change.slice.shares}
            dropped = new - {share.device_uuid for share in kept}
            try:
                self._arbiters.apply(replace(old, shares=kept), dropped)
            except OSError as error:
                log.error("slice %s: %s", old.name, error)

    def _forget_request(self, key: str) -> None:
        """A creation that was taken back must not be answered from memory, nor from the store's."""
        self.state.requests.pop(key, None)
        try:
            self._store.forget_request(key)
        except StoreError as error:
            log.error("%s", error)

    def run(self, event: ev.Event) -> list[ev.Command]:
        """An event without a caller that waits for its answer: what cannot be saved now is saved with later events."""
        if may_keep_rules(self.state, event, time.monotonic_ns()):
            if isinstance(event, ev.ProcessGone | ev.ProcessDisconnected):
                self._tenants.renew_rules()
            return self._run(event)
        with self._tenants.settle_admissions():
            return self._run(event)

    def _run(self, event: ev.Event) -> list[ev.Command]:
        commands = step(self.state, event, time.monotonic_ns())
        try:
            self._save(commands)
            self._save_fault = ""
        except StoreBusyError:
            self._unsaved += saved_ones(commands)
        except StoreError as error:  # a full disk, for example: nothing new is admitted, so there is little of this
            if isinstance(error, StoreUnwritableError):
                self._unsaved += saved_ones(commands)
            if str(error) != self._save_fault:
                self._save_fault = str(error)
                log.error("%s", error)
        self._execute(commands)
        return commands

    def _execute(self, commands: Iterable[ev.Command]) -> None:
        commands = list(commands)
        for command in commands:
            if isinstance(command, ev.RemoveSlice):
                self._log.remember_owner(command.slice.name, command.slice.owner_uid)
        for command in commands:
            if handler := self._handlers.get(type(command)):
                handler(command)
        self._wake()

    def _command_handlers(self) -> dict[type, Callable[[Any], None]]:
        """What carries out each command; those that are not here are for the store, or answers."""
        return {
            ev.ApplySlice: self._apply_slice,
            ev.RemoveSlice: self._remove_slice,
            ev.SaveDrain: lambda command: self._capacity_changed(),
            ev.ForgetDrain: lambda command: self._capacity_changed(),
            ev.OpenSocket: self._open_socket,
            ev.CloseSocket: self._close_socket,
            ev.ForgetContainer: lambda command: self._containers.forget(command.container_id),
            ev.OpenDevice: lambda command: self._files.open(self.state.slices[command.slice_name]),
            ev.CloseDevice: lambda command: self._files.close(command.slice_name),
            ev.DropProcess: lambda command: self._tenants.drop(command.process_id),
            ev.Log: self.note,
        }

    def _apply_slice(self, command: ev.ApplySlice) -> None:
        self._arbiters.apply(command.slice, command.dropped_uuids)
        for observer in self._slice_observers:
            observer.slice_changed(command.slice)

    def _remove_slice(self, command: ev.RemoveSlice) -> None:
        for observer in self._slice_observers:
            observer.slice_goes(command.slice)
        self._arbiters.remove(command.slice)

    def _open_socket(self, command: ev.OpenSocket) -> None:
        self._tenants.close(command.slice_name, keep_file=True)  # one that was left over
        self._tenants.open(command.slice_name)

    def _close_socket(self, command: ev.CloseSocket) -> None:
        self._tenants.close(command.slice_name)
        self._log.forget_noise(command.slice_name)

    def _capacity_changed(self) -> None:
        for observer in self._slice_observers:
            observer.capacity_changed()

    def note_bounded(self, key: str, entry: ev.Log) -> None:
        """An event that others can cause as often as they like."""
        if not self._log.too_noisy(key, time.monotonic_ns()):
            self.note(entry)

    def note(self, entry: ev.Log) -> None:
        log.info("%s: %s", entry.kind, entry.message)
        self._log.add(
            Entry(
                sequence=self._log.next_sequence,
                wall_ns=time.time_ns(),
                kind=entry.kind,
                slice_name=entry.slice_name,
                device_uuid=entry.device_uuid,
                process_id=entry.process_id,
                message=entry.message,
                owner_uid=self._owner_of(entry),
            )
        )
        self._wake()

    def _owner_of(self, entry: ev.Log) -> int:
        if entry.owner_uid is not None:
            return entry.owner_uid
        owner = self.slice_owner(entry.slice_name)
        return self._log.owner(entry.slice_name) if owner is None else owner

    def _wake(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _flush_events(self) -> None:
        entries = self._log.take_unwritten()
        try:
            self._store.append_events(entries, self.config.events_max)
            self._store_fault = ""
        except StoreError as error:
            self._log.keep_unwritten(entries)
            if str(error) != self._store_fault:
                self._store_fault = str(error)
                log.error("%s", error)

    # ---- what the API asks (api.server.Backend) ----

    def node_view(self) -> pb.Node:
        return pb.Node(
            name=self.node,
            version=__version__,
            driver_version=self._devices.version,
            simulated=any(d.is_simulated for d in self.state.devices.values()),
            abi_version=ABI_VERSION,
            mode=self.config.mode,
            started_at=timestamp(self._started_wall_ns),
            runtime_dir=str(self.config.runtime),
            sim_dir=self._devices.sim_dir,
            driver=self._devices.driver,
            nvml=self._devices.nvml,
            runtime_socket=str(paths.runtime_socket(self.config.runtime)),
            cdi_dir=self._files.directory,
            unwatched=not self._devices.knows_pids,
            arbiters=[arbiter_view(uuid, self._arbiters.standing(uuid)) for uuid in self.state.devices],
        )

    async def suspend(self, name: str, evict: bool, deadline_s: float) -> Slice | Denied:
        return await self._suspending.suspend(name, evict, deadline_s=deadline_s)

    async def resume(self, name: str, deadline_s: float) -> Slice | Denied:
        return await self._suspending.resume(name, deadline_s=deadline_s)

    def why_no_cdi(self) -> str:
        return self._files.why_not()

    def why_no_device(self, slice_name: str) -> str:
        return self._files.why_missing(slice_name)

    def libraries(self) -> tuple[str, str, str]:
        """(libcuda, libnvidia-ml, directory of the simulated device) in use."""
        return self._devices.driver, self._devices.nvml, self._devices.sim_dir

    def device_groups(self, devices: Sequence[Device]) -> tuple[int, ...]:
        """For each device a number that linked ones share; () when nothing is known."""
        return self._devices.groups(devices)

    def reading(self, device: str) -> Reading:
        return self._monitor.readings.get(device, Reading(None, None))

    def slice_counters(self, slice_: Slice) -> Sequence[SliceStats]:
        serial = self.state.slices[slice_.name].serial if slice_.name in self.state.slices else slice_.serial
        return [self._arbiters.slice_stats(serial, share.device_uuid) for share in slice_.shares]

    def process_counters(self, process: Process) -> dict[str, ProcessStats]:
        made = self.state.slices[process.slice_name]
        uuids = [s.device_uuid for s in made.shares]
        now = {uuid: self._arbiters.process_stats(process.process_id, uuid) for uuid in uuids}
        beyond = {u: size for u in uuids if (size := self._monitor.process_charges.get((u, process.process_id)))}
        return now | {u: replace(now[u], mem_unattributed_bytes=size) for u, size in beyond.items()}

    def attach_path(self, slice_name: str) -> str:
        return str(paths.attach_socket(self.config.runtime, slice_name))

    def events_after(self, sequence: int) -> Sequence[Entry]:
        return self._log.entries_after(sequence)

    def set_arbiter(self, changes: dict[str, int]) -> dict[str, int] | Denied:
        try:
            for name, value_ns in changes.items():
                check_arbiter(name, value_ns)
        except ConfigError as error:
            return Denied(Reason.INVALID, str(error), field="params")
        try:
            self._arbiters.set_times(changes)
        except OSError as error:
            return Denied(Reason.INVALID, f"the arbiter refuses {changes}: {error.strerror}", field="params")
        if changes:
            text = ", ".join(f"{name} {value}" for name, value in changes.items())
            self.note(ev.Log("arbiter.changed", f"arbiter: {text}"))
        return self._arbiters.times_ns

    def observe(self, method: str, code: str, seconds: float) -> None:
        self._metrics.observe(method, code, seconds)

    def slice_owner(self, name: str) -> int | None:
        made = self.state.slices.get(name)
        return made.owner_uid if made else None

    async def suspend_job(self, name: str, evict: bool, job_id: int) -> Slice | Denied:
        return await self._suspending.suspend(name, evict, job_id)

    async def resume_job(self, name: str, job_id: int) -> Slice | Denied:
        return await self._suspending.resume(name, job_id)

    def job_owner(self, job_id: int) -> int | None:
        return self._job_requests.owner(job_id)

    def job_name(self, job_id: int) -> str:
        return self._job_requests.name(job_id)

    def job_priority_max(self) -> int:
        return self.config.job_priority_max

    def user_limits(self) -> Limits:
        return self.config.container_limits

    async def wait_change(self, timeout_s: float) -> None:
        """Returns at the next change, or after the timeout."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
            await asyncio.sleep(COALESCE_S)
        except asyncio.TimeoutError:
            return
