"""All nodes that the user reaches, side by side."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.board import Board
from vgpud.console.live.nodes import Node
from vgpud.console.pages import bars
from vgpud.console.web.node_path import node_address
from vgpud.console.web.site import fragment, get, page, site_of, user_of
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: for the first answer of a node; those that are late follow
WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node as the page shows it. problem: why there are no figures."""

    label: str
    host: str
    at: str  # in front of its addresses
    bars: list[bars.Bar]
    free_milli: int
    used_ratio: float
    queues: list[pb.Queue]
    slices: int  # that the user may see
    problem: str


def make_row(node: Node, board: Board) -> NodeRow:
    """Of what is there now."""
    found = bars.bars(board.devices, board.slices)
    names = sorted({device.node for device in board.devices})
    is_silent = not board.devices
    return NodeRow(
        label=node.name or ", ".join(names) or "this machine",
        host=node.host or "this machine",
        at=node_address(node.name),
        bars=found,
        free_milli=bars.free(found).milli,
        used_ratio=sum(bar.used_ratio for bar in found) / max(1, len(found)),
        queues=board.queues,
        slices=len(board.slices),
        problem=board.problem or ("it has not answered yet" if is_silent and node.name else ""),
    )


async def _rows(request: Request) -> dict[str, object]:
    site, user = site_of(request), user_of(request)
    nodes = await site.nodes.of(user)
    boards = [await site.boards.of(user, node.name) for node in nodes]
    await asyncio.gather(*(board.ready(WAIT_S) for board in boards))
    rows = [make_row(node, board) for node, board in zip(nodes, boards, strict=True)]
    return {"rows": rows, "cluster": await site.cluster.look()}


async def nodes_page(request: Request) -> Response:
    return page(request, "nodes.html", **await _rows(request))


async def nodes_part(request: Request) -> Response:
    return fragment(request, "live/nodes.html", **await _rows(request))


ROUTES = [
    get("/nodes", nodes_page),
    get("/nodes/part", nodes_part),
]
