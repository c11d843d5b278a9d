"""The device plugin's single entry point: step(state, event, now_ns) -> [command]. No IO, no clock, no randomness.

As with the DRA driver, vgpud keeps what must outlive a crash, and decides which container a set of devices is for
(vgpud/core/slices/allocations.py). Unlike with claims, kubelet asks once per container and does not repeat a call that
failed: the pod has failed then, and its controller makes another. So a vgpud that does not answer is waited for, but
only briefly: kubelet admits no other pod meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vgpud.k8s.core import publication
from vgpud.k8s.core.events import (
    EndSlice,
    Log,
    MakeSlice,
    NodeLost,
    NodeSeen,
    PublicationReported,
    ReportPublication,
    SliceEnded,
    SliceMade,
    Tick,
)
from vgpud.k8s.core.model import Asked, Gpu, Known, Words
from vgpud.k8s.core.names import RESOURCE
from vgpud.k8s.core.plugin_events import (
    AllocateCalled,
    Allocated,
    Command,
    Event,
    KubeletSeen,
    ListDevices,
    ListPods,
    PodsListed,
    Register,
    Registered,
    Socket,
)
from vgpud.k8s.core.tenths import AllocationError, granted, list_devices, without_those_of_others

SECOND_NS = 1_000_000_000
#: how long a call waits for a vgpud that does not answer
WAIT_NS = 10 * SECOND_NS
#: between registrations that fail, or after which kubelet does not watch the devices
AGAIN_NS = 5 * SECOND_NS
#: how often kubelet is asked which pods have devices, and after how long without a container a slice is ended
RECONCILE_NS, IDLE_NS = 600 * SECOND_NS, 3600 * SECOND_NS
_NAMESPACE, _, _NAME = RESOURCE.partition("/")
CLAIMS = "ResourceClaims"


@dataclass(slots=True)
class Pending:
    """A call of kubelet that waits for vgpud."""

    request: AllocateCalled
    until_ns: int
    waits: bool = False  # vgpud is not there: it is asked again


@dataclass(slots=True)
class State:
    """Everything that step() reads and writes."""

    max_milli: int = 0  # of each slice on each GPU; 0: what was allocated
    gpus: tuple[Gpu, ...] | None = None  # None: vgpud has not been seen yet
    allocations: dict[str, Known] = field(default_factory=dict)  # by uid: allocations that vgpud has slices for
    work: dict[str, Pending] = field(default_factory=dict)  # by uid
    listed_devices: tuple[tuple[str, bool], ...] | None = None  # as reported to kubelet
    registered_socket: Socket | None = None  # with this kubelet
    registering: bool = False
    not_before_ns: int = 0  # no registration before
    idle_ns: dict[str, int] = field(default_factory=dict)  # by uid: since when no container uses the slice
    unlisted_uids: frozenset[str] = frozenset()  # uids that kubelet did not name when it was asked last
    reconciled_ns: int | None = None
    node_answers: bool = False  # vgpud does
    publication_report: publication.ReportState = field(default_factory=publication.ReportState)


def step(state: State, event: Event, now_ns: int) -> list[Command]:
    """Applies one event and returns what the shells are to do. `now_ns`: CLOCK_MONOTONIC."""
    return _HANDLERS[type(event)](state, event, now_ns)


# ---- the node ----


def _on_node_seen(state: State, event: NodeSeen, now_ns: int) -> list[Command]:
    theirs = {share.uuid for one in event.claims if not one.device_ids for share in one.granted}
    state.gpus = without_those_of_others((gpu for gpu in event.gpus if gpu.is_for_kubernetes), theirs, CLAIMS)
    state.allocations = {one.uid: one for one in event.claims if one.device_ids}
    state.node_answers = True
    idle = [uid for uid, one in state.allocations.items() if not one.in_use]
    state.idle_ns = {uid: state.idle_ns.get(uid, now_ns) for uid in idle}
    commands: list[Command] = []
    if state.listed_devices != list_devices(state.gpus):
        state.listed_devices = list_devices(state.gpus)
        commands.append(ListDevices(state.listed_devices))
    return [*commands, *_ask_again(state, now_ns)]


def _on_node_lost(state: State, event: NodeLost, now_ns: int) -> list[Command]:
    """Nothing changes: programs run on. Devices that were unhealthy meanwhile would cost pods their admission when
    kubelet restarts."""
    state.node_answers, state.publication_report.content = False, None
    return []


# ---- allocations ----


def _on_allocate_called(state: State, event: AllocateCalled, now_ns: int) -> list[Command]:
    state.work[event.uid] = Pending(event, now_ns + WAIT_NS)
    return _make(state, state.work[event.uid])


def _make(state: State, pending: Pending) -> list[Command]:
    called = pending.request
    pending.waits = state.gpus is None
    if state.gpus is None:
        return []
    try:
        shares = granted(called.ids, state.gpus, state.max_milli)
    except AllocationError as error:
        return _done(state, pending, str(error))
    return [MakeSlice(Asked(called.uid, _NAMESPACE, _NAME, (), (), shares, Words(), called.ids))]


def _on_slice_made(state: State, event: SliceMade, now_ns: int) -> list[Command]:
    pending = state.work.get(event.uid)
    if pending is None:
        return []
    if event.absent and now_ns < pending.until_ns:
        pending.waits = True
        return []
    return _done(state, pending, f"{RESOURCE}: {event.error}" if event.error else "", event.slice_name)


def _done(state: State, pending: Pending, error: str, slice_name: str = "") -> list[Command]:
    del state.work[pending.request.uid]
    return [Allocated(pending.request.call, error, "" if error else slice_name)]


def _ask_again(state: State, now_ns: int) -> list[Command]:
    """Calls that waited for vgpud; after some time they have failed."""
    commands: list[Command] = []
    for pending in [one for one in state.work.values() if one.waits]:
        if now_ns < pending.until_ns:
            commands += _make(state, pending)
        else:
            text = "vgpud on this node does not answer: see `vgpu doctor` there"
            commands += _done(state, pending, f"{RESOURCE}: {text}")
    return commands


# ---- registration ----


def _on_kubelet_seen(state: State, event: KubeletSeen, now_ns: int) -> list[Command]:
    """kubelet forgets its plugins when it starts, and removes their sockets."""
    if event.socket is None:
        state.registered_socket = None
    if event.socket is None or state.listed_devices is None or state.registering or now_ns < state.not_before_ns:
        return []
    if event.socket == state.registered_socket and event.serving and event.is_watched:
        return []
    state.registering = True
    return [Register(event.socket)]


def _on_registered(state: State, event: Registered, now_ns: int) -> list[Command]:
    state.registering, state.not_before_ns = False, now_ns + AGAIN_NS
    if event.error:
        state.registered_socket = None
        return [Log(f"kubelet does not register {RESOURCE}: {event.error}")]
    state.registered_socket = event.socket
    return [Log(f"kubelet has registered {RESOURCE}")]


# ---- slices of pods that are gone ----


def _on_tick(state: State, event: Tick, now_ns: int) -> list[Command]:
    commands = [*_ask_again(state, now_ns), *_report_publication(state, now_ns)]
    if state.reconciled_ns is not None and now_ns - state.reconciled_ns < RECONCILE_NS:
        return commands
    state.reconciled_ns = now_ns
    return [*commands, ListPods()] if state.idle_ns else commands


def _report_publication(state: State, now_ns: int) -> list[Command]:
    """What is counted, for people who look at the node."""
    content = (state.gpus, state.listed_devices)
    if not state.node_answers or not state.publication_report.is_due(content, now_ns):
        return []
    state.publication_report.begin(content, now_ns)
    ids = (one for one, _ in state.listed_devices or ())
    return [ReportPublication(publication.count_tenths(state.gpus or (), ids))]


def _on_publication_reported(state: State, event: PublicationReported, now_ns: int) -> list[Command]:
    text = state.publication_report.finish(event.error)
    return [Log(text)] if text else []


def _on_pods_listed(state: State, event: PodsListed, now_ns: int) -> list[Command]:
    """Ends slices that no container has used for an hour and whose devices no pod has.

    Nothing depends on it: kubelet may give their devices away meanwhile. kubelet does not name what init containers
    have, and knows no pods when it starts, so it is asked twice, and idle slices alone are concerned.
    """
    if event.ids is None:
        return []
    gone = {uid: one for uid, one in state.allocations.items() if event.ids.isdisjoint(one.device_ids)}
    ended = [uid for uid in gone if uid in state.unlisted_uids and now_ns - state.idle_ns.get(uid, now_ns) >= IDLE_NS]
    state.unlisted_uids = frozenset(gone)
    commands: list[Command] = []
    for uid in ended:
        text = f"no pod has the devices of slice {gone[uid].slice_name}: it is ended"
        commands += [EndSlice(uid), Log(text, {"slice": gone[uid].slice_name})]
    return commands


def _on_slice_ended(state: State, event: SliceEnded, now_ns: int) -> list[Command]:
    return [Log(event.error)] if event.error else []


_HANDLERS: dict[type, Callable[[State, Any, int], list[Command]]] = {
    NodeSeen: _on_node_seen,
    NodeLost: _on_node_lost,
    AllocateCalled: _on_allocate_called,
    SliceMade: _on_slice_made,
    SliceEnded: _on_slice_ended,
    KubeletSeen: _on_kubelet_seen,
    Registered: _on_registered,
    PodsListed: _on_pods_listed,
    PublicationReported: _on_publication_reported,
    Tick: _on_tick,
}
