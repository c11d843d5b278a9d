"""Whose a slice is: a job's, a claim's of Kubernetes, a job's or step's of Slurm; its name, and what its owner alone
may change or end. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vgpud.core.model import Denied, Reason, Share, Slice

_SLURM = re.compile(r"slurm-\d+(\.(\d+|batch|interactive))?")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def job_slice(job_id: int, members: int, member: int) -> str:
    """The name of the slice of a job's member."""
    return f"j-{job_id}" if members == 1 else f"j-{job_id}-{member}"


def is_for_jobs(name: str) -> bool:
    head, _, rest = name.partition("-")
    return head == "j" and all(part.isdigit() for part in rest.split("-"))


def claim_slice(claim_uid: str) -> str:
    """The name of the slice of a Kubernetes claim."""
    return f"k-{claim_uid}"


def is_for_claims(name: str) -> bool:
    return name.startswith("k-") and bool(_UUID.fullmatch(name[2:]))


def pod_of_claim(slice_: Slice) -> tuple[str, str]:
    """(namespace, pod) that the slice of a Kubernetes claim is counted for: no pod ("") when it has several, or one
    whose name is not known; neither when it is no claim's. kubelet's device plugin does not say which pod it is."""
    claim = slice_.claim
    if claim is None or claim.device_ids:
        return "", ""
    return claim.namespace, claim.pod_names[0] if len(claim.pod_names) == 1 == len(claim.pods) else ""


def slurm_slice(job_id: int, step: str) -> str:
    """The name of the slice of a step of a Slurm job, or of the whole job on this node ("")."""
    return f"slurm-{job_id}.{step}" if step else f"slurm-{job_id}"


def is_for_slurm(name: str) -> bool:
    return bool(_SLURM.fullmatch(name))


def claim_refusal(old: Slice, remedy: str) -> Denied | None:
    """Why only Kubernetes ends this slice, or None. kubelet's device plugin is not notified when devices are free."""
    if old.claim is None or old.claim.device_ids:
        return None
    return Denied(Reason.PRECONDITION, f"slice {old.name} is that of {old.claim.what}: {remedy}")


def job_refusal(old: Slice, job_id: int, remedy: str) -> Denied | None:
    """Why only the queue changes this slice, or None."""
    if old.job_id == job_id or not old.job_id:
        return None
    return Denied(Reason.PRECONDITION, f"slice {old.name} is that of job {old.job_id}: {remedy}")


def slurm_refusal(old: Slice, shares: Iterable[Share]) -> Denied | None:
    """Why a slice of a Slurm job does not get these shares, or None: Slurm counts its devices and its minima, and gives
    the rest to others."""
    for share in shares if is_for_slurm(old.name) else ():
        had = old.share(share.device_uuid)
        if had is None or share.min_milli > had.min_milli or share.mem_min_bytes > had.mem_min_bytes:
            text = f"slice {old.name} is a Slurm job's, which has its devices and minima from Slurm: raise its maxima"
            text += " alone, or ask Slurm for more (--gres=shard:N)"
            return Denied(Reason.PRECONDITION, text, field="min_milli")
    return None
