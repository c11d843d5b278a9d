"""What is missing: why a job could never be placed, and why it cannot now, in one sentence with numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from vgpud.core.jobs.model import Ask, JobSpec, Node, Place, Placement
from vgpud.core.model import Denied, SiteLimits, State
from vgpud.core.placement import turns
from vgpud.core.placement.base import Rule, Sharing
from vgpud.core.placement.choose import choose, count_fitting_members
from vgpud.core.placement.memory import with_memory
from vgpud.core.placement.shape import NEVER_BYTES, Shape
from vgpud.core.slices import admission
from vgpud.core.slices.swap_rules import describe_host_need
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus


def never_fits_reason(spec: JobSpec, nodes: Sequence[Node], policy: SiteLimits) -> str:
    """Why it does not fit these nodes, empty and with all devices offered but Kubernetes'; "" when it does."""
    shape = Shape(spec.ask, policy)
    if shape.denial is not None:
        return shape.denial.message
    exact = bool(shape.named_uuids or policy.kubernetes_devices)
    holds = _hold(spec, shape, (_empty(node, policy) for node in nodes), exact=exact)
    if holds >= spec.members:
        return ""
    if holds:
        kept = " beside Kubernetes' devices" if policy.kubernetes_devices else ""
        asked = f"{spec.members} members of {describe(spec.ask)} each{_describe_one_per_node(spec)}"
        where = "this node holds" if len(nodes) == 1 else "the nodes together hold"
        return f"{asked}: {where} {holds}{kept} when nothing else runs, ask for no more"
    return _never_one(spec.ask, nodes, policy)


def fits_offered(spec: JobSpec, nodes: Sequence[Node], policy: SiteLimits) -> bool:
    """Whether it fits these nodes if they were empty, on the devices that are offered now."""
    shape = Shape(spec.ask, policy)
    if shape.denial is not None:
        return False
    empty = (replace(_empty(node, policy), offered=node.offered) for node in nodes)
    return _hold(spec, shape, empty, exact=bool(shape.named_uuids)) >= spec.members


def _hold(spec: JobSpec, shape: Shape, empty: Iterable[Node], *, exact: bool) -> int:
    """How many members these nodes hold, looked at until they are enough. `exact`: it matters which devices these
    are."""
    holds = 0
    seen: dict[object, int] = {}
    for node in empty:
        devices = node.devices if exact else ()
        key = (node.kind, node.cpu_milli, node.ram_bytes, node.gpu_model, tuple(node.offered), devices)
        if key not in seen:
            seen[key] = count_fitting_members(shape, node, 1 if spec.one_per_node else spec.members)
        holds += seen[key]
        if holds >= spec.members:
            break
    return holds


def _empty(node: Node, policy: SiteLimits) -> Node:
    count = len(node.devices)
    return Node(
        node.name,
        node.devices,
        node.cpu_milli,
        node.ram_bytes,
        node.gpu_model,
        node.groups,
        kind=node.kind,
        free_milli=[MILLI_PER_DEVICE] * count,
        free_bytes=[device.memory_bytes for device in node.devices],
        free_cpu_milli=node.cpu_milli,
        free_ram_bytes=node.ram_bytes,
        offered=[not policy.of_kubernetes(device) for device in node.devices],
        residents=[()] * count,
        swap_bytes=node.swap_bytes,
    )


def _never_one(ask: Ask, nodes: Sequence[Node], policy: SiteLimits) -> str:
    """The refusal of the best node: of those with the right model the one with most devices."""
    if not nodes:
        return "this cluster has no node"
    if ask.gpu_models:
        have = sorted({node.gpu_model for node in nodes})
        nodes = [node for node in nodes if node.gpu_model in ask.gpu_models]
        if not nodes:
            return f"no node has GPU model {' or '.join(ask.gpu_models)}: there are {', '.join(have)}"
    if ask.spec.device_uuids:
        named = set(ask.spec.device_uuids)
        nodes = [node for node in nodes if named.intersection(d.uuid for d in node.devices)] or nodes
    nearest = max(nodes, key=lambda node: (len(node.devices), -node.index))
    instance = next((name for name in ask.spec.device_uuids if name.startswith("MIG-")), "")
    if ask.spec.gpus_milli and (instance or not nearest.devices):
        why = f"{instance} is no device for the queue" if instance else "there is no GPU for the queue"
        return f"{why}: it places nothing on MIG instances, where `vgpu slice create --device N` makes slices"
    if ask.spec.gpus_milli:
        state = State(policy=policy, devices={device.uuid: device for device in nearest.devices})
        refusal = admission.place(ask.spec, state)
        if isinstance(refusal, Denied):
            return refusal.message
    most_cpu, most_ram = max(node.cpu_milli for node in nodes), max(node.ram_bytes for node in nodes)
    if ask.cpu_milli > most_cpu:
        return f"{format_gpus(ask.cpu_milli)} CPUs: the largest node has {format_gpus(most_cpu)}, ask for less"
    if ask.ram_bytes > most_ram:
        return f"{format_bytes(ask.ram_bytes)} of RAM: the largest node has {format_bytes(most_ram)}, ask for less"
    return f"no node has {describe(ask)} together, however empty: ask for less"


def _describe_one_per_node(spec: JobSpec) -> str:
    return ", each on another node" if spec.one_per_node else ""


def describe(ask: Ask) -> str:
    words = [f"{format_gpus(ask.spec.gpus_milli)} GPU"] if ask.spec.gpus_milli else []
    words += [f"{format_gpus(ask.cpu_milli)} CPU"] if ask.cpu_milli else []
    words += [f"{format_bytes(ask.ram_bytes)} RAM"] if ask.ram_bytes else []
    return " + ".join(words) or "nothing"


def now(spec: JobSpec, nodes: Sequence[Node], policy: SiteLimits, rule: Rule) -> str:
    """What is missing now; "" when all members fit."""
    for_ever = never_fits_reason(spec, nodes, policy)
    if for_ever:
        return for_ever
    shape, holds = Shape(spec.ask, policy), 0
    for node in nodes:
        holds += count_fitting_members(shape, node, 1 if spec.one_per_node else spec.members - holds)
        if holds == spec.members:
            return _unwelcome(shape, nodes, rule, rule.sharing) if rule.sharing is not None else ""
    if holds:
        text = f"there is free capacity for {holds} of {spec.members} members"
        return f"{text} of {describe(spec.ask)} each{_describe_one_per_node(spec)}"
    return _missing(shape, nodes)


def _unwelcome(shape: Shape, nodes: Sequence[Node], rule: Rule, sharing: Sharing) -> str:
    """Devices have free capacity, but cannot be shared with their residents; "" when one can."""
    if any(choose(shape, node, rule) is not None for node in nodes):
        return ""
    near = [(node, i) for node in nodes for i in (shape.fitting(node) or [[]])[0]]
    near.sort(key=lambda at: sum(milli for milli, _ in at[0].residents[at[1]]))
    for node, i in near:
        text = sharing.objection(shape.residents[0], node.residents[i])
        if text:
            return f"no device can be shared with this job: device {node.devices[i].index} of {node.name} {text}"
    return f"no devices can be shared with all of {describe(shape.ask)}"


def _missing(shape: Shape, nodes: Sequence[Node]) -> str:
    """The first thing that no node has for one member."""
    ask = shape.ask
    if shape.models:
        nodes = [node for node in nodes if node.gpu_model in shape.models]
    if shape.named_uuids:
        nodes = [node for node in nodes if shape.named_uuids.intersection(d.uuid for d in node.devices)]
    if shape.parts:
        withheld = sum(len(node.offered) - sum(node.offered) for node in nodes)
        fitting = [node for node in nodes if _devices_fit(shape, node)]
        if not fitting:
            text = _too_few(shape, nodes)
            return text + (f" ({_describe_withheld(withheld)})" if withheld else "")
        nodes = fitting
    on = " where the GPUs are free" if shape.parts else ""
    if all(node.free_cpu_milli < ask.cpu_milli for node in nodes):
        most = max(node.free_cpu_milli for node in nodes)
        return f"no node{on} has {format_gpus(ask.cpu_milli)} CPUs free: at most {format_gpus(max(most, 0))}"
    if all(node.free_ram_bytes < ask.ram_bytes for node in nodes):
        most = max(node.free_ram_bytes for node in nodes)
        return f"no node{on} has {format_bytes(ask.ram_bytes)} of RAM free: at most {format_bytes(max(most, 0))}"
    if shape.in_turn and (full := _find_full_host(shape, nodes)):
        return full
    return f"no node has {describe(ask)} free together"


def _find_full_host(shape: Shape, nodes: Sequence[Node]) -> str:
    """Devices have free memory, but no host could hold what is not resident: of the one that lacks least; "" = one
    can."""
    needs = [
        (turns.host_bytes(node, i, shape.sizes(node)[0][i]) - node.swap_bytes, node.index, node)
        for node in nodes
        for i in range(len(node.devices))
        if _device_fits(shape, node, 0, i)
    ]
    lacks, _, node = min(needs, key=lambda need: need[:2])
    return describe_host_need(lacks + node.swap_bytes, node.swap_bytes) if lacks > 0 else ""


def _describe_withheld(devices: int) -> str:
    return f"{devices} device{' is' if devices == 1 else 's are'} not offered: `vgpu gpu ls` says why"


def _fitting(shape: Shape, node: Node, part: int) -> int:
    """How many devices of a node fit a part."""
    return sum(_device_fits(shape, node, part, i) for i in range(len(node.devices)))


def _device_fits(shape: Shape, node: Node, part: int, i: int) -> bool:
    """Whether a part fits on this device of the node; of memory in turn, without a look at the host."""
    if shape.named_uuids and node.devices[i].uuid not in shape.named_uuids:
        return False
    size = shape.sizes(node)[part][i]
    has = turns.fits_device(node, i, size) if shape.in_turn else node.free_bytes[i] >= size
    return has and node.offered[i] and node.free_milli[i] >= shape.takes[part]


def _devices_fit(shape: Shape, node: Node) -> bool:
    return all(_fitting(shape, node, part) > part for part in range(len(shape.parts)))


def _too_few(shape: Shape, nodes: Sequence[Node]) -> str:
    """No node has the devices: how many has the best, or what is most free on one."""
    first = shape.parts[0]
    milli = shape.takes[0]
    if len(shape.parts) > 1:
        most = max(nodes, key=lambda node: (_fitting(shape, node, 0), -node.index))
        have = _fitting(shape, most, 0)
        if have:
            return (
                f"{len(shape.parts)} devices of one node are needed with {format_gpus(milli)} of each free:"
                f" {most.name} has the most: {have}"
            )
    free_devices = [
        (node.free_milli[i], node.free_bytes[i] + (turns.largest_bytes(node, i) if shape.in_turn else 0), node, i)
        for node in nodes
        for i, device in enumerate(node.devices)
        if node.offered[i] and (not shape.named_uuids or device.uuid in shape.named_uuids)
    ]
    if not free_devices:
        return "no device that it may use is offered"
    best = max(
        free_devices,
        key=lambda free_device: (
            free_device[0] >= milli,
            free_device[1] if free_device[0] >= milli else free_device[0],
            -free_device[2].index,
        ),
    )
    free_milli, free_bytes, node, i = best
    size = shape.sizes(node)[0][i]
    memory = first.compute_share(node.devices[i]).mem_min_bytes if size == NEVER_BYTES else size
    asked = with_memory(f"{format_gpus(milli)} GPU", node, i, memory)
    has = with_memory(f"{format_gpus(max(free_milli, 0))} GPU", node, i, max(free_bytes, 0))
    return f"no device has {asked} free: device {node.devices[i].index} of {node.name} has the most free: {has}"


def where(placement: Placement, nodes: Mapping[str, Node]) -> str:
    """The first thing of this placement that is not free."""
    for place in placement:
        node = nodes.get(place.node)
        if node is None:
            return f"node {place.node} is missing"
        at = {device.uuid: i for i, device in enumerate(node.devices)}
        for share in place.shares:
            i = at.get(share.device_uuid)
            if i is None:
                return f"device {share.device_uuid} of {node.name} is missing"
            name = f"device {node.devices[i].index} of {node.name}"
            if not node.offered[i]:
                return f"{name} is not offered"
            if node.free_milli[i] < share.min_milli:
                free = format_gpus(max(0, node.free_milli[i]))
                return f"{name} has {free} GPU free of {format_gpus(share.min_milli)} needed"
            free_bytes = node.free_bytes[i] + (turns.largest_bytes(node, i) if place.in_turn else 0)
            if free_bytes < share.mem_min_bytes and node.told_bytes is None:
                free = format_bytes(max(0, free_bytes))
                return f"{name} has {free} of memory free of {format_bytes(share.mem_min_bytes)} needed"
        if node.free_cpu_milli < place.cpu_milli:
            free = format_gpus(max(0, node.free_cpu_milli))
            return f"{node.name} has {free} CPUs free of {format_gpus(place.cpu_milli)} needed"
        if node.free_ram_bytes < place.ram_bytes:
            free = format_bytes(max(0, node.free_ram_bytes))
            return f"{node.name} has {free} of RAM free of {format_bytes(place.ram_bytes)} needed"
        if place.in_turn and (wanted := _sum_host_need(place, node, at)) > node.swap_bytes:
            return describe_host_need(wanted, node.swap_bytes)
    return "not all of its members fit together"


def _sum_host_need(place: Place, node: Node, at: Mapping[str, int]) -> int:
    """RAM of the host that all memory in turn would need with a member placed there: it is on one device."""
    needs = (turns.host_bytes(node, at[share.device_uuid], share.mem_min_bytes) for share in place.shares)
    return max(needs, default=0)
