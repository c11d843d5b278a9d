"""What must hold after every step; check() raises AssertionError naming the promise that is broken."""

from __future__ import annotations

from vgpud.core.model import EVICTION, LATENCY, State
from vgpud.core.origins import Allocation, User
from vgpud.core.slices.admission import smallest_limit_bytes
from vgpud.core.slices.make import in_use
from vgpud.core.units import MILLI_PER_DEVICE


def check(state: State) -> None:
    """All promises of the core. Cheap enough for tests to call after each step."""
    _check_devices(state)
    _check_slices(state)
    _check_processes(state)
    _check_containers(state)
    _check_graces(state)


def _require(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(promise)


def _check_devices(state: State) -> None:
    for device in state.devices.values():
        milli, size = state.reserved(device.uuid)
        _require(0 <= milli <= MILLI_PER_DEVICE, f"minima on {device.uuid} add up to {milli} milli-GPU")
        link_milli = state.reserved_link_milli(device.uuid)
        _require(link_milli <= MILLI_PER_DEVICE, f"minima of the link of {device.uuid} add up to {link_milli}")
        _require(0 <= size <= device.memory_bytes, f"memory minima on {device.uuid} add up to {size} bytes")


def _check_slices(state: State) -> None:
    for name, made in state.slices.items():
        _require(made.name == name, f"slice {name} is filed under its name")
        uuids = [s.device_uuid for s in made.shares]
        _require(len(uuids) == len(set(uuids)), f"slice {name} has each device once")
        is_for_programs = isinstance(made.origin, User) and made.origin.ephemeral and not made.origin.cdi_device
        may_pend = is_for_programs and not made.suspended and name not in state.waiting
        _require(not made.pending or may_pend, f"pending slice {name} is for programs alone")
        may_move = not made.pending and made.suspended not in EVICTION
        _require(not made.residency or may_move, f"{name}: either its user or the daemon moves its memory")
        _require(bool(made.residency) or not made.asleep_wall_ns, f"{name}: a resident slice is awake")
        may_be_away = made.residency or made.suspended in EVICTION
        _require(bool(may_be_away) or not made.away_wall_ns, f"{name}: a resident slice is not on the host")
        instance = any(d.profile for uuid in uuids if (d := state.devices.get(uuid)))
        _require(len(uuids) < 2 or not instance, f"slice {name} has a MIG instance alone")
        for share in made.shares:
            _require(0 <= share.min_milli <= share.max_milli <= MILLI_PER_DEVICE, f"{name}: min <= max <= device")
            _require(share.max_milli > 0, f"{name}: every device has something")
            is_latency = made.spec.service_class == LATENCY
            _require(share.min_milli > 0 or not is_latency, f"{name}: a guarantee that is served first is there")
            _require(0 <= share.mem_min_bytes <= share.mem_max_bytes, f"{name}: mem min <= mem max")
            if name in state.waiting:
                continue
            device = state.devices[share.device_uuid]
            _require(share.mem_max_bytes <= device.memory_bytes, f"{name}: memory fits the device")
            least = smallest_limit_bytes(device.context_bytes, device.granule_bytes)
            _require(share.mem_max_bytes >= least, f"{name}: a context fits the limit")
            _require(share.mem_max_bytes % device.granule_bytes == 0, f"{name}: limit in granules")
    _require(state.waiting <= state.slices.keys(), "only slices wait")
    serials = [s.serial for s in state.slices.values()]
    _require(len(serials) == len(set(serials)), "serials are unique")
    _require(all(serial < state.next_serial for serial in serials), "serials are never given again")
    _require(len({s.uid for s in state.slices.values()}) == len(state.slices), "uids are unique")
    _require(len(state.slices) <= state.policy.slices_max, "slices are bounded")
    _require(len(state.requests) <= state.policy.requests_max, "remembered requests are bounded")


def _check_processes(state: State) -> None:
    counts: dict[str, int] = {}
    for process_id, process in state.processes.items():
        _require(process.process_id == process_id, f"process {process_id} is filed under its id")
        _require(process.slice_name in state.slices, f"process {process_id} has a slice")
        counts[process.slice_name] = counts.get(process.slice_name, 0) + (not process.disconnected_ns)
    limit = state.policy.processes_per_slice_max
    _require(all(count <= limit for count in counts.values()), "processes per slice are bounded")


def _check_containers(state: State) -> None:
    cgroups = [c.cgroup for c in state.containers.values() if c.cgroup]
    _require(len(cgroups) == len(set(cgroups)), "a cgroup belongs to one container")
    _require(len(state.containers) <= state.policy.containers_max, "containers are bounded")
    own = [c.slice_name for c in state.containers.values() if c.own_slice]
    _require(len(own) == len(set(own)), "a slice was made for one container")
    for container_id, container in state.containers.items():
        _require(container.container_id == container_id, f"container {container_id} is filed under its id")
        _require(container.slice_name in state.slices, f"container {container_id} has a slice")
        _require(
            container.started or not container.cgroup, f"container {container_id} has a cgroup once it has started"
        )
    _require(state.restarts.keys() <= state.containers.keys(), "only containers are started again")
    for process in state.processes.values():
        made = state.slices[process.slice_name]
        _require(process.holder or not made.pending, f"process {process.process_id} is in a slice with devices")
        if process.container_id:
            inside = state.containers.get(process.container_id)
            same = inside is not None and inside.slice_name == process.slice_name
            _require(same, f"process {process.process_id} is in its container's slice")
    for made in state.slices.values():
        origin = made.origin
        if isinstance(origin, Allocation) and origin.is_lent:
            guaranteed = any(share.min_milli or share.mem_min_bytes for share in made.shares)
            _require(not guaranteed, f"{made.name}: what is lent is another slice's")
        if isinstance(origin, User):
            _require(not origin.cdi_used or origin.cdi_device, f"{made.name}: only a CDI device is used up")
            _require(not origin.cdi_device or origin.ephemeral, f"{made.name}: a CDI device's ends with its container")
            is_shared = len(state.containers_of(made.name)) > 1
            _require(not origin.cdi_device or not is_shared, f"{made.name}: is for one container")


def _check_graces(state: State) -> None:
    for name in state.grace_ns:
        is_ephemeral = name in state.slices and state.slices[name].origin.ephemeral
        _require(is_ephemeral, f"grace of {name} is for an ephemeral slice")
        _require(not in_use(state, name), f"{name} waits for its first user while it has one")
    for made in state.slices.values():
        ends = not made.origin.ephemeral or in_use(state, made.name) or made.name in state.grace_ns
        _require(ends, f"ephemeral slice {made.name} will end some time")
