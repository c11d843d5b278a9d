"""The worker group of an elastic job as one function: step(group, event, now_ns) -> commands.

No IO and no clock. The daemon and the simulator carry the commands out and tell what came of them. Decided here: which
workers start, leave and are replaced, when the attempt has failed or ended, and (members.py) which train together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vgpud.core.elastic import members
from vgpud.core.elastic.live_group import (
    JOIN_MAX_NS,
    LEAVE_MAX_NS,
    STAND_IN_NS,
    Cause,
    Commands,
    Deadline,
    LiveGroup,
    Starting,
)
from vgpud.core.elastic.worker_events import (
    Adopted,
    Begin,
    Command,
    Ended,
    Event,
    MembershipSaved,
    Note,
    Reconcile,
    Reported,
    Resize,
    Resized,
    Save,
    Start,
    StartAll,
    Started,
    StartFailed,
    Stop,
    StopAll,
    Straggling,
    StreamClosed,
    StreamOpened,
    Tick,
    Unstarted,
    WorkerEnded,
)
from vgpud.core.elastic.worker_group import Worker, WorkerEvent, WorkerState, difference
from vgpud.core.jobs.model import JobState


def step(group: LiveGroup, event: Event, now_ns: int) -> list[Command]:
    """Changes the group as the event says. The commands are to be carried out in this order."""
    out: list[Command] = []
    _HANDLERS[type(event)](group, event, now_ns, out)
    return out


# ---- starting ----


def _begin(group: LiveGroup, event: Begin, now_ns: int, out: Commands) -> None:
    out.append(Save())
    for worker in group.saved.live:
        _start(group, worker, Starting(Cause.BEGIN), out)


def _start(group: LiveGroup, worker: Worker, starting: Starting, out: Commands) -> None:
    group.starting[worker.number] = starting
    out.append(Start(worker.number))


def _started(group: LiveGroup, event: Started, now_ns: int, out: Commands) -> None:
    starting = group.starting.pop(event.worker, None)
    if starting is None:
        return  # it has ended already
    if starting.cause is Cause.STAND_IN:
        text = f"{starting.why}; worker {event.worker} takes the place of worker {starting.place_of}"
        out.append(Note("job.straggler", text))
        group.limit(Deadline.STAND_IN, event.worker, now_ns + STAND_IN_NS)
    if starting.cause is not Cause.BEGIN:
        _settle(group, now_ns, out)


def _start_failed(group: LiveGroup, event: StartFailed, now_ns: int, out: Commands) -> None:
    starting = group.starting.pop(event.worker, None)
    if starting is None:
        return
    group.saved.apply(event.worker, WorkerEvent.END)
    out += [Save(), Note("job.warning", f"worker {event.worker} could not be started: {event.why}")]
    match starting.cause:
        case Cause.STAND_IN:
            _respawn_straggler(group, starting.place_of, starting.why, out)
        case Cause.REPLACEMENT:
            _fail(group, 1, f"worker {starting.place_of} could not be replaced: {event.why}")
        case Cause.RESIZE:
            group.resize_problem = event.why
        case _:
            if group.resize_problem is None:
                group.resize_problem = event.why
    _settle(group, now_ns, out)


def _settle(group: LiveGroup, now_ns: int, out: Commands) -> None:
    """What follows when workers have come or gone, and all that were to start have."""
    saved = group.saved
    if not saved.live:
        out.append(Ended())
    elif saved.ending:
        _stop_live(group, out)
    elif not group.starting:
        reason, group.change_reason = group.change_reason, ""
        members.changed(group, reason, now_ns, out)
        _answer_resize(group, out)


# ---- ends ----


def _worker_ended(group: LiveGroup, event: WorkerEnded, now_ns: int, out: Commands) -> None:
    worker = group.saved.worker(event.worker)
    if worker is None or worker.done:
        return
    group.starting.pop(event.worker, None)
    group.saved.cpu_ns += event.cpu_ns
    group.saved.ram_peak_bytes = max(group.saved.ram_peak_bytes, event.ram_peak_bytes)
    _count_out(group, worker, event, out)
    out.append(Save())
    _settle(group, now_ns, out)


def _count_out(group: LiveGroup, worker: Worker, event: WorkerEnded, out: Commands) -> None:
    """What becomes of the group without this worker."""
    saved, number = group.saved, worker.number
    why = f": {event.why}" if event.why else ""
    stand_in = next((other for other in saved.workers if other.replaces == number), None)
    if saved.ending or (event.stopped and not worker.leaving):
        # also if a daemon stopped it that was killed before it heard of its end
        saved.ending, saved.code = True, saved.code or event.exit_code
        saved.stopped |= event.stopped and not saved.why  # else it is stopped because another worker has failed
        saved.apply(number, WorkerEvent.END)
    elif stand_in and (worker.state is WorkerState.RESPAWNING or (event.failed and _may_replace(group, worker))):
        if event.failed:
            saved.failures += 1
            out.append(_replaced_note(event, why, stand_in.number))
        saved.apply(number, WorkerEvent.END)
        members.take_over(group, stand_in)
    elif worker.state is WorkerState.RESPAWNING and group.job.state is JobState.RUNNING:
        _replace(group, number, Cause.RESPAWN, out)
    elif worker.state is not WorkerState.ACTIVE:
        saved.apply(number, WorkerEvent.END)
    elif not event.failed:
        saved.apply(number, WorkerEvent.COMPLETE)
    elif _may_replace(group, worker):
        saved.failures += 1
        out.append(_replaced_note(event, why, saved.next_number))
        _replace(group, number, Cause.REPLACEMENT, out)
    else:
        _fail(group, event.exit_code or 1, f"worker {number} ended with it{why}", lost=event.lost)
        saved.apply(number, WorkerEvent.END)


def _replaced_note(event: WorkerEnded, why: str, by: int) -> Note:
    text = f"worker {event.worker} ended with exit code {event.exit_code}{why}; worker {by} takes its place"
    return Note("job.worker_failed", text)


def _replace(group: LiveGroup, number: int, cause: Cause, out: Commands) -> None:
    made = group.saved.replace_gone(number)
    out.append(Save())
    _start(group, made, Starting(cause, number), out)


def _may_replace(group: LiveGroup, worker: Worker) -> bool:
    """As often as the job may be retried, and only if another worker has what was computed so far. None starts while
    the job is suspended: its capacity is lent to others."""
    saved, job = group.saved, group.job
    if job.state is not JobState.RUNNING:
        return False
    others = [w for w in saved.retained if not w.done and w.number != worker.number]
    survive = any(other.number in saved.members for other in others) if saved.members else bool(others)
    return survive and not saved.finished and saved.failures < job.spec.retries - job.failures


def _fail(group: LiveGroup, code: int, why: str, *, lost: bool = False) -> None:
    saved = group.saved
    saved.ending, saved.code, saved.why, saved.lost = True, code, why, lost


def _stop_all(group: LiveGroup, event: StopAll, now_ns: int, out: Commands) -> None:
    group.saved.ending = True
    out.append(Save())
    _stop_live(group, out)


def _stop_live(group: LiveGroup, out: Commands) -> None:
    out += [Stop(worker.number) for worker in group.saved.live]


# ---- after a restart of the daemon ----


def _adopted(group: LiveGroup, event: Adopted, now_ns: int, out: Commands) -> None:
    saved = group.saved
    if saved.live and len(event.unstarted) == len(saved.live):
        out.append(StartAll())
        return
    if not saved.live:
        out.append(Ended())
    if not event.running:
        _fail_if_none_runs(group, event, out)
    elif saved.ending:
        _stop_live(group, out)
    for worker in saved.workers:
        if worker.state is WorkerState.STAND_IN:
            group.limit(Deadline.STAND_IN, worker.number, now_ns + STAND_IN_NS)
        elif worker.leaving:  # it is given its time again, to open a stream and hear that it shall leave
            members.limit_leaving(group, worker.number, now_ns + LEAVE_MAX_NS)
    members.changed(group, "", now_ns, out)


def _fail_if_none_runs(group: LiveGroup, event: Adopted, out: Commands) -> None:
    """Where a worker has failed, or the machine was restarted, no process has what was computed."""
    failed = next((result for result in event.ended if result.failed and not result.stopped), None)
    if failed:
        _fail(group, failed.exit_code or 1, failed.why or "all of its workers have ended", lost=failed.lost)
        out.append(Save())


def _unstarted(group: LiveGroup, event: Unstarted, now_ns: int, out: Commands) -> None:
    worker = group.saved.worker(event.worker)
    if worker is None:
        return
    if group.saved.ending or group.job.state is not JobState.RUNNING:
        group.saved.apply(event.worker, WorkerEvent.END)
        out.append(Save())
        _settle(group, now_ns, out)
    else:
        _start(group, worker, Starting(Cause.ADOPTED), out)


def _reconcile(group: LiveGroup, event: Reconcile, now_ns: int, out: Commands) -> None:
    if group.saved.ending:
        return
    leaving, missing = difference(group.saved.retained, group.job.placement)
    if leaving or missing:
        if group.resize_problem is None:
            group.resize_problem = "it was found so"
        _answer_resize(group, out)


# ---- resizing ----


def _resize(group: LiveGroup, event: Resize, now_ns: int, out: Commands) -> None:
    saved = group.saved
    if saved.ending:
        return  # its end says all
    for worker in saved.workers:
        if worker.state is WorkerState.STAND_IN:  # the queue does not know of it yet: not now
            saved.apply(worker.number, WorkerEvent.LEAVE)
    leaving, places = difference(saved.retained, event.placement)
    group.resize_problem, group.change_reason = "", event.why
    if saved.finished and places:
        places, group.resize_problem = [], "its work is done: it is about to end"
    for worker in leaving:
        saved.apply(worker.number, WorkerEvent.LEAVE)
    made = [saved.add(place) for place in places]
    out.append(Save())
    for worker in made:
        _start(group, worker, Starting(Cause.RESIZE), out)
    _settle(group, now_ns, out)


def _answer_resize(group: LiveGroup, out: Commands) -> None:
    if group.resize_problem is not None and not group.saved.any_leaving and not group.starting:
        out.append(Resized(group.saved.placement, group.resize_problem))
        group.resize_problem = None


# ---- stragglers and silent workers ----


def _straggling(group: LiveGroup, event: Straggling, now_ns: int, out: Commands) -> None:
    """A stand-in starts first; the straggler leaves when that works (Or et al., MLSys'20, section 4.3)."""
    saved = group.saved
    worker = saved.worker(event.worker)
    if worker is None or worker.state is not WorkerState.ACTIVE or worker not in saved.retained:
        return
    if saved.ending or saved.finished or group.job.state is not JobState.RUNNING:
        return
    if any(other.state is WorkerState.STAND_IN for other in saved.workers):
        return  # one at a time
    group.change_reason = event.why
    if event.place is None:
        _respawn_straggler(group, event.worker, event.why, out)
        _settle(group, now_ns, out)
        return
    made = saved.add(event.place, replaces=event.worker)
    out.append(Save())
    _start(group, made, Starting(Cause.STAND_IN, event.worker, event.why), out)


def _respawn_straggler(group: LiveGroup, number: int, why: str, out: Commands) -> None:
    group.saved.apply(number, WorkerEvent.RESPAWN)
    text = f"{why}; there is no capacity for a stand-in beside it, so it leaves first"
    out += [Save(), Note("job.straggler", text)]


def _dismiss(group: LiveGroup, number: int, now_ns: int, out: Commands) -> None:
    """A stand-in does not work in time: until then its job has one worker too many."""
    worker = group.saved.worker(number)
    if worker is None or worker.state is not WorkerState.STAND_IN or group.saved.ending:
        return
    text = f"worker {number} has not begun to work in {STAND_IN_NS // 10**9} s: worker {worker.replaces} stays"
    group.saved.apply(number, WorkerEvent.LEAVE)
    out += [Note("job.straggler", text), Save()]
    members.changed(group, "", now_ns, out)
    out.append(Stop(number))


def _respawn_silent(group: LiveGroup, generation: int, now_ns: int, out: Commands) -> None:
    """Workers were told to work together long ago, and some have not joined: the others wait for them."""
    saved = group.saved
    if saved.generation != generation:
        return
    silent = set(saved.members) - group.joined
    if group.job.state is not JobState.RUNNING:  # all stand still: that is no fault of theirs
        group.limit(Deadline.SILENT, generation, now_ns + JOIN_MAX_NS)
        return
    if not silent or silent == set(saved.members) or saved.ending or saved.finished:
        return
    for number in sorted(silent):
        saved.apply(number, WorkerEvent.RESPAWN)
        out += [Save(), Stop(number)]
    named = ", ".join(map(str, sorted(silent)))
    out.append(Note("job.worker_failed", f"silent for too long, started again: worker {named}"))
    members.changed(group, f"no report from worker {named}", now_ns, out)


# ---- deadlines ----


def _tick(group: LiveGroup, event: Tick, now_ns: int, out: Commands) -> None:
    due = sorted((at_ns, what.value, number) for (what, number), at_ns in group.deadlines.items() if at_ns <= now_ns)
    for _, name, number in due:
        what = Deadline(name)
        if group.deadlines.get((what, number), now_ns + 1) > now_ns:
            continue  # an earlier one of these has changed it
        del group.deadlines[what, number]
        match what:
            case Deadline.READY:
                members.ready_no_longer_waited_for(group, out)
            case Deadline.LOST:
                members.lost(group, number, out)
            case Deadline.SILENT:
                _respawn_silent(group, number, now_ns, out)
            case Deadline.STAND_IN:
                _dismiss(group, number, now_ns, out)
            case Deadline.LEAVE:
                worker = group.saved.worker(number)
                if worker and worker.leaving:
                    out.append(Stop(number))


# ---- streams ----


def _stream_opened(group: LiveGroup, event: StreamOpened, now_ns: int, out: Commands) -> None:
    members.stream_opened(group, event.report, now_ns, out)


def _stream_closed(group: LiveGroup, event: StreamClosed, now_ns: int, out: Commands) -> None:
    group.streams.discard(event.worker)


def _reported(group: LiveGroup, event: Reported, now_ns: int, out: Commands) -> None:
    members.reported(group, event.report, now_ns, out)


def _membership_saved(group: LiveGroup, event: MembershipSaved, now_ns: int, out: Commands) -> None:
    members.saved_on_disk(group, event.generation, now_ns, out)


_HANDLERS: dict[type, Callable[[LiveGroup, Any, int, Commands], None]] = {
    Begin: _begin,
    Started: _started,
    StartFailed: _start_failed,
    WorkerEnded: _worker_ended,
    Adopted: _adopted,
    Unstarted: _unstarted,
    Reconcile: _reconcile,
    Resize: _resize,
    StopAll: _stop_all,
    Straggling: _straggling,
    StreamOpened: _stream_opened,
    StreamClosed: _stream_closed,
    Reported: _reported,
    MembershipSaved: _membership_saved,
    Tick: _tick,
}
