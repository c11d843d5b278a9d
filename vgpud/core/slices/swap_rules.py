"""What slices with mem_swap or idle_after may ask for, and whether the host can hold their memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vgpud.core.model import AWAY, LATENCY, Denied, Reason, Share, SiteLimits, Spec, State
from vgpud.core.units import format_bytes

#: shortest time without work after which memory is given back
IDLE_AFTER_MIN_NS = 1_000_000_000
_DAY_NS = 86_400_000_000_000
IDLE_AFTER_MAX_NS = 3650 * _DAY_NS


def spec_refusal(spec: Spec) -> Denied | None:
    """Why a slice like this can neither rotate nor sleep, or None: it does not ask for it, or it can."""
    asked = spec.idle_after_ns
    if asked and not IDLE_AFTER_MIN_NS <= asked <= IDLE_AFTER_MAX_NS:
        text = f"idle-after {asked / 1e9:g} s is out of range: write 1s to 3650d, or 0 for never"
        return Denied(Reason.INVALID, text, field="idle_after_ns")
    name = "mem_swap" if spec.mem_swap else "idle_after_ns" if asked else ""
    option = _option(name)
    if name and spec.service_class == LATENCY:
        text = f"class latency with {option}: what is served at once never leaves the device,"
        return Denied(Reason.INVALID, f"{text} leave out --{option} or set class batch", field=name)
    if name and len(spec.pieces) > 1:
        text = f"{option} on {len(spec.pieces)} devices: programs on several devices cannot be moved,"
        return Denied(Reason.INVALID, f"{text} leave out --{option} or ask for one device", field=name)
    return None


def with_site_default(spec: Spec, policy: SiteLimits) -> Spec:
    """The spec with the site's idle_after, where it says nothing and can sleep."""
    if spec.idle_after_ns is not None or not policy.idle_after_ns or policy.swap_fault:
        return spec
    asked = replace(spec, idle_after_ns=policy.idle_after_ns)
    return replace(spec, idle_after_ns=0) if spec_refusal(asked) else asked


def keep_site_default(spec: Spec, fields: Sequence[str], policy: SiteLimits) -> Spec:
    """The same for a changed spec; fields: what the change names. A slice keeps what was the site's when it was made,
    and loses that silently if it cannot sleep any more."""
    if "idle_after_ns" in fields:
        return with_site_default(spec, policy)
    is_the_sites = spec.idle_after_ns and spec.idle_after_ns == policy.idle_after_ns
    return replace(spec, idle_after_ns=0) if is_the_sites and spec_refusal(spec) else spec


def host_refusal(state: State, spec: Spec, shares: Iterable[Share], excluded_slice: str = "") -> Denied | None:
    """Why the host cannot hold the memory of a slice with these shares in its turn, or None."""
    fault = fault_refusal(spec, state.policy)
    if fault or not spec.mem_swap:
        return fault
    sizes = _swap_sizes(state, excluded_slice)
    for share in shares:
        sizes.setdefault(share.device_uuid, []).append(share.mem_min_bytes)
    wanted = sum(map(compute_host_need, sizes.values()))
    has = state.policy.swap_bytes
    if wanted <= has:
        return None
    text = f"{describe_host_need(wanted, has)}: ask for less memory, or remove one of them"
    return Denied(Reason.NO_CAPACITY, text, field="mem_swap")


def compute_host_need(sizes_bytes: Iterable[int]) -> int:
    """RAM of the host, in bytes, for slices with mem_swap of one device that have these minima: when the smallest has
    its turn, all others may have to leave for it. None has to for one without a minimum."""
    sizes = [size for size in sizes_bytes if size]
    return sum(sizes) - min(sizes, default=0)


def describe_host_need(wanted_bytes: int, usable_bytes: int) -> str:
    """A sentence: more of the host's RAM than may be used."""
    needed, usable = format_bytes(wanted_bytes), format_bytes(usable_bytes)
    text = f"slices with mem-swap would need {needed} of the host's RAM, of which {usable} may be used"
    return f"{text} (a tenth stays free, suspended_bytes_max)"


def fault_refusal(spec: Spec, policy: SiteLimits) -> Denied | None:
    """Why no memory of such a slice can be moved on this node, or None: it can, or it is not to be."""
    name = "mem_swap" if spec.mem_swap else "idle_after_ns"
    if not (spec.mem_swap or spec.idle_after_ns) or not policy.swap_fault:
        return None
    return Denied(Reason.PRECONDITION, f"{policy.swap_fault}: leave out --{_option(name)}", field=name)


def _option(field: str) -> str:
    return field.removesuffix("_ns").replace("_", "-")


def _swap_sizes(state: State, excluded_slice: str) -> dict[str, list[int]]:
    """The minima of memory of slices with mem_swap, by device."""
    sizes: dict[str, list[int]] = {}
    for other in state.slices.values():
        if other.name == excluded_slice or other.name in state.waiting or not other.spec.mem_swap:
            continue
        for share in other.shares:
            sizes.setdefault(share.device_uuid, []).append(share.mem_min_bytes)
    return sizes


def excess_ppm(state: State, share: Share, capacity_bytes: int, excluded_slice: str) -> int:
    """By how much the minima of a device's slices with mem_swap, with this share, would be above what it has for them,
    in millionths of that: for that part of the time slices would be away. 0: all fit, and none takes turns."""
    others = _swap_sizes(state, excluded_slice).get(share.device_uuid, [])
    excess_bytes = sum(others) + share.mem_min_bytes - capacity_bytes
    return max(0, excess_bytes * 1_000_000 // max(1, capacity_bytes))


def first_residency(state: State, spec: Spec, shares: Iterable[Share]) -> str:
    """Of a new slice: beside others with mem_swap it begins away, with nothing, and comes when there is free memory."""
    sizes = _swap_sizes(state, "")
    return AWAY if spec.mem_swap and any(share.device_uuid in sizes for share in shares) else ""
