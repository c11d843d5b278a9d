"""What it costs that the memory of a job is moved to the host and back: sentences for `vgpu explain`, also before
it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from vgpud.core.jobs.model import How, Job, JobState
from vgpud.core.model import Denied, Device, Slice, Spec, State
from vgpud.core.queue.reasons import duration
from vgpud.core.slices.admission import parts_of
from vgpud.core.slices.rotation import Cost
from vgpud.core.slices.swap_rules import with_site_default
from vgpud.core.units import format_bytes

#: devices of a waiting job that are described
DEVICES_MAX = 4


class TurnCosts(Protocol):
    def cost_with(self, uuid: str, more_bytes: Sequence[int] = ()) -> Cost:
        """What the turns on a device cost, with further slices that claim so much."""
        ...

    def rate(self, slice_: Slice | None, uuid: str, claim_bytes: int) -> int:
        """Bytes per second of the moves of a slice that claims so much. None: of one that is not there yet."""
        ...


def explain_rotation(state: State, job: Job, turns: TurnCosts) -> Iterator[str]:
    """A sentence for each device where it is, or may be placed; of one that sleeps, what that costs."""
    spec = with_site_default(job.spec.ask.spec, state.policy)
    if not spec.mem_swap and not spec.idle_after_ns:
        return
    sizes = _find_sizes(state, job, spec)
    if spec.mem_swap:
        is_paused = job.state is JobState.SUSPENDED and job.suspended_how is How.PAUSE
        is_counted = job.state is JobState.RUNNING or is_paused
        costs = [(device, turns.cost_with(device.uuid, () if is_counted else (low,))) for device, low, _ in sizes]
        costs.sort(key=lambda one: (one[1].lost_ratio, one[0].index))
        who = "" if is_counted else "with a member of this job, " if job.spec.members > 1 else "with this job, "
        for device, cost in costs[:DEVICES_MAX]:
            yield who + _describe_turns(device, cost)
    if spec.idle_after_ns and sizes:
        device, _, most = max(sizes, key=lambda one: one[2])
        rate = turns.rate(_find_slice(state, job, device), device.uuid, most)
        yield _describe_sleep(spec.idle_after_ns, most, rate)


def _find_slice(state: State, job: Job, device: Device) -> Slice | None:
    """The one of its members that is there."""
    own = (slice_ for slice_ in state.slices.values() if slice_.origin.queue_job_id == job.job_id)
    return next((slice_ for slice_ in own if slice_.share(device.uuid)), None)


def _find_sizes(state: State, job: Job, spec: Spec) -> list[tuple[Device, int, int]]:
    """(device, smallest, largest memory in bytes) where it is, else where it may be placed."""
    shares = {share.device_uuid: share for place in job.placement for share in place.shares}
    if shares:
        there = [(state.devices[uuid], share) for uuid, share in shares.items() if uuid in state.devices]
        return [(device, share.mem_min_bytes, share.mem_max_bytes) for device, share in there]
    parts = parts_of(spec, state.policy)
    if isinstance(parts, Denied):
        return []
    found = []
    for device in state.devices.values():
        share = parts[0].compute_share(device)
        is_named = not spec.device_uuids or device.uuid in spec.device_uuids
        if is_named and not device.profile and not state.closed(device.uuid) and _holds(device, share.mem_max_bytes):
            found.append((device, share.mem_min_bytes, share.mem_max_bytes))
    return found


def _holds(device: Device, size_bytes: int) -> bool:
    return size_bytes <= device.memory_bytes


def _describe_turns(device: Device, cost: Cost) -> str:
    claims, capacity = format_bytes(cost.claims_bytes), format_bytes(cost.capacity_bytes)
    text = f"slices with mem-swap claim {claims} together of {capacity} that device {device.index} has for them:"
    if not cost.quantum_ns:
        return f"{text} they fit, none leaves"
    text += f" turns of up to {duration(cost.quantum_ns)}, {cost.lost_ratio * 100:.1f} % of the time lost in moves at"
    return f"{text} {format_bytes(cost.bytes_per_s)}/s, {format_bytes(cost.host_bytes)} of the host's RAM"


def _describe_sleep(idle_after_ns: int, size_bytes: int, bytes_per_s: int) -> str:
    seconds = size_bytes / bytes_per_s
    text = f"after {duration(idle_after_ns)} without work it sleeps: up to {format_bytes(size_bytes)} leave the device"
    return f"{text} in up to {seconds:.1f} s, and its next call waits as long for them ({format_bytes(bytes_per_s)}/s)"
