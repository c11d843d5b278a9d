"""Replays recordings of a live queue (config key record_queue, `vgpu cluster run --record`): to the machine alone, and
to the simulation.

Both must decide as the daemon did. Given the same events, the machine gives the same commands in the same order. Given
only the external events, the clock included, and jobs that take as long to run and to give way as they did, the
simulation starts and stops the same jobs in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vgpud.core.jobs import events
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, How, Job, JobSpec, Node, Placement, QueueSpec
from vgpud.core.jobs.past_fields import rename_fields
from vgpud.core.model import SiteLimits
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry as policies
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.core.queue.record import Plain, decode, from_plain, to_plain
from vgpud.simulate.engine import Simulation
from vgpud.simulate.trace import TraceError, TraceJob
from vgpud.userfiles.bounded import FileError, read_text

FILE_BYTES_MAX = 512 << 20

#: events that the simulation makes by itself
MADE = (events.JobEnded, events.JobSuspended)
#: how much longer a stopped job would have run: that is unknown, and must only be more than nothing
MORE_NS = SECOND_NS


@dataclass(frozen=True, slots=True)
class Step:
    """The machine's events at one time, and its commands."""

    at_ns: int
    events: tuple[events.Event, ...]
    commands: tuple[Plain, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    queues: tuple[QueueSpec, ...]
    nodes: tuple[Node, ...]
    policy: SiteLimits = field(default_factory=SiteLimits)
    jobs: tuple[Job, ...] = ()  # those that were there before
    steps: tuple[Step, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)  # of the machine
    restored_ns: int = -1  # when it took these jobs over; -1 = with the first step
    histories: dict[str, int] = field(default_factory=dict)  # what queues had used before, see Machine.remember
    history_at_ns: int = 0
    orders: dict[str, dict[str, Any]] = field(default_factory=dict)  # what orders had learnt, see Machine.knowledge

    def machine(self) -> Machine:
        """A fresh one, as the daemon made its own."""
        nodes = [replace(node, free_milli=[], free_bytes=[]) for node in self.nodes]
        cluster, most = Cluster(nodes, self.policy), members_max(self.policy)
        machine = Machine(self.queues, cluster, policies.make, members_max=most, tries_max=TRIES_MAX, **self.options)
        machine.remember(self.histories, self.history_at_ns)
        for queue, knowledge in self.orders.items():
            machine.remember_order(queue, knowledge)
        if self.jobs:
            first_ns = self.steps[0].at_ns if self.steps else 0
            machine.restore(
                [replace(job) for job in self.jobs], self.restored_ns if self.restored_ns >= 0 else first_ns
            )
        return machine


def read(path: Path) -> Recording:
    """Raises TraceError with the invalid line."""
    try:
        lines = read_text(path, FILE_BYTES_MAX).splitlines()
    except FileError as error:
        raise TraceError(f"recording: {error}") from error
    recording, number = Recording((), ()), 0
    steps: list[Step] = []
    step_events: list[events.Event] = []
    try:
        for number, line in enumerate(lines, 1):
            data = json.loads(line)
            if number == 1:
                recording = _header(data)
                continue
            step_events.append(from_plain(data["event"]))
            if "commands" in data:
                steps.append(Step(data["at_ns"], tuple(step_events), tuple(data["commands"])))
                step_events = []
    except KeyError as error:
        raise TraceError(f"{path}:{number}: {error} is missing: this is not a recording of a queue") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise TraceError(f"{path}:{number}: {error}") from error
    return replace(recording, steps=tuple(steps))


def _header(header: Plain) -> Recording:
    queues = decode(tuple[QueueSpec, ...], header["queues"])
    for queue in queues:
        policies.make(queue.policy)
    return Recording(
        queues,
        decode(tuple[Node, ...], header["nodes"]),
        decode(SiteLimits, header.get("policy", {})),
        decode(tuple[Job, ...], [rename_fields(job) for job in header.get("jobs", [])]),
        options=_options(header),
        restored_ns=decode(int, header.get("at_ns", -1)),
        histories={name: decode(int, value) for name, value in header.get("histories", {}).items()},
        history_at_ns=decode(int, header.get("history_at_ns", 0)),
        orders={name: known for name, known in header.get("orders", {}).items() if known},
    )


def _options(header: Plain) -> dict[str, Any]:
    found = {key: header[key] for key in ("moves", "half_life_ns", "reports_starts") if key in header}
    return found | ({"hows": decode(tuple[How, ...], header["hows"])} if "hows" in header else {})


def same_commands(recording: Recording) -> Iterator[str]:
    """What the machine alone says differently, one line for each step; nothing when all is as recorded."""
    machine = recording.machine()
    for number, step in enumerate(recording.steps, 1):
        said = [json.loads(json.dumps(to_plain(command))) for command in machine.steps(step.events, step.at_ns)]
        if said != list(step.commands):
            yield f"step {number}: {_difference(step.commands, said)}"


def _difference(recorded_commands: Sequence[Plain], replayed_commands: Sequence[Plain]) -> str:
    for before, after in zip(recorded_commands, replayed_commands, strict=False):
        if before != after:
            return f"recorded {before}, now {after}"
    return f"recorded {len(recorded_commands)} commands, now {len(replayed_commands)}"


#: StartJob, StopJob or ResizeJob, the job, its attempt or how it is stopped, where
Decision = tuple[Any, ...]


def decisions(commands: Iterable[Plain]) -> list[Decision]:
    """Which jobs are started, stopped and resized, in order."""
    found: list[Decision] = []
    for command in commands:
        if command["type"] in ("StartJob", "ResizeJob"):
            found.append((command["type"], command["job_id"], command["attempt"], json.dumps(command["placement"])))
        elif command["type"] == "StopJob":
            found.append(("StopJob", command["job_id"], command.get("how")))
    return found


def recorded_decisions(recording: Recording) -> list[Decision]:
    return decisions(command for step in recording.steps for command in step.commands)


def simulated_decisions(recording: Recording) -> list[Decision]:
    """The same of the simulation, which knows of the recording when jobs came and how long each ran."""
    said: list[Plain] = []
    simulation = Simulation(
        recording.machine(), 0, listener=lambda command: said.append(to_plain(command)), wakes=False
    )
    work = _work(recording)
    for at_ns, event in _from_outside(recording):
        simulation.tell(at_ns, event, work)
    simulation.run()
    return decisions(said)


def _from_outside(recording: Recording) -> Iterator[tuple[int, events.Event]]:
    """What the simulation does not make by itself; a size that was not requested is a job's own doing."""
    asked: set[int] = set()
    for step in recording.steps:
        for event in step.events:
            if isinstance(event, events.Resized) and event.job_id in asked:
                asked.discard(event.job_id)
            elif not isinstance(event, MADE):
                yield step.at_ns, event
        for command in step.commands:
            if command["type"] == "ResizeJob":
                asked.add(command["job_id"])
            elif command["type"] in ("StartJob", "StopJob"):
                asked.discard(command["job_id"])


def _work(recording: Recording) -> dict[int, TraceJob]:
    """What each job would do by itself."""
    found = {}
    for job_id, (at_ns, spec) in _find_submissions(recording).items():
        attempts, stops = tuple(_attempts(recording, job_id)), tuple(_stops(recording, job_id))
        ran_ns = sum(ran_ns for ran_ns, _ in attempts)
        resizes = tuple(_resizes(recording, job_id)) if spec.elastic else ()
        found[job_id] = TraceJob(at_ns, ran_ns, spec, attempts=attempts, stops=stops, resizes=resizes)
    return found


def _find_submissions(recording: Recording) -> dict[int, tuple[int, JobSpec]]:
    return {
        job_id: (step.at_ns, event.spec)
        for step in recording.steps
        for event in step.events
        if isinstance(event, events.Submitted)
        for job_id in event.job_ids
    }


def _attempts(recording: Recording, job_id: int) -> Iterator[tuple[int, int]]:
    """(ns that it worked, exit code) of each start from the beginning; one that was stopped would have continued."""
    worked_ns, since_ns = 0, -1  # -1: it does not work
    for step in recording.steps:
        for event in step.events:
            if isinstance(event, events.JobEnded) and event.job_id == job_id:
                yield worked_ns + (step.at_ns - since_ns if since_ns >= 0 else MORE_NS), event.exit_code
                worked_ns, since_ns = 0, -1
            if isinstance(event, events.JobSuspended) and event.job_id == job_id and event.how is How.REQUEUE:
                yield worked_ns + MORE_NS, 0
                worked_ns = 0
        for command in step.commands:
            if command.get("job_id") == job_id and command["type"] == "StartJob":
                since_ns = step.at_ns
            elif command.get("job_id") == job_id and command["type"] == "StopJob":
                worked_ns += step.at_ns - since_ns if since_ns >= 0 else 0  # else it was paused already
                since_ns = -1
    if since_ns >= 0:
        worked_ns += recording.steps[-1].at_ns - since_ns
    yield worked_ns + MORE_NS, 0


def _stops(recording: Recording, job_id: int) -> Iterator[tuple[int, How | None, int]]:
    """(ns until it had gone, how in the end, its exit code if it ended) of each order to free its capacity."""
    order_ns = -1
    for step in recording.steps:
        for event in step.events:
            if order_ns >= 0 and isinstance(event, events.JobEnded) and event.job_id == job_id:
                yield step.at_ns - order_ns, None, event.exit_code
                order_ns = -1
            if order_ns >= 0 and isinstance(event, events.JobSuspended) and event.job_id == job_id:
                yield step.at_ns - order_ns, event.how, 0
                order_ns = -1
        if any(command.get("job_id") == job_id and command["type"] == "StopJob" for command in step.commands):
            order_ns = step.at_ns


def _resizes(recording: Recording, job_id: int) -> Iterator[tuple[int, Placement]]:
    """(ns until it said what it had, and that) of each such order; where it never said so, for ever."""
    order_ns = -1
    for step in recording.steps:
        for event in step.events:
            if order_ns >= 0 and isinstance(event, events.Resized) and event.job_id == job_id:
                yield step.at_ns - order_ns, event.placement
                order_ns = -1
        for command in step.commands:
            if command.get("job_id") != job_id:
                continue
            if order_ns >= 0 and command["type"] in ("ResizeJob", "StartJob"):
                yield NEVER_NS, ()
                order_ns = -1
            if command["type"] == "ResizeJob":
                order_ns = step.at_ns
    if order_ns >= 0:
        yield NEVER_NS, ()
