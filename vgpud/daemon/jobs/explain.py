"""The part of the composition root that says why a job is as it is: its size, device, neighbours, resizes, duration.

Facts come from the machine (what holds now), from the job's trail (what was decided, with the numbers of then) and from
what its submitter's client predicted. In the order in which an operator on call reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpud.core.estimates import Estimate
from vgpud.core.jobs.facts import Fact, Facts, Launch, Predicted
from vgpud.core.jobs.model import NEVER_NS, Job, JobState, Place
from vgpud.core.jobs.similarity import WORDS, word_of
from vgpud.core.model import State
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.reasons import duration
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus
from vgpud.daemon.jobs.explain_rotation import TurnCosts, explain_rotation

#: types of notes in a trail -> what they are facts about
_ABOUT = {
    "job.started": "device",
    "job.resumed": "device",
    "job.preempted": "queue",
    "job.requeued": "queue",
    "job.retried": "queue",
    "job.start_failed": "queue",
    "job.resized": "resize",
    "job.resize_failed": "resize",
    "job.anomaly": "anomaly",
    "job.notify_failed": "anomaly",
}
#: of each of these the last ones
_LAST = {"device": 1, "queue": 3, "resize": 5, "anomaly": 5}
NEIGHBOURS_MAX = CLOSED_MAX = 8
_NOW = -1


@dataclass(frozen=True, slots=True)
class Known:
    """What the controller knows of the job beside the machine. `viewer_uid`: the asking user; None: an admin."""

    facts: Facts
    trail: Sequence[Fact]
    anomalies: Sequence[str]  # that are not over
    now_ns: int
    viewer_uid: int | None
    turns: TurnCosts


def explain(machine: Machine, state: State, job: Job, context: Known) -> list[Fact]:
    """`job`: as it is shown, with the reason why it waits."""
    notes = {about: [f for f in context.trail if _ABOUT.get(f.kind) == about][-most:] for about, most in _LAST.items()}

    def trail(about: str) -> Iterator[Fact]:
        yield from (Fact(fact.at_ns, about, fact.text) for fact in notes[about])

    lives = job.job_id in machine.jobs and not job.state.is_final
    found: list[Fact] = []
    if lives and job.state is not JobState.RUNNING:
        found += _waits(machine, job, context)
        found += _describe_closed(state)
    elif job.reason:
        found.append(Fact(_NOW, "queue", job.reason))
    found += (Fact(_NOW, "anomaly", text) for text in context.anomalies)
    found += (fact for fact in trail("anomaly") if fact.text not in context.anomalies)
    found += trail("device")
    if lives and job.placement:
        found += _neighbours(machine, state, job, context)
    if lives:
        found += (Fact(_NOW, "rotation", text) for text in explain_rotation(state, job, context.turns))
    found.append(Fact(_NOW, "size", _size(job, state)))
    found += trail("resize")
    launch = job.spec.run
    if isinstance(launch, Launch) and launch.prediction:
        found.append(Fact(_NOW, "prediction", _prediction(launch.prediction, job, context.facts)))
    found += (Fact(_NOW, "estimate", text) for text in _estimate(machine if lives else None, job, context))
    found += trail("queue")
    return found


# ---- why it waits ----


def _waits(machine: Machine, job: Job, context: Known) -> Iterator[Fact]:
    place = f"; place {context.facts.position} in queue {job.spec.queue}" if context.facts.position else ""
    yield Fact(_NOW, "queue", (job.reason or "it waits") + place)
    if order := machine.explain_order(job.job_id, context.now_ns, context.viewer_uid):
        yield Fact(_NOW, "queue", order)
    starts_ns = context.facts.estimated_start_ns
    if starts_ns < NEVER_NS:
        when = f"in about {duration(starts_ns - context.now_ns)}" if starts_ns > context.now_ns else "soon"
        yield Fact(_NOW, "estimate", f"it is expected to start {when}")
    elif context.facts.position:
        text = "its start is not known, because the durations of the jobs that must end first are not"
        yield Fact(_NOW, "estimate", text)
    yield from (Fact(_NOW, "help", text) for text in machine.advice(job.job_id, context.now_ns))


def _describe_closed(state: State) -> Iterator[Fact]:
    """Devices of this node on which nothing new is placed, each with the operator's reason or the fault."""
    for device in sorted(state.devices.values(), key=lambda one: one.index)[:CLOSED_MAX]:
        if why := state.closed(device.uuid):
            yield Fact(_NOW, "device", f"device {device.index} is {why}")


# ---- neighbours ----


def _neighbours(machine: Machine, state: State, job: Job, context: Known) -> Iterator[Fact]:
    own = {share.device_uuid for place in job.placement for share in place.shares}
    found: list[str] = []
    for other in machine.jobs.values():
        if other.job_id != job.job_id and not other.state.is_final:
            found += _describe_neighbour(
                other, [place for place in other.placement if _has_device(place, own)], state, context
            )
    for made in state.slices.values():
        shares = [share for share in made.shares if share.device_uuid in own]
        if shares and not made.origin.queue_job_id:
            seen = context.viewer_uid in (None, made.owner_uid)
            name = f"slice {made.name}" if seen else "a slice that is no job's"
            gpus = format_gpus(sum(share.min_milli for share in shares))
            found.append(f"{name} has {gpus} GPU of {_devices(state, [s.device_uuid for s in shares])}")
    if own and not found:
        yield Fact(_NOW, "neighbour", f"no other slice has a part of {_devices(state, sorted(own))}")
    yield from (Fact(_NOW, "neighbour", text) for text in found[:NEIGHBOURS_MAX])
    if len(found) > NEIGHBOURS_MAX:
        yield Fact(_NOW, "neighbour", f"and {len(found) - NEIGHBOURS_MAX} more")


def _has_device(place: Place, uuids: set[str]) -> bool:
    return any(share.device_uuid in uuids for share in place.shares)


def _describe_neighbour(other: Job, places: Sequence[Place], state: State, context: Known) -> Iterator[str]:
    """Others' jobs have a number here, as they have in reasons, and nothing else of theirs."""
    if not places:
        return
    name = f"job {other.job_id}"
    if context.viewer_uid in (None, other.spec.uid):
        name += f" ({other.spec.name})"
    shares = [share for place in places for share in place.shares]
    text = f"{name} has {format_gpus(sum(share.min_milli for share in shares))} GPU"
    text += f" and {format_bytes(sum(share.mem_min_bytes for share in shares))}"
    text += f" of {_devices(state, [share.device_uuid for share in shares])}"
    if other.spec.ask.utilisation_milli > 0:
        text += f", uses {_percent(other.spec.ask.utilisation_milli)} of it alone"
    if other.state is JobState.SUSPENDED:
        text += ", and is suspended"
    yield text


def _devices(state: State, uuids: Sequence[str]) -> str:
    known = sorted({state.devices[uuid].index for uuid in uuids if uuid in state.devices})
    return f"device{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}"


def _percent(milli: int) -> str:
    return f"{(milli * 100 + MILLI_PER_DEVICE // 2) // MILLI_PER_DEVICE} %"


# ---- its size ----


def _size(job: Job, state: State) -> str:
    spec, elastic, asked = job.spec, job.spec.elastic, job.spec.ask.spec
    gpus = f"{format_gpus(asked.gpus_milli)} GPU"
    if elastic and elastic.most_members:
        text = f"{spec.members} of {elastic.least_members} to {elastic.most_members} workers, {gpus} each"
        if job.wished_members:
            text += f"; {job.wished_members} pay off by the measurements ({elastic.heuristic or 'efficiency'})"
    elif elastic:
        between = f"{format_gpus(elastic.least_milli)}..{format_gpus(elastic.most_milli)}"
        text = f"{gpus} of {between}: grows while capacity is idle, shrinks when other jobs are waiting"
    else:
        text = f"{gpus} for each of {spec.members} members" if spec.members > 1 else f"{gpus}, as submitted"
    if asked.min_milli is not None and asked.min_milli != asked.gpus_milli:
        text += f", of which {format_gpus(asked.min_milli)} is guaranteed and the rest borrowed"
    shares = [share for place in job.placement[:1] for share in place.shares]
    if asked.mem_min_bytes is not None:
        text += f"; {format_bytes(asked.mem_min_bytes)} of memory, as submitted"
    elif shares:
        fixed = elastic and not elastic.most_members
        why = "whatever its size" if fixed else "the same part of the device's"
        text += f"; {format_bytes(sum(s.mem_min_bytes for s in shares))} of memory, {why}"
    return text


# ---- what was predicted, and how long it takes ----


def _prediction(prediction: Predicted, job: Job, facts: Facts) -> str:
    if prediction.out_of_range:
        return f"{prediction.model} is out of range of what the predictor has learnt from: --gpus was not filled in"
    value, low, high = map(_part, prediction.utilisation)
    text = f"{prediction.model} on {prediction.device or 'this device'}: {value} of it ({low} to {high})"
    memory = prediction.memory_bytes
    if memory[0]:
        low_bytes, high_bytes = format_bytes(int(memory[1])), format_bytes(int(memory[2]))
        text += f" and {format_bytes(int(memory[0]))} ({low_bytes} to {high_bytes})"
    text += " predicted"
    if facts.measured_milli >= 0:
        text += f"; {_percent(facts.measured_milli)} measured{', which counts since' if job.spec.ask.kind else ''}"
    return text


def _part(ratio: float) -> str:
    return _percent(round(ratio * MILLI_PER_DEVICE))


def _estimate(machine: Machine | None, job: Job, context: Known) -> Iterator[str]:
    ran_ns = job.executed_at(context.now_ns)
    if machine is None:
        if ran_ns:
            expected = f"; {_took(job.median_ns, job.expected_ns)} was expected" if job.median_ns else ""
            yield f"it ran {duration(ran_ns)}{expected}"
        return
    found = machine.estimate(job.job_id, context.now_ns)
    if job.spec.duration_ns:
        yield f"its user expects {duration(job.spec.duration_ns)}, and the queue goes by that"
    elif found:
        yield _learnt(found)
    else:
        yield "how long it takes is not known: fewer than 3 similar jobs have ended, and --expected was not given"
    likely_ns = job.spec.duration_ns or (found.median_ns if found else 0)
    if job.state is JobState.RUNNING and likely_ns:
        left_ns = likely_ns - ran_ns
        yield f"it has run {duration(ran_ns)}" + (f", so about {duration(left_ns)} are left" if left_ns > 0 else "")


def _took(median_ns: int, high_ns: int) -> str:
    return f"about {duration(median_ns)}" + (f", at most {duration(high_ns)}" if high_ns else "")


def _learnt(estimate: Estimate) -> str:
    text = f"the last {estimate.jobs} jobs with {WORDS[word_of(estimate.class_name)]} took "
    if not estimate.median_ns:
        text = f"{text}longer than is known: most ran out of time, or still"
        return f"{text} run, after {duration(estimate.least_ns)} at most"
    text += f"about {duration(estimate.median_ns)}"
    if estimate.high_ns:
        text += f", four of five between {duration(estimate.low_ns)} and {duration(estimate.high_ns)}"
    return text
