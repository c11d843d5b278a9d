"""Queues of the API as the core's values, and back: a change laid over what is there, each field checked by itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from vgpud.api.job_messages import duration, gpu_seconds
from vgpud.api.rpc import RefusedError, refuse
from vgpud.core.jobs.facts import QueueNow
from vgpud.core.jobs.model import DEFAULT_QUEUE, NEVER_NS, SECOND_NS, QueueSpec
from vgpud.core.model import Reason
from vgpud.core.placement import registry as placements
from vgpud.core.policy import registry as policies
from vgpud.core.slices.queue_quota import member_refusal
from vgpud.core.units import format_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb

WEIGHT_MAX = 10_000
MEMBERS_MAX = 10_000
#: of all nodes together
MILLI_MAX = 1_000_000_000
SPAN_MAX_NS = 366 * 86_400 * SECOND_NS
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,39})")
#: fields of QueueSpec that are called otherwise in the API
_TO_SPEC = {"min_run": "min_run_ns", "elastic_wait": "elastic_wait_ns", "elastic_idle": "elastic_idle_ns"}
_DEFAULTS: dict[str, Any] = {
    **{f.name: f.default for f in fields(QueueSpec) if f.name != "name"},
    "policy": policies.NEW_QUEUE,
}
_NOT_SETTINGS = {"name", "used_milli", "running", "pending", "history_gpu_seconds"}
SETTINGS = tuple(f.name for f in pb.Queue.DESCRIPTOR.fields if f.name not in _NOT_SETTINGS)


def _invalid(message: str, field: str) -> RefusedError:
    return refuse(Reason.INVALID, message, field)


def queue_from(
    request: pb.SetQueueRequest, queues: dict[str, QueueSpec], members: Sequence[str]
) -> tuple[QueueSpec, tuple[str, ...]]:
    """The requested queue, and its members. `members`: its present ones. Raises RefusedError."""
    asked = request.queue
    if not _NAME.fullmatch(asked.name):
        text = f"queue {asked.name!r} is invalid: up to 40 letters, digits and . _ -, a letter or a digit first"
        raise _invalid(text, "name")
    given = {field.name for field, _ in asked.ListFields()}
    changed = set(request.update_mask.paths) or given & set(SETTINGS)
    unknown = sorted(changed - set(SETTINGS))
    if unknown:
        raise _invalid(f"queues have no {unknown[0]!r}: there are {', '.join(SETTINGS)}", "update_mask")
    changes: dict[str, Any] = {}
    for name in sorted(changed - {"members"}):
        key = _TO_SPEC.get(name, name)
        changes[key] = _setting(asked, name) if name in given else _DEFAULTS[key]
    spec = replace(queues.get(asked.name) or QueueSpec(asked.name, policy=policies.NEW_QUEUE), **changes)
    _check_whole(spec, queues)
    return spec, _members(asked.members) if "members" in changed else tuple(members)


def _setting(queue: pb.Queue, name: str) -> Any:
    value = getattr(queue, name)
    return _CHECKS[name](value, name) if name in _CHECKS else value


def _amount(high: int) -> Callable[[int, str], int]:
    """0 to high."""

    def check(value: int, field: str) -> int:
        if not 0 <= value <= high:
            raise _invalid(f"{field} {value} is out of range: write 0 to {high}, or leave it out for none", field)
        return value

    return check


def _guarantee(value: int, field: str) -> int:
    if not 0 <= value <= MILLI_MAX:
        raise _invalid(f"{field} {value} is out of range: write 0 to {MILLI_MAX}", field)
    return value


def _weight(value: int, field: str) -> int:
    if not 1 <= value <= WEIGHT_MAX:
        raise _invalid(f"{field} {value} is out of range: write 1 to {WEIGHT_MAX}", field)
    return value


def _policy(value: str, field: str) -> str:
    try:
        return policies.make(value).name
    except policies.PolicyError as error:
        raise _invalid(str(error), field) from error


def _placement(value: str, field: str) -> str:
    try:
        placements.make(value)
    except ValueError as error:
        raise _invalid(str(error), field) from error
    return value


def _span(value: Any, field: str) -> int:
    span_ns = int(value.seconds) * SECOND_NS + int(value.nanos)
    if not 0 <= span_ns <= SPAN_MAX_NS:
        raise _invalid(f"{field} {span_ns / SECOND_NS:g} s is out of range: write a value from 0 s to a year", field)
    return span_ns


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "guarantee_milli": _guarantee,
    "limit_milli": _amount(MILLI_MAX),
    "weight": _weight,
    "policy": _policy,
    "placement": _placement,
    "min_run": _span,
    "elastic_wait": _span,
    "elastic_idle": _span,
    "cpu_limit_milli": _amount(MILLI_MAX),
    "ram_limit_bytes": _amount(1 << 60),
}


def _members(members: Sequence[str]) -> tuple[str, ...]:
    if len(members) > MEMBERS_MAX:
        raise _invalid(f"{len(members)} members: at most {MEMBERS_MAX} are allowed, or name a group", "members")
    for member in members:
        why = member_refusal(member)
        if why:
            raise _invalid(why, "members")
    return tuple(dict.fromkeys(members))


def _check_whole(spec: QueueSpec, queues: dict[str, QueueSpec]) -> None:
    """What its settings mean together, and its place in the tree."""
    if spec.guarantee_milli > spec.limit_milli:
        low, high = format_gpus(spec.guarantee_milli), format_gpus(spec.limit_milli)
        raise _invalid(f"guarantee {low} is above limit {high}: lower the one or raise the other", "guarantee_milli")
    if not spec.parent:
        return
    parent = queues.get(spec.parent)
    if spec.parent == spec.name or parent is None:
        others = ", ".join(sorted(set(queues) - {spec.name})) or "none"
        raise _invalid(f"there is no queue {spec.parent!r} above {spec.name}: there are {others}", "parent")
    if spec.name == DEFAULT_QUEUE:
        raise _invalid(f"queue {DEFAULT_QUEUE} has no queue above it: it is open to every user", "parent")
    if parent.parent:
        raise _invalid(f"queue {spec.parent} is itself below {parent.parent}: one level is all", "parent")
    below = sorted(q.name for q in queues.values() if q.parent == spec.name)
    if below:
        raise _invalid(f"queue {spec.name} has {below[0]} below it: one level is all", "parent")


def queue_view(spec: QueueSpec, now: QueueNow) -> pb.Queue:
    return pb.Queue(
        name=spec.name,
        parent=spec.parent,
        guarantee_milli=spec.guarantee_milli,
        limit_milli=_or_none(spec.limit_milli),
        weight=spec.weight,
        policy=spec.policy,
        placement=spec.placement,
        spread=spec.spread,
        strict=spec.strict,
        backfill=spec.backfill,
        min_run=duration(spec.min_run_ns),
        elastic_wait=duration(spec.elastic_wait_ns),
        elastic_idle=duration(spec.elastic_idle_ns),
        elastic_eager=spec.elastic_eager,
        cpu_limit_milli=_or_none(spec.cpu_limit_milli),
        ram_limit_bytes=_or_none(spec.ram_limit_bytes),
        members=now.members,
        used_milli=now.used_milli,
        running=now.running,
        pending=now.pending,
        history_gpu_seconds=gpu_seconds(now.history),
    )


def _or_none(amount: int) -> int | None:
    return None if amount >= NEVER_NS else amount
