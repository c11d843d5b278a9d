"""Which workers of a group train together: the part of its step that makes memberships and sends them.

A membership is made of workers that have said they are ready, so that none waits for another one's imports; it is saved
before it is sent, and its number only grows. Survivors keep their order, so the first of them has the state. A worker
whose stream has gone stays a member while its process lives.
"""

from __future__ import annotations

from vgpud.core.elastic.live_group import (
    JOIN_MAX_NS,
    LEAVE_MAX_NS,
    LEAVE_NS,
    LOST_NS,
    READY_NS,
    Commands,
    Deadline,
    LiveGroup,
)
from vgpud.core.elastic.worker_events import Announce, Joined, Note, Progress, Save, Tell
from vgpud.core.elastic.worker_group import Membership, ProgressReport, Worker, WorkerEvent, WorkerState
from vgpud.core.model import Denied, Reason


def refusal(group: LiveGroup | None, report: ProgressReport) -> Denied | None:
    """Why this message cannot open a stream of a worker of this group. The job is known and has not ended."""
    worker = group.record.worker(report.worker) if group and group.record.attempt == report.attempt else None
    if worker and not worker.done:
        return None
    text = f"job {report.job_id} has no worker {report.worker} now: start the program by vgpu submit --workers"
    return Denied(Reason.PRECONDITION, text, "worker")


def stream_opened(group: LiveGroup, report: ProgressReport, now_ns: int, commands: Commands) -> None:
    saved = group.record
    worker = saved.worker(report.worker)
    assert worker and not worker.done, "refusal() says so"
    group.streams.add(report.worker)
    group.ready.add(report.worker)
    if report.generation > saved.generation:  # sent by a daemon that was killed before it had saved it
        saved.generation, saved.members, saved.store = report.generation, (), ""
        commands.append(Save())
    if saved.is_finished:
        _tell_finished(group, report.worker, commands)
    elif report.worker in saved.members and report.generation == saved.generation:
        _record_join(group, report, now_ns, commands)
    elif report.worker in saved.members or worker.leaving:
        commands.append(Tell(report.worker, group.membership()))
    else:
        _expect(group, now_ns, commands)


def handle_report(group: LiveGroup, report: ProgressReport, now_ns: int, commands: Commands) -> None:
    saved = group.record
    if saved.attempt != report.attempt or saved.worker(report.worker) is None:
        return
    newest = report.generation == saved.generation
    if report.store and newest and saved.members[:1] == (report.worker,) and report.store != saved.store:
        saved.store = report.store
        commands.append(Save())
        _tell(group, commands)
    if report.has_joined and newest:
        _record_join(group, report, now_ns, commands)
    if report.has_lost_peers and saved.is_finished:
        _tell_finished(group, report.worker, commands)
    elif report.has_lost_peers and newest:
        group.limit(Deadline.LOST, saved.generation, now_ns + LOST_NS)
    if report.steps or report.samples:
        commands.append(Progress(report))


def saved_on_disk(group: LiveGroup, generation: int, now_ns: int, commands: Commands) -> None:
    if group.record.generation != generation:
        return
    group.notified_generation = generation
    _tell(group, commands)
    silent = [key for key in group.deadlines if key[0] is Deadline.SILENT]
    for key in silent:
        del group.deadlines[key]
    group.limit(Deadline.SILENT, generation, now_ns + JOIN_MAX_NS)


def update_membership(group: LiveGroup, reason: str, now_ns: int, commands: Commands) -> None:
    """Workers were told to leave, have ended or are to join."""
    saved = group.record
    known = {worker.number: worker for worker in saved.workers}
    group.ready &= known.keys()
    if saved.is_finished:
        for number in sorted(group.streams - set(saved.members)):
            _tell_finished(group, number, commands)
    elif any(number not in known or known[number].leaving for number in saved.members):
        gone = [number for number in saved.members if number not in known]
        renew(group, f"worker {gone[0]} has ended" if gone and not reason else reason, commands)
    elif saved.workers:
        group.next_reason = reason or group.next_reason
        if any(w.number in group.ready and w.number not in saved.members for w in saved.retained_workers):
            _expect(group, now_ns, commands)  # the one that was waited for may have ended
    for worker in saved.workers:
        if worker.leaving and worker.number not in group.leavers:
            hears = worker.number in group.streams and worker.number in (*saved.members, *group.workers_to_notify)
            limit_leaving(group, worker.number, now_ns + (LEAVE_MAX_NS if hears else 0))


def limit_leaving(group: LiveGroup, number: int, at_ns: int) -> None:
    group.leavers.add(number)
    group.limit(Deadline.LEAVE, number, at_ns)


def renew(group: LiveGroup, reason: str, commands: Commands, *, force: bool = False) -> None:
    """A membership of all that work and are ready; force: even if it is the one before."""
    saved = group.record
    members = saved.next_members(group.ready)
    if saved.is_finished or saved.ending or not members or (members == saved.members and not force):
        return
    group.deadlines.pop((Deadline.READY, 0), None)
    if group.notified_generation == saved.generation:  # else some have not heard of that one yet
        group.workers_to_notify = set()
    group.workers_to_notify |= {*saved.members, *members}
    group.joined_workers, group.reason, group.idle_ns = set(), reason, 0
    saved.renew(members)
    commands += [Save(), Announce(saved.generation)]


def ready_no_longer_waited_for(group: LiveGroup, commands: Commands) -> None:
    """A deadline."""
    if not group.record.ending:
        renew(group, f"after {READY_NS // 10**9} s the others are not waited for", commands)


def renew_after_loss(group: LiveGroup, generation: int, commands: Commands) -> None:
    """A deadline."""
    if group.record.generation == generation and not group.record.ending:
        renew(group, "the workers lost each other", commands, force=True)


def _expect(group: LiveGroup, now_ns: int, commands: Commands) -> None:
    """A newcomer is ready: those that were started with it are waited for, up to a limit."""
    saved = group.record
    coming = {worker.number for worker in saved.workers if worker.works} - set(saved.members)
    if coming <= group.ready:
        start = "more workers are ready" if saved.members else "all started workers are ready"
        renew(group, group.next_reason or start, commands)
        group.next_reason = ""
    elif (Deadline.READY, 0) not in group.deadlines:
        group.limit(Deadline.READY, 0, now_ns + READY_NS)


def _record_join(group: LiveGroup, report: ProgressReport, now_ns: int, commands: Commands) -> None:
    saved = group.record
    fresh = not group.joined_workers.issuperset(saved.members)
    group.joined_workers.add(report.worker)
    group.idle_ns = max(group.idle_ns, report.idle_ns)
    if not fresh or not group.joined_workers.issuperset(saved.members):
        return
    if group.workers_to_notify:
        idle = f", and did nothing for {group.idle_ns / 1e9:.2f} s" if group.idle_ns else ""
        commands.append(Note("job.workers", f"{_count(len(saved.members))} work together{idle}: {group.reason}"))
    for worker in saved.workers:
        if worker.leaving:
            limit_leaving(group, worker.number, now_ns + LEAVE_NS)
    commands.append(Joined(saved.members))
    _stand_ins_take_over(group, now_ns, commands)


def _stand_ins_take_over(group: LiveGroup, now_ns: int, commands: Commands) -> None:
    """All members work: the stragglers of stand-ins among them leave."""
    saved = group.record
    working = [w for w in saved.workers if w.state is WorkerState.STAND_IN and w.number in saved.members]
    for worker in working:
        saved.apply(worker.replaces, WorkerEvent.LEAVE)
        take_over(group, worker)
    if working:
        commands.append(Save())
        update_membership(group, "a straggler was replaced", now_ns, commands)


def take_over(group: LiveGroup, stand_in: Worker) -> None:
    """The straggler leaves or has gone."""
    group.record.apply(stand_in.number, WorkerEvent.TAKE_OVER)
    group.deadlines.pop((Deadline.STAND_IN, stand_in.number), None)
    group.resize_problem = group.resize_problem or ""  # it may be on another device: the queue is notified


def _tell(group: LiveGroup, commands: Commands) -> None:
    numbers = (group.workers_to_notify | set(group.record.members)) & group.streams
    commands += [Tell(number, group.membership()) for number in sorted(numbers)]


def _tell_finished(group: LiveGroup, number: int, commands: Commands) -> None:
    if number in group.streams:
        commands.append(Tell(number, Membership(group.record.generation + 1, (), reason="the work is done")))


def _count(workers: int) -> str:
    return f"{workers} worker{'s' * (workers != 1)}"
