"""What the node publishes to Kubernetes, and which claims have which parts of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.board import Board
from vgpud.console.web.site import board_of, fragment, get, page
from vgpud.errors import CliError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.text import natural_key

#: that are named in one cell
PODS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Offer:
    """Published devices that differ in their names only. names: all of them, in order."""

    names: Sequence[str]
    is_shareable: bool
    capacities: Sequence[tuple[str, str, str]]  # name, value, what a claim may ask for

    @property
    def label(self) -> str:
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} to {self.names[-1]}"


@dataclass(frozen=True, slots=True)
class Holder:
    """What a claim has of one device. title: its namespace and name."""

    title: str
    pods: str
    slice: pb.Slice
    part: pb.SliceDevice


@dataclass(frozen=True, slots=True)
class DevicePart:
    """A device of the node with what is published of it. hidden_milli: guaranteed to slices that the user may not
    see."""

    device: pb.Device
    offers: Sequence[Offer]
    holders: Sequence[Holder]
    hidden_milli: int


def describe_request(capacity: pb.PublishedCapacity, is_shareable: bool) -> str:
    """What a claim may ask for of a capacity."""
    if not is_shareable:
        return "all of it"
    if not capacity.max_value:
        return "any part"
    text = f"{capacity.min_value or '0'} to {capacity.max_value}"
    if capacity.min_value == capacity.max_value:
        text = capacity.max_value
    elif capacity.step_value:
        text += f" in steps of {capacity.step_value}"
    return f"{text}; {capacity.default_value} if it does not ask" if capacity.default_value else text


def group_offers(devices: Iterable[pb.PublishedDevice]) -> list[Offer]:
    """Those of one device, in the order of their names."""
    alike: dict[bytes, list[pb.PublishedDevice]] = {}
    for device in sorted(devices, key=lambda device: natural_key(device.name)):
        bare = pb.PublishedDevice(shareable=device.shareable, capacities=device.capacities)
        alike.setdefault(bare.SerializeToString(deterministic=True), []).append(device)
    return [
        Offer(
            [device.name for device in same],
            same[0].shareable,
            [(one.name, one.value, describe_request(one, same[0].shareable)) for one in same[0].capacities],
        )
        for same in alike.values()
    ]


def describe_pods(item: pb.Slice) -> str:
    """The pods of a claim, by name as far as they are known."""
    claim = item.claim
    names = list(claim.pod_names) or sorted({c.name.partition("/")[0] for c in item.containers if c.name})
    more = max(len(claim.pod_uids), len(names)) - len(names[:PODS_SHOWN])
    named = ", ".join(names[:PODS_SHOWN])
    if not more:
        return named or "none yet"
    return f"{named} and {more} more" if named else f"{more} {'pod' if more == 1 else 'pods'}"


def describe_claim(claim: pb.Claim) -> str:
    """As kubectl knows it; of kubelet's device plugin, how many there are."""
    title = f"{claim.namespace}/{claim.name}"
    return f"{len(claim.device_ids)} of {title}" if claim.device_ids else title


def _reserved_milli(item: pb.Slice, device_uuid: str) -> int:
    """Also what it could have again after a resize: the scheduler has given it to no one else. Nothing of one that has
    given its time up."""
    if item.suspended not in (pb.SUSPENSION_UNSPECIFIED, pb.SUSPENSION_RESTORING):
        return 0
    shares = item.claim.granted if item.HasField("claim") else item.devices
    return sum(share.min_milli for share in shares if share.device_uuid == device_uuid)


def device_parts(board: Board, publication: pb.Publication) -> list[DevicePart]:
    """The devices that are given to Kubernetes, and those that claims still have."""
    found = []
    for device in board.devices:
        offers = group_offers(one for one in publication.devices if one.device_uuid == device.uuid)
        here = [(item, part) for item in board.slices for part in item.devices if part.device_uuid == device.uuid]
        holders = [
            Holder(describe_claim(item.claim), describe_pods(item), item, part)
            for item, part in here
            if item.HasField("claim")
        ]
        if device.kubernetes or offers or holders:
            hidden_milli = device.reserved_milli - sum(_reserved_milli(item, device.uuid) for item, _ in here)
            holders.sort(key=lambda holder: natural_key(holder.title))
            found.append(DevicePart(device, offers, holders, max(0, hidden_milli)))
    return found


async def _values(request: Request) -> dict[str, object]:
    board = board_of(request)
    try:
        publication = await board.api.publication()
    except CliError as error:  # a node of an older version, or one that does not answer
        publication = pb.Publication(problem=error.message)
    known = {device.uuid for device in board.devices}
    return {
        "publication": publication,
        "parts_of_devices": device_parts(board, publication),
        "others": group_offers(one for one in publication.devices if one.device_uuid not in known),
        "is_given": any(device.kubernetes for device in board.devices),
    }


async def kubernetes_page(request: Request) -> Response:
    return page(request, "kubernetes.html", **await _values(request))


async def kubernetes_part(request: Request) -> Response:
    return fragment(request, "live/kubernetes.html", **await _values(request))


ROUTES = [
    get("/kubernetes", kubernetes_page),
    get("/kubernetes/part", kubernetes_part),
]
