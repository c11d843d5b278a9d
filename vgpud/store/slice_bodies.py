"""Slices as JSON texts and back: as the database has them, with their origin's kind by its name."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vgpud.core.checksums import seal
from vgpud.core.model import Origin, Slice
from vgpud.core.origins import KINDS
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
    name, origin = given.pop("name"), dict(given.pop("origin"))
    found: Slice = decode(Slice, {**given, "origin": decode(_KINDS[origin.pop("kind")], origin)})
    if found.name != name:
        raise ValueError("its name is not that of its origin")
    return found


def _flag(name: str) -> str:
    return f"json(coalesce(json_type(body, '$.{name}'), 'false'))"


_NAME = "json_extract(body, '$.name')"
_JOB_ID = "coalesce(json_extract(body, '$.job_id'), 0)"
_MEMBER = f"nullif(substr({_NAME}, length('j-' || {_JOB_ID}) + 2), '')"
#: of the name of a step, what comes after "slurm-": the job, and the step after a dot
_REST = f"substr({_NAME}, 7)"
_DOT = f"instr({_REST} || '.', '.')"
_SLURM_JOB, _STEP = f"substr({_REST}, 1, {_DOT} - 1)", f"substr({_REST}, {_DOT} + 1)"
_IS_STEP = (
    f"({_STEP} IN ('', 'batch', 'interactive') OR {_STEP} NOT GLOB '*[^0-9]*') AND {_REST} NOT GLOB '*.'"
    f" AND {_NAME} GLOB 'slurm-[0-9]*' AND {_SLURM_JOB} NOT GLOB '*[^0-9]*'"
)
_ORIGIN = (
    "CASE WHEN json_array_length(body, '$.claim.device_ids') > 0"
    " THEN json_remove(json_set(json_extract(body, '$.claim'), '$.kind', 'Allocation',"
    " '$.is_lent', json(coalesce(json_type(body, '$.claim.lent'), 'false'))), '$.lent')"
    " WHEN json_type(body, '$.claim') = 'object'"
    " THEN json_remove(json_set(json_extract(body, '$.claim'), '$.kind', 'Claim'), '$.device_ids', '$.lent')"
    f" WHEN {_JOB_ID} > 0"
    f" THEN json_object('kind', 'Job', 'job_id', {_JOB_ID}, 'member', CAST({_MEMBER} AS INTEGER))"
    f" WHEN {_IS_STEP}"
    f" THEN json_object('kind', 'SlurmStep', 'job_id', CAST({_SLURM_JOB} AS INTEGER), 'step', {_STEP})"
    f" ELSE json_object('kind', 'User', 'name', {_NAME}, 'ephemeral', {_flag('ephemeral')},"
    f" 'cdi_device', {_flag('cdi_device')}, 'cdi_used', {_flag('cdi_used')}) END"
)
#: the store's migration from flags, and names that told the rest, to origins. Without a checksum, as it is SQL's work
ORIGINS = tuple(
    f"UPDATE {table} SET body = json_remove(json_set(body, '$.origin', json({_ORIGIN})),"  # noqa: S608  our own names
    " '$.ephemeral', '$.cdi_device', '$.cdi_used', '$.job_id', '$.claim', '$.crc') WHERE json_valid(body)"
    for table in ("slices", "requests")
)
