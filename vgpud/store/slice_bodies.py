"""Slices as JSON texts and back: as the database has them, with their origin's kind by its name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vgpud.core.checksums import seal
from vgpud.core.model import Origin, Slice
from vgpud.core.origins import KINDS, SlurmStep
from vgpud.core.queue.record import decode

_KINDS: dict[object, type[Origin]] = {kind.__name__: kind for kind in KINDS}


def write_slice(slice_: Slice) -> str:
    """The text, with its checksum."""
    body = asdict(slice_)
    body["origin"] = {"kind": type(slice_.origin).__name__, **body["origin"]}
    return seal(body)


def read_slice(body: dict[str, Any]) -> Slice:
    """The slice again. Raises ValueError, TypeError, KeyError."""
    given = dict(body)
    name = given.pop("name")
    origin = dict(given.pop("origin")) if "origin" in given else _take_flags(given, name)
    found: Slice = decode(Slice, {**given, "origin": decode(_KINDS[origin.pop("kind")], origin)})
    if found.name != name:
        raise ValueError("its name is not that of its origin")
    return found


def _take_flags(body: dict[str, Any], name: str) -> dict[str, Any]:
    """The origin of a slice that was written before version 19 of the database, taken out of its body: flags told it,
    and for jobs and steps of Slurm their names. Such a row stays as it is, under its checksum, until it changes."""
    flags = {flag: body.pop(flag, False) for flag in ("ephemeral", "cdi_device", "cdi_used")}
    job_id, claim = body.pop("job_id", 0), body.pop("claim", None)
    if claim is not None:
        return _take_claim(dict(claim))
    if job_id:
        member = name.removeprefix(f"j-{job_id}").removeprefix("-")
        return {"kind": "Job", "job_id": job_id, "member": int(member) if member else None}
    if SlurmStep.owns_name(name):
        slurm_job, _, step = name.removeprefix("slurm-").partition(".")
        return {"kind": "SlurmStep", "job_id": int(slurm_job), "step": step}
    return {"kind": "User", "name": name, **flags}


def _take_claim(claim: dict[str, Any]) -> dict[str, Any]:
    lent, device_ids = claim.pop("lent", False), claim.pop("device_ids", [])
    if device_ids:
        return {"kind": "Allocation", "device_ids": device_ids, "is_lent": lent, **claim}
    return {"kind": "Claim", **claim}
