"""The controller's process: look at Slurm, decide, save, send orders to Slurm. One thread, one loop.

The order is always the same: what was decided is on the disk before Slurm hears of it. A look that fails, because
slurmctld is being restarted for example, changes nothing: what is not seen is not gone.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from vgpud import paths
from vgpud.cluster.core.controller import HOWS, Controller, left_over
from vgpud.cluster.core.look import Decided
from vgpud.cluster.core.model import Binding, Register, Settings
from vgpud.cluster.shell import published
from vgpud.cluster.shell.slurm import Slurm, SlurmError
from vgpud.cluster.shell.watched import WatchedFile
from vgpud.core.jobs.model import NEVER_NS, Job, JobState, Node, QueueSpec
from vgpud.core.model import SiteLimits
from vgpud.core.named import InvalidSpec
from vgpud.core.placement import registry as placements
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue import quota
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.daemon.jobs.clock import Clock
from vgpud.errors import ConfigError, VgpudError
from vgpud.host import private_files
from vgpud.host.directories import DirectoryLock
from vgpud.simulate import quotas
from vgpud.store.cluster import ClusterStore
from vgpud.store.queue_recorder import Recorder

log = logging.getLogger("vgpu.cluster")

#: slices are each node's business here, and no limit on jobs
SITE = SiteLimits(slices_max=1 << 40)
#: jobs in the published status, in the order of the queue, and as many that are refused; and how often queues'
#: history is saved
STATUS_JOBS_MAX = 1000
HISTORY_S = 60.0
#: of a queue: none is shown as none
_LIMITS = ("limit_milli", "cpu_limit_milli", "ram_limit_bytes")
#: the queue's numbers of jobs in a sentence; an array has Slurm's already
_JOBS = re.compile(r"(?<!array of )\bjobs? \d+(?:, \d+)*")


@dataclass(frozen=True, slots=True)
class Options:
    """What `vgpu cluster run` was given."""

    partition: str
    state: Path
    run: Path
    queues: tuple[QueueSpec, ...] = (QueueSpec("default"),)  # at the start
    poll_s: float = 2.0
    record: str = ""
    queues_file: Path | None = None  # where they are from; reread when it changes
    settings: Settings = field(default_factory=Settings)


class Service:
    """One controller of one partition. Raises ConflictError where another one has its directories."""

    def __init__(self, options: Options, slurm: Slurm) -> None:
        for warning in private_files.make_state_dir(options.state, options.run):
            log.warning("%s", warning)
        paths.make_private_dir(options.run, 0o755)
        self._locks = [DirectoryLock(options.state, "--state-dir"), DirectoryLock(options.run, "--run-dir")]
        self._options, self._slurm = options, slurm
        self._store = ClusterStore(options.state)
        kept = self._store.load()
        self._clock = Clock(kept.latest_ns)
        self.queues = options.queues
        self._watched = WatchedFile(options.queues_file) if options.queues_file else None
        self._read: tuple[QueueSpec, ...] = ()  # from the file, and not in force yet
        self._queues_fault = ""
        former = left_over(kept.jobs, options.queues)
        queues = (*options.queues, *former)
        self._cluster = Cluster((), SITE)
        machine = _machine(queues, self._cluster)
        machine.remember(kept.histories, kept.history_at_ns)
        for name, knowledge in kept.orders.items():
            if not machine.remember_order(name, knowledge):
                log.info("queue %s learns its order again: it is another one, or of another version", name)
        self._saved_orders = machine.knowledge_versions()
        now_ns = self._clock.now_ns()
        self._recorder = Recorder(options.record)
        orders = {queue.name: machine.knowledge(queue.name) for queue in queues}
        self._recorder.begin(queues, (), SITE, HOWS, kept.jobs, {"at_ns": now_ns, "orders": orders, **kept.past})
        names = {queue.name for queue in options.queues}
        self.controller = Controller(machine, names, options.settings, self._recorder.add, former)
        self.controller.restore(
            kept.jobs, [Binding(*row[:4], giving_up=row[4]) for row in kept.bindings], kept.next_id, now_ns
        )
        self._fault = ""
        self._is_published = False
        self._history_at_s = time.monotonic()
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until stop() is called."""
        log.info("partition %s: jobs that Slurm holds are queued here", self._options.partition)
        while not self._stopped.is_set():
            began_s = time.monotonic()
            self.look()
            self._stopped.wait(max(0.0, self._options.poll_s - (time.monotonic() - began_s)))

    def stop(self) -> None:
        """May be called by a signal's handler."""
        self._stopped.set()

    def close(self) -> None:
        """Running jobs run on. Jobs are not held any more for a controller that has gone."""
        published.stop(self._options.run)
        self._recorder.close()
        self._store.close()
        for lock in self._locks:
            lock.close()

    def look(self) -> None:
        """One turn. Raises StoreError: what cannot be saved is not begun."""
        try:
            seen = self._slurm.look()
        except SlurmError as error:
            self._complain(str(error))
            return
        now_ns = self._clock.now_ns()
        decided = self.controller.step(seen, now_ns, self._changed_queues())
        for key, fault in decided.faults:
            log.error("job %s cannot be looked at and stays as it is", key, exc_info=fault)
        self._save(decided, now_ns)
        self._complain("; ".join(filter(None, [self._queues_fault, *self.controller.unusable.values()])))
        self._beat()
        for order in decided.orders:
            if self._stopped.is_set():
                break  # the next controller gives it
            if isinstance(order, Register):
                log.warning("%s", order.why)
            try:
                self._slurm.tell(order)
                self._beat()  # thousands of orders take longer than a heartbeat lasts
            except SlurmError as error:
                log.warning("%s", error)  # the next look shows what became of it
        with _log_os_errors("publish the status"):
            if decided.steps or decided.orders or not self._is_published:
                self._is_published = True
                published.publish(self._options.run, self.status(now_ns))

    def _beat(self) -> None:
        with _log_os_errors("write the heartbeat"):
            published.beat(self._options.run, published.now_s())

    def _changed_queues(self) -> tuple[QueueSpec, ...]:
        """Those of the file, if they differ and are valid. What is not possible yet is tried again at each look: a
        queue that is in use is removed when its jobs have ended."""
        before = self._queues_fault
        if self._watched and self._watched.has_changed():
            try:
                self._read, self._queues_fault = quotas.read(self._watched.path, regular=True), ""
            except VgpudError as error:
                self._read, self._queues_fault = (), f"queues stay as they were: {error}"
        made: tuple[QueueSpec, ...] = ()
        if self._read and self._read != self.queues:
            fault = _check(self.controller.machine, self.controller.all_queues(self._read))
            self._queues_fault = f"queues stay as they were: {fault}" if fault else ""
            if not fault:
                made = self.queues = self._read
                log.info("%s: %d queues", self._options.queues_file, len(made))
        self._is_published &= not made and self._queues_fault == before
        return made

    def _save(self, decisions: Decided, now_ns: int) -> None:
        if decisions.notes:
            jobs = [*self.controller.machine.jobs.values(), *(job for _, job in decisions.ended_jobs)]
            names = {job.job_id: job.spec.name for job in jobs}
            for note in decisions.notes:
                name = names.get(note.job_id, "")
                log.info("%s: job %s: %s", note.kind, name, with_slurms_numbers(note.text, names))
        if decisions.jobs or decisions.bindings:
            bindings = {key: _row(one) if one else None for key, one in decisions.bindings.items()}
            orders = self._changed_orders()
            self._store.save(
                decisions.jobs.values(), bindings, decisions.ended_jobs, self.controller.next_id, orders, now_ns
            )
        if time.monotonic() - self._history_at_s >= HISTORY_S:
            self._history_at_s = time.monotonic()
            queues = [queue.name for queue in self.queues]
            self._store.save_history({name: self.controller.machine.history(name, now_ns) for name in queues}, now_ns)

    def _changed_orders(self) -> dict[str, dict[str, Any] | None]:
        """What orders have learnt since they were saved."""
        machine, before = self.controller.machine, self._saved_orders
        self._saved_orders = machine.knowledge_versions()
        return {name: machine.knowledge(name) for name, one in self._saved_orders.items() if before.get(name) != one}

    def _complain(self, fault: str) -> None:
        """Once for each fault."""
        if fault and fault != self._fault:
            log.warning("%s", fault)
        self._fault = fault

    def status(self, now_ns: int) -> dict[str, Any]:
        """What `vgpu cluster ls` and `explain` show."""
        controller, machine = self.controller, self.controller.machine
        jobs = [machine.jobs[one.job_id] for one in controller.bindings.values()]
        jobs.sort(key=lambda job: (job.state.value != "running", machine.position(job.job_id), job.job_id))
        names = {job.job_id: job.spec.name for job in jobs}
        by_queue = defaultdict[str, list[Job]](list)
        for job in jobs:
            by_queue[job.spec.queue].append(job)
        delays = controller.delay_reasons
        refused = sorted(controller.refusal_reasons.items())
        return {
            "partition": self._options.partition,
            "at_s": published.now_s(),
            "jobs": [
                _view(job, machine, delays.get(job.spec.name, ""), names, now_ns) for job in jobs[:STATUS_JOBS_MAX]
            ],
            "jobs_left_out": max(0, len(jobs) - STATUS_JOBS_MAX),
            "queues": [_queue_view(queue, by_queue[queue.name]) for queue in self.queues],
            "queues_file": str(self._options.queues_file) if self._options.queues_file else None,
            "queues_fault": self._queues_fault or None,
            "refused": [{"slurm_id": key, "why": why} for key, why in refused[:STATUS_JOBS_MAX]],
            "refused_left_out": max(0, len(refused) - STATUS_JOBS_MAX),
            "nodes": [_node_view(node) for node in self._cluster.nodes],
            "unusable_nodes": dict(controller.unusable),
            "foreign_jobs": controller.foreign,
        }


def _machine(queues: tuple[QueueSpec, ...], cluster: Cluster) -> Machine:
    """As simulate.replay makes it of a recording. Whether guarantees exceed the cluster is not known yet. Raises
    ConfigError."""
    denied = quota.check_queues(queues)
    if denied:
        raise ConfigError(denied.message)
    most = members_max(SITE)
    try:
        return Machine(queues, cluster, registry.make, hows=HOWS, members_max=most, tries_max=TRIES_MAX)
    except InvalidSpec as error:
        raise ConfigError(f"--queues: {error}") from error


def _check(machine: Machine, queues: tuple[QueueSpec, ...]) -> str:
    """Why queues cannot become these, "" = they can."""
    denied = machine.check_queues(queues)
    if denied:
        return denied.message
    try:
        for queue in queues:
            placements.make(queue.placement)
    except ValueError as error:
        return f"queue {queue.name}: {error}"
    return ""


def _row(binding: Binding) -> tuple[int, int, int, bool]:
    return binding.job_id, binding.attempt, binding.restarts, binding.giving_up


def _view(job: Job, machine: Machine, delay: str, names: Mapping[int, str], now_ns: int) -> dict[str, Any]:
    spec = job.spec
    return {
        "slurm_id": spec.name,
        "job_id": job.job_id,
        "state": "stopping" if job.stop_to is not None else job.state.value,
        "queue": spec.queue,
        "uid": spec.uid,
        "gpus_milli": spec.ask.width_milli,
        "members": spec.members,
        "nodes": sorted({place.node for place in job.placement}),
        "position": machine.position(job.job_id),
        "preemptions": job.preemptions,
        "why": delay or with_slurms_numbers(_why(job, machine, now_ns), names),
    }


def _node_view(node: Node) -> dict[str, Any]:
    free = (free_milli for free_milli, offered in zip(node.free_milli, node.offered, strict=True) if offered)
    return {
        "name": node.name,
        "devices": len(node.devices),
        "devices_offered": sum(node.offered),
        "free_milli": sum(free),
    }


def _queue_view(queue: QueueSpec, own: Sequence[Job]) -> dict[str, Any]:
    running = [job for job in own if job.state is JobState.RUNNING]
    return {
        **{field.name: getattr(queue, field.name) for field in fields(queue)},
        **{name: None for name in _LIMITS if getattr(queue, name) >= NEVER_NS},
        "used_milli": sum(job.width_milli for job in running),
        "running": len(running),
        "waiting": len(own) - len(running),
    }


def with_slurms_numbers(sentence: str, names: Mapping[int, str]) -> str:
    """The queue numbers jobs by itself; users know Slurm's numbers. Jobs that have ended keep the queue's."""

    def replace_numbers(match: re.Match[str]) -> str:
        return re.sub(r"\d+", lambda number: names.get(int(number[0]), number[0]), match[0])

    return _JOBS.sub(replace_numbers, sentence)


def _why(job: Job, machine: Machine, now_ns: int) -> str:
    if job.state is JobState.HELD:
        return "its user holds it: scontrol release lets it wait again"
    return job.stopping or machine.reason(job.job_id, now_ns)


@contextlib.contextmanager
def _log_os_errors(what: str) -> Iterator[None]:
    """A full disk must not end the controller."""
    try:
        yield
    except OSError as error:
        log.warning("cannot %s: %s", what, error.strerror or error)


def serve(options: Options, slurm: Slurm | None = None) -> None:
    """Until SIGTERM or Ctrl-C."""
    service = Service(options, slurm or Slurm(options.partition))
    former = {number: signal.signal(number, lambda *_: service.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        service.run()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        service.close()
