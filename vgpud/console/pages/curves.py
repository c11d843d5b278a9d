"""Curves of the node, a device, a slice and a job: what the daemon has recorded, for a range that the page chooses."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from vgpud.console.web.site import address_of, board_of
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.errors import CliError
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: key in the page's address -> (text, seconds)
RANGES = {"1h": ("hour", 3600), "1d": ("day", 86_400), "1w": ("week", 604_800), "1y": ("year", 31_536_000)}
#: of a job: from its start to its end
RUN = "run"
_NS = 1_000_000_000
#: distance of two points, in steps, from which on there is a gap between them
_GAP_STEPS = 1.5


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the page offers, (key, text) of each range, and which one it shows; url: where the curves of it are."""

    ranges: list[tuple[str, str]]
    key: str
    url: str


def choose(request: Request, url: str, *, has_run: bool = False) -> Chosen:
    """The range in the page's address, else the last hour; of a job that has begun, its run."""
    ranges = [(RUN, "run")] if has_run else []
    ranges += [(key, f"last {text}") for key, (text, _) in RANGES.items()]
    asked = request.query_params.get("range", "")
    key = asked if asked in dict(ranges) else ranges[0][0]
    return Chosen(ranges, key, f"{address_of(request)}{url}?range={key}")


async def answer(request: Request, kind: str, name: str, run_s: tuple[int, int] | None = None) -> Response:
    """The curves of the range in the address as JSON; `run_s`: begin and end of a job, in seconds since 1970."""
    now_s = time.time_ns() // _NS
    _, range_s = RANGES.get(request.query_params.get("range", ""), RANGES["1h"])
    begin_s, end_s = now_s - range_s, now_s
    if run_s and request.query_params.get("range") == RUN:
        begin_s, end_s = run_s
    try:
        history = await board_of(request).api.history(kind, name, begin_s * _NS, max(end_s, begin_s + 1) * _NS)
    except CliError as error:
        return JSONResponse({"problem": error.message})
    return JSONResponse({"begin": begin_s, "end": end_s, **columns(history)})


def columns(history: pb.History) -> dict[str, Any]:
    """Times in seconds since 1970, shares in GPUs, memory in bytes; null where nothing was recorded."""
    step_s = history.step.seconds
    rows: list[tuple[float | None, ...]] = []
    before_s = None
    for point in history.points:
        at_s = point.begin_time.seconds
        if before_s is not None and at_s - before_s > _GAP_STEPS * step_s:
            rows.append((before_s + step_s, *[None] * 8))
        before_s = at_s
        milli = point.used_milli, point.used_peak_milli, point.min_milli, point.max_milli, point.waiting_milli
        memory = point.mem_used_bytes, point.mem_peak_bytes, point.mem_max_bytes
        rows.append((at_s, *(value / MILLI_PER_DEVICE for value in milli), *memory))
    names = "at", "share", "peak", "min", "max", "waiting", "memory", "memory_peak", "limit"
    by_name = zip(*rows, strict=True) if rows else [()] * len(names)
    return {"step": step_s, **{name: list(column) for name, column in zip(names, by_name, strict=True)}}
