"""The overview, a device, and events."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.alert_book import AlertBook
from vgpud.console.live.board import Board
from vgpud.console.login.client import User
from vgpud.console.pages import alerts, bars, curves, trends
from vgpud.console.web import sse
from vgpud.console.web.site import (
    Form,
    act,
    address_of,
    back_to,
    board_of,
    get,
    page,
    post,
    render,
    shown_user,
    site_of,
    user_of,
)
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slices import device_view
from vgpud.view.text import natural_key

#: shown of the events page at once
EVENTS_SHOWN = 200
#: of the overview
ALERTS_SHOWN = 12
TREND_S = 3600


@dataclass(frozen=True, slots=True)
class ShownAlert:
    """An alert on the page. is_event: at_s is when it happened, otherwise since when the console has seen it."""

    alert: alerts.Alert
    at_s: float
    is_event: bool


def _alerts(board: Board, book: AlertBook) -> dict[str, object]:
    now_s = time.time_ns() / 1e9
    found = alerts.alerts(board.devices, board.slices, board.events, now_s)
    book.see((alert.key for alert in found), now_s)
    shown = [alert for alert in found if not book.is_dismissed(alert.key)]
    return {
        "alerts": [ShownAlert(a, a.at_s or book.seen_s(a.key), bool(a.at_s)) for a in shown[:ALERTS_SHOWN]],
        "left_out": max(0, len(shown) - ALERTS_SHOWN),
        "dismissed": len(found) - len(shown),
    }


def _overview(board: Board, user: User, book: AlertBook) -> dict[str, object]:
    found = bars.bars(board.devices, board.slices)
    nodes: dict[str, list[bars.Bar]] = {}
    for bar in found:
        nodes.setdefault(bar.device.node, []).append(bar)
    return {
        **_alerts(board, book),
        "nodes": nodes,
        "free": bars.free(found),
        "trends": trends.node_trends(board.trend, board.devices, time.time_ns() / 1e9 - TREND_S),
        "users": trends.top_users(board.usage, board.slices),
        "slices": sorted(board.slices, key=lambda item: natural_key(item.name)),
        "queues": board.queues,
        "running": sum(queue.running for queue in board.queues),
        "pending": sum(queue.pending for queue in board.queues),
        "utilization": sum(d.utilization_ratio for d in board.devices) / max(1, len(board.devices)),
        "mem_used_bytes": sum(d.mem_used_bytes for d in board.devices),
        "mem_total_bytes": sum(d.mem_total_bytes for d in board.devices),
        "colors": bars.colors(board.slices),
        "board": board,
        "user": user,
    }


def _book(request: Request) -> AlertBook:
    return site_of(request).alert_book(user_of(request), request.state.node)


async def overview(request: Request) -> Response:
    board, user = board_of(request), shown_user(request)
    await board.load_trends()
    chosen = curves.choose(request, "/curves.json")
    values = _overview(board, user, _book(request))
    return page(request, "overview.html", curves=chosen, **_without_page_values(values))


async def node_curves(request: Request) -> Response:
    return await curves.answer(request, "node", "")


async def live_overview(request: Request) -> Response:
    board, user = board_of(request), shown_user(request)

    def render_overview() -> str:
        return render(request, "live/overview.html", **_overview(board, user, _book(request)))

    # its forms have the session's token: windows of one session share it
    return sse.stream(request, ("overview", user.csrf), render_overview, load=board.load_trends)


async def dismiss(request: Request, form: Form) -> Response:
    """One alert is not shown any more, until it ends and comes back."""
    _book(request).dismiss(form.get("key", ""))
    return _show_change(request)


async def restore(request: Request, form: Form) -> Response:
    _book(request).restore()
    return _show_change(request)


def _show_change(request: Request) -> Response:
    """For a script nothing: the page's stream brings the change."""
    board_of(request).notify()
    return Response(status_code=204) if request.headers.get("hx-request") else back_to(address_of(request) + "/")


def _without_page_values(values: dict[str, object]) -> dict[str, object]:
    """Without what every page has anyway."""
    return {name: value for name, value in values.items() if name not in ("board", "user")}


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
    return page(request, "device.html", arbiters=threads, curves=chosen, **_without_page_values(_device(board, uuid)))


async def live_device(request: Request) -> Response:
    board, uuid = board_of(request), request.path_params["uuid"]
    _device(board, uuid)

    def render_device() -> str:
        return render(request, "live/device.html", **_device(board, uuid))

    return sse.stream(
        request, ("device", uuid, user_of(request).csrf), render_device
    )  # its buttons have the session's token


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
    board = board_of(request)
    kind, text = request.query_params.get("kind", ""), request.query_params.get("text", "")

    def render_events() -> str:
        return render(request, "live/events.html", events=_events(board, kind, text), levels=alerts.EVENTS)

    def last(board: Board) -> int:
        return board.events[-1].sequence if board.events else 0

    return sse.stream(request, ("events", kind, text), render_events, last)


ROUTES = [
    get("/", overview),
    get("/live/overview", live_overview),
    get("/curves.json", node_curves),
    post("/alerts/dismiss", dismiss),
    post("/alerts/restore", restore),
    get("/device/{uuid}", device),
    get("/live/device/{uuid}", live_device),
    get("/device/{uuid}/curves.json", device_curves),
    post("/device/{uuid}/drain", drain),
    post("/device/{uuid}/undrain", undrain),
    get("/events", events),
    get("/live/events", live_events),
]
