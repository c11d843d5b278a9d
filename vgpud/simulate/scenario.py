"""One simulation from its parts: the machine, the cluster and the policy. Called by commands and benchmarks."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from vgpud.core.jobs.model import DEFAULT_QUEUE, How, Node, QueueSpec
from vgpud.core.placement import registry as placements
from vgpud.core.placement.base import ClusterCapacity
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry as policies
from vgpud.core.policy.base import Policy
from vgpud.core.queue.machine import Machine
from vgpud.simulate import readers
from vgpud.simulate.counted import Counted
from vgpud.simulate.engine import Costs, Outcome, Simulation
from vgpud.simulate.interference import Interference
from vgpud.simulate.machines import Machines
from vgpud.simulate.scalers import Scalers
from vgpud.simulate.scaling import Curve
from vgpud.simulate.sharing_monitor import SharingMonitor
from vgpud.simulate.trace import TraceError, TraceJob

#: the placement that knows no devices
COUNT = "count"
#: in front of a policy: the first job that does not fit keeps those behind it waiting
STRICT = "strict:"
#: new objects after which the garbage collector looks at them
GARBAGE_OBJECTS = 100_000


@dataclass(frozen=True, slots=True)
class Scenario:
    """How a trace is replayed. With `queues` what is "" is as each queue has it; without, all jobs are in one."""

    policy: str = ""  # as queues name it, `strict:` in front of it or not
    placement: str = ""
    backfill: bool = False  # with `strict:`
    spread: bool = False
    min_run_ns: int = 0
    by_queue: bool = False  # a queue of equal weight for each that the trace names
    queues: tuple[QueueSpec, ...] = ()
    costs: Costs = field(default_factory=Costs)
    interference: Interference | None = None
    machines: Machines | None = None
    has_autoscalers: bool = False  # elastic workers are as many as their autoscalers request; else all that fit


def make_policy(text: str) -> Policy:
    """The policy of that name; its tables are read from files."""
    return policies.make(text, readers.numbers)


def check(scenario: Scenario) -> None:
    """Raises TraceError when there is no such policy or placement."""
    try:
        for queue in make_queues(scenario, ()):
            make_policy(queue.policy)
            placements.make(queue.placement)
    except ValueError as error:
        raise TraceError(str(error)) from error


def run(
    trace: Sequence[TraceJob],
    nodes: Sequence[Node],
    scenario: Scenario,
    progress: Callable[[int], None] | None = None,
    make: Callable[[str], Policy] | None = None,
    monitor: SharingMonitor | None = None,
) -> Outcome:
    """The trace replayed on fresh nodes. `make`: of policies that have no name. `monitor`: to be asked afterwards, of
    placements that depend on which jobs share a device.
    """
    cluster = make_cluster(nodes, scenario)
    queues, make = make_queues(scenario, trace), make or make_policy
    denied = Machine((), cluster, make).check_queues(queues)
    if denied:
        raise TraceError(denied.message)
    costs = scenario.costs
    reports_starts = bool(costs.start_ns or costs.resume_ns)
    machine = Machine(
        queues, cluster, make, hows=(How.EVICT,), moves=True, explains=False, reports_starts=reports_starts
    )
    sharing = any(placements.make(queue.placement).sharing for queue in queues)
    monitor = (monitor or SharingMonitor()) if sharing and scenario.placement != COUNT else None
    scalers = Scalers() if scenario.has_autoscalers else None
    simulation = Simulation(
        machine,
        cluster.total_milli(),
        costs,
        scenario.interference,
        monitor,
        scalers=scalers,
        machines=scenario.machines,
    )
    is_one_queue = not (scenario.by_queue or scenario.queues)
    simulation.submit_all((job_id, _in_one_queue(job) if is_one_queue else job) for job_id, job in _in_order(trace))
    try:
        with _collect_rarely():
            return simulation.run(progress)
    except OverflowError as error:  # of ns in 64 bits
        text = "the simulation lasts more than 292 years"
        raise TraceError(f"{text}: leave the longest jobs out, or give the cluster more GPUs") from error


@contextlib.contextmanager
def _collect_rarely() -> Iterator[None]:
    """The garbage collector looks at all objects again and again, of which a simulation has millions and hardly any in
    a circle."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _in_order(trace: Sequence[TraceJob]) -> Iterable[tuple[int, TraceJob]]:
    """With their numbers in the trace, from 1 on, as they are submitted."""
    if all(before.submitted_ns <= job.submitted_ns for before, job in itertools.pairwise(trace)):
        return enumerate(trace, 1)
    return sorted(enumerate(trace, 1), key=lambda pair: pair[1].submitted_ns)


def _in_one_queue(job: TraceJob) -> TraceJob:
    return job if job.spec.queue == DEFAULT_QUEUE else replace(job, spec=replace(job.spec, queue=DEFAULT_QUEUE))


def make_cluster(nodes: Sequence[Node], scenario: Scenario) -> ClusterCapacity:
    """A fresh one: the nodes themselves stay as they are."""
    if scenario.placement == COUNT:
        return Counted(sum(len(node.devices) for node in nodes))
    fresh = [replace(node, free_milli=[], free_bytes=[], offered=[]) for node in nodes]
    return Cluster(fresh)


def make_queues(scenario: Scenario, trace: Sequence[TraceJob]) -> tuple[QueueSpec, ...]:
    """Those that are given; else one, or one for each that the trace names, without guarantees and limits."""
    names = sorted({job.spec.queue for job in trace}) if scenario.by_queue else []
    plain = tuple(
        QueueSpec(name, spread=scenario.spread, backfill=scenario.backfill, min_run_ns=scenario.min_run_ns)
        for name in names or [DEFAULT_QUEUE]
    )
    return tuple(_apply_scenario(queue, scenario) for queue in scenario.queues or plain)


def _apply_scenario(queue: QueueSpec, scenario: Scenario) -> QueueSpec:
    if scenario.policy:
        policy, strict = scenario.policy.removeprefix(STRICT), scenario.policy.startswith(STRICT)
        queue = replace(queue, policy=policy, strict=strict)
    if scenario.placement not in ("", COUNT):
        queue = replace(queue, placement=scenario.placement)
    return queue


def apply_curve(trace: Sequence[TraceJob], curve: Curve) -> list[TraceJob]:
    """The same jobs, the elastic ones as fast as the curve says."""
    return [replace(job, scaling=curve) if job.scaling else job for job in trace]


def misjudge_durations(trace: Sequence[TraceJob], sigma: float, seed: int) -> list[TraceJob]:
    """Jobs whose users say durations that are wrong by a factor e^N(0, sigma); what they run stays what it was."""
    draw = random.Random(seed)

    def draw_duration_ns(job: TraceJob) -> int:
        return max(1, round(job.duration_ns * draw.lognormvariate(0, sigma)))

    return [replace(job, spec=replace(job.spec, duration_ns=draw_duration_ns(job))) for job in trace]
