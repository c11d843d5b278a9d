"""status.devices of a claim: the slice and the numbers in force, as `kubectl describe resourceclaim` shows them.

What the server has is compared with what it should have, so that nothing is written twice and a driver that has just
started knows what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vgpud.k8s.core.model import Asked, Granted
from vgpud.k8s.core.names import DRIVER

SINCE = "lastTransitionTime"  # of a condition, set by whoever writes it


def find_our_entries(claim: Mapping[str, Any]) -> list[Any]:
    """Our entries of a claim, as the server has them."""
    status = claim.get("status")
    entries = status.get("devices") if isinstance(status, Mapping) else None
    found = entries if isinstance(entries, list) else []
    return [one for one in found if isinstance(one, Mapping) and one.get("driver") == DRIVER]


def news(
    claim: Mapping[str, Any], requested_claim: Asked, slice_name: str, granted: Sequence[Granted]
) -> list[dict[str, Any]]:
    """The entries to be written, one for each result; none when the server has them. granted: the numbers in force.

    A condition has the time from which on it was as it is; one that is new has none yet.
    """
    before = find_our_entries(claim)
    wanted = [_entry(requested_claim, number, slice_name, granted) for number in range(len(requested_claim.results))]
    if sorted(map(_key, before)) == sorted(map(_key, wanted)) and all(_ours(one) in wanted for one in before):
        return []
    times = {_key(one): _since(one) for one in before}
    for one in wanted:
        if since := times.get(_key(one)):
            one["conditions"][0][SINCE] = since
    return wanted


def _entry(requested_claim: Asked, number: int, slice_name: str, granted: Sequence[Granted]) -> dict[str, Any]:
    result = requested_claim.results[number]
    now = next(found for found in (*granted, *requested_claim.granted) if found.uuid == result.uuid)
    data = {
        "slice": slice_name,
        "uuid": result.uuid,
        "smMilli": {"min": now.min_milli, "max": now.max_milli},
        "memoryBytes": {"min": now.mem_min_bytes, "max": now.mem_max_bytes},
    }
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": f"slice {slice_name}"}
    entry = {"driver": DRIVER, "pool": result.pool, "device": result.device, "data": data, "conditions": [ready]}
    return entry | ({"shareID": result.share_id} if result.share_id else {})


def _key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(entry.get(name) or "") for name in ("pool", "device", "shareID"))


def _conditions(entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = entry.get("conditions")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _ours(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What we have written of it, without times: others may have added to it."""
    ready = [one for one in _conditions(entry) if one.get("type") == "Ready"]
    conditions = [{name: one.get(name) for name in ("type", "status", "reason", "message")} for one in ready]
    kept = {name: entry[name] for name in ("driver", "pool", "device", "shareID", "data") if name in entry}
    return {**kept, "conditions": conditions}


def _since(entry: Mapping[str, Any]) -> str:
    ready = (one for one in _conditions(entry) if (one.get("type"), one.get("status")) == ("Ready", "True"))
    return next((str(one[SINCE]) for one in ready if SINCE in one), "")
