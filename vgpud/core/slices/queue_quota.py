"""The queue that a slice counts against, and whether its quota has free capacity. Pure; every path to a slice asks
here.

A queue with members (`uid:1000`, `gid:1000`) belongs to them: it is their default queue, and other users cannot use it.
A queue without members is open to every user. A slice counts against its queue and that queue's parent with its
guarantee. The queue machine decides on jobs; here slices of jobs count, and all other slices are held to the same
limits where the configuration says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vgpud.core.model import (
    ALLOW,
    DEFAULT_QUEUE,
    DENY,
    NO_LIMIT,
    UID_MAX,
    Asker,
    Denied,
    Quota,
    Reason,
    Slice,
    State,
)
from vgpud.core.units import format_gpus, parse_whole

#: holders that a refusal names
_NAMED_MAX = 3


def member_refusal(member: str) -> str:
    """Why this is no member of a queue, or ""."""
    kind, _, number = member.partition(":")
    if kind in ("uid", "gid") and parse_whole(number, UID_MAX) is not None:
        return ""
    return f"{member!r} is not a member: write uid:1000 or gid:1000"


def _keys(asker: Asker) -> list[str]:
    return [f"uid:{asker.uid}", *(f"gid:{gid}" for gid in asker.gids)]


def default_queue(quotas: Iterable[Quota], asker: Asker) -> str:
    """The queue that has this user as a member, else one of the first matching group, else the default queue."""
    listed = sorted(quotas, key=lambda quota: quota.name)
    for key in _keys(asker):
        for quota in listed:
            if key in quota.members:
                return quota.name
    return DEFAULT_QUEUE


def members(quotas: dict[str, Quota], quota: Quota) -> set[str]:
    """Members of the queue and of its parent; none: every user."""
    parent = quotas.get(quota.parent)
    return {*quota.members, *(parent.members if parent else ())}


def _may(quotas: dict[str, Quota], quota: Quota, asker: Asker) -> bool:
    own = members(quotas, quota)
    return asker.admin or not own or not own.isdisjoint(_keys(asker))


def name_queues(names: Collection[str]) -> str:
    """The end of a sentence on a queue that is not there: which there are."""
    if len(names) == 1:
        return f"the only queue is {next(iter(names))}"
    return f"the queues are {', '.join(names)}" if names else "there are none"


def choose(quotas: dict[str, Quota], queue: str, asker: Asker) -> str | Denied:
    """The queue that a user named, if the user may use it; the default queue where none was named."""
    if not queue:
        return default_queue(quotas.values(), asker)
    found = quotas.get(queue)
    if found is None:
        allowed_names = sorted(name for name, quota in quotas.items() if _may(quotas, quota, asker))
        text = f"no queue {queue!r}: {name_queues(allowed_names)}"
        return Denied(Reason.NOT_FOUND, text, field="queue")
    if _may(quotas, found, asker):
        return queue
    default = default_queue(quotas.values(), asker)
    text = f"queue {queue} is not for uid {asker.uid}: use {default}, or have an admin add uid:{asker.uid} to {queue}"
    return Denied(Reason.DENIED, text, field="queue")


def width_milli(slice_: Slice) -> int:
    """What a slice counts for: its guarantee, and nothing while its gates are shut."""
    return sum(share.min_milli for share in slice_.shares) if slice_.keeps_time else 0


def used_milli(state: State, *, jobs: bool = True) -> dict[str, int]:
    """By queue, children not included: the sum of its slices' guarantees; `jobs`: those of the queue's jobs as well."""
    used: dict[str, int] = {}
    for made in state.slices.values():
        if made.name not in state.waiting and (jobs or not made.origin.queue_job_id):
            used[made.queue] = used.get(made.queue, 0) + width_milli(made)
    return used


def direct_refusal(state: State, asker: Asker) -> Denied | None:
    """Why this user may make no slice himself, or None."""
    if state.policy.direct != DENY or asker.admin:
        return None
    text = "slices are for jobs only on this node (direct = deny): submit one, for example `vgpu submit -- CMD`"
    return Denied(Reason.DENIED, text)


def limit_refusal(state: State, queue: str, wanted_milli: int, excluded_slice: str = "") -> Denied | None:
    """Why the queue has no capacity for this much more, or None. `excluded_slice`: the slice that is being changed."""
    if state.policy.direct == ALLOW:
        return None
    found = state.quotas.get(queue)
    for quota in (found, state.quotas.get(found.parent) if found else None):
        if quota is None or quota.limit_milli >= NO_LIMIT:
            continue
        holders = _holders(state, quota.name, excluded_slice)
        used = sum(milli for milli, _ in holders)
        if used + wanted_milli > quota.limit_milli:
            return _full(quota, used, wanted_milli, holders)
    return None


def _holders(state: State, queue: str, excluded_slice: str) -> list[tuple[int, str]]:
    """(milli, what) of all that counts against a queue, the largest first."""
    inside = {queue, *(quota.name for quota in state.quotas.values() if quota.parent == queue)}
    counted = [s for s in state.slices.values() if s.queue in inside and s.name not in {*state.waiting, excluded_slice}]
    rows = [(width_milli(s), f"job {id_}" if (id_ := s.origin.queue_job_id) else f"slice {s.name}") for s in counted]
    return sorted((row for row in rows if row[0]), key=lambda row: (-row[0], row[1]))


def _full(quota: Quota, used: int, wanted_milli: int, holders: list[tuple[int, str]]) -> Denied:
    named = [f"{what} {format_gpus(milli)}" for milli, what in holders[:_NAMED_MAX]]
    more = len(holders) - len(named)
    held = f" ({', '.join(named)}{f' and {more} more' if more else ''})" if named else ""
    left = max(0, quota.limit_milli - used)
    remedy = f"ask for {format_gpus(left)} or less" if left else "wait for one of them to end"
    text = (
        f"queue {quota.name} has a limit of {format_gpus(quota.limit_milli)} GPUs and {format_gpus(used)} in use{held},"
    )
    text += f" {format_gpus(wanted_milli)} more is too much: {remedy}, or have the limit raised"
    return Denied(Reason.NO_CAPACITY, text, field="queue", subject=f"queue {quota.name}")
