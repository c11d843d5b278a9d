"""The simulation: events in order of time, fed to the queue's machine as the daemon feeds it, its commands carried out.

Pure and deterministic: a heap of (time, kind, serial), integers only. Time advances when all events of an instant have
happened, and they are decided upon together. Only this file knows the end of each job, which the machine does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from vgpud.core.jobs import events
from vgpud.core.jobs.model import NEVER_NS, How, Job, JobState, Placement
from vgpud.core.queue import sizes
from vgpud.core.queue.machine import Machine
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.interference import FULL, Interference
from vgpud.simulate.machines import Machines
from vgpud.simulate.rows import Rows
from vgpud.simulate.scalers import Scalers
from vgpud.simulate.sharing_monitor import Resident, SharingMonitor
from vgpud.simulate.trace import TraceJob
from vgpud.simulate.worker_groups import WorkerGroups

#: what happens first in an instant: capacity becomes free, jobs have started and come, jobs are looked at and report,
#: a time has come
_FREED, _RESIZED, _STARTED, _SENT, _LOOKED, _REPORTED, _WOKEN = range(7)
#: stands for the next job of those that come in order, where others have an index in _sent_events
_ARRIVAL = -1
KILLED = 143  # exit code: 128 + SIGTERM


@dataclass(frozen=True, slots=True)
class Costs:
    """Times in which a job has its devices but makes no progress."""

    start_ns: int = 0  # from the decision until its program works
    suspend_ns: int = 0  # to give its devices up: a checkpoint, or the grace of a signal
    resume_ns: int = 0  # to go on: the checkpoint read back
    resize_ns: int = 0  # to become larger or smaller: its members find each other again


class Sample(NamedTuple):
    """The cluster from this instant on."""

    at_ns: int
    held_milli: int
    waiting: int
    fragmented_milli: int  # free on devices of which a part is taken


class Span(NamedTuple):
    """When a job had its devices."""

    job_id: int
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class Outcome:
    """The outcome of a trace."""

    capacity_milli: int
    jobs: list[tuple[TraceJob, Job]] = field(default_factory=list)  # in the order of the trace
    refused_jobs: list[tuple[TraceJob, str]] = field(default_factory=list)
    samples: Rows[Sample] = field(default_factory=lambda: Rows(Sample._make, len(Sample._fields)))
    decisions: int = 0
    resizes: int = 0  # how often a job was ordered to become larger or smaller
    longest_wait_ns: int = 0  # of any job, at one time
    spans: Rows[Span] = field(default_factory=lambda: Rows(Span._make, len(Span._fields)))
    starts_on_several_nodes: list[frozenset[str]] = field(default_factory=list)  # which ones, also when it is resumed


@dataclass(slots=True, eq=False)
class _Run:
    """The true state of a job. `remaining_work`: in ns x FULL, at full speed."""

    job_id: int
    job: TraceJob
    remaining_work: int = 0
    placement: Placement = ()
    resizing: Placement = ()  # what it is becoming
    resized_ns: int = 0  # and when it will be that
    held_milli: int = 0
    running: bool = False
    started_ns: int = 0  # it has its devices since
    start_takes_ns: int = 0  # from then on until it is reported as started
    working_since_ns: int = 0  # may lie ahead: it is being started
    speed: int = FULL
    ends_ns: int = NEVER_NS
    leaves: events.Event | None = None  # it is being stopped: what is said when it has gone
    waits_since_ns: int = -1  # -1 = it does not
    attempt: int = 0
    stops: int = 0  # how often it had to give its capacity up
    resizes: int = 0  # and to become larger or smaller
    reports_ns: int = NEVER_NS  # when its workers report next


class Simulation:
    """One trace on one cluster under one machine. Call run() once."""

    def __init__(
        self,
        machine: Machine,
        capacity_milli: int,
        costs: Costs | None = None,
        interference: Interference | None = None,
        monitor: SharingMonitor | None = None,
        listener: Callable[[events.Command], None] | None = None,
        wakes: bool = True,
        scalers: Scalers | None = None,
        machines: Machines | None = None,
    ) -> None:
        """`monitor`: measures how jobs share devices, as the daemon does. `scalers`: how they scale. `machines`: how
        fast they are where.

        `wakes`: the machine is woken when it asks for it; else only by tell(at, Woken()).
        """
        self._machine = machine
        self._costs = costs or Costs()
        self._interference = interference
        self._monitor = monitor
        self._scalers = scalers
        self._machines = machines
        self._groups = WorkerGroups()
        self._looked_at: list[str] = []  # devices, by number
        self._looks: dict[str, tuple[int, int]] = {}  # by device: its number, when it is looked at next
        self._listener = listener
        self._wakes = wakes
        self._heap: list[tuple[int, int, int, int]] = []  # (time, kind, serial, job id or index in _sent_events)
        self._sent_events: list[events.Event] = []
        self._arrivals: Iterator[tuple[int, TraceJob]] = iter(())
        self._next_arrival: tuple[int, TraceJob] | None = None
        self._work: dict[int, TraceJob] = {}  # of jobs that have not come
        self._serial = 0
        self._now_ns = 0
        self._wake_ns = -1
        self._sampled_ns = -1
        self._node_sets: dict[frozenset[str], frozenset[str]] = {}  # each once: many starts are on the same nodes
        self._runs: dict[int, _Run] = {}
        self._known: dict[int, Job] = {}
        self._on: dict[str, list[_Run]] = {}  # by device, which jobs run there: for the interference
        self._taken: dict[str, int] = {}  # by device, milli of those that are shared
        self._held_milli = self._waiting = self._fragmented_milli = 0
        self.outcome = Outcome(capacity_milli)

    def submit_all(self, jobs: Iterable[tuple[int, TraceJob]]) -> None:
        """These jobs will come, in this order, in which none is submitted before its predecessor. Call it once. They
        are read as they come."""
        self._arrivals = iter(jobs)
        self._expect_arrival()

    def _expect_arrival(self) -> None:
        self._next_arrival = next(self._arrivals, None)
        if self._next_arrival:
            self._push(self._next_arrival[1].submitted_ns, _SENT, _ARRIVAL)

    def tell(self, at_ns: int, event: events.Event, work: dict[int, TraceJob] | None = None) -> None:
        """The machine will hear this then. Of jobs that it submits: `work`, what they will really do."""
        self._work |= work or {}
        self._sent_events.append(event)
        self._push(at_ns, _SENT, len(self._sent_events) - 1)

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        """Until all have ended. `progress` hears how many have."""
        ended = 0
        while self._heap:
            happened = self._next()
            if not happened:
                continue
            for command in self._machine.steps(happened, self._now_ns):
                self._obey(command)
            self.outcome.decisions += 1
            self._sample()
            ended += sum(isinstance(event, events.JobEnded) for event in happened)
            if progress:
                progress(ended + len(self.outcome.refused_jobs))
        self.outcome.jobs += [(run.job, self._known[job_id]) for job_id, run in self._runs.items()]
        self.outcome.jobs.sort(key=lambda pair: pair[1].job_id)
        return self.outcome

    def _push(self, at_ns: int, kind: int, which: int) -> None:
        self._serial += 1
        heapq.heappush(self._heap, (at_ns, kind, self._serial, which))

    def _next(self) -> list[events.Event]:
        """Everything that happens at the next instant; what has been overtaken is left out."""
        self._now_ns = self._heap[0][0]
        happened: list[events.Event] = []
        while self._heap and self._heap[0][0] == self._now_ns:
            _, kind, _, which = heapq.heappop(self._heap)
            if kind == _FREED:
                event = self._release_devices(which)
            elif kind == _RESIZED:
                event = self._finish_resize(which)
            elif kind == _STARTED:
                event = self._report_start(which)
            elif kind == _SENT:
                event = self._hears(self._arrive() if which == _ARRIVAL else self._sent_events[which])
            elif kind == _LOOKED:
                happened += self._look(self._looked_at[which])
                continue
            elif kind == _REPORTED:
                happened += self._reports(which)
                continue
            else:
                event = self._woken(happened)
            if event:
                happened.append(event)
        return happened

    # ---- what happens ----

    def _arrive(self) -> events.Event:
        assert self._next_arrival
        job_id, job = self._next_arrival
        self._work[job_id] = job
        self._expect_arrival()
        return events.Submitted((job_id,), job.spec)

    def _hears(self, event: events.Event) -> events.Event | None:
        if isinstance(event, events.Submitted):
            denied = self._machine.check(event.spec, len(event.job_ids))
            if denied:
                self.outcome.refused_jobs += [(self._work.pop(job_id), denied.message) for job_id in event.job_ids]
                return None
            for job_id in event.job_ids:
                self._runs[job_id] = _Run(job_id, self._work.pop(job_id))
        if isinstance(event, events.Resized) and event.placement:
            run = self._runs.get(event.job_id)
            if run and run.running:
                self._becomes(run, event.placement)
        return event

    def _woken(self, instant_events: list[events.Event]) -> events.Event | None:
        """Nothing to say when the machine is about to look anyway, or has asked for another time."""
        if instant_events or self._wake_ns != self._now_ns:
            return None
        self._wake_ns = -1
        return events.Woken()

    def _release_devices(self, job_id: int) -> events.Event | None:
        """A job leaves its devices: it has ended, or has been stopped."""
        run = self._runs.get(job_id)
        if run is None or run.ends_ns != self._now_ns:
            return None
        said = run.leaves or events.JobEnded(job_id, run.attempt, run.job.attempt(run.attempt)[1])
        if isinstance(said, events.JobEnded) or said == events.JobSuspended(job_id, How.REQUEUE):
            self._groups.end(job_id, self._now_ns)
        if run.running:
            self._leave(run)
        run.ends_ns = NEVER_NS
        return said

    # ---- what is commanded ----

    def _obey(self, command: events.Command) -> None:
        if self._listener:
            self._listener(command)
        if isinstance(command, events.SaveJob):  # half of all commands
            self._save(command.job)
            return
        match command:
            case events.StartJob():
                self._start(command)
            case events.StopJob(job_id, how):
                self._stop(job_id, how)
            case events.ResizeJob():
                self._resize(command)
            case events.Wake(at_ns) if self._wakes and at_ns < NEVER_NS:
                self._wake_ns = max(at_ns, self._now_ns)
                self._push(self._wake_ns, _WOKEN, 0)

    def _save(self, job: Job) -> None:
        """Of a job that has ended and left its devices only what became of it is kept."""
        run = self._runs.get(job.job_id)
        if run is None:
            return
        self._known[job.job_id] = job
        self._waits(run, job.state in (JobState.PENDING, JobState.SUSPENDED))
        if job.state.is_final and not run.running:
            del self._runs[job.job_id], self._known[job.job_id]
            self.outcome.jobs.append((run.job, job))

    def _start(self, command: events.StartJob) -> None:
        run = self._runs[command.job_id]
        run.attempt = command.attempt
        run.placement, run.resizing, run.running, run.leaves = command.placement, (), True, None
        run.started_ns = self._now_ns
        nodes = frozenset(place.node for place in command.placement)
        if len(nodes) > 1:
            self.outcome.starts_on_several_nodes.append(self._node_sets.setdefault(nodes, nodes))
        if not command.resume:
            self._groups.begin(self._known[command.job_id], self._now_ns)
            run.remaining_work = run.job.attempt(command.attempt)[0] * FULL
        run.start_takes_ns = self._costs.resume_ns if command.resume else self._costs.start_ns
        run.working_since_ns = self._now_ns + run.start_takes_ns
        if self._costs.start_ns or self._costs.resume_ns:
            self._push(run.working_since_ns, _STARTED, run.job_id)
        run.speed = self._compute_speed_alone(run)
        self._hold(run, _milli(run.placement))
        self._count(run, 1)
        self._neighbours(run, arrives=True)
        self._plan(run)
        self._reports_later(run)

    def _report_start(self, job_id: int) -> events.Event | None:
        run = self._runs[job_id]
        is_due = run.running and run.leaves is None and self._now_ns == run.started_ns + run.start_takes_ns
        return events.Started(job_id, run.attempt) if is_due else None

    def _stop(self, job_id: int, how: How | None) -> None:
        """Also of one that is paused, whose memory is wanted."""
        run = self._runs[job_id]
        self._settle(run)
        takes_ns, answer, code = run.job.stop(run.stops) or (self._costs.suspend_ns, how, KILLED)
        run.stops += 1
        run.leaves = events.JobSuspended(job_id, answer) if answer else events.JobEnded(job_id, run.attempt, code)
        run.ends_ns = self._now_ns + takes_ns
        run.speed, run.resizing = 0, ()
        self._push(run.ends_ns, _FREED, job_id)

    def _resize(self, command: events.ResizeJob) -> None:
        """It makes no progress until it has become that, and has what it had and what it gets."""
        run = self._runs[command.job_id]
        self.outcome.resizes += 1
        self._settle(run)
        takes_ns, run.resizing = self._costs.resize_ns, command.placement
        run.working_since_ns = max(run.working_since_ns, self._now_ns + takes_ns)
        if run.resizes < len(run.job.resizes):
            takes_ns, run.resizing = run.job.resizes[run.resizes]
        run.resizes += 1
        run.resized_ns = self._now_ns + takes_ns
        self._hold(run, max(_milli(run.placement), _milli(run.resizing)))
        self._plan(run)
        self._push(run.resized_ns, _RESIZED, run.job_id)

    def _finish_resize(self, job_id: int) -> events.Event | None:
        run = self._runs.get(job_id)
        if run is None or not run.resizing or run.resized_ns != self._now_ns:
            return None
        self._becomes(run, run.resizing)
        return events.Resized(job_id, run.attempt, run.placement)

    def _becomes(self, run: _Run, placement: Placement) -> None:
        """It has this now, and a speed that goes with it."""
        self._settle(run)
        self._count(run, -1)
        self._neighbours(run, arrives=False)
        run.placement, run.resizing = self._groups.resize(self._known[run.job_id], placement, self._now_ns), ()
        run.speed = self._compute_speed_alone(run)
        self._hold(run, _milli(placement))
        self._count(run, 1)
        self._neighbours(run, arrives=True)
        self._plan(run)
        self._reports_later(run)

    # ---- how it scales ----

    def _reports_later(self, run: _Run) -> None:
        """Its workers are others: what they report is about these from now on."""
        works_ns = max(self._now_ns, run.working_since_ns)
        if self._scalers and self._scalers.set_workers(run.job_id, run.job, len(run.placement), works_ns):
            run.reports_ns = works_ns
            self._push(works_ns, _REPORTED, run.job_id)

    def _reports(self, job_id: int) -> list[events.Wished]:
        run = self._runs.get(job_id)
        if (
            self._scalers is None
            or run is None
            or run.reports_ns != self._now_ns
            or not run.running
            or run.leaves
            or run.resizing
        ):
            return []
        targets, run.reports_ns = self._scalers.report(run.job_id, run.job, self._now_ns)
        if run.reports_ns < NEVER_NS:
            self._push(run.reports_ns, _REPORTED, run.job_id)
        return targets

    def _hold(self, run: _Run, milli: int) -> None:
        self._held_milli += milli - run.held_milli
        run.held_milli = milli

    def _leave(self, run: _Run) -> None:
        run.running, run.resizing = False, ()
        self.outcome.spans.append(Span(run.job_id, run.started_ns, self._now_ns))
        self._hold(run, 0)
        self._count(run, -1)
        self._neighbours(run, arrives=False)

    # ---- work ----

    def _compute_speed_alone(self, run: _Run) -> int:
        """Its speed at its size on its devices, if no job is beside it."""
        job = run.job
        here = self._machines.speed(job, run.placement) if self._machines else FULL
        if job.scaling is None:
            return here
        scaled = job.scaling.speed(sizes.has(job.spec, run.placement), job.scaled_from, FULL)
        return max(1, scaled * here // FULL)

    def _settle(self, run: _Run) -> None:
        """What has been done since is subtracted."""
        spent_ns = max(0, self._now_ns - run.working_since_ns)
        run.remaining_work -= spent_ns * run.speed
        run.working_since_ns = max(run.working_since_ns, self._now_ns)

    def _plan(self, run: _Run) -> None:
        """When it ends if nothing changes."""
        run.ends_ns = run.working_since_ns + -(-max(run.remaining_work, 0) // run.speed)
        self._push(run.ends_ns, _FREED, run.job_id)

    def _neighbours(self, run: _Run, arrives: bool) -> None:
        """It arrives on its devices or leaves them: a job that shares one of them gets another speed."""
        if self._interference is None and self._monitor is None:
            return
        uuids = _devices(run.placement)
        others = {other.job_id: other for uuid in uuids for other in self._on.get(uuid, ()) if other is not run}
        if self._monitor:
            for uuid in uuids:
                self._monitor.begin_change(uuid, self._residents(uuid), self._now_ns)
        for uuid in uuids:
            on = self._on.setdefault(uuid, [])
            on.append(run) if arrives else on.remove(run)
        if arrives:
            run.speed = self._speed(run)
        for other in others.values():
            if other.leaves is None:
                self._settle(other)
                other.speed = self._speed(other)
                self._plan(other)
        if self._monitor:
            for uuid in uuids:
                self._monitor.end_change(uuid, self._residents(uuid), self._now_ns)
                self._look_later(uuid, self._monitor)

    def _speed(self, run: _Run) -> int:
        """That of its slowest device: its members wait for each other."""
        speed, alone = FULL, self._compute_speed_alone(run)
        for uuid in _devices(run.placement):
            beside = [other.job for other in self._on[uuid] if other is not run]
            if beside and self._interference:
                speed = min(speed, self._interference.speed(run.job, beside))
        return max(1, speed * alone // FULL)

    # ---- usage of shared devices ----

    def _residents(self, uuid: str) -> list[Resident]:
        found = []
        for run in self._on.get(uuid, ()):
            self._settle(run)
            done = run.job.attempt(run.attempt)[0] * FULL - run.remaining_work
            found.append(Resident(self._known[run.job_id], run.job, done // FULL))
        return found

    def _look(self, uuid: str) -> list[events.Event]:
        if self._monitor is None or self._looks[uuid][1] != self._now_ns:
            return []
        found = self._monitor.look(uuid, self._residents(uuid), self._now_ns)
        self._look_later(uuid, self._monitor)
        return found

    def _look_later(self, uuid: str, monitor: SharingMonitor) -> None:
        if uuid not in self._looks:
            self._looks[uuid] = len(self._looked_at), 0
            self._looked_at.append(uuid)
        number, at_ns = self._looks[uuid][0], monitor.next_look_ns(uuid)
        if at_ns > self._now_ns:
            self._push(at_ns, _LOOKED, number)
        self._looks[uuid] = number, at_ns

    # ---- what is kept for the results ----

    def _waits(self, run: _Run, waits: bool) -> None:
        if waits == (run.waits_since_ns >= 0):
            return
        if not waits:
            self.outcome.longest_wait_ns = max(self.outcome.longest_wait_ns, self._now_ns - run.waits_since_ns)
        self._waiting += 1 if waits else -1
        run.waits_since_ns = self._now_ns if waits else -1

    def _count(self, run: _Run, sign: int) -> None:
        """Keeps the sum of what is free on devices of which a part is taken."""
        for place in run.placement:
            for share in place.shares:
                if not share.device_uuid or share.min_milli >= MILLI_PER_DEVICE:
                    continue
                before = self._taken.get(share.device_uuid, 0)
                after = before + sign * share.min_milli
                self._fragmented_milli += _rest(after) - _rest(before)
                self._taken[share.device_uuid] = after

    def _sample(self) -> None:
        sample = Sample(self._now_ns, self._held_milli, self._waiting, self._fragmented_milli)
        if self._sampled_ns == self._now_ns:
            self.outcome.samples[-1] = sample
        else:
            self.outcome.samples.append(sample)
            self._sampled_ns = self._now_ns


def _milli(placement: Placement) -> int:
    return sum(share.min_milli for place in placement for share in place.shares)


def _rest(taken_milli: int) -> int:
    return (MILLI_PER_DEVICE - taken_milli) % MILLI_PER_DEVICE if taken_milli > 0 else 0


def _devices(placement: Placement) -> list[str]:
    """By name, each once."""
    return sorted({share.device_uuid for place in placement for share in place.shares})
