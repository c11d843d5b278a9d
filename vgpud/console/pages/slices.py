"""A slice: its limits and use, curves, waits, processes; resized, paused, resumed and removed."""

from __future__ import annotations

from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.board import Board
from vgpud.console.pages import bars, curves
from vgpud.console.web import sse
from vgpud.console.web.site import (
    Form,
    act,
    board_of,
    fragment,
    get,
    page,
    post,
    render,
    shown_user,
    user_of,
)
from vgpud.core.units import MILLI_PER_DEVICE, parse_bytes, parse_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view import figures
from vgpud.view.slices import View, find_absence, is_on_host, process_view, slice_view

_BAR_CELLS = 100


def waits(device: View) -> list[tuple[str, int, int]]:
    """(label, width in hundredths of the longest, count) for each class of waiting times that occurred."""
    most = max(device["wait_counts"], default=0)
    rows = figures.wait_bars(device["wait_counts"], _BAR_CELLS, True)
    return [(label, round(100 * count / max(1, most)), count) for label, _bar, count in rows]


def _slice(board: Board, slice_: pb.Slice) -> dict[str, object]:
    item = slice_view(slice_, board.simulated_uuids)
    return {
        "slice": item,
        "absence": find_absence(slice_),
        "on_host": is_on_host(item),
        "waits": waits,
        "colors": bars.colors(board.slices),
    }


async def _programs(board: Board, name: str) -> list[View]:
    return [process_view(p, board.simulated_uuids) for p in await board.api.processes(name)]


async def slice_page(request: Request) -> Response:
    board, name = board_of(request), request.path_params["name"]
    found = await board.api.slice(name)  # as it is now: the board's may be a second old
    processes = await _programs(board, name)
    count = len(found.devices)
    sizes = {
        "min": sum(part.min_milli for part in found.devices),
        "max": sum(part.max_milli for part in found.devices),
        "mem": sum(part.mem_max_bytes for part in found.devices),
        "most": count * MILLI_PER_DEVICE,
    }
    chosen = curves.choose(request, f"/slice/{quote(name)}/curves.json")
    return page(request, "slice.html", processes=processes, sizes=sizes, curves=chosen, **_slice(board, found))


async def programs_part(request: Request) -> Response:
    """Its programs, which have no stream; none once it has ended."""
    board, name = board_of(request), request.path_params["name"]
    item = board.slice(name)
    processes = await _programs(board, name) if item else []
    owner = item.owner_uid if item else shown_user(request).uid
    return fragment(request, "live/programs.html", processes=processes, slice={"owner_uid": owner})


async def live_slice(request: Request) -> Response:
    board, name = board_of(request), request.path_params["name"]

    def render_slice() -> str:
        found = board.slice(name)
        if found is None:
            return render(request, "live/ended.html", what=f"Slice {name}")
        return render(request, "live/slice.html", **_slice(board, found))

    return sse.stream(
        request, ("slice", name, user_of(request).csrf), render_slice
    )  # its buttons have the session's token


async def slice_curves(request: Request) -> Response:
    """Of a slice that has ended, too."""
    return await curves.answer(request, "slice", request.path_params["name"])


# ---- actions ----


def parse_resize(form: Form) -> tuple[pb.SliceSpec, list[str]]:
    """The changed fields of a resize. Raises ValueError, one sentence."""
    spec, fields = pb.SliceSpec(), []
    for name in ("min", "max"):
        if form.get(name, "").strip() and form[name].strip() != form.get(f"{name}_was", ""):
            setattr(spec, f"{name}_milli", parse_gpus(form[name], zero=name == "min"))
            fields.append(f"{name}_milli")
    memory = form.get("mem", "").strip()
    if memory:
        spec.mem_max_bytes = parse_bytes(memory)
        fields.append("mem_max_bytes")
    if not fields:
        raise ValueError("nothing was changed: move a slider or write an amount of memory")
    return spec, fields


async def resize(request: Request, form: Form) -> Response:
    name = request.path_params["name"]
    api = board_of(request).api

    async def work() -> None:
        await api.update_slice(name, *parse_resize(form))

    return await act(request, work(), f"Slice {name} was resized.", f"/slice/{name}")


async def pause(request: Request, form: Form) -> Response:
    name = request.path_params["name"]
    work = board_of(request).api.pause_slice(name)
    return await act(request, work, f"Slice {name} is paused: its programs wait.", f"/slice/{name}")


async def resume(request: Request, form: Form) -> Response:
    name = request.path_params["name"]
    return await act(request, board_of(request).api.resume_slice(name), f"Slice {name} continues.", f"/slice/{name}")


async def remove(request: Request, form: Form) -> Response:
    name = request.path_params["name"]
    work = board_of(request).api.delete_slice(name, form.get("force") == "yes")
    return await act(request, work, f"Slice {name} was removed.", "/", f"/slice/{name}")


ROUTES = [
    get("/slice/{name}", slice_page),
    get("/slice/{name}/programs", programs_part),
    get("/live/slice/{name}", live_slice),
    get("/slice/{name}/curves.json", slice_curves),
    post("/slice/{name}/resize", resize),
    post("/slice/{name}/pause", pause),
    post("/slice/{name}/resume", resume),
    post("/slice/{name}/remove", remove),
]
