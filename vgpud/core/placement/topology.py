"""Linked devices for a member that needs several: those of one NVLink or NUMA group with enough free.

A group with just enough comes before a wider one, so that wide groups stay whole for jobs that need them; where none
has enough, the widest come first, so that as few as possible are joined.
"""

from __future__ import annotations

from collections.abc import Sequence


def group_order(groups: Sequence[int], fits: Sequence[Sequence[int]]) -> dict[int, int]:
    """For each device where a part fits: how early its group is used, 0 first. `fits`: by part, biggest part first."""
    if not groups:
        return dict.fromkeys(fits[-1], 0)
    members: dict[int, set[int]] = {}
    for i in fits[-1]:  # where a bigger part fits, the last one fits as well
        members.setdefault(groups[i], set()).add(i)

    def holds_all(group: set[int]) -> bool:
        return all(len(group.intersection(fit)) > count for count, fit in enumerate(fits))

    alone = [name for name, group in members.items() if holds_all(group)]
    if alone:
        ranked = sorted(members, key=lambda name: (name not in alone, len(members[name]), name))
    else:
        ranked = sorted(members, key=lambda name: (-len(members[name].intersection(fits[0])), name))
    return {i: ranked.index(groups[i]) for i in fits[-1]}


def groups_used(groups: Sequence[int], devices: Sequence[int]) -> int:
    """How many groups these devices are of; 1 where nothing is known of groups."""
    return len({groups[i] for i in devices}) if groups else 1
