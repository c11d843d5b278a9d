"""The controller's process: look at Slurm, decide, save, tell Slurm. One thread, one loop.

The order is always the same: what was decided is on the disk before Slurm hears of it. A look that fails, because
slurmctld is being restarted for example, changes nothing: what is not seen is not gone.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud import paths
from vgpud.cluster.core.controller import HOWS, Controller, Decided
from vgpud.cluster.core.model import Binding, Settings
from vgpud.cluster.shell import published
from vgpud.cluster.shell.slurm import Slurm, SlurmError
from vgpud.core.jobs.model import NEVER_NS, Job, JobState, QueueSpec
from vgpud.core.model import Policy
from vgpud.core.named import InvalidSpec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue import quota
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.daemon.jobs.recorder import Clock, Recorder
from vgpud.errors import ConfigError
from vgpud.host import private_files
from vgpud.host.directories import DirectoryLock
from vgpud.store.cluster import ClusterStore

log = logging.getLogger("vgpu.cluster")

#: slices are each node's business here, and no limit on jobs
SITE = Policy(slices_max=1 << 40)
#: jobs in the published status, in the order of the queue; and how often queues' history is saved
STATUS_JOBS_MAX = 1000
HISTORY_S = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What `vgpu cluster run` was given."""

    partition: str
    state: Path
    run: Path
    queues: tuple[QueueSpec, ...]
    poll_s: float = 2.0
    record: str = ""
    settings: Settings = field(default_factory=Settings)


class Service:
    """One controller of one partition. Raises ConflictError where another one has its directories."""

    def __init__(self, options: Options, slurm: Slurm) -> None:
        for told in private_files.make_state_dir(options.state, options.run):
            log.warning("%s", told)
        paths.make_private_dir(options.run, 0o755)
        self._locks = [DirectoryLock(options.state, "--state-dir"), DirectoryLock(options.run, "--run-dir")]
        self._options, self._slurm = options, slurm
        self._store = ClusterStore(options.state)
        kept = self._store.load()
        self._clock = Clock(kept.latest_ns)
        machine = _machine(options.queues)
        machine.remember(kept.histories, kept.history_at_ns)
        self._recorder = Recorder(options.record)
        restored_ns = self._clock.now_ns()
        self._recorder.begin(
            options.queues,
            (),
            SITE,
            HOWS,
            kept.jobs,
            restored_ns=restored_ns,
            histories=kept.histories,
            history_at_ns=kept.history_at_ns,
        )
        names = {queue.name for queue in options.queues}
        self.controller = Controller(machine, names, options.settings, self._recorder.add)
        self.controller.restore(
            kept.jobs,
            [Binding(*row[:4], giving_up=row[4]) for row in kept.bindings],
            kept.next_id,
            restored_ns,
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
        decided = self.controller.step(seen, now_ns)
        self._save(decided, now_ns)
        self._complain("; ".join(self.controller.unusable.values()))
        for order in decided.orders:
            try:
                self._slurm.tell(order)
            except SlurmError as error:
                log.warning("%s", error)  # the next look shows what became of it
        with _logged("publish the status"):
            published.beat(self._options.run, published.now_s())
            if decided.steps or decided.orders or not self._is_published:
                self._is_published = True
                published.publish(self._options.run, self.status(now_ns))

    def _save(self, decided: Decided, now_ns: int) -> None:
        for note in decided.notes:
            log.info("%s: job %d: %s", note.kind, note.job_id, note.text)
        if decided.jobs or decided.bindings:
            bindings = {key: _row(one) if one else None for key, one in decided.bindings.items()}
            self._store.save(decided.jobs.values(), bindings, decided.ended, self.controller.next_id)
        if time.monotonic() - self._history_at_s >= HISTORY_S:
            self._history_at_s = time.monotonic()
            names = [queue.name for queue in self._options.queues]
            self._store.save_history({name: self.controller.machine.history(name, now_ns) for name in names}, now_ns)

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
        return {
            "partition": self._options.partition,
            "at_s": published.now_s(),
            "jobs": [_view(job, machine, now_ns) for job in jobs[:STATUS_JOBS_MAX]],
            "jobs_left_out": max(0, len(jobs) - STATUS_JOBS_MAX),
            "queues": [_queue_view(queue, jobs) for queue in self._options.queues],
            "refused": [{"slurm_id": key, "why": why} for key, why in sorted(controller.refused.items())],
            "unusable_nodes": dict(controller.unusable),
            "foreign_jobs": controller.foreign,
        }


def _machine(queues: tuple[QueueSpec, ...]) -> Machine:
    """As simulate.replay makes it of a recording. Whether guarantees exceed the cluster is not known yet. Raises
    ConfigError."""
    denied = quota.check_queues(queues)
    if denied:
        raise ConfigError(denied.message)
    most = members_max(SITE)
    try:
        return Machine(queues, Cluster((), SITE), registry.make, hows=HOWS, members_max=most, tries_max=TRIES_MAX)
    except InvalidSpec as error:
        raise ConfigError(f"--queues: {error}") from error


def _row(binding: Binding) -> tuple[int, int, int, bool]:
    return binding.job_id, binding.attempt, binding.restarts, binding.giving_up


def _view(job: Job, machine: Machine, now_ns: int) -> dict[str, Any]:
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
        "why": _why(job, machine, now_ns),
    }


def _queue_view(queue: QueueSpec, jobs: Sequence[Job]) -> dict[str, Any]:
    own = [job for job in jobs if job.spec.queue == queue.name]
    running = [job for job in own if job.state is JobState.RUNNING]
    return {
        "name": queue.name,
        "parent": queue.parent,
        "policy": queue.policy,
        "placement": queue.placement,
        "guarantee_milli": queue.guarantee_milli,
        "limit_milli": queue.limit_milli if queue.limit_milli < NEVER_NS else None,
        "used_milli": sum(job.width_milli for job in running),
        "running": len(running),
        "waiting": len(own) - len(running),
    }


def _why(job: Job, machine: Machine, now_ns: int) -> str:
    if job.state is JobState.HELD:
        return "its user holds it: scontrol release lets it wait again"
    return job.stopping or machine.reason(job.job_id, now_ns)


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
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
