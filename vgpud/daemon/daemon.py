"""The composition root: it makes the parts of the daemon, gives each those that it works on, and starts and stops them.

Each part owns a piece of the daemon's state. Launches and allocations never come here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from vgpud import paths
from vgpud.api.backend import Backend
from vgpud.api.job_backend import JobBackend
from vgpud.api.permissions import Site
from vgpud.api.server import Server
from vgpud.api.trace_streams import Tracing
from vgpud.attach.server import SHARED, Tenants
from vgpud.config import LIVE_KEYS, Config, LiveConfig, arbiter_items
from vgpud.containers.server import Containers
from vgpud.core import events as ev
from vgpud.core.model import BY_HOOK, Device
from vgpud.core.units import format_bytes
from vgpud.daemon.attach_backend import AttachBackend
from vgpud.daemon.cdi import DeviceFiles
from vgpud.daemon.containers import ContainerBackend
from vgpud.daemon.driver_settings import DriverSettings
from vgpud.daemon.effects import Effects
from vgpud.daemon.history import HistoryRecorder
from vgpud.daemon.housekeeping import Housekeeping
from vgpud.daemon.jobs.arrays import Arrays
from vgpud.daemon.jobs.cgroups import JobCgroups
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.environments import EnvironmentList
from vgpud.daemon.jobs.host import Host
from vgpud.daemon.jobs.job_reader import JobReader
from vgpud.daemon.jobs.queue_requests import QueueRequests
from vgpud.daemon.jobs.requests import JobRequests
from vgpud.daemon.jobs.submissions import JobSubmissions
from vgpud.daemon.memory_fence import MemoryFence
from vgpud.daemon.metrics_endpoint import MetricsEndpoint
from vgpud.daemon.monitor import UsageMonitor
from vgpud.daemon.policy import policy_of
from vgpud.daemon.process_pids import AttachedProcesses
from vgpud.daemon.slices.arbiter_times import ArbiterTimes
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.counters import Counters, Readings
from vgpud.daemon.slices.event_log import EventLog
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.evicted_memory import EvictedMemory
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.daemon.slices.node import NodeInfo
from vgpud.daemon.slices.publication import PublicationKeeper
from vgpud.daemon.slices.reclaims import ReclaimWatch
from vgpud.daemon.slices.rotation import RotationController
from vgpud.daemon.slices.suspend import SuspendController
from vgpud.devices import checkpoint_runner
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.memory_mover import MemoryMover
from vgpud.devices.nvml import Devices
from vgpud.host.directories import RuntimeDirectory
from vgpud.store.database import Store
from vgpud.store.history import HistoryFile
from vgpud.store.jobs import JobStore

log = logging.getLogger("vgpud")


def make_arbiters(config: Config, devices: Devices, inventory: tuple[Device, ...]) -> Arbiters:
    return Arbiters(
        inventory,
        dict(arbiter_items(config.arbiter)),
        memory_grace_ns=config.memory_grace_s * 1_000_000_000,
        pinned_max_bytes=config.pinned_bytes_max,
        moves_itself=devices.memory_moves.way == BY_HOOK,
    )


class Daemon:
    """One node. Make it on a running loop; start() serves, stop() ends and leaves the tenants coasting."""

    def __init__(self, config: Config, devices: Devices, inventory: tuple[Device, ...], store: Store) -> None:
        self._config = live = LiveConfig(config)
        directory = RuntimeDirectory(config.runtime)
        self._private = directory.make_private()
        self._store, self._is_simulated = store, bool(devices.sim_dir)
        loaded = store.load(config.events_max)
        changes, readings, event_log = ChangeSignal(), Readings(), EventLog(loaded.events, config.events_max)
        self._arbiters = arbiters = make_arbiters(config, devices, inventory)
        self._machine = machine = SliceMachine(store, arbiters)
        self.events = events = EventRecorder(event_log, store, changes, machine.owner)
        counters = Counters(machine, arbiters, readings)
        fence = MemoryFence(config.memory_fence, machine, devices, events, changes)
        self._driver = DriverSettings(live, machine, devices, events, fence)
        containers = ContainerBackend(live, machine, events, counters, changes, devices, fence)
        self._attach = AttachBackend(machine, events, counters, arbiters, devices, containers)
        slices_dir, shared_dir = paths.slices_dir(config.runtime), paths.shared_attach_dir(config.runtime)
        self._tenants = Tenants(slices_dir, shared_dir, config.node_name, config.mode, self._attach)
        self._containers = Containers(containers)
        evicted = EvictedMemory(machine, arbiters, lambda: live.current.suspended_bytes_max)
        self._helpers = checkpoint_runner.Helpers(devices.driver, devices.sim_dir)
        mover = MemoryMover(devices, arbiters, lambda p: p.process_id in machine.state.processes, self._helpers)
        self._suspension = SuspendController(machine, events, mover, evicted.refuse)
        self._rotation = RotationController(machine, events, arbiters, mover, evicted.refuse)
        self._files = DeviceFiles(config.cdi, containers.facts, events.note)
        effects = Effects(machine, events, changes, arbiters, self._tenants, self._containers, self._files)
        attached, self._swap_fault = AttachedProcesses(machine, self._tenants), devices.why_not_swap()
        self._monitor = UsageMonitor(machine, effects, events, changes, arbiters, devices, attached, readings)
        node = NodeInfo(live, machine, devices, arbiters, self._files.directory, self._driver)
        kept = loaded.slices, loaded.requests, loaded.containers, loaded.drains
        machine.begin(effects, self._tenants, ev.Started(policy_of(config, self._swap_fault), inventory, *kept))
        self._tell_of_state()
        self._tenants.open(SHARED)
        self._containers.adopt(list(machine.state.containers.values()))
        # the second phase: what is made from the slices of the former daemon, and hears of changes from then on
        allowance = config.jobs.allowance
        files = config.environments_file, config.state / "environments.toml"
        self._environments = environments = EnvironmentList(*files, allowance, events.note)
        host = Host(live, node, machine, counters, events, self._suspension, devices, environments, self._rotation.view)
        self._queue = JobController(host, JobStore(store))
        effects.observers += [self._queue, self._rotation]
        self._monitor.on_fault = self._queue.progress.note_fault
        self._metrics = MetricsEndpoint(node.name, machine, arbiters, readings, self._queue.samples)
        queue, reader, arrays = self._queue, JobReader(host, self._queue), Arrays(self._queue)
        jobs = JobBackend(
            node=node.name,
            reader=reader,
            submissions=JobSubmissions(host, queue, arrays),
            requests=JobRequests(queue, arrays),
            changes=queue.changes,
            terminals=queue.attempts,
            notes=queue,
            environments=environments,
        )
        file = HistoryFile(config.state) if config.history else None
        self._history = HistoryRecorder(file, machine, counters, queue.queues.bounds, events.note)
        backend = Backend(
            node=node,
            machine=machine,
            suspension=self._suspension,
            rotation=self._rotation.view,
            counters=counters,
            changes=changes,
            events=event_log,
            device_files=self._files,
            arbiter_times=ArbiterTimes(arbiters, events),
            tracing=Tracing(arbiters),
            jobs=reader,
            history=self._history,
            publications=PublicationKeeper(node.name),
            observe=self._metrics.metrics.observe,
        )
        queues = QueueRequests(node.name, machine, queue)
        self._api = Server(
            backend, self._make_site(reader), jobs, queues, queue.elastic.streams, self._private / paths.SOCKET_NAME
        )
        reclaims = ReclaimWatch(machine, arbiters, events)
        self.housekeeping = Housekeeping(
            directory, self._tenants, self._api, self._containers, self._files, events, arbiters, readings, reclaims
        )
        self.housekeeping.chores += self._chores()

    def _make_site(self, reader: JobReader) -> Site:
        return Site(
            slice_owner=self._machine.owner,
            job_owner=reader.owner,
            user_limits=lambda: self._config.current.container_limits,
            job_priority_max=lambda: self._config.current.job_priority_max,
        )

    def _chores(self) -> list[tuple[str, Callable[[], Any]]]:
        return [
            ("looking whether the state can be written again", self._save_again),
            ("the clock of the slices", lambda: self._machine.run(ev.Tick())),
            ("the clock of the queue", self._queue.tick),
            ("flushing the state database", self._machine.flushing.begin),
            ("writing the event log", lambda: self.events.write(self._config.current.events_max)),
            ("the tokens", self._api.recheck),
            ("the metrics", self._metrics.refresh),
            ("the history", self._history.tick),
            ("the list of environments", self._environments.refresh),
        ]

    def _tell_of_state(self) -> None:
        """What was found and done when the state database was opened, and whose slices it has no more."""
        for text in self._store.notes:
            self.events.note(ev.Log("state.repaired", text))
        self._store.notes.clear()
        if self._store.unwritable:
            self.events.note(ev.Log("state.unwritable", self._store.unwritable))
        for name in self._tenants.left_over(self._machine.state.slices):
            # without a socket that answers, programs that start there would run without limits
            self._tenants.open(name)
            text = f"slice {name} is not in the state database: programs that start in it are refused, those that run"
            self.events.note(
                ev.Log("slice.lost", f"{text} keep their shares; make it again with vgpu slice create", name)
            )

    def _save_again(self) -> None:
        """After a start at which the state database could not be written: whether it can be now."""
        if self._store.unwritable and self._store.recover():
            self.events.note(ev.Log("state.writable", "the state database can be written again"))
            self._tell_of_state()

    async def start(self, gid: int, admin_gid: int, metrics_address: tuple[str, int] | None) -> None:
        """Serves the API to the members of `gid` (by socket_mode) and the metrics. Raises OSError, VgpudError."""
        config = self._config.current
        if metrics_address:
            self._metrics.serve(*metrics_address, config.metrics_tokens)
        self._monitor.start()
        for uuid, device in self._machine.state.devices.items():
            now = self._arbiters.standing(uuid)
            locked = format_bytes(now.locked_bytes)
            log.info("device %d: its arbiter runs with %s scheduling, %s in RAM", device.index, now.scheduling, locked)
        self._suspension.settle()
        self._rotation.start()
        self._metrics.put_snapshot()
        await self._files.refresh()
        await self._environments.refresh()
        await self._queue.start()
        runner = self._queue.attempts.runner
        self._driver.fence.begin(JobCgroups(lambda: runner.running, runner.read_cgroup))
        await self._driver.start()
        await self._api.start(paths.grpc_socket(config.runtime), config.socket_mode, gid, admin_gid)
        front = paths.runtime_socket(config.runtime)
        # it serves root and the daemon: socket_mode may admit every user to the API, and none of them here
        self._containers.start(front, self._private / front.name, config.socket_mode & 0o770, gid)
        self.housekeeping.start()

    async def listen(self, host: str, port: int) -> None:
        """Serves users of other machines as well, from start() on. Raises VgpudError."""
        addresses = await self._api.listen(host, port, self._config.current.tls)
        log.info("serving users of other machines on %s", ", ".join(f"{a} port {p}" for a, p in addresses))

    async def stop(self) -> None:
        """Ends the API, then every connection: the tenants coast. Slices stay in the store."""
        await self.housekeeping.stop()
        if self._is_simulated:
            self._files.remove()  # a real GPU's stay: it is there when the daemon starts again
        await self._rotation.stop()
        await self._suspension.stop()
        await self._helpers.stop()
        await self._attach.stop()
        await self._containers.stop()
        await self._api.stop(1.0)
        await self._history.stop()
        await self._queue.stop()
        self._metrics.close()
        self._tenants.close_all()
        await self._driver.stop()
        await self._monitor.stop()
        self._arbiters.close()
        await self._machine.save_rest()
        self.events.write(self._config.current.events_max)
        self._store.close()

    def reload(self, config: Config) -> list[str]:
        """Takes over what can change while running; returns the keys that need a restart."""
        changed = self._config.take_over(config)
        if "mode" in changed:
            self._tenants.set_mode(config.mode)
        if "arbiter" in changed:
            self._arbiters.set_times(dict(arbiter_items(config.arbiter)))
        if "memory_grace_s" in changed:
            self._arbiters.set_memory_grace(config.memory_grace_s * 1_000_000_000)
        if "pinned_bytes_max" in changed:
            self._arbiters.set_pinned_max(config.pinned_bytes_max)
        self._machine.run(ev.PolicyChanged(policy_of(self._config.current, self._swap_fault)))
        self._queue.capacity_changed()  # it may be another part of the host's RAM
        return [name for name in changed if name not in LIVE_KEYS]
