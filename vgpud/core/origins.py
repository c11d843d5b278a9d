"""For whom a slice is made: a user, a job of the queue, a claim or an allocation of Kubernetes, a step of a Slurm job,
a container. Pure.

A slice's origin owns its name, and says who and what may change it, and who may end it. So nothing else looks at names
of slices, and what is true of those of one origin is written here once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import final

from vgpud.core.model import Denied, Origin, Reason, Share
from vgpud.core.units import format_bytes, format_gpus

#: of what `vgpu slice set` may change; all else is fixed by the claim
RESIZABLE = ("min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes", "weight", "priority", "service_class")
#: steps of a Slurm job that have all of its devices on their node; further steps join their slice
WHOLE_JOB = ("batch", "interactive")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _refuse_kept_name(name: str) -> Denied | None:
    """Why this name cannot be chosen, or None: slices whose names follow from what they are for have names like it."""
    if Job.owns_name(name):
        whose = "a job"
    elif KubernetesOrigin.owns_name(name):
        whose = "a Kubernetes claim"
    elif SlurmStep.owns_name(name):
        whose = "a Slurm job"
    else:
        return None
    return Denied(Reason.INVALID, f"{name!r} is the name of {whose}'s slice: choose another one", field="name")


@final
@dataclass(frozen=True, slots=True)
class User(Origin):
    """Asked for by a user: it stays until it is removed, or ends with its last program or container (`ephemeral`)."""

    name: str  # "" = take spare_name
    spare_name: str = ""
    ephemeral: bool = False
    cdi_device: bool = False  # a one-time CDI device, for one container
    cdi_used: bool = False  # and a container has used it

    def slice_name(self) -> str:
        return self.name or self.spare_name

    def refuse_name(self) -> Denied | None:
        return _refuse_kept_name(self.slice_name())


@final
@dataclass(frozen=True, slots=True)
class Container(Origin):
    """Made for a container, by the name that it chose or that its id gives: it ends with the container."""

    name: str

    def slice_name(self) -> str:
        return self.name

    @property
    def ephemeral(self) -> bool:
        return True

    def refuse_name(self) -> Denied | None:
        return _refuse_kept_name(self.name)


@final
@dataclass(frozen=True, slots=True)
class Job(Origin):
    """Made for a job of the queue, on which the queue alone decides. member: of its gang, or the number of a worker;
    None: the job has one slice."""

    job_id: int
    member: int | None = None

    @staticmethod
    def owns_name(name: str) -> bool:
        head, _, rest = name.partition("-")
        return head == "j" and all(part.isdigit() for part in rest.split("-"))

    def slice_name(self) -> str:
        return f"j-{self.job_id}" if self.member is None else f"j-{self.job_id}-{self.member}"

    @property
    def queue_job_id(self) -> int:
        return self.job_id

    def refuse_change(self, by_job_id: int) -> Denied | None:
        remedy = f"run `vgpu job set {self.job_id} --gpus N`; its memory stays what the job asked for"
        return self._refuse_others(by_job_id, remedy)

    def refuse_suspension(self, by_job_id: int) -> Denied | None:
        return self._refuse_others(by_job_id, "the queue decides when it runs")

    def refuse_end(self, by_job_id: int) -> Denied | None:
        return self._refuse_others(by_job_id, f"end the job (vgpu job cancel {self.job_id}), and it goes")

    def _refuse_others(self, by_job_id: int, remedy: str) -> Denied | None:
        if by_job_id == self.job_id:
            return None
        return Denied(Reason.PRECONDITION, f"slice {self.slice_name()} is that of job {self.job_id}: {remedy}")


@final
@dataclass(frozen=True, slots=True)
class SlurmStep(Origin):
    """Made for a step of a Slurm job, with which it ends; or for the whole job on this node (`step` is ""), from its
    Prolog to its Epilog. Slurm counts its devices and its minima, and gives the rest to others."""

    job_id: int
    step: str

    @staticmethod
    def owns_name(name: str) -> bool:
        job, dot, step = name.removeprefix("slurm-").partition(".")
        is_step = step.isdigit() or step in WHOLE_JOB
        return name.startswith("slurm-") and job.isdigit() and (is_step if dot else True)

    def slice_name(self) -> str:
        return f"slurm-{self.job_id}.{self.step}" if self.step else f"slurm-{self.job_id}"

    @property
    def ephemeral(self) -> bool:
        return bool(self.step)

    @property
    def whole_job(self) -> tuple[SlurmStep, ...]:
        """The steps of the same job whose slice it joins, if one of them runs here."""
        return () if self.step in ("", *WHOLE_JOB) else tuple(SlurmStep(self.job_id, step) for step in WHOLE_JOB)

    def refuse_shares(self, old_shares: Iterable[Share], new_shares: Iterable[Share]) -> Denied | None:
        before = {share.device_uuid: share for share in old_shares}
        for share in new_shares:
            had = before.get(share.device_uuid)
            if had is None or share.min_milli > had.min_milli or share.mem_min_bytes > had.mem_min_bytes:
                text = f"slice {self.slice_name()} is a Slurm job's, which has its devices and minima from Slurm: raise"
                text += " its maxima alone, or ask Slurm for more (--gres=shard:N)"
                return Denied(Reason.PRECONDITION, text, field="min_milli")
        return None


def claim_slice(claim_uid: str) -> str:
    """The name of the slice of a Kubernetes claim."""
    return f"k-{claim_uid}"


@dataclass(frozen=True, slots=True)
class KubernetesOrigin(Origin):
    """What Claim and Allocation share: a scheduler has chosen devices and amounts, and has given nothing of them to
    others; containers of its pods join the slice by its CDI device."""

    uid: str
    namespace: str
    name: str
    pods: tuple[str, ...]  # uids of the pods whose containers may use the slice, sorted
    granted: tuple[Share, ...]  # as the scheduler allocated it, by device UUID
    boot_id: str  # of the boot during which it was prepared last
    #: of its pods, sorted, as far as the driver knows them: for people and metrics
    pod_names: tuple[str, ...] = field(default=(), kw_only=True)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @staticmethod
    def owns_name(name: str) -> bool:
        return name.startswith("k-") and bool(_UUID.fullmatch(name[2:]))

    def slice_name(self) -> str:
        return claim_slice(self.uid)

    @property
    def cdi_device(self) -> bool:
        return True

    @property
    def is_from_kubernetes(self) -> bool:
        return True

    @property
    def what(self) -> str:
        """What a user knows it as, for messages."""
        return str(self)

    def find_reserved_shares(self, shares: tuple[Share, ...]) -> tuple[Share, ...]:
        """It may have less after a resize, and go back any time: the scheduler has given nothing of it to others."""
        return self.granted

    def refuse_fields(self, fields: Iterable[str]) -> Denied | None:
        """Why these fields of its slice's spec do not change, or None."""
        fixed = next((name for name in fields if name not in RESIZABLE), None)
        if fixed is None:
            return None
        text = f"{fixed} of slice {self.slice_name()} is fixed by {self.what}: make another claim"
        return Denied(Reason.PRECONDITION, text, field=fixed)

    def refuse_minima(self, min_milli: int, mem_min_bytes: int) -> Denied | None:
        """Why its slice does not get these minima, summed over its devices, or None."""
        milli, size = sum(s.min_milli for s in self.granted), sum(s.mem_min_bytes for s in self.granted)
        ends = "which was allocated once: make another claim to get more"
        if min_milli > milli:
            text = f"min {format_gpus(min_milli)} is above the {format_gpus(milli)} of {self.what}, {ends}"
            return Denied(Reason.PRECONDITION, text, field="min_milli")
        if mem_min_bytes > size:
            text = f"mem-min {format_bytes(mem_min_bytes)} is above the {format_bytes(size)} of {self.what}, {ends}"
            return Denied(Reason.PRECONDITION, text, field="mem_min_bytes")
        return None

    def refuse_pod(self, pod: str) -> Denied | None:
        """Why a container of this pod ("": of none) may not use the slice, or None."""
        return None


@final
@dataclass(frozen=True, slots=True)
class Claim(KubernetesOrigin):
    """Made for a ResourceClaim, and ends with it."""

    @property
    def what(self) -> str:
        return f"the ResourceClaim {self}"

    def name_pod(self) -> tuple[str, str]:
        return self.namespace, self.pod_names[0] if len(self.pod_names) == 1 == len(self.pods) else ""

    def refuse_end(self, by_job_id: int) -> Denied | None:
        text = f"slice {self.slice_name()} is that of {self.what}: delete its pods (kubectl delete pod), and it goes"
        return Denied(Reason.PRECONDITION, text)

    def refuse_pod(self, pod: str) -> Denied | None:
        if pod in self.pods:
            return None
        if not pod:
            text = f"slice {self.slice_name()} is for the pods of {self.what}, and this container is in none"
            return Denied(Reason.DENIED, text)
        text = f"{self.what} is not reserved for pod {pod}: name the claim in the pod's spec"
        return Denied(Reason.DENIED, text, field="pod", subject=self.slice_name())


@final
@dataclass(frozen=True, slots=True)
class Allocation(KubernetesOrigin):
    """Made for a set of devices of kubelet's device plugin. kubelet says neither which pod they are for, which the
    first container that joins shows, nor when they are free: so the slice may be removed by hand."""

    device_ids: tuple[str, ...]  # sorted
    is_lent: bool = False  # its guarantee is that of another allocation with the same devices

    @property
    def what(self) -> str:
        return f"{len(self.device_ids)} of {self}"

    def find_reserved_shares(self, shares: tuple[Share, ...]) -> tuple[Share, ...]:
        return shares if self.is_lent else self.granted

    def refuse_pod(self, pod: str) -> Denied | None:
        if pod:
            return None
        text = f"slice {self.slice_name()} is for the pod with {self.what}, and this container is in none"
        return Denied(Reason.DENIED, text)


#: all origins that there are; the store knows them by these names
KINDS: tuple[type[Origin], ...] = (User, Job, Claim, Allocation, SlurmStep, Container)
