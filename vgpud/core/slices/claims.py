"""Claims of Kubernetes (ResourceClaims): each has one slice, which ends with the claim and not with a container. Pure.

kube-scheduler has chosen the devices and amounts, and the DRA driver brings them. Preparing is idempotent, because
kubelet, the driver and this daemon may each die at any moment and then ask, or be asked, again. The slice's CDI device
may be used by any container of the pods that the claim is reserved for; a container's pod is read from its cgroup,
which kubelet has named and the container cannot change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vgpud.core.events import (
    Answer,
    Command,
    CreateSlice,
    Log,
    OpenDevice,
    PrepareClaim,
    SaveSlice,
    UnprepareClaim,
)
from vgpud.core.model import LATENCY, Denied, Reason, Share, Slice, Spec, State
from vgpud.core.origins import Allocation, KubernetesOrigin, claim_slice
from vgpud.core.slices import admission, allocations
from vgpud.core.slices.make import end, make
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus

PODS_MAX = 256  # that a claim can be reserved for
#: as the API server allows it
POD_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
#: kubelet's directory of a pod, by its cgroup driver: kubepods/burstable/podUID, kubepods-burstable-podU_I_D.slice.
#: With --cgroup-root, systemd has kubelet.slice/kubelet-kubepods.slice. A static pod's uid is a digest without hyphens.
_POD_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
_POD = re.compile(rf"(?:^|[/:])(?:[^/:]*-)?kubepods[^/:]*(?:/[^/:]*)*?[/-]pod({_POD_UID})\b")


def pod_of(cgroups: Iterable[str]) -> str:
    """The uid of the pod that a process with these cgroup paths is in; "" outside Kubernetes.

    The outermost pod of the first path counts: a container may make cgroups of any name below its own.
    """
    for path in cgroups:
        found = _POD.search(path)
        if found:
            return found.group(1).replace("_", "-")
    return ""


def on_prepare(state: State, event: PrepareClaim, now_ns: int) -> list[Command]:
    """Makes the claim's slice, or brings an existing one up to date and its CDI file back."""
    claim = event.claim
    wrong = _invalid(event)
    if wrong:
        return [Answer(wrong)]
    old = state.slices.get(claim.slice_name())
    if old and isinstance(old.origin, KubernetesOrigin):
        return _prepared_again(state, old, old.origin, claim)
    freed = allocations.make_free(state, claim) if isinstance(claim, Allocation) else []
    made = make(state, _build_create_event(event))
    if isinstance(made, Denied):
        return [*freed, Answer(made)]
    new, commands = made
    return [*freed, *commands, Answer(new)]


def _prepared_again(state: State, old: Slice, old_claim: KubernetesOrigin, claim: KubernetesOrigin) -> list[Command]:
    if old.name in state.waiting:
        text = f"claim {claim} waits for its device, which is missing or has become smaller: see `vgpu gpu ls`"
        return [Answer(Denied(Reason.PRECONDITION, text))]
    if old_claim.granted != claim.granted:
        text = f"claim {claim} was prepared here with other devices or amounts: delete its pods, then it is released"
        return [Answer(Denied(Reason.PRECONDITION, text, field="claim.granted"))]
    commands: list[Command] = [OpenDevice(old.name)]
    pods = old_claim.pods if isinstance(old_claim, Allocation) else claim.pods
    new = replace(old, origin=replace(old_claim, pods=pods, pod_names=claim.pod_names, boot_id=claim.boot_id))
    if new.origin == old_claim:
        return [*commands, Answer(old)]
    new = replace(new, revision=old.revision + 1)
    state.slices[new.name] = new
    if old_claim.boot_id != claim.boot_id:
        text = f"claim {claim} was prepared before the machine was booted: its CDI file is written again"
        commands.append(Log("claim.rebooted", text, new.name))
    return [SaveSlice(new), *commands, Answer(new)]


def on_unprepare(state: State, event: UnprepareClaim, now_ns: int) -> list[Command]:
    """Ends the claim's slice. A claim that is not known has been unprepared before, or never was prepared."""
    old = state.slices.get(claim_slice(event.claim_uid))
    if old is None or not isinstance(old.origin, KubernetesOrigin):
        return [Answer(None)]
    return [*end(state, old, f"claim {old.origin} is released"), Answer(None)]


def resize_shares(
    claim: KubernetesOrigin, new_spec: Spec, fields: tuple[str, ...], granules: Mapping[str, int]
) -> tuple[Share, ...] | Denied:
    """The shares after `vgpu slice set`: on the same devices, minima at most as the scheduler granted them.

    new_spec: the slice's spec with the changes; None in it stands for what was granted. granules: in bytes, of memory,
    by device.
    """
    wrong = claim.refuse_fields(fields) or admission.check_numbers(new_spec)
    if wrong:
        return wrong
    granted = claim.granted
    least, most = (_amount(new_spec, granted, name) for name in ("min_milli", "max_milli"))
    mem_least, mem_most = (_amount(new_spec, granted, name) for name in ("mem_min_bytes", "mem_max_bytes"))
    if isinstance(claim, Allocation) and claim.is_lent:
        least = mem_least = 0
    above = claim.refuse_minima(least, mem_least)
    if above:
        return above
    tops = [MILLI_PER_DEVICE] * len(granted)
    highs = admission.split(most, [share.max_milli for share in granted], tops)
    lows = admission.split(least, [share.min_milli for share in granted], [share.min_milli for share in granted])
    mem_highs = admission.split(mem_most, [share.mem_max_bytes for share in granted], [mem_most] * len(granted))
    mem_lows = admission.split(mem_least, *[[share.mem_min_bytes for share in granted]] * 2)
    each = [granules.get(share.device_uuid, 1) for share in granted]
    numbers = zip(granted, lows, highs, mem_lows, mem_highs, each, strict=True)
    shares = tuple(
        Share(s.device_uuid, low, high, mem_low - mem_low % granule, mem_high - mem_high % granule)
        for s, low, high, mem_low, mem_high, granule in numbers
    )
    return _refuse_contradiction(shares, most, new_spec.service_class) or shares


def _amount(new_spec: Spec, granted: tuple[Share, ...], name: str) -> int:
    asked: int | None = getattr(new_spec, name)
    return sum(getattr(share, name) for share in granted) if asked is None else asked


def _refuse_contradiction(shares: tuple[Share, ...], total_max_milli: int, service_class: str) -> Denied | None:
    """Refuses numbers that contradict each other."""
    if total_max_milli > MILLI_PER_DEVICE * len(shares):
        text = f"max {format_gpus(total_max_milli)} is more than the {len(shares)} device(s) of the claim have"
        return Denied(Reason.INVALID, text, field="max_milli")
    for share in shares:
        if share.max_milli < max(share.min_milli, 1):
            text = (
                f"max {format_gpus(share.max_milli)} is below min {format_gpus(share.min_milli)} on a device: raise it"
            )
            return Denied(Reason.INVALID, text, field="max_milli")
        if share.mem_max_bytes < share.mem_min_bytes:
            text = f"mem-max {format_bytes(share.mem_max_bytes)} is below mem-min {format_bytes(share.mem_min_bytes)}"
            return Denied(Reason.INVALID, f"{text} on a device: raise it", field="mem_max_bytes")
        if service_class == LATENCY and not share.min_milli:
            text = "class latency needs a guarantee on each device: only guarantees are served at once, set sm above 0"
            return Denied(Reason.INVALID, text, field="service_class")
    return None


def _invalid(event: PrepareClaim) -> Denied | None:
    """What is wrong with a request, whatever the node has."""
    claim = event.claim
    if not claim.owns_name(claim.slice_name()):
        return Denied(Reason.INVALID, f"{claim.uid[:60]!r} is not the uid of a ResourceClaim", field="claim.uid")
    if not claim.namespace or not claim.name:
        return Denied(Reason.INVALID, "a claim has a namespace and a name", field="claim.name")
    if len(claim.pods) > PODS_MAX:
        text = f"claim {claim} is for {len(claim.pods)} pods: a claim can be reserved for {PODS_MAX}"
        return Denied(Reason.INVALID, text, field="claim.pod_uids")
    if len(claim.pod_names) > PODS_MAX or not all(POD_NAME.fullmatch(name) for name in claim.pod_names):
        return Denied(Reason.INVALID, f"claim {claim} has names that are no pods'", field="claim.pod_names")
    wrong = allocations.invalid(claim) if isinstance(claim, Allocation) else None
    if wrong:
        return wrong
    devices = [share.device_uuid for share in claim.granted]
    twice = next((uuid for uuid in devices if devices.count(uuid) > 1), None)
    if twice:
        text = f"claim {claim} has device {twice} twice: add a constraint with distinctAttribute gpu.vgpu.dev/uuid"
        return Denied(Reason.INVALID, text, field="claim.granted", subject=twice)
    if not devices:
        return Denied(Reason.INVALID, f"claim {claim} has no device", field="claim.granted")
    wrong = _refuse_contradiction(claim.granted, sum(share.max_milli for share in claim.granted), event.service_class)
    return wrong or admission.check_numbers(_build_create_event(event).spec)


def _build_create_event(event: PrepareClaim) -> CreateSlice:
    shares = event.claim.granted
    least, most = sum(share.min_milli for share in shares), sum(share.max_milli for share in shares)
    spec = Spec(
        gpus_milli=least or most,
        min_milli=least,
        max_milli=most,
        mem_min_bytes=sum(share.mem_min_bytes for share in shares),
        mem_max_bytes=sum(share.mem_max_bytes for share in shares),
        weight=event.weight,
        priority=event.priority,
        device_uuids=tuple(share.device_uuid for share in shares),
        service_class=event.service_class,
    )
    return CreateSlice(
        request_id="",
        origin=event.claim,
        spec=spec,
        owner_uid=0,
        uid=event.uid,
        wall_ns=event.wall_ns,
        shares=shares,
        tolerates_drain=event.tolerates_drain,
    )
