"""Taints of devices: what keeps claims away from a GPU, and which claims say that they do not mind.

The scheduler compares them, and so does the node: a claim that tolerates a drained GPU has been placed there on
purpose, and vgpud would refuse it, as it refuses everything new on a drained device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vgpud.k8s.core.model import NO_EXECUTE, NO_SCHEDULE, Gpu
from vgpud.k8s.core.names import TAINT_DRAINED, TAINT_FAULTY, TAINT_TAKEN

_LABEL_MAX = 63


def taints_of(gpu: Gpu, evict_on_fault: bool) -> list[dict[str, str]]:
    """As they are published. evict_on_fault: pods that do not tolerate a fault are evicted."""
    made = []
    if gpu.fault:
        made.append(_taint(TAINT_FAULTY, gpu.fault, NO_EXECUTE if evict_on_fault else NO_SCHEDULE))
    elif gpu.drained:
        made.append(_taint(TAINT_DRAINED, gpu.drained, NO_SCHEDULE))
    if gpu.taken_by:
        made.append(_taint(TAINT_TAKEN, gpu.taken_by, NO_SCHEDULE))
    return made


def tolerates_drain(allocated: Iterable[tuple[Mapping[str, Any], Gpu]]) -> bool:
    """Whether devices of an allocation are drained by an operator or a fault, and the claim tolerates that of each. The
    effect is the scheduler's matter, which has placed them. allocated: results with their GPUs."""
    wanted = [(result, taint) for result, gpu in allocated for taint in taints_of(gpu, evict_on_fault=False)]
    return bool(wanted) and all(any(_matches(one, taint) for one in _tolerations(result)) for result, taint in wanted)


def _tolerations(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    given = result.get("tolerations")
    return [one for one in given if isinstance(one, Mapping)] if isinstance(given, list) else []


def _matches(toleration: Mapping[str, Any], taint: Mapping[str, str]) -> bool:
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if operator == "Exists":
        return key in ("", taint["key"])
    return operator == "Equal" and key == taint["key"] and (toleration.get("value") or "") == taint["value"]


def _taint(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": _label(value), "effect": effect}


def _label(text: str) -> str:
    """The text as a label's value: letters, digits, '-', '_' and '.', beginning and ending with a letter or digit."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)[:_LABEL_MAX]
    return kept.strip("-_.")
