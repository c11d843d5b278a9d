"""The driver's single entry point: step(state, event, now_ns) -> [command]. No IO, no clock, no randomness.

vgpud keeps what must outlive a crash: a claim's slice is saved there in one transaction before it is answered, with the
claim that it is for, and its CDI file is written again at every start. So the driver has no state of its own on disk,
and each call of kubelet is decided by itself: read the claim, have vgpud make (or find) its slice, answer. Whatever
dies in between is repeated by kubelet with the same result.

Of one claim, one thing is done at a time; calls that come meanwhile wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vgpud.k8s.core import admin_access, publication, published, reports, status
from vgpud.k8s.core.claim_objects import ClaimError, is_left, is_of, read_claim
from vgpud.k8s.core.events import (
    Answer,
    Called,
    ClaimRead,
    Command,
    EndSlice,
    Event,
    Health,
    Leads,
    Log,
    MakeSlice,
    NodeLost,
    NodeSeen,
    PodUnknown,
    PoolSeen,
    PublicationReported,
    Publish,
    Published,
    ReadClaim,
    Registered,
    ReportPublication,
    SliceEnded,
    SliceMade,
    StatusWritten,
    Tick,
    WriteStatus,
)
from vgpud.k8s.core.model import Asked, Gpu, Granted, Known, Ref, Work
from vgpud.k8s.core.names import CDI_KIND
from vgpud.k8s.core.tenths import without_those_of_others

SECOND_NS = 1_000_000_000
#: how often vgpud's claims are compared with the API server: pods that were deleted by force leave theirs behind
RECONCILE_NS = 600 * SECOND_NS
#: after another client changed our ResourceSlices; deletions (a kubelet that starts deletes them) are repaired at once
REPAIR_NS = 30 * SECOND_NS
#: after a write that failed; twice as long after each further one, up to the second time
RETRY_NS, RETRY_MAX_NS = 2 * SECOND_NS, 30 * SECOND_NS
#: for vgpud to be seen for the first time, before a claim is refused: they may have been started together
FIRST_SEEN_NS = 25 * SECOND_NS
#: for a kubelet that starts and has deleted our ResourceSlices, to register the driver before they are written again
REGISTER_NS = 10 * SECOND_NS
#: between two writes that succeed, and until the watch must have shown one: it may lag, or be dead
SETTLE_NS, SHOWN_NS = SECOND_NS, 30 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Policy:
    """What the site decides."""

    publish: published.Policy = field(default_factory=published.Policy)
    priority_max: int = 0  # of a claim's own SliceConfig


@dataclass(slots=True)
class Pool:
    """Our ResourceSlices, as far as is known."""

    stored_slices: tuple[Mapping[str, Any], ...] | None = None  # None: not seen yet
    server: tuple[int, int] | None = None  # its version, None: it does not say
    dropped_fields: tuple[str, ...] = ()
    writing: bool = False
    is_outdated: bool = False  # it is not what is wanted, so that time alone can make a write due
    not_before_ns: int = 0  # no write before
    repair_ns: int | None = None  # when what another client changed is put right
    register_by_ns: int = 0  # no write before, unless kubelet registers the driver
    newest: int = 0  # generation that was written
    #: by name: generations that the watch has shown since a write began; those written that it has still to show
    shown_generations: dict[str, int] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    shown_by_ns: int = 0  # when that is not waited for any more
    failures: int = 0  # of writes, one after another
    error: str = ""  # of the last one


@dataclass(frozen=True, slots=True)
class Remark:
    """What has happened to a device that a claim has."""

    reason: str
    note: str
    is_warning: bool = False


@dataclass(slots=True)
class State:
    """Everything that step() reads and writes."""

    node: str
    policy: Policy = field(default_factory=Policy)
    gpus: tuple[Gpu, ...] | None = None  # None: vgpud has not been seen yet
    registered_ns: int | None = None  # when kubelet did so last; None: it does not know the driver
    leads: bool = False  # this driver publishes the devices
    claims: dict[str, Known] = field(default_factory=dict)  # by uid: those that vgpud has slices for
    work: dict[str, Work] = field(default_factory=dict)  # by uid
    #: claims that were read before vgpud had been seen, by uid, and until when they wait for it
    early_claims: dict[str, tuple[ClaimRead, int]] = field(default_factory=dict)
    #: claims that the API server is being asked about although kubelet has not called
    checks: dict[str, Known] = field(default_factory=dict)
    #: what is being written into claims' status, by uid
    telling: dict[str, tuple[Granted, ...]] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    healthy: tuple[tuple[str, bool, str], ...] = ()
    reconciled_ns: int | None = None
    #: what its claims' events are to say about a device, by the claim's uid, once the claim has been read
    remarks: dict[str, Remark] = field(default_factory=dict)
    report_log: reports.ReportLog = field(default_factory=reports.ReportLog)
    node_answers: bool = False  # vgpud does
    publication_report: publication.ReportState = field(default_factory=publication.ReportState)

    @property
    def is_ready(self) -> bool:
        """Whether a driver that it replaces may end: kubelet knows this one, and it reaches the API server. vgpud is no
        part of it: one node without it would keep all others from their upgrade."""
        return self.registered_ns is not None and self.pool.stored_slices is not None


def step(state: State, event: Event, now_ns: int) -> list[Command]:
    """Applies one event and returns what the shells are to do. `now_ns`: CLOCK_MONOTONIC."""
    return list(reports.limit_reports(state.report_log, _HANDLERS[type(event)](state, event, now_ns), now_ns))


# ---- the node ----


def _on_node_seen(state: State, event: NodeSeen, now_ns: int) -> list[Command]:
    theirs = {share.uuid for one in event.claims if one.device_ids for share in one.granted}
    gpus = without_those_of_others(event.gpus, theirs, "device-plugin")
    changed, before, gpus_before = state.gpus != gpus, state.claims, state.gpus
    state.gpus, state.node_answers = gpus, True
    state.claims = {claim.uid: claim for claim in event.claims if not claim.device_ids}
    resized = [
        one
        for uid, one in state.claims.items()
        if uid in before and one.granted != before[uid].granted and uid not in state.telling
    ]
    looks = [look for one in (*resized, *_remark(state, gpus_before or ())) for look in _look(state, one)]
    early, state.early_claims = state.early_claims, {}
    looks += [command for read, _ in early.values() for command in _on_claim_read(state, read, now_ns)]
    if not changed:
        return looks
    state.pool.repair_ns = None
    return [*_health(state), *_publish(state, now_ns), *looks]


def _remark(state: State, old_gpus: Sequence[Gpu]) -> list[Known]:
    """The claims on devices that have got a fault, or an operator has drained, since they were seen before."""
    known = {gpu.uuid: gpu for gpu in old_gpus}
    state.remarks = {uid: remark for uid, remark in state.remarks.items() if uid in state.claims}
    found = []
    for gpu in state.gpus or ():
        old = known.get(gpu.uuid)
        if old is None or (gpu.fault, gpu.drained) == (old.fault, old.drained) or not (gpu.fault or gpu.drained):
            continue
        remark = Remark("DeviceDrained", f"{gpu.name} is drained: {gpu.drained}; running pods keep it")
        if gpu.fault:
            remark = Remark("DeviceFaulty", f"{gpu.name} is faulty: {gpu.fault}", is_warning=True)
        its = [one for one in state.claims.values() if gpu.uuid in {share.uuid for share in one.granted}]
        state.remarks |= {one.uid: remark for one in its}
        found += its
    return found


def _on_node_lost(state: State, event: NodeLost, now_ns: int) -> list[Command]:
    """Nothing changes: programs run on, and what is published stays true. A vgpud that was started again does not know
    what that is."""
    state.node_answers, state.publication_report.content = False, None
    return []


def _health(state: State) -> list[Command]:
    devices = tuple(
        (offer.name, not offer.gpu.fault, offer.gpu.fault)
        for offer in published.devices(state.gpus or (), _policy(state))
    )
    if devices == state.healthy:
        return []
    state.healthy = devices
    return [Health(devices)]


# ---- calls of kubelet ----


def _on_called(state: State, event: Called, now_ns: int) -> list[Command]:
    work = state.work.get(event.ref.uid)
    if work is None:
        return _begin(state, Work(event.ref, event.ending, [event.call]))
    if work.ending == event.ending and not work.queued_calls:
        work.calls.append(event.call)
    else:
        work.queued_calls.append((event.call, event.ending))
    return []


def _begin(state: State, work: Work) -> list[Command]:
    state.work[work.ref.uid] = work
    checked = _finish_check(state, work.ref.uid)  # what is done now does what a check would
    return [*checked, EndSlice(work.ref.uid) if work.ending else ReadClaim(work.ref)]


def _on_claim_read(state: State, event: ClaimRead, now_ns: int) -> list[Command]:
    checked = state.checks.get(event.uid)
    work = state.work.get(event.uid)
    if checked and (work is None or work.ending):
        return _handle_check(state, checked, event)
    # requested_claim: the answer to a second question (that of a check, say), after what the first one said has begun
    if work is None or work.ending or work.waits or work.requested_claim:
        return []
    if event.error:
        return _done(state, work, f"the API server cannot be asked for claim {work.ref}: {event.error}")
    if event.claim is None:
        return _done(state, work, f"claim {work.ref} does not exist: it was deleted before its pod started")
    if state.gpus is None:
        state.early_claims[event.uid] = (event, now_ns + FIRST_SEEN_NS)
        return []
    known = state.claims.get(event.uid)
    try:
        work.requested_claim = _read(state, event.claim, work.ref, known)
        work.claim = event.claim
    except ClaimError as error:
        return [reports.report_failure(work.ref, str(error)), *_done(state, work, str(error))]
    if work.requested_claim.monitor_gpus:
        note = "it is prepared for monitoring, and has no slice"
        log = Log(f"claim {work.ref}: {note}")
        report = reports.report_claim(event.claim, "Prepared", note)
        return [log, *report, *_done(state, work, "", admin_access.cdi_devices(work.requested_claim.monitor_gpus))]
    work.remakes = known is not None and known.is_for_another(work.requested_claim)
    return [EndSlice(event.uid) if work.remakes else MakeSlice(work.requested_claim)]


def _read(state: State, claim: Mapping[str, Any], ref: Ref, prepared_claim: Known | None) -> Asked:
    """Raises ClaimError."""
    offers = published.offers(state.gpus or ())
    policy = state.policy
    asked = read_claim(claim, ref, offers, state.node, policy.priority_max, policy.publish.monitors)
    return asked.as_prepared(prepared_claim)


def _on_slice_made(state: State, event: SliceMade, now_ns: int) -> list[Command]:
    work = state.work.get(event.uid)
    if work is None or work.ending or work.requested_claim is None:  # a claim's pods were brought up to date
        known = state.checks.get(event.uid)
        log_commands: list[Command] = [Log(f"claim {known}: {event.error}")] if known and event.error else []
        return [*log_commands, *_finish_check(state, event.uid)]
    asked = work.requested_claim
    if event.full and not work.has_retried:
        # slices of claims that are gone may be in the way: they are ended, and then this is tried once more
        work.has_retried, work.waits, work.requested_claim = True, True, None
        return _reconcile(state, now_ns) or _finish_check(state, "")
    if event.error:
        return [reports.report_failure(work.ref, event.error), *_done(state, work, f"claim {asked}: {event.error}")]
    names = (asked.uid, asked.namespace, asked.name)
    known = Known(*names, event.slice_name, asked.pods, event.granted, asked.granted, pod_names=asked.pod_names)
    state.claims[asked.uid] = known
    on = ", ".join(result.device for result in asked.results)
    log = Log(f"claim {asked} is prepared: slice {event.slice_name} on {on}")
    return [log, *_done(state, work, "", (f"{CDI_KIND}={event.slice_name}",)), *_tell(state, work.claim, asked, known)]


def _on_slice_ended(state: State, event: SliceEnded, now_ns: int) -> list[Command]:
    work = state.work.get(event.uid)
    if not event.error:
        state.claims.pop(event.uid, None)
    if work and work.remakes and work.requested_claim:
        work.remakes = False
        return (
            _done(state, work, f"claim {work.ref}: {event.error}") if event.error else [MakeSlice(work.requested_claim)]
        )
    if work is None or not work.ending:
        return _finish_check(state, event.uid)
    log_commands = [] if event.error else [Log(f"claim {work.ref} is released")]
    done = _done(state, work, f"claim {work.ref}: {event.error}" if event.error else "")
    return [*log_commands, *done, *_finish_check(state, event.uid)]


def _done(state: State, work: Work, error: str, cdi_devices: tuple[str, ...] = ()) -> list[Command]:
    """Answers the calls, and begins with those that waited behind them."""
    uid, asked = work.ref.uid, work.requested_claim
    results = asked.results if asked and not error else ()
    answers: list[Command] = [Answer(call, uid, error, results, cdi_devices if results else ()) for call in work.calls]
    del state.work[uid]
    if not work.queued_calls:
        return answers
    ending = work.queued_calls[0][1]
    alike = [call for call, kind in work.queued_calls if kind == ending]
    rest = [(call, kind) for call, kind in work.queued_calls if kind != ending]
    return [*answers, *_begin(state, Work(work.ref, ending, alike, queued_calls=rest))]


# ---- what a claim's status says ----


def _tell(state: State, claim: Mapping[str, Any], requested_claim: Asked, prepared_claim: Known) -> list[Command]:
    """Brings the claim's status up to date, if it is not and is not being written."""
    devices = status.news(claim, requested_claim, prepared_claim.slice_name, prepared_claim.granted)
    if not devices or prepared_claim.uid in state.telling:
        return []
    state.telling[prepared_claim.uid] = prepared_claim.granted
    # what the status says already has been reported, also by a driver before this one
    reason = "Resized" if status.find_our_entries(claim) else "Prepared"
    report = reports.report_claim(
        claim, reason, reports.describe_slice(requested_claim, prepared_claim.granted, prepared_claim.slice_name)
    )
    return [WriteStatus(Ref(prepared_claim.uid, prepared_claim.namespace, prepared_claim.name), devices), *report]


def _on_status_written(state: State, event: StatusWritten, now_ns: int) -> list[Command]:
    """The numbers may have changed meanwhile. A write that failed is made good when the claims are compared again."""
    written, known = state.telling.pop(event.uid, ()), state.claims.get(event.uid)
    if event.error:
        return [Log(f"the status of claim {known or event.uid} could not be written: {event.error}")]
    return _look(state, known) if known and known.granted != written else []


# ---- claims that are gone, and pods that came ----


def _look(state: State, prepared_claim: Known) -> list[Command]:
    """Asks the API server for a claim that has a slice, unless it is being asked for."""
    if prepared_claim.uid in state.work or prepared_claim.uid in state.checks:
        return []
    state.checks[prepared_claim.uid] = prepared_claim
    return [ReadClaim(Ref(prepared_claim.uid, prepared_claim.namespace, prepared_claim.name))]


def _reconcile(state: State, now_ns: int) -> list[Command]:
    """Asks the API server for every claim that has a slice."""
    state.reconciled_ns = now_ns
    return [look for known in state.claims.values() for look in _look(state, known)]


def _handle_check(state: State, prepared_claim: Known, event: ClaimRead) -> list[Command]:
    """A claim that has gone, or is another one of the same name, has no use for its slice any more."""
    if event.error or prepared_claim.uid in state.work:
        return _finish_check(state, prepared_claim.uid)
    remark = state.remarks.pop(prepared_claim.uid, None)
    if event.claim is None or not is_of(event.claim, prepared_claim.uid):
        return _end_unused(state, prepared_claim, "is gone: its")
    if is_left(event.claim, state.node, prepared_claim.pods):
        return _end_unused(state, prepared_claim, "is not allocated to this node any more: its")
    now = state.claims.get(prepared_claim.uid)  # it may have been resized since it was asked for
    remarks: list[Command] = []
    if remark:
        remarks += reports.report_claim(event.claim, remark.reason, remark.note, is_warning=remark.is_warning)
    if state.gpus is None or now is None:
        return [*remarks, *_finish_check(state, prepared_claim.uid)]
    try:
        asked = _read(state, event.claim, Ref(prepared_claim.uid, prepared_claim.namespace, prepared_claim.name), now)
    except ClaimError as error:
        return [
            *remarks,
            Log(str(error), {"slice": prepared_claim.slice_name}),
            *_finish_check(state, prepared_claim.uid),
        ]
    if now.is_for_another(asked):
        return _end_unused(state, prepared_claim, "was allocated again, to other pods: its former")
    news = _tell(state, event.claim, asked, now)
    if (asked.pods, asked.pod_names) != (now.pods, now.pod_names):
        return [*remarks, *news, MakeSlice(asked)]
    return [*remarks, *news, *_finish_check(state, prepared_claim.uid)]


def _end_unused(state: State, prepared_claim: Known, why: str) -> list[Command]:
    """As if kubelet had called: calls that come meanwhile wait."""
    del state.checks[prepared_claim.uid]
    state.work[prepared_claim.uid] = Work(
        Ref(prepared_claim.uid, prepared_claim.namespace, prepared_claim.name), ending=True, is_unused=True
    )
    text = f"claim {prepared_claim} {why} slice {prepared_claim.slice_name} is ended"
    return [EndSlice(prepared_claim.uid), Log(text, {"slice": prepared_claim.slice_name})]


def _finish_check(state: State, uid: str) -> list[Command]:
    """A claim has been checked. After the last one, what waited for capacity is tried again."""
    state.checks.pop(uid, None)
    if state.checks or any(work.is_unused for work in state.work.values()):
        return []
    waiting = [work for work in state.work.values() if work.waits]
    for work in waiting:
        work.waits = False
    return [ReadClaim(work.ref) for work in waiting]


def _on_pod_unknown(state: State, event: PodUnknown, now_ns: int) -> list[Command]:
    known = next((one for one in state.claims.values() if one.slice_name == event.slice_name), None)
    return _look(state, known) if known else []


# ---- what is published ----


def _on_registered(state: State, event: Registered, now_ns: int) -> list[Command]:
    """A pod that was placed before kubelet knows the driver would be tried again a minute later: so nothing is
    published before."""
    state.registered_ns, state.pool.register_by_ns = now_ns, 0
    return _publish(state, now_ns)


def _on_leads(state: State, event: Leads, now_ns: int) -> list[Command]:
    state.leads = True
    return _publish(state, now_ns)


def _on_pool_seen(state: State, event: PoolSeen, now_ns: int) -> list[Command]:
    """Deletions are repaired as soon as kubelet has registered the driver, since a kubelet that starts makes them, or
    if it does not for a while; edits later, so that two that disagree do not write all the time."""
    pool = state.pool
    if pool.stored_slices is not None and len(event.slices) < len(pool.stored_slices) and not pool.writing:
        is_recent = state.registered_ns is not None and now_ns - state.registered_ns < REGISTER_NS
        pool.register_by_ns = 0 if is_recent else now_ns + REGISTER_NS
    commands = _on_server(state, event.server)
    deleted = pool.stored_slices is None or len(event.slices) < len(pool.stored_slices)
    settled = not (pool.writing or pool.pending or pool.is_outdated)
    pool.stored_slices = event.slices
    there = {str(one["metadata"]["name"]): published.generation(one) for one in event.slices}
    pool.shown_generations |= there if pool.writing else {}
    pool.pending = {} if event.is_from_list else _not_shown(pool.pending, there)
    if event.is_from_list and pool.failures:
        pool.not_before_ns = now_ns  # the API server answers again
    if deleted:
        pool.repair_ns = None
    elif settled and _wanted_changes(state):
        pool.repair_ns = now_ns + REPAIR_NS
    return [*commands, *_publish(state, now_ns)]


def _on_server(state: State, server: tuple[int, int] | None) -> list[Command]:
    """What a server of another version is given otherwise."""
    before = _policy(state)
    state.pool.server = server or state.pool.server
    if server is None or _policy(state) == before:
        return []
    text = f"Kubernetes {server[0]}.{server[1]}"
    if before.fixed_sizes:
        text += " cannot store halves, quarters and tenths, which begin with 1.35: GPUs are published by amounts alone"
    else:
        text += " can store halves, quarters and tenths: they are published, too"
    return [Log(text), *_health(state)]


def _policy(state: State) -> published.Policy:
    """The site's, as far as the server's version allows."""
    policy, server = state.policy.publish, state.pool.server
    old = server is not None and server < published.FIXED_SIZES_SINCE
    return replace(policy, fixed_sizes=False) if old else policy


def _not_shown(written_generations: Mapping[str, int], shown_generations: Mapping[str, int]) -> dict[str, int]:
    return {
        name: generation
        for name, generation in written_generations.items()
        if shown_generations.get(name, -1) < generation
    }


def _wanted_changes(state: State) -> published.Changes:
    pool = state.pool
    if state.gpus is None or pool.stored_slices is None:
        return published.Changes()
    wanted = published.specs(state.gpus, state.node, _policy(state))
    return published.changes(wanted, pool.stored_slices, state.node, pool.dropped_fields, pool.newest)


def _publish(state: State, now_ns: int) -> list[Command]:
    """Writes what differs, unless a write is under way or to be shown, or it is not time yet."""
    pool = state.pool
    found = _wanted_changes(state)
    pool.is_outdated = bool(found)
    if not found:
        pool.repair_ns = None
        return []
    if not state.leads or state.registered_ns is None or pool.writing:
        return []
    shown_by_ns = pool.shown_by_ns if pool.pending else 0
    if now_ns < max(pool.not_before_ns, pool.repair_ns or 0, shown_by_ns, pool.register_by_ns):
        return []
    pool.writing, pool.repair_ns = True, None
    pool.shown_generations, pool.pending = {}, {}
    return [Publish(found)]


def _on_published(state: State, event: Published, now_ns: int) -> list[Command]:
    pool = state.pool
    pool.writing, pool.repair_ns = False, None
    pool.newest = max([pool.newest, *(generation for _, generation in event.written_generations)])
    pool.pending, pool.shown_by_ns = (
        _not_shown(dict(event.written_generations), pool.shown_generations),
        now_ns + SHOWN_NS,
    )
    if event.error:
        return _failed(pool, event.error, now_ns)
    commands: list[Command] = [Log("the ResourceSlices are written")]
    pool.not_before_ns, pool.failures, pool.error = now_ns + SETTLE_NS, 0, ""
    if event.dropped_fields and event.dropped_fields != pool.dropped_fields:
        names = ", ".join(event.dropped_fields)
        commands.append(Log(f"this API server does not store {names}: enable its feature gates (docs/kubernetes.md)"))
    pool.dropped_fields = event.dropped_fields
    pool.is_outdated = bool(_wanted_changes(state))
    return commands


def _failed(pool: Pool, error: str, now_ns: int) -> list[Command]:
    """Tries again later; an API server that is away for an hour is one line of the log."""
    pool.is_outdated = True
    pool.not_before_ns = now_ns + min(RETRY_NS << min(pool.failures, 8), RETRY_MAX_NS)
    pool.failures += 1
    known, pool.error = pool.error, error
    return [] if error == known else [Log(f"the ResourceSlices cannot be written, which is tried again: {error}")]


# ---- what vgpud is to show of it ----


def _report_publication(state: State, now_ns: int) -> list[Command]:
    """Of the driver that publishes alone: one that waits for its predecessor's end has nothing to say."""
    if not (state.leads and state.node_answers):
        return []
    problem = _why_not_published(state)
    content = (state.pool.stored_slices, problem)
    if not state.publication_report.is_due(content, now_ns):
        return []
    state.publication_report.begin(content, now_ns)
    return [ReportPublication(publication.read_pool(state.pool.stored_slices or (), problem))]


def _why_not_published(state: State) -> str:
    """What is wrong with what is published; "" = nothing that the driver knows."""
    pool = state.pool
    if state.registered_ns is None:
        return "kubelet has not registered the driver"
    if pool.stored_slices is None:
        return "the API server has not answered yet: the driver's log says why"
    if pool.error:
        return f"the ResourceSlices cannot be written: {pool.error}"
    if not any(gpu.is_for_kubernetes for gpu in state.gpus or ()):
        return "no GPU of this node is given to Kubernetes: see devices.kubernetes"
    if pool.dropped_fields:
        return f"the API server does not store {', '.join(pool.dropped_fields)}: enable its feature gates"
    return ""


def _on_publication_reported(state: State, event: PublicationReported, now_ns: int) -> list[Command]:
    text = state.publication_report.finish(event.error)
    return [Log(text)] if text else []


def _on_tick(state: State, event: Tick, now_ns: int) -> list[Command]:
    commands = _publish(state, now_ns) if state.pool.is_outdated else []
    commands += _report_publication(state, now_ns)
    for uid in [uid for uid, (_, until_ns) in state.early_claims.items() if now_ns >= until_ns]:
        del state.early_claims[uid]
        work = state.work[uid]
        absent = f"claim {work.ref}: vgpud on this node does not answer: see `vgpu doctor` there"
        commands += _done(state, work, absent)
    if state.gpus is None or (state.reconciled_ns is not None and now_ns - state.reconciled_ns < RECONCILE_NS):
        return commands
    return [*commands, *_reconcile(state, now_ns)]


_HANDLERS: dict[type, Callable[[State, Any, int], list[Command]]] = {
    NodeSeen: _on_node_seen,
    NodeLost: _on_node_lost,
    Registered: _on_registered,
    Leads: _on_leads,
    Called: _on_called,
    ClaimRead: _on_claim_read,
    SliceMade: _on_slice_made,
    SliceEnded: _on_slice_ended,
    PodUnknown: _on_pod_unknown,
    PoolSeen: _on_pool_seen,
    Published: _on_published,
    StatusWritten: _on_status_written,
    PublicationReported: _on_publication_reported,
    Tick: _on_tick,
}
