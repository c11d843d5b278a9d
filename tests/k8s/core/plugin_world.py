"""A node without IO: the device plugin's core, vgpud's own core, and a kubelet with its device manager.

As in world.py, commands wait until they are carried out, one at a time, so that a crash can come between any two of
them. kubelet's side follows its pkg/kubelet/cm/devicemanager: ids of pods that have ended are freed when the next pod
is admitted, the ids of init containers are given to later containers of their pod, a container that is restarted gets
what was answered when its pod was admitted, and a failed call fails the pod.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.builders import make_device
from vgpud.core import events as node_events
from vgpud.core import origins
from vgpud.core.model import ALL_DEVICES, Denied, Share, SiteLimits, Slice
from vgpud.core.model import State as NodeState
from vgpud.core.origins import Allocation
from vgpud.core.slices import invariants, machine
from vgpud.k8s.core import plugin_events as ev
from vgpud.k8s.core.events import (
    EndSlice,
    Log,
    MakeSlice,
    NodeSeen,
    PublicationReported,
    ReportPublication,
    SliceEnded,
    SliceMade,
    Tick,
)
from vgpud.k8s.core.model import Gpu, Granted, Known
from vgpud.k8s.core.plugin import State, step
from vgpud.k8s.core.publication import Publication
from vgpud.k8s.core.tenths import choose_preferred_ids

MIB = 1 << 20
SECOND_NS = 1_000_000_000


@dataclass
class Container:
    name: str
    tenths: int
    init: bool = False
    ids: frozenset[str] = frozenset()
    slice_name: str = ""  # of the answer in kubelet's checkpoint


@dataclass
class Pod:
    uid: str
    containers: list[Container]
    error: str = ""
    has_ended: bool = False
    running: dict[str, str] = field(default_factory=dict)  # containers by name, and their ids


class World:
    def __init__(self, gpus: int = 1, max_milli: int = 0) -> None:
        self.gpus = tuple(Gpu(f"GPU-{n}", n, "H200", 140_400 * MIB, 2 * MIB) for n in range(gpus))
        devices = tuple(make_device(gpu.index, uuid=gpu.uuid, memory_bytes=gpu.memory_bytes) for gpu in self.gpus)
        self.now_ns = 0
        self.node = NodeState()
        self._node(node_events.Started(SiteLimits(kubernetes_devices=(ALL_DEVICES,)), devices, (), ()))
        self.max_milli = max_milli
        self.vgpud_is_there = self.is_watched = True
        self.logs: list[str] = []
        self.publications: list[Publication] = []
        self.pods: dict[str, Pod] = {}
        self._numbers = count(1)
        self._socket = (1, 1)
        self.registrations = 0
        self.start()

    # ---- the plugin ----

    def start(self) -> None:
        """A plugin without a past. kubelet has lost its connection."""
        self.state = State(self.max_milli)
        self.commands: deque[ev.Command] = deque()
        self.answers: dict[int, ev.Allocated] = {}
        self.device_health: dict[str, bool] = {}
        self.is_registered = False
        self.serving = True
        self.post(self.node_seen())
        self.seconds(1)

    def post(self, event: ev.Event) -> None:
        self.commands.extend(step(self.state, event, self.now_ns))

    def run(self, steps: int = 1000) -> bool:
        while self.commands and steps > 0:
            self.carry_out(self.commands.popleft())
            steps -= 1
        return not self.commands

    def seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ns += SECOND_NS
            self.post(ev.KubeletSeen(self._socket, self.serving, self.is_registered and self.is_watched))
            self.post(Tick())
            self.run()

    def carry_out(self, command: ev.Command) -> None:
        match command:
            case ev.Allocated():
                self.answers[command.call] = command
            case ev.ListDevices():
                self.device_health = dict(command.devices)
            case ev.Register():
                ok = command.socket == self._socket
                self.is_registered = self.serving = ok or self.is_registered
                self.registrations += ok
                self.post(ev.Registered(command.socket, "" if ok else "kubelet has gone"))
            case ev.ListPods():
                held = (c.ids for pod in self.pods.values() if not pod.has_ended for c in pod.containers if not c.init)
                self.post(ev.PodsListed(frozenset(one for ids in held for one in ids)))
            case MakeSlice():
                self.post(self._make(command))
            case EndSlice():
                self._node(node_events.UnprepareClaim(command.uid))
                self.post(SliceEnded(command.uid))
                self.post(self.node_seen())
            case ReportPublication():
                self.publications.append(command.publication)
                self.post(PublicationReported())
            case Log():
                self.logs.append(command.text)

    def _make(self, command: MakeSlice) -> SliceMade:
        asked = command.requested_claim
        if not self.vgpud_is_there:
            return SliceMade(asked.uid, error="vgpud does not answer", absent=True)
        shares = (Share(g.uuid, g.min_milli, g.max_milli, g.mem_min_bytes, g.mem_max_bytes) for g in asked.granted)
        claim = Allocation(asked.uid, asked.namespace, asked.name, (), tuple(shares), "boot", asked.device_ids)
        made = self._node(node_events.PrepareClaim(claim, "batch", 0, 0, f"u-{asked.uid}", 1))
        if isinstance(made, Slice):
            self.post(self.node_seen())
            return SliceMade(asked.uid, made.name)
        return SliceMade(asked.uid, error=made.message if made else "no answer")

    def node_seen(self) -> NodeSeen:
        claims = [
            Known(
                made.origin.uid,
                made.origin.namespace,
                made.origin.name,
                made.name,
                made.origin.pods,
                _granted(made.shares),
                _granted(made.origin.granted),
                made.origin.device_ids,
                bool(self.node.containers_of(made.name)),
            )
            for made in self.node.slices.values()
            if isinstance(made.origin, Allocation)
        ]
        return NodeSeen(self.gpus, tuple(claims))

    def _node(self, event: node_events.Event) -> Slice | Denied | None:
        commands = machine.step(self.node, event, self.now_ns)
        invariants.check(self.node)
        answers = [command.result for command in commands if isinstance(command, node_events.Answer)]
        return answers[0] if answers else None

    # ---- kubelet ----

    def restart_kubelet(self) -> None:
        """It removes the plugin's socket; its checkpoint says what containers have."""
        self._socket = (self._socket[0] + 1, self._socket[1])
        self.is_registered = self.serving = False

    def admit(self, uid: str, *containers: Container, crash_after: int | None = None) -> Pod:
        """Allocates for all containers of a pod. crash_after: so many steps of the first call the plugin is killed."""
        pod = self.pods[uid] = Pod(uid, list(containers))
        reusable: set[str] = set()
        for container in sorted(containers, key=lambda one: not one.init):
            ids = self._choose(container.tenths, reusable)
            if ids is None:
                pod.error, pod.has_ended = "requested number of devices unavailable", True
                return pod
            answer = self._allocate(ids, crash_after)
            if answer.error:
                pod.error, pod.has_ended = answer.error, True
                return pod
            container.ids, container.slice_name = ids, answer.slice_name
            reusable = reusable | ids if container.init else reusable - ids
        return pod

    def _choose(self, count: int, reusable: set[str]) -> frozenset[str] | None:
        kept = set(sorted(reusable)[:count])
        if len(kept) == count:
            return frozenset(kept)
        taken = {one for pod in self.pods.values() if not pod.has_ended for c in pod.containers for one in c.ids}
        free = {one for one, healthy in self.device_health.items() if healthy} - taken
        if not self.is_registered or len(free) + len(kept) < count:
            return None
        return frozenset(choose_preferred_ids(free | kept, kept, count))

    def _allocate(self, ids: frozenset[str], crash_after: int | None) -> ev.Allocated:
        call = next(self._numbers)
        uid = f"{call:08d}-2222-3333-4444-555555555555"
        self.post(ev.AllocateCalled(call, uid, tuple(sorted(ids))))
        if crash_after is not None:
            self.run(crash_after)
            if call not in self.answers:
                self.start()
                return ev.Allocated(call, error="transport is closing")
        self.run()
        for _ in range(15):
            if call in self.answers:
                break
            self.seconds(1)
        return self.answers[call]

    def run_container(self, pod: Pod, name: str) -> str:
        """Creates a container, as at its first start and at each restart; returns why not."""
        container = next(one for one in pod.containers if one.name == name)
        number = f"{next(self._numbers):064x}"
        event = node_events.ContainerCreated(
            number,
            None,
            container.slice_name,
            origins.Container(f"c-{number[:12]}"),
            0,
            50,
            5,
            f"u-{number}",
            1,
            pod=pod.uid,
        )
        made = self._node(event)
        if not isinstance(made, Slice):
            return made.message if made else "no answer"
        self._node(node_events.ContainerStarted(number, 60, 6, f"/kubepods/{number}"))
        pod.running[name] = number
        self.post(self.node_seen())
        self.run()
        return ""

    def end_container(self, pod: Pod, name: str) -> None:
        self._node(node_events.ContainerEnded(pod.running.pop(name), "ended"))
        self.post(self.node_seen())
        self.run()

    def end_pod(self, pod: Pod) -> None:
        for name in list(pod.running):
            self.end_container(pod, name)
        pod.has_ended = True

    # ---- what must hold ----

    def guarantee(self, pod: Pod, name: str) -> int:
        """Milli-GPU that a running container of the pod has."""
        container = next(one for one in pod.containers if one.name == name)
        made = self.node.slices[container.slice_name]
        assert isinstance(made.origin, Allocation) and made.origin.pods == (pod.uid,)
        assert pod.running[name] in {one.container_id for one in self.node.containers_of(made.name)}
        return sum(share.min_milli for share in made.shares)

    def check(self) -> None:
        """Each running container has its own tenths, and no allocation beside those of pods has a guarantee."""
        for pod in self.pods.values():
            for name in pod.running:
                container = next(one for one in pod.containers if one.name == name)
                assert self.guarantee(pod, name) == 100 * container.tenths


def _granted(shares: Iterable[Share]) -> tuple[Granted, ...]:
    return tuple(Granted(s.device_uuid, s.min_milli, s.max_milli, s.mem_min_bytes, s.mem_max_bytes) for s in shares)


def pod(world: World, uid: str, tenths: int, **options: int) -> Pod:
    """A pod with one container."""
    return world.admit(uid, Container("main", tenths), **options)


def init_and_main(world: World, uid: str, init: Sequence[int], main: Sequence[int]) -> Pod:
    first = [Container(f"init-{n}", tenths, init=True) for n, tenths in enumerate(init)]
    return world.admit(uid, *first, *[Container(f"main-{n}", tenths) for n, tenths in enumerate(main)])
