"""What the driver knows: the node's devices, the claims that vgpud has slices for, and the calls at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vgpud.k8s.core.names import FREE, MIG

#: Effect of a taint: nothing new is placed, or pods that do not tolerate it are evicted, too
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device that vgpud gives to Kubernetes: a GPU, or a MIG instance of one."""

    uuid: str
    index: int
    product: str
    memory_bytes: int  # what slices can have, in whole granules and mebibytes
    granule_bytes: int
    context_bytes: int = 0  # of one program, 0 = not known
    is_simulated: bool = False
    compute_capability: str = ""  # CUDA's, "9.0"; "" = not known
    pci_root: str = ""
    numa_node: int | None = None
    driver_version: str = ""  # of NVIDIA's driver, "580.95.05"; "" = not known
    parent_uuid: str = ""  # of a MIG instance: its GPU
    profile: str = ""  # and its size as NVIDIA names it; "" = it is a GPU
    nvlink_group: int | None = None  # the same for all GPUs of the node that NVLink joins; None where it joins none
    drained: str = ""  # an operator's reason
    fault: str = ""  # an Xid's, or that it is lost
    taken_by: str = ""  # programs outside slices, or slices that are no claims'
    is_for_kubernetes: bool = True  # to Kubernetes; claims that were prepared before may still have one that is not

    @property
    def name(self) -> str:
        return f"{MIG if self.profile else 'gpu'}-{self.index}"


@dataclass(frozen=True, slots=True)
class Offer:
    """A published device: a GPU as a whole, shared by amounts (size FREE), or a fixed part of one."""

    name: str
    gpu: Gpu
    size: str = FREE


@dataclass(frozen=True, slots=True)
class Granted:
    """What a claim has on one GPU."""

    uuid: str
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """One device of a claim's allocation, as the scheduler wrote it. request: without the name of an alternative."""

    request: str
    pool: str
    device: str
    share_id: str
    uuid: str  # of its GPU


@dataclass(frozen=True, slots=True)
class Words:
    """The SliceConfig of a claim."""

    service_class: str = "batch"
    weight: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A claim that has been read, checked against what is published, and can be prepared."""

    uid: str
    namespace: str
    name: str
    pods: tuple[str, ...]
    results: tuple[Result, ...]
    granted: tuple[Granted, ...]  # one for each GPU
    words: Words
    device_ids: tuple[str, ...] = ()  # of kubelet's device plugin, () for a claim
    #: GPUs whose memory the allocation does not name: it is derived from what the GPU has now
    derived_memory_uuids: frozenset[str] = frozenset()
    #: devices that a claim with adminAccess sees; it has nothing of them, and no slice
    monitor_gpus: tuple[Gpu, ...] = ()
    pod_names: tuple[str, ...] = ()  # for people
    #: devices of it are drained, by an operator or a fault, and it tolerates the taint of each
    tolerates_drain: bool = False

    def as_prepared(self, prepared_claim: Known | None) -> Asked:
        """The same, with the memory that it was prepared with where that is derived: what NVIDIA's driver keeps of a
        GPU for itself changes with its version, and the claim's slice does not."""
        before = {one.uuid: one for one in prepared_claim.allocated} if prepared_claim else {}
        return replace(self, granted=tuple(self._keep_old_memory(one, before.get(one.uuid)) for one in self.granted))

    def _keep_old_memory(self, now: Granted, old_grant: Granted | None) -> Granted:
        if old_grant is None or now.uuid not in self.derived_memory_uuids:
            return now
        return old_grant if (old_grant.min_milli, old_grant.max_milli) == (now.min_milli, now.max_milli) else now

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Known:
    """A claim, or an allocation of kubelet's device plugin, that vgpud has a slice for."""

    uid: str
    namespace: str
    name: str
    slice_name: str
    pods: tuple[str, ...]
    granted: tuple[Granted, ...] = ()  # what it has now: it may have been resized
    allocated: tuple[Granted, ...] = ()  # what it was prepared with
    device_ids: tuple[str, ...] = ()  # of kubelet's device plugin, () for a claim
    in_use: bool = False  # by a container
    pod_names: tuple[str, ...] = ()

    def is_for_another(self, requested_claim: Asked) -> bool:
        """Whether the claim was allocated again since it was prepared, for other pods: then no pod uses the slice."""
        again = {one.uuid: one for one in requested_claim.granted} == {one.uuid: one for one in self.allocated}
        return bool(self.allocated) and not again and set(self.pods).isdisjoint(requested_claim.pods)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A claim as kubelet names it."""

    uid: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(slots=True)
class Work:
    """What is being done about one claim, and the calls that wait for it. One at a time for each claim."""

    ref: Ref
    ending: bool  # else it is being prepared
    calls: list[int] = field(default_factory=list)
    requested_claim: Asked | None = None  # once it has been read
    claim: Mapping[str, Any] = field(default_factory=dict)  # as it was read
    has_retried: bool = False  # after the slices of claims that are gone were ended
    waits: bool = False  # for that
    remakes: bool = False  # a former allocation's slice is ended first
    is_unused: bool = False  # no call came: the claim has no use for its slice any more
    #: calls of the other kind, which came meanwhile and are served afterwards
    queued_calls: list[tuple[int, bool]] = field(default_factory=list)
