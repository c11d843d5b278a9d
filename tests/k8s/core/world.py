"""A node without IO: the driver's core, a vgpud that keeps slices, an API server, and a kubelet; any part may crash.

Commands wait in a queue until they are carried out, one at a time, so that a crash can come between any two of them. A
driver that crashes loses its state, its commands, and the calls that it has not answered; kubelet then calls again.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import Policy, State, step
from vgpud.k8s.core.model import Asked, Gpu, Granted, Known, Ref
from vgpud.k8s.core.publication import Publication
from vgpud.k8s.core.published import generate_name

MIB = 1 << 20
SECOND_NS = 1_000_000_000
NODE = "n1"


class World:
    """gpus: of the node. claims: of the API server, by (namespace, name). slices: of vgpud, by the claim's uid."""

    def __init__(self, gpus: int = 1, server: tuple[int, int] = (1, 36)) -> None:
        self.server = server
        self.policy = Policy()
        self.gpus = tuple(Gpu(f"GPU-{n}", n, "H200", 140_400 * MIB, 2 * MIB) for n in range(gpus))
        self.claims: dict[tuple[str, str], dict[str, Any]] = {}
        self.slices: dict[str, ev.MakeSlice] = {}
        self.pool: dict[str, dict[str, Any]] = {}
        self.answers: dict[int, ev.Answer] = {}
        self.status: list[ev.WriteStatus] = []
        self.resized_shares: dict[str, tuple[Granted, ...]] = {}  # by `vgpu slice set`, by the claim's uid
        self.logs: list[str] = []
        self.reports: list[ev.Report] = []
        self.health: tuple[tuple[str, bool, str], ...] = ()
        self.publications: list[Publication] = []  # that vgpud was told
        self.made_slices = 0  # slices in all: one that is found again does not count
        self.writes = 0  # of ResourceSlices
        self.attempts = 0  # to write the pool
        self.watch_is_alive = True  # else what is written is not shown
        self.api_is_there = self.vgpud_is_there = True
        self.now_ns = 0
        self._calls = 0
        self.start()

    # ---- the driver ----

    def start(self) -> None:
        """A driver without a past, which kubelet registers."""
        self.state = State(NODE, self.policy)
        self.commands: deque[ev.Command] = deque()
        self.post(ev.Leads())
        self.post(ev.Registered())
        self.post(self.node_seen())
        self.post(self.pool_seen(is_from_list=True))

    def post(self, event: ev.Event) -> None:
        self.commands.extend(step(self.state, event, self.now_ns))

    def node_seen(self) -> ev.NodeSeen:
        claims = [
            Known(
                uid,
                one.namespace,
                one.name,
                f"k-{uid}",
                one.pods,
                self.granted(one),
                one.granted,
                pod_names=one.pod_names,
            )
            for uid, one in ((uid, made.requested_claim) for uid, made in self.slices.items())
        ]
        return ev.NodeSeen(self.gpus, tuple(claims))

    def granted(self, claim: Asked) -> tuple[Granted, ...]:
        return self.resized_shares.get(claim.uid, claim.granted)

    def pool_seen(self, is_from_list: bool = False) -> ev.PoolSeen:
        return ev.PoolSeen(tuple(self.pool.values()), is_from_list, self.server if is_from_list else None)

    def run(self, steps: int = 1000) -> bool:
        """Carries out commands; returns whether all are done."""
        while self.commands and steps > 0:
            self.carry_out(self.commands.popleft())
            steps -= 1
        return not self.commands

    def tick(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND_NS)
        self.post(ev.Tick())

    def carry_out(self, command: ev.Command) -> None:
        match command:
            case ev.Answer():
                self.answers[command.call] = command
            case ev.ReadClaim():
                error = "" if self.api_is_there else "the server is not there"
                found = None if error else self.claims.get((command.ref.namespace, command.ref.name))
                self.post(ev.ClaimRead(command.ref.uid, found, error))
            case ev.MakeSlice():
                self.post(self._make(command))
            case ev.EndSlice():
                self.post(self._end(command.uid))
            case ev.Publish():
                self._publish(command)
            case ev.WriteStatus():
                self.post(self._write_status(command))
            case ev.ReportPublication():
                self.post(self._keep_publication(command))
            case ev.Health():
                self.health = command.devices
            case ev.Report():
                self.reports.append(command)
            case ev.Log():
                self.logs.append(command.text)

    def _keep_publication(self, command: ev.ReportPublication) -> ev.PublicationReported:
        if not self.vgpud_is_there:
            return ev.PublicationReported("vgpud does not answer")
        self.publications.append(command.publication)
        return ev.PublicationReported()

    def _write_status(self, command: ev.WriteStatus) -> ev.StatusWritten:
        claim = self.claims.get((command.ref.namespace, command.ref.name)) if self.api_is_there else None
        if claim is None:
            return ev.StatusWritten(command.ref.uid, "the server is not there")
        self.status.append(command)
        claim["status"]["devices"] = [dict(one) for one in command.devices]
        return ev.StatusWritten(command.ref.uid)

    def _make(self, command: ev.MakeSlice) -> ev.SliceMade:
        asked = command.requested_claim
        if not self.vgpud_is_there:
            return ev.SliceMade(asked.uid, error="vgpud does not answer")
        for one in asked.granted:
            others = [g for uid, made in self.slices.items() if uid != asked.uid for g in made.requested_claim.granted]
            if sum(g.min_milli for g in others if g.uuid == one.uuid) + one.min_milli > 1000:
                return ev.SliceMade(asked.uid, error=f"device {one.uuid} is full", full=True)
        old = self.slices.get(asked.uid)
        if old and set(old.requested_claim.granted) != set(asked.granted):
            return ev.SliceMade(asked.uid, error="it was prepared here with other devices or amounts")
        self.made_slices += old is None
        self.slices[asked.uid] = command
        return ev.SliceMade(asked.uid, f"k-{asked.uid}", self.granted(asked))

    def _end(self, uid: str) -> ev.SliceEnded:
        if not self.vgpud_is_there:
            return ev.SliceEnded(uid, error="vgpud does not answer")
        self.slices.pop(uid, None)
        return ev.SliceEnded(uid)

    def _publish(self, command: ev.Publish) -> None:
        self.attempts += 1
        if not self.api_is_there:
            self.post(ev.Published(error="the server is not there"))
            return
        written = []
        for write in command.changes.writes:
            name = write.name or f"{generate_name(write.index, NODE)}{self.writes:05d}"
            self.pool[name] = {"metadata": {"name": name}, "spec": write.spec}
            written.append((name, write.spec["pool"]["generation"]))
            self.writes += 1
        for name in command.changes.deletions:
            self.pool.pop(name, None)
        self.post(ev.Published(written_generations=tuple(written)))
        if self.watch_is_alive:
            self.post(self.pool_seen())

    # ---- kubelet and the scheduler ----

    def add(self, claim: dict[str, Any]) -> Ref:
        metadata = claim["metadata"]
        self.claims[metadata["namespace"], metadata["name"]] = claim
        return Ref(metadata["uid"], metadata["namespace"], metadata["name"])

    def remove(self, ref: Ref) -> None:
        del self.claims[ref.namespace, ref.name]

    def call(self, ref: Ref, ending: bool = False) -> int:
        self._calls += 1
        self.post(ev.Called(self._calls, ref, ending))
        return self._calls

    def prepare(self, ref: Ref) -> ev.Answer:
        number = self.call(ref)
        self.run()
        return self.answers[number]

    def unprepare(self, ref: Ref) -> ev.Answer:
        number = self.call(ref, ending=True)
        self.run()
        return self.answers[number]
