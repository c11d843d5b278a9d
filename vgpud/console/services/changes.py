"""The record of a service as a form changes it. Pure: the balancer checks what it gets."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

from vgpud.core.units import parse_gpus, parse_whole
from vgpud.services.core.model import REPLICAS_MAX, Service
from vgpud.view.spans import parse_span


def scale(service: Service, form: Mapping[str, str]) -> Service:
    """Raises ValueError, one sentence."""
    text = form.get("replicas", "").strip()
    count = parse_whole(text, REPLICAS_MAX)
    if count is None:
        raise ValueError(f"{text[:40]!r} is no number of replicas: write 0 to {REPLICAS_MAX}")
    return replace(service, replicas=count)


def restart(service: Service, form: Mapping[str, str]) -> Service:
    """All replicas are replaced, one at a time."""
    return replace(service, generation=service.generation + 1)


def update(service: Service, form: Mapping[str, str]) -> Service:
    """Another size of its replicas, which replaces them, or another time until it sleeps. Raises ValueError."""
    names = [name for name in ("gpus", "idle") if name in form and form[name].strip() != form.get(f"{name}_was", "")]
    given = {name: form[name].strip() for name in names}
    template, idle_s = copy.deepcopy(service.template), service.idle_s
    if given.get("gpus"):
        template.setdefault("slice", {})["gpusMilli"] = parse_gpus(given["gpus"])
    if "idle" in given:
        idle_s = parse_span(given["idle"]) / 1e9 if given["idle"] else 0.0
    after = replace(service, template=template, idle_s=idle_s)
    if after == service:
        raise ValueError("nothing was changed: write another size or time")
    return after if template == service.template else replace(after, generation=service.generation + 1)
