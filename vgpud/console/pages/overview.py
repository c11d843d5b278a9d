"""The overview, a device, and events."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.board import Board
from vgpud.console.pages import alerts, bars, curves
from vgpud.console.web import sse
from vgpud.console.web.site import Form, act, board_of, get, page, post, site_of
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slices import device_view
from vgpud.view.text import natural_key

#: shown of the events page at once
EVENTS_SHOWN = 200


def _overview(board: Board) -> dict[str, object]:
    found = bars.bars(board.devices, board.slices)
    nodes: dict[str, list[bars.Bar]] = {}
    for bar in found:
        nodes.setdefault(bar.device.node, []).append(bar)
    return {
        "nodes": nodes,
        "free": bars.free(found),
        "alerts": alerts.alerts(board.devices, board.slices, board.events, time.time_ns() / 1e9),
        "slices": sorted(board.slices, key=lambda item: natural_key(item.name)),
        "queues": board.queues,
        "running": sum(queue.running for queue in board.queues),
        "pending": sum(queue.pending for queue in board.queues),
        "utilization": sum(d.utilization_ratio for d in board.devices) / max(1, len(board.devices)),
        "colors": bars.colors(board.slices),
        "board": board,
    }


async def overview(request: Request) -> Response:
    chosen = curves.choose(request, "/curves.json")
    return page(request, "overview.html", curves=chosen, **_without_board(_overview(board_of(request))))


async def node_curves(request: Request) -> Response:
    return await curves.answer(request, "node", "")


async def live_overview(request: Request) -> Response:
    board, site = board_of(request), site_of(request)
    return sse.stream(request, "overview", lambda: site.templates.render("live/overview.html", **_overview(board)))


def _without_board(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name != "board"}


# ---- a device ----


def _device(board: Board, uuid: str) -> dict[str, object]:
    device = board.device(uuid)
    if device is None:
        raise HTTPException(404, f"There is no device {uuid}.")
    here = [item for item in board.slices if any(part.device_uuid == device.uuid for part in item.devices)]
    return {
        "device": device_view(device),
        "bar": next(bar for bar in bars.bars(board.devices, board.slices) if bar.device.uuid == device.uuid),
        "slices": sorted(here, key=lambda item: natural_key(item.name)),
        "colors": bars.colors(board.slices),
        "board": board,
    }


async def device(request: Request) -> Response:
    board, uuid = board_of(request), request.path_params["uuid"]
    node = await board.api.node()
    threads = [thread for thread in node.arbiters if thread.device_uuid == uuid]
    chosen = curves.choose(request, f"/device/{uuid}/curves.json")
    return page(request, "device.html", arbiters=threads, curves=chosen, **_without_board(_device(board, uuid)))


async def live_device(request: Request) -> Response:
    board, site, uuid = board_of(request), site_of(request), request.path_params["uuid"]
    _device(board, uuid)
    return sse.stream(
        request, ("device", uuid), lambda: site.templates.render("live/device.html", **_device(board, uuid))
    )


async def device_curves(request: Request) -> Response:
    return await curves.answer(request, "device", request.path_params["uuid"])


async def drain(request: Request, form: Form) -> Response:
    uuid = request.path_params["uuid"]
    reason = form.get("reason", "").strip() or "drained in the console"
    work = board_of(request).api.drain(uuid, reason)
    return await act(request, work, "The device is drained: nothing new is placed on it.", f"/device/{uuid}")


async def undrain(request: Request, form: Form) -> Response:
    uuid = request.path_params["uuid"]
    return await act(request, board_of(request).api.undrain(uuid), "The device is offered again.", f"/device/{uuid}")


# ---- events ----


def _events(board: Board, kind: str, text: str) -> Sequence[pb.Event]:
    found = [e for e in board.events if e.kind.startswith(kind) and text.lower() in f"{e.slice} {e.message}".lower()]
    return found[: -EVENTS_SHOWN - 1 : -1]


async def events(request: Request) -> Response:
    board = board_of(request)
    kind, text = request.query_params.get("kind", ""), request.query_params.get("text", "")
    groups = sorted({event.kind.partition(".")[0] for event in board.events})
    shown = _events(board, kind, text)
    return page(request, "events.html", events=shown, kind=kind, text=text, groups=groups, levels=alerts.EVENTS)


async def live_events(request: Request) -> Response:
    board, site = board_of(request), site_of(request)
    kind, text = request.query_params.get("kind", ""), request.query_params.get("text", "")

    def render() -> str:
        return site.templates.render("live/events.html", events=_events(board, kind, text), levels=alerts.EVENTS)

    def last(board: Board) -> int:
        return board.events[-1].sequence if board.events else 0

    return sse.stream(request, ("events", kind, text), render, last)


ROUTES = [
    get("/", overview),
    get("/live/overview", live_overview),
    get("/curves.json", node_curves),
    get("/device/{uuid}", device),
    get("/live/device/{uuid}", live_device),
    get("/device/{uuid}/curves.json", device_curves),
    post("/device/{uuid}/drain", drain),
    post("/device/{uuid}/undrain", undrain),
    get("/events", events),
    get("/live/events", live_events),
]
