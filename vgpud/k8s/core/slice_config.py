"""SliceConfig, the opaque configuration of a claim or a DeviceClass: words that no capacity can say.

    apiVersion: vgpu.dev/v1alpha1
    kind: SliceConfig
    class: latency     # batch (default) or latency: the guarantee is served at once
    weight: 4          # of borrowed time
    priority: 10       # borrowed time goes to the highest first

A claim has one slice, so its configurations are laid over each other: those of the class first, then the claim's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from vgpud.core.model import CLASSES, LATENCY, PRIORITY_MAX, WEIGHT_MAX
from vgpud.k8s.core.model import Words
from vgpud.k8s.core.names import CONFIG_API, CONFIG_KIND

FROM_CLAIM = "FromClaim"
_FIELDS = ("class", "weight", "priority")


class ConfigError(ValueError):
    """A configuration is invalid; one line that begins with the field's name."""


def words_of(configs: Iterable[tuple[str, Any]], priority_max: int) -> Words:
    """The words of a claim. configs: (FromClass or FromClaim, parameters) in the allocation's order; priority_max: of a
    claim's own configuration. Raises ConfigError."""
    words = Words()
    for source, parameters in configs:
        before, words = words, _over(words, parameters)
        if source == FROM_CLAIM and "priority" in parameters and words.priority > priority_max:
            text = f"priority: {words.priority} is above {priority_max}, the highest that a claim may ask for"
            raise ConfigError(f"{text}: use a DeviceClass of the administrator's")
        if source == FROM_CLAIM and words.service_class == LATENCY != before.service_class:
            text = "class: latency is not a claim's own to ask for: use the DeviceClass vgpu-latency"
            raise ConfigError(f"{text}, whose use an administrator can limit")
    return words


def _over(words: Words, parameters: Any) -> Words:
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"parameters: {_quote_value(parameters)} is no object")
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    if (version, kind) != (CONFIG_API, CONFIG_KIND):
        shown = f"{_quote_value(version)} {_quote_value(kind)}"
        raise ConfigError(f"apiVersion, kind: {shown} is not known: write {CONFIG_API} {CONFIG_KIND}")
    unknown = next((str(name)[:40] for name in parameters if name not in ("apiVersion", "kind", *_FIELDS)), None)
    if unknown is not None:
        shown = unknown if unknown.isprintable() else ascii(unknown)
        raise ConfigError(f"{shown}: there is no such field: write {', '.join(_FIELDS)}")
    if "class" in parameters:
        named = parameters["class"]
        if named not in CLASSES:
            raise ConfigError(f"class: {_quote_value(named)} is no class: write {' or '.join(CLASSES)}")
        words = replace(words, service_class=named)
    if "weight" in parameters:
        words = replace(words, weight=_number("weight", parameters["weight"], WEIGHT_MAX))
    if "priority" in parameters:
        words = replace(words, priority=_number("priority", parameters["priority"], PRIORITY_MAX))
    return words


def _number(name: str, value: Any, maximum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= maximum:
        raise ConfigError(f"{name}: {_quote_value(value)} is out of range: write 0 to {maximum}")
    return value


def _quote_value(value: Any) -> str:
    """The beginning of a value, in quotes. What is in a list or object is left out: it may be nested so deeply that
    writing it ends in a RecursionError, and a number may be too long for a text."""
    if isinstance(value, list | Mapping):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and abs(value) >= 1 << 64:
        return "a number of more than 64 bits"
    return repr(str(value)[:40])
