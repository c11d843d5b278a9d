"""The worker group of an elastic job as one function: step(group, event, now_ns) -> commands.

No IO and no clock. The daemon and the simulator carry the commands out and report what came of them. Decided here:
which workers start, leave and are replaced, when the attempt has failed or ended, and (members.py) which train
together.
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


def _begin(group: LiveGroup, event: Begin, now_ns: int, commands: Commands) -> None:
    commands.append(Save())
    for worker in group.record.live:
        _start(group, worker, Starting(Cause.BEGIN), commands)


def _start(group: LiveGroup, worker: Worker, starting: Starting, commands: Commands) -> None:
    group.starting[worker.number] = starting
    commands.append(Start(worker.number))


def _confirm_start(group: LiveGroup, event: Started, now_ns: int, commands: Commands) -> None:
    starting = group.starting.pop(event.worker, None)
    if starting is None:
        return  # it has ended already
    if starting.cause is Cause.STAND_IN:
        text = f"{starting.why}; worker {event.worker} takes the place of worker {starting.place_of}"
        commands.append(Note("job.straggler", text))
        group.limit(Deadline.STAND_IN, event.worker, now_ns + STAND_IN_NS)
    if starting.cause is not Cause.BEGIN:
        _settle(group, now_ns, commands)


def _start_failed(group: LiveGroup, event: StartFailed, now_ns: int, commands: Commands) -> None:
    starting = group.starting.pop(event.worker, None)
    if starting is None:
        return
    group.record.apply(event.worker, WorkerEvent.END)
    commands += [Save(), Note("job.warning", f"worker {event.worker} could not be started: {event.why}")]
    match starting.cause:
        case Cause.STAND_IN:
            _respawn_straggler(group, starting.place_of, starting.why, commands)
        case Cause.REPLACEMENT:
            _fail(group, 1, f"worker {starting.place_of} could not be replaced: {event.why}")
        case Cause.RESIZE:
            group.resize_problem = event.why
        case _:
            if group.resize_problem is None:
                group.resize_problem = event.why
    _settle(group, now_ns, commands)


def _settle(group: LiveGroup, now_ns: int, commands: Commands) -> None:
    """What follows when workers have come or gone, and all that were to start have."""
    saved = group.record
    if not saved.live:
        commands.append(Ended())
    elif saved.ending:
        _stop_live(group, commands)
    elif not group.starting:
        reason, group.change_reason = group.change_reason, ""
        members.update_membership(group, reason, now_ns, commands)
        _answer_resize(group, commands)


# ---- ends ----


def _worker_ended(group: LiveGroup, event: WorkerEnded, now_ns: int, commands: Commands) -> None:
    worker = group.record.worker(event.worker)
    if worker is None or worker.done:
        return
    group.starting.pop(event.worker, None)
    group.record.cpu_ns += event.cpu_ns
    group.record.ram_peak_bytes = max(group.record.ram_peak_bytes, event.ram_peak_bytes)
    _count_out(group, worker, event, commands)
    commands.append(Save())
    _settle(group, now_ns, commands)


def _count_out(group: LiveGroup, worker: Worker, event: WorkerEnded, commands: Commands) -> None:
    """What becomes of the group without this worker."""
    saved, number = group.record, worker.number
    why = f": {event.why}" if event.why else ""
    stand_in = next((other for other in saved.workers if other.replaces == number), None)
    if saved.ending or (event.is_stopped and not worker.leaving):
        # also if a daemon stopped it that was killed before it heard of its end
        saved.ending, saved.code = True, saved.code or event.exit_code
        saved.stopped |= event.is_stopped and not saved.why  # else it is stopped because another worker has failed
        saved.apply(number, WorkerEvent.END)
    elif stand_in and (worker.state is WorkerState.RESPAWNING or (event.failed and _may_replace(group, worker))):
        if event.failed:
            saved.failures += 1
            commands.append(_replaced_note(event, why, stand_in.number))
        saved.apply(number, WorkerEvent.END)
        members.take_over(group, stand_in)
    elif worker.state is WorkerState.RESPAWNING and group.job.state is JobState.RUNNING:
        _replace(group, number, Cause.RESPAWN, commands)
    elif worker.state is not WorkerState.ACTIVE:
        saved.apply(number, WorkerEvent.END)
    elif not event.failed:
        saved.apply(number, WorkerEvent.COMPLETE)
    elif _may_replace(group, worker):
        saved.failures += 1
        commands.append(_replaced_note(event, why, saved.next_number))
        _replace(group, number, Cause.REPLACEMENT, commands)
    else:
        _fail(group, event.exit_code or 1, f"worker {number} ended with it{why}", is_lost=event.is_lost)
        saved.apply(number, WorkerEvent.END)


def _replaced_note(event: WorkerEnded, why: str, by: int) -> Note:
    text = f"worker {event.worker} ended with exit code {event.exit_code}{why}; worker {by} takes its place"
    return Note("job.worker_failed", text)


def _replace(group: LiveGroup, number: int, cause: Cause, commands: Commands) -> None:
    made = group.record.replace_gone(number)
    commands.append(Save())
    _start(group, made, Starting(cause, number), commands)


def _may_replace(group: LiveGroup, worker: Worker) -> bool:
    """As often as the job may be retried, and only if another worker has what was computed so far. None starts while
    the job is suspended: its capacity is lent to others."""
    saved, job = group.record, group.job
    if job.state is not JobState.RUNNING:
        return False
    others = [w for w in saved.retained_workers if not w.done and w.number != worker.number]
    survive = any(other.number in saved.members for other in others) if saved.members else bool(others)
    return survive and not saved.is_finished and saved.failures < job.spec.retries - job.failures


def _fail(group: LiveGroup, code: int, why: str, *, is_lost: bool = False) -> None:
    saved = group.record
    saved.ending, saved.code, saved.why, saved.lost = True, code, why, is_lost


def _stop_all(group: LiveGroup, event: StopAll, now_ns: int, commands: Commands) -> None:
    group.record.ending = True
    commands.append(Save())
    _stop_live(group, commands)


def _stop_live(group: LiveGroup, commands: Commands) -> None:
    commands += [Stop(worker.number) for worker in group.record.live]


# ---- after a restart of the daemon ----


def _adopt_workers(group: LiveGroup, event: Adopted, now_ns: int, commands: Commands) -> None:
    saved = group.record
    if saved.live and len(event.unstarted_workers) == len(saved.live):
        commands.append(StartAll())
        return
    if not saved.live:
        commands.append(Ended())
    if not event.running:
        _fail_if_none_runs(group, event, commands)
    elif saved.ending:
        _stop_live(group, commands)
    for worker in saved.workers:
        if worker.state is WorkerState.STAND_IN:
            group.limit(Deadline.STAND_IN, worker.number, now_ns + STAND_IN_NS)
        elif worker.leaving:  # it is given its time again, to open a stream and hear that it shall leave
            members.limit_leaving(group, worker.number, now_ns + LEAVE_MAX_NS)
    members.update_membership(group, "", now_ns, commands)


def _fail_if_none_runs(group: LiveGroup, event: Adopted, commands: Commands) -> None:
    """Where a worker has failed, or the machine was restarted, no process has what was computed."""
    failed = next((result for result in event.ended_workers if result.failed and not result.is_stopped), None)
    if failed:
        _fail(group, failed.exit_code or 1, failed.why or "all of its workers have ended", is_lost=failed.is_lost)
        commands.append(Save())


def _retry_start(group: LiveGroup, event: Unstarted, now_ns: int, commands: Commands) -> None:
    worker = group.record.worker(event.worker)
    if worker is None:
        return
    if group.record.ending or group.job.state is not JobState.RUNNING:
        group.record.apply(event.worker, WorkerEvent.END)
        commands.append(Save())
        _settle(group, now_ns, commands)
    else:
        _start(group, worker, Starting(Cause.ADOPTED), commands)


def _reconcile(group: LiveGroup, event: Reconcile, now_ns: int, commands: Commands) -> None:
    if group.record.ending:
        return
    leaving, missing = difference(group.record.retained_workers, group.job.placement)
    if leaving or missing:
        if group.resize_problem is None:
            group.resize_problem = "it was found so"
        _answer_resize(group, commands)


# ---- resizing ----


def _resize(group: LiveGroup, event: Resize, now_ns: int, commands: Commands) -> None:
    saved = group.record
    if saved.ending:
        return  # its end says all
    for worker in saved.workers:
        if worker.state is WorkerState.STAND_IN:  # the queue does not know of it yet: not now
            saved.apply(worker.number, WorkerEvent.LEAVE)
    leaving, places = difference(saved.retained_workers, event.placement)
    group.resize_problem, group.change_reason = "", event.why
    if saved.is_finished and places:
        places, group.resize_problem = [], "its work is done: it is about to end"
    for worker in leaving:
        saved.apply(worker.number, WorkerEvent.LEAVE)
    made = [saved.add(place) for place in places]
    commands.append(Save())
    for worker in made:
        _start(group, worker, Starting(Cause.RESIZE), commands)
    _settle(group, now_ns, commands)


def _answer_resize(group: LiveGroup, commands: Commands) -> None:
    if group.resize_problem is not None and not group.record.any_leaving and not group.starting:
        commands.append(Resized(group.record.placement, group.resize_problem))
        group.resize_problem = None


# ---- stragglers and silent workers ----


def _straggling(group: LiveGroup, event: Straggling, now_ns: int, commands: Commands) -> None:
    """A stand-in starts first; the straggler leaves when that works (Or et al., MLSys'20, section 4.3)."""
    saved = group.record
    worker = saved.worker(event.worker)
    if worker is None or worker.state is not WorkerState.ACTIVE or worker not in saved.retained_workers:
        return
    if saved.ending or saved.is_finished or group.job.state is not JobState.RUNNING:
        return
    if any(other.state is WorkerState.STAND_IN for other in saved.workers):
        return  # one at a time
    group.change_reason = event.why
    if event.place is None:
        _respawn_straggler(group, event.worker, event.why, commands)
        _settle(group, now_ns, commands)
        return
    made = saved.add(event.place, replaces=event.worker)
    commands.append(Save())
    _start(group, made, Starting(Cause.STAND_IN, event.worker, event.why), commands)


def _respawn_straggler(group: LiveGroup, number: int, why: str, commands: Commands) -> None:
    group.record.apply(number, WorkerEvent.RESPAWN)
    text = f"{why}; there is no capacity for a stand-in beside it, so it leaves first"
    commands += [Save(), Note("job.straggler", text)]


def _dismiss(group: LiveGroup, number: int, now_ns: int, commands: Commands) -> None:
    """A stand-in does not work in time: until then its job has one worker too many."""
    worker = group.record.worker(number)
    if worker is None or worker.state is not WorkerState.STAND_IN or group.record.ending:
        return
    text = f"worker {number} has not begun to work in {STAND_IN_NS // 10**9} s: worker {worker.replaces} stays"
    group.record.apply(number, WorkerEvent.LEAVE)
    commands += [Note("job.straggler", text), Save()]
    members.update_membership(group, "", now_ns, commands)
    commands.append(Stop(number))


def _respawn_silent(group: LiveGroup, generation: int, now_ns: int, commands: Commands) -> None:
    """Workers were told to work together long ago, and some have not joined: the others wait for them."""
    saved = group.record
    if saved.generation != generation:
        return
    silent = set(saved.members) - group.joined_workers
    if group.job.state is not JobState.RUNNING:  # all stand still: that is no fault of theirs
        group.limit(Deadline.SILENT, generation, now_ns + JOIN_MAX_NS)
        return
    if not silent or silent == set(saved.members) or saved.ending or saved.is_finished:
        return
    for number in sorted(silent):
        saved.apply(number, WorkerEvent.RESPAWN)
        commands += [Save(), Stop(number)]
    named = ", ".join(map(str, sorted(silent)))
    text = f"worker {named} was silent for too long and was started again"
    if len(silent) > 1:
        text = f"workers {named} were silent for too long and were started again"
    commands.append(Note("job.worker_failed", text))
    members.update_membership(group, f"no report from worker {named}", now_ns, commands)


# ---- deadlines ----


def _tick(group: LiveGroup, event: Tick, now_ns: int, commands: Commands) -> None:
    due = sorted((at_ns, what.value, number) for (what, number), at_ns in group.deadlines.items() if at_ns <= now_ns)
    for _, name, number in due:
        what = Deadline(name)
        if group.deadlines.get((what, number), now_ns + 1) > now_ns:
            continue  # an earlier one of these has changed it
        del group.deadlines[what, number]
        match what:
            case Deadline.READY:
                members.ready_no_longer_waited_for(group, commands)
            case Deadline.LOST:
                members.renew_after_loss(group, number, commands)
            case Deadline.SILENT:
                _respawn_silent(group, number, now_ns, commands)
            case Deadline.STAND_IN:
                _dismiss(group, number, now_ns, commands)
            case Deadline.LEAVE:
                worker = group.record.worker(number)
                if worker and worker.leaving:
                    commands.append(Stop(number))


# ---- streams ----


def _stream_opened(group: LiveGroup, event: StreamOpened, now_ns: int, commands: Commands) -> None:
    members.stream_opened(group, event.report, now_ns, commands)


def _stream_closed(group: LiveGroup, event: StreamClosed, now_ns: int, commands: Commands) -> None:
    group.streams.discard(event.worker)


def _handle_report(group: LiveGroup, event: Reported, now_ns: int, commands: Commands) -> None:
    members.handle_report(group, event.report, now_ns, commands)


def _membership_saved(group: LiveGroup, event: MembershipSaved, now_ns: int, commands: Commands) -> None:
    members.saved_on_disk(group, event.generation, now_ns, commands)


_HANDLERS: dict[type, Callable[[LiveGroup, Any, int, Commands], None]] = {
    Begin: _begin,
    Started: _confirm_start,
    StartFailed: _start_failed,
    WorkerEnded: _worker_ended,
    Adopted: _adopt_workers,
    Unstarted: _retry_start,
    Reconcile: _reconcile,
    Resize: _resize,
    StopAll: _stop_all,
    Straggling: _straggling,
    StreamOpened: _stream_opened,
    StreamClosed: _stream_closed,
    Reported: _handle_report,
    MembershipSaved: _membership_saved,
    Tick: _tick,
}
