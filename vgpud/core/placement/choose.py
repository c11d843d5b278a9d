"""On which devices of a node a member goes: part by part, each where the rule likes it best, linked ones together."""

from __future__ import annotations

from vgpud.core.jobs.model import Node
from vgpud.core.placement import topology, turns
from vgpud.core.placement.base import Rule, Sharing
from vgpud.core.placement.best_fit import BestFit
from vgpud.core.placement.shape import Devices, Shape

#: members of one job on one node, where they are to be counted or kept together
PACK = BestFit()


def choose(shape: Shape, node: Node, rule: Rule) -> Devices | None:
    """Devices for all parts of a member, or None where it does not fit. Equal devices: the lowest index."""
    fits = shape.fitting(node)
    if fits and rule.sharing is not None:
        fits = _welcoming(shape, node, rule.sharing, fits)
    if not fits:
        return None if fits is None else ()
    if shape.in_turn:  # of one part
        sizes = shape.sizes(node)[0]
        fits = [[i for i in fits[0] if not turns.rotates(node, i, sizes[i])] or fits[0]]
    if len(fits) == 1:
        return (_choose_device(shape, 0, node, rule, fits[0]),)
    early = topology.group_order(node.groups, fits)
    chosen: list[int] = []
    for part, fit in enumerate(fits):
        left = [i for i in fit if i not in chosen]
        earliest = min(early[i] for i in left)
        left = [i for i in left if early[i] == earliest]
        chosen.append(_choose_device(shape, part, node, rule, left))
    return tuple(chosen)


def _welcoming(shape: Shape, node: Node, sharing: Sharing, fits: list[list[int]]) -> list[list[int]] | None:
    """Of the devices where the parts fit, those where they may share with the residents; None where these are too
    few."""
    left: list[list[int]] = []
    for resident, fit in zip(shape.residents, fits, strict=True):
        left.append([i for i in fit if sharing.welcome(resident, node.residents[i])])
        if len(left[-1]) < len(left):
            return None
    return left


def _choose_device(shape: Shape, part: int, node: Node, rule: Rule, fit: list[int]) -> int:
    """Only one of each sort of device is ranked: many are alike, and the lowest index is the one to take."""
    free_milli, free_bytes, devices = node.free_milli, node.free_bytes, node.devices
    unlike: dict[tuple[object, ...], int] = {}
    if shape.in_turn:
        for i in fit:
            there = tuple(node.turns[i]) if node.turns else (), node.residents[i]
            unlike.setdefault((free_milli[i], free_bytes[i], devices[i].memory_bytes, there), i)
    elif rule.sharing is None:
        for i in fit:
            unlike.setdefault((free_milli[i], free_bytes[i], devices[i].memory_bytes), i)
    else:
        for i in fit:
            unlike.setdefault((free_milli[i], free_bytes[i], devices[i].memory_bytes, node.residents[i]), i)
    if len(unlike) == 1:
        return fit[0]
    fit = list(unlike.values())
    ranks = rule.device_ranks(shape, part, node, fit)
    return fit[ranks.index(min(ranks))]


def count_fitting_members(shape: Shape, node: Node, limit: int) -> int:
    """How many members fit on a node as it is, at most `limit`, when they are packed."""
    if shape.is_countable:
        return shape.count_members(node, limit)
    put: list[Devices] = []
    while len(put) < limit and (devices := choose(shape, node, PACK)) is not None:
        shape.change(node, devices, -1)
        put.append(devices)
    for devices in put:
        shape.change(node, devices, 1)
    return len(put)
