"""The record of a service as a form changes it. Pure: the balancer checks what it gets."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from vgpud.core.units import parse_gpus, parse_whole
from vgpud.view.spans import parse_span

Record = dict[str, Any]
#: as in vgpud.services.core.model
REPLICAS_MAX = 64


def scale(record: Record, form: Mapping[str, str]) -> Record:
    """Raises ValueError, one sentence."""
    text = form.get("replicas", "").strip()
    count = parse_whole(text, REPLICAS_MAX)
    if count is None:
        raise ValueError(f"{text[:40]!r} is no number of replicas: write 0 to {REPLICAS_MAX}")
    return {**record, "replicas": count}


def restart(record: Record, form: Mapping[str, str]) -> Record:
    """All replicas are replaced, one at a time."""
    return {**record, "generation": int(record["generation"]) + 1}


def update(record: Record, form: Mapping[str, str]) -> Record:
    """Another size of its replicas, which replaces them, or another time until it sleeps. Raises ValueError."""
    after = copy.deepcopy(record)
    names = [name for name in ("gpus", "idle") if name in form and form[name].strip() != form.get(f"{name}_was", "")]
    given = {name: form[name].strip() for name in names}
    if given.get("gpus"):
        after["template"].setdefault("slice", {})["gpusMilli"] = parse_gpus(given["gpus"])
    if "idle" in given:
        after["idle_s"] = parse_span(given["idle"]) / 1e9 if given["idle"] else 0.0
    if after == record:
        raise ValueError("nothing was changed: write another size or time")
    if after["template"] != record["template"]:
        after["generation"] = int(record["generation"]) + 1
    return after
