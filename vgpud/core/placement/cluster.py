"""What is free on the nodes, and where a job goes: all members or none.

Rules rank (base.py), shapes know where an ask fits (shape.py), rankings remember both until a node changes
(ranking.py), so that a decision costs what has changed and not how many nodes there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from vgpud.core.colocate.pairs import Pairs
from vgpud.core.jobs.model import NEVER_NS, Ask, Job, JobSpec, Node, Place, Placement, Resident
from vgpud.core.model import SiteLimits
from vgpud.core.placement import shortage, switches, turns, why
from vgpud.core.placement.base import Direct, Rule, Turns, Vacancy
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.choose import PACK, choose
from vgpud.core.placement.colocate import shared
from vgpud.core.placement.counts import Counts
from vgpud.core.placement.fgd import Fgd, Mix
from vgpud.core.placement.job_mix import JobMix
from vgpud.core.placement.model_demand import sum_model_demand
from vgpud.core.placement.ranking import Changes, Ranking
from vgpud.core.placement.registry import make
from vgpud.core.placement.shape import Devices, Shape, resident
from vgpud.core.placement.switches import place_one_per_node
from vgpud.core.placement.vacancy import MemberVacancy
from vgpud.core.units import MILLI_PER_DEVICE

#: shapes that are remembered; the least recently used goes first
SHAPES_MAX = 512


class Cluster:
    """Implements base.ClusterCapacity. The cluster owns the nodes from now on: all of them are free and offered until
    a call says otherwise."""

    def __init__(
        self, nodes: Sequence[Node], policy: SiteLimits | None = None, rule: Rule | None = None, mix: Mix = ()
    ) -> None:
        """`rule`: for jobs of queues that rules() does not name; `mix`: what `fgd` measures fragmentation by, none: it
        learns that from the jobs that are submitted."""
        self._policy = policy or SiteLimits()
        self._rule: Rule = rule or BestFit()
        self._known_mix = mix
        self._job_mix = JobMix()
        self._pairs = Pairs()
        self._made: dict[tuple[str, bool], Rule] = {}  # for these nodes
        self._rules: dict[str, Rule] = {}
        self._rule_names: dict[str, tuple[str, bool]] = {}
        self._rankings: dict[tuple[int, Ask], Ranking] = {}
        self._counts: dict[tuple[int, Ask], Counts] = {}
        self._why: dict[tuple[int, Ask, int], str] = {}
        self._never: dict[tuple[Ask, int], str] = {}  # why such jobs never fit these nodes
        self._has_devices: dict[tuple[Ask, int], bool] = {}  # what has_devices() has found
        self._why_end = 0  # of the changes that these sentences know
        self._direct: dict[str, tuple[Direct, Turns]] = {}
        self._by_name: dict[str, tuple[Node, dict[str, int]]] = {}
        self._set_nodes(list(nodes), 0)

    def _set_nodes(self, nodes: list[Node], version: int) -> None:
        self.nodes = nodes
        self._changes = Changes(len(nodes), version)
        classes: dict[object, int] = {}
        self._kinds: list[Node] = []  # the first node of each kind
        for index, node in enumerate(nodes):
            node.index, node.version = index, version
            makes = tuple((d.memory_bytes, d.granule_bytes, d.context_bytes) for d in node.devices)
            node.kind = classes.setdefault(makes, len(classes))
            if node.kind == len(self._kinds):
                self._kinds.append(node)
            node.free_milli = [MILLI_PER_DEVICE] * len(node.devices)
            node.free_bytes = [device.memory_bytes for device in node.devices]
            node.residents = [()] * len(node.devices)
            node.turns, node.host_sizes, node.swapped_bytes = [], [], 0
            node.free_cpu_milli, node.free_ram_bytes = node.cpu_milli, node.ram_bytes
            node.offered = node.offered or [True] * len(node.devices)
            self._by_name[node.name] = node, {device.uuid: i for i, device in enumerate(node.devices)}
        self._total_milli = MILLI_PER_DEVICE * sum(sum(node.offered) for node in self.nodes)
        self._free_milli = self._total_milli

    def node(self, name: str) -> Node:
        """The node of that name. Read only."""
        return self._by_name[name][0]

    # ---- what is free ----

    def total_milli(self) -> int:
        """Capacity of all offered devices."""
        return self._total_milli

    def free_milli(self) -> int:
        """Free capacity of offered devices."""
        return self._free_milli

    def take(self, placement: Placement) -> None:
        """Takes a placement. Nothing is refused: it may be that of a running job found after a restart, on a device
        that has become smaller or is gone."""
        self._add(placement, -1)
        self._move(placement, 1)
        self._record_changes(placement)

    def release(self, placement: Placement) -> None:
        """Gives back what take() took."""
        self._add(placement, 1)
        self._move(placement, -1)
        self._record_changes(placement)

    def fits(self, placement: Placement) -> bool:
        """Whether exactly this placement is free, e.g. for a suspended job to resume where it was."""
        self._add(placement, -1)
        ok = all(self._sound(place) for place in placement)
        self._add(placement, 1)
        return ok

    def suits(self, job: Job, placement: Placement) -> bool:
        """As fits(), and its rule lets the job share the devices with their residents."""
        sharing = self._rule_of(job.spec).sharing
        if sharing is None or not self.fits(placement):
            return sharing is None and self.fits(placement)
        for place in placement:
            node, devices = self._by_name[place.node]
            for share in place.shares:
                who = resident(place.utilisation_milli, place.kind, share.max_milli)
                if not sharing.welcome(who, node.residents[devices[share.device_uuid]]):
                    return False
        return True

    def ask_vacancy(self, spec: JobSpec, placement: Placement) -> Vacancy | None:
        """For the question whether such a job would fit if others left: anywhere, or, with a placement, just there.
        None: only place() can tell, since its rule looks at residents, or members differ in what they leave others."""
        rule = self._rule_of(spec)
        if rule.sharing is not None:
            return None
        if placement:
            return Vacancy(self._add, lambda: self.fits(placement), {place.node for place in placement})
        shape = self._ranking(rule, spec.ask).shape
        if shape.denial is not None or (spec.members > 1 and not shape.is_countable):
            return None
        counts = self._count(rule, spec.ask, shape)
        return MemberVacancy(self._add, self._find_node, counts, shape, self._kinds, spec)

    def _find_node(self, name: str) -> Node | None:
        return self._by_name[name][0] if name in self._by_name else None

    def offers(self, placement: Placement) -> bool:
        """Whether a job that leaves it frees capacity for others: one of its devices is offered, or it has none."""
        has_devices = False
        for place in placement:
            for share in place.shares:
                if self._offers(place.node, share.device_uuid):
                    return True
                has_devices = True
        return not has_devices

    def has_devices(self, job: Job, placement: Placement) -> bool:
        """Whether what is offered would do for the job if nothing else ran: anywhere, or, with a placement, just
        there. Looks at the nodes once for a shape until others are offered."""
        if placement:
            return all(self._offers(place.node, share.device_uuid) for place in placement for share in place.shares)
        key = job.spec.ask, _members(job.spec)
        if key not in self._has_devices:
            if len(self._has_devices) >= SHAPES_MAX:
                del self._has_devices[next(iter(self._has_devices))]
            self._has_devices[key] = shortage.fits_offered(job.spec, self.nodes, self._policy)
        return self._has_devices[key]

    def _offers(self, name: str, device_uuid: str) -> bool:
        node, devices = self._by_name.get(name, (None, {}))
        return node is not None and device_uuid in devices and node.offered[devices[device_uuid]]

    def _sound(self, place: Place) -> bool:
        if place.node not in self._by_name:
            return False
        node, devices = self._by_name[place.node]
        if node.free_cpu_milli < 0 or node.free_ram_bytes < 0:
            return False
        if node.swapped_bytes > node.swap_bytes and (place.in_turn or place.host_sizes):
            return False
        at = [devices.get(share.device_uuid, -1) for share in place.shares]
        return all(i >= 0 and node.offered[i] and node.free_milli[i] >= 0 and node.free_bytes[i] >= 0 for i in at)

    def _record_changes(self, placement: Placement) -> None:
        for place in placement:
            if place.node in self._by_name:
                self._changes.add(self._by_name[place.node][0])

    def _add(self, placement: Placement, sign: int) -> None:
        for place in placement:
            known = self._by_name.get(place.node)
            if known is None:
                continue
            node, devices = known
            for share in place.shares:
                i = devices.get(share.device_uuid)
                if i is None:
                    continue
                if place.in_turn:
                    turns.change(node, i, share.mem_min_bytes, sign)
                self._add_to(node, i, sign * share.min_milli, 0 if place.in_turn else sign * share.mem_min_bytes)
            for uuid, size_bytes in place.host_sizes:
                if uuid in devices:
                    turns.change(node, devices[uuid], size_bytes, sign, is_on_device=False)
            node.free_cpu_milli += sign * place.cpu_milli
            node.free_ram_bytes += sign * place.ram_bytes

    def _move(self, placement: Placement, sign: int) -> None:
        """Adds (1) or removes (-1) residents. A paused job is no resident, only its memory counts."""
        for place in placement:
            if place.node not in self._by_name or place.utilisation_milli < 0:
                continue
            node, devices = self._by_name[place.node]
            for share in place.shares:
                i = devices.get(share.device_uuid)
                if i is not None:
                    move(node, i, resident(place.utilisation_milli, place.kind, share.max_milli), sign)

    def _add_to(self, node: Node, device: int, milli: int, size_bytes: int) -> None:
        before = node.free_milli[device]
        node.free_milli[device] = before + milli
        node.free_bytes[device] += size_bytes
        if node.offered[device]:
            self._free_milli += max(before + milli, 0) - max(before, 0)

    def change(
        self,
        name: str,
        direct: Direct,
        offered_uuids: tuple[str, ...],
        in_turn: Turns = (),
        swap_bytes: int = NEVER_NS,
    ) -> None:
        """What slices that are no jobs have reserved on a node, and the only devices on which jobs may be placed.

        As in events.RoomChanged; all of it replaces what was set before. Running jobs stay where they are.
        """
        node, devices = self._by_name[name]
        wanted = [device.uuid in offered_uuids for device in node.devices]
        before = self._direct.get(name, ((), ()))
        if wanted == node.offered and (direct, in_turn) == before and swap_bytes == node.swap_bytes:
            return
        for sign, (reserved, rotating) in ((1, before), (-1, (direct, in_turn))):
            for uuid, size_bytes, is_on_device in rotating:
                if uuid in devices:
                    turns.change(node, devices[uuid], size_bytes, sign, is_on_device=is_on_device)
            for uuid, milli, size_bytes in reserved:
                if uuid in devices:
                    self._add_to(node, devices[uuid], sign * milli, sign * size_bytes)
                    if milli:
                        move(node, devices[uuid], (milli, ""), -sign)
        self._direct[name] = direct, in_turn
        if swap_bytes != node.swap_bytes:
            node.swap_bytes = swap_bytes
            self._never.clear()
        for i, now in enumerate(wanted):
            turned = now - node.offered[i]
            self._total_milli += turned * MILLI_PER_DEVICE
            self._free_milli += turned * max(node.free_milli[i], 0)
        node.offered = wanted
        self._has_devices.clear()
        self._changes.add(node)

    def replace_nodes(self, nodes: Sequence[Node]) -> list[str]:
        """As in events.NodesChanged; all of it is free then. Returns the names of the nodes that there were."""
        before = list(self._by_name)
        memos = self._rankings, self._counts, self._why, self._never, self._has_devices
        for forgotten in (self._by_name, self._direct, *memos):
            forgotten.clear()
        fresh = [replace(node, free_milli=[], free_bytes=[], offered=[], residents=[]) for node in nodes]
        self._set_nodes(fresh, self._changes.clock + 1)  # a version new to all nodes: rules remember by version
        self._made.clear()
        self.rules(self._rule_names)
        return before

    def rules(self, by_queue: dict[str, tuple[str, bool]]) -> None:
        """The name of the placement rule of each queue's jobs, and whether they are spread (registry.make)."""
        self._rule_names = by_queue
        for name, spread in by_queue.values():
            if (name, spread) not in self._made:
                self._made[name, spread] = make(name, spread, self._mix, self._pairs, self.nodes)
        self._rules = {queue: self._made[named] for queue, named in by_queue.items()}

    @property
    def _mix(self) -> Mix:
        return self._known_mix or self._job_mix.mix

    def count_ask(self, ask: Ask) -> None:
        """A job asks for this: one more for the mix by which `fgd` measures fragmentation."""
        if self._known_mix or not self._job_mix.add(ask):
            return
        changed_rules = {id(rule): rule for rule in self._made.values() if isinstance(rule, Fgd)}
        for rule in changed_rules.values():
            rule.set_mix(self._mix, sum_model_demand(self._mix, self.nodes))
        for key in [key for key in self._rankings if key[0] in changed_rules]:
            del self._rankings[key]
            self._counts.pop(key, None)

    def _rule_of(self, spec: JobSpec) -> Rule:
        return self._rules.get(spec.queue, self._rule)

    # ---- sharing a device ----

    def shared(self, spec: JobSpec) -> JobSpec:
        """The spec as its queue's rule places it: some rules guarantee less, so that other jobs fit beside it."""
        sharing = self._rule_of(spec).sharing
        return spec if sharing is None else shared(spec, sharing.jobs_per_device)

    def annotate_placement(self, job: Job, placement: Placement) -> Placement:
        """The same with what is known of the job, where its rule uses that."""
        if self._rule_of(job.spec).sharing is None:
            return placement
        known_milli = max(0, job.spec.ask.utilisation_milli)
        return tuple(replace(place, utilisation_milli=known_milli, kind=job.spec.ask.kind) for place in placement)

    def lose(self, class_name: str, other: str) -> None:
        """Jobs of these similarity classes slow each other down: rules that look at residents do not place them
        together again."""
        if not self._pairs.add(class_name, other):
            return
        sharing = {id(rule) for rule in (self._rule, *self._made.values()) if rule.sharing is not None}
        for key in [key for key in self._rankings if key[0] in sharing]:
            del self._rankings[key]  # what they remember of nodes that have not changed is true no longer
        self._why.clear()

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All of these pairs, oldest first."""
        return self._pairs.all()

    # ---- where a job goes ----

    def place(self, job: Job) -> Placement | None:
        """A placement for all members, not taken yet, or None."""
        spec = job.spec
        rule = self._rule_of(spec)
        ranking = self._ranking(rule, spec.ask)
        shape = ranking.shape
        if shape.denial is not None:
            return None
        if spec.members == 1:
            best = ranking.find_best()
            return None if best is None else self.annotate_placement(job, (shape.place(self.nodes[best[1]], best[3]),))
        if spec.one_per_node:
            found = place_one_per_node(ranking.all(), self.nodes, spec.members)
        elif rule.consolidates(spec):
            found = self._place_on_fewest_nodes(ranking, self._count(rule, spec.ask, shape), spec.members)
        else:
            found = self._anywhere(ranking, spec.members)
        if found is None:
            return None
        return self.annotate_placement(job, tuple(shape.place(self.nodes[at], devices) for at, devices in found))

    def place_outside(self, job: Job, closed: Collection[str]) -> Placement | None:
        """As place(), with these devices not offered for the moment."""
        before = [(node, node.offered) for node in self.nodes if any(d.uuid in closed for d in node.devices)]
        try:
            for node, offered in before:
                devices = zip(node.devices, offered, strict=True)
                node.offered = [is_offered and device.uuid not in closed for device, is_offered in devices]
                self._changes.add(node)
            return self.place(job)
        finally:
            for node, offered in before:
                node.offered = offered
                self._changes.add(node)

    def _anywhere(self, ranking: Ranking, members: int) -> list[tuple[int, Devices]] | None:
        """Each member where the rule ranks it best, given the members before it."""
        with Trial(self.nodes, ranking, self._changes) as trial:
            for _ in range(members):
                best = ranking.find_best()
                if best is None:
                    return None
                trial.put(best[1], best[3])
            return trial.put_so_far

    def _place_on_fewest_nodes(
        self, ranking: Ranking, counts: Counts, members: int
    ) -> list[tuple[int, Devices]] | None:
        """On as few nodes as possible: the one with just enough free for the rest, else the one with most."""
        plan = counts.fewest(members)
        if plan is not None and len(plan) > 1:
            plan = self._below_one_switch(counts, members, {index for index, _ in plan}) or plan
        if plan is None:
            return None
        with Trial(self.nodes, ranking, self._changes) as trial:
            for index, count in plan:
                for _ in range(count):
                    devices = choose(ranking.shape, self.nodes[index], PACK)
                    assert devices is not None, "a node holds as many members as were counted"
                    trial.put(index, devices)
            return trial.put_so_far

    def _below_one_switch(self, counts: Counts, members: int, node_indices: set[int]) -> list[tuple[int, int]] | None:
        """The same below the lowest switch that has enough free, the one with least of it; None: there is none."""
        for below in switches.levels(range(len(self.nodes)), self.nodes):
            if any(node_indices <= set(nodes) for nodes in below):
                return None  # they are as near as possible already
            enough = [nodes for nodes in below if counts.free(nodes) >= members]
            if enough:
                return counts.fewest(members, min(enough, key=counts.free))
        return None

    def _ranking(self, rule: Rule, ask: Ask) -> Ranking:
        key = (id(rule), ask)  # rules live as long as the cluster
        found = self._rankings.pop(key, None)
        if found is None:
            found = Ranking(Shape(ask, self._policy), rule, self.nodes, self._changes)
            if len(self._rankings) >= SHAPES_MAX:
                oldest = next(iter(self._rankings))
                del self._rankings[oldest]
                self._counts.pop(oldest, None)
        self._rankings[key] = found
        return found

    def _count(self, rule: Rule, ask: Ask, shape: Shape) -> Counts:
        key = (id(rule), ask)
        if key not in self._counts:
            self._counts[key] = Counts(shape, self.nodes, self._changes)
        return self._counts[key]

    # ---- why there is none ----

    def shortage(self, placement: Placement) -> str:
        """What of exactly this placement is not free: a clause for a sentence; "" when it fits."""
        if self.fits(placement):
            return ""
        return shortage.where(placement, {node.name: node for node in self.nodes})

    def never_fits_reason(self, job: Job) -> str:
        """Why it does not fit an empty cluster; "" when it does. Looks at the nodes once for a shape."""
        key = job.spec.ask, _members(job.spec)
        if key not in self._never:
            if len(self._never) >= SHAPES_MAX:
                del self._never[next(iter(self._never))]
            self._never[key] = shortage.never_fits_reason(job.spec, self.nodes, self._policy)
        return self._never[key]

    def why_here(self, job: Job, placement: Placement) -> str:
        """Why its placement was chosen: a clause; "" = there was no choice."""
        on = {place.node for place in placement}
        nodes = {name: self._by_name[name][0] for name in on}
        return why.why_here(job, placement, nodes, self._rule_of(job.spec))

    def why_not(self, job: Job) -> str:
        """One sentence: what is missing now. Looks at every node, once for a shape until something changes."""
        if self._why_end != self._changes.end:
            self._why_end = self._changes.end
            self._why.clear()
        rule = self._rule_of(job.spec)
        key = id(rule), job.spec.ask, _members(job.spec)
        if key not in self._why:
            self._why[key] = shortage.now(job.spec, self.nodes, self._policy, rule)
        return self._why[key]


def _members(spec: JobSpec) -> int:
    """How many, and whether each on another node: below 0."""
    return -spec.members if spec.one_per_node else spec.members


def move(node: Node, device: int, who: Resident, sign: int) -> None:
    """A job becomes a resident of a device (1) or leaves it (-1)."""
    there = node.residents[device]
    if sign > 0:
        node.residents[device] = (*there, who)
        return
    at = there.index(who)
    node.residents[device] = there[:at] + there[at + 1 :]


class Trial:
    """Members placed for the time being: on leaving, the nodes and their versions are as they were."""

    def __init__(self, nodes: Sequence[Node], ranking: Ranking, changes: Changes) -> None:
        self._nodes = nodes
        self._ranking = ranking
        self._changes = changes
        self._versions: dict[int, int] = {}
        self.put_so_far: list[tuple[int, Devices]] = []

    def __enter__(self) -> Trial:
        return self

    def put(self, index: int, devices: Devices) -> None:
        """Takes a member's capacity. Other rankings are not notified, so the version is one that no change will
        have."""
        node = self._nodes[index]
        self._versions.setdefault(index, node.version)
        self._change(node, devices, -1)
        self._changes.clock += 1
        node.version = self._changes.clock
        self._ranking.push(node)
        self.put_so_far.append((index, devices))

    def __exit__(self, *_: object) -> None:
        for index, devices in self.put_so_far:
            self._change(self._nodes[index], devices, 1)
        for index, version in self._versions.items():
            self._nodes[index].version = version
            self._ranking.push(self._nodes[index])

    def _change(self, node: Node, devices: Devices, sign: int) -> None:
        shape = self._ranking.shape
        shape.change(node, devices, sign)
        for who, device in zip(shape.residents, devices, strict=True):
            move(node, device, who, -sign)
