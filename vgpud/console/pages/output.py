"""The output of a job: its end on the page, pieces of it for a page that follows it, and all of it as a file."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from vgpud.client import calls
from vgpud.console.login import wire
from vgpud.console.login.client import RefusedError
from vgpud.console.pages.job_number import JOB
from vgpud.console.web.site import board_of, get, site_of, user_of
from vgpud.core.units import format_bytes, parse_whole
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a log's end on the page, and of each piece that a page asks for
PIECE_BYTES = 64 * 1024
#: of a file that is sent, at a time
_SENT_BYTES = 256 * 1024
_OFFSET_MAX = (1 << 53) - 1  # the largest whole number of a script
#: what a terminal takes as commands: colours, the cursor's moves, titles of windows
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)


class NoOutputError(Exception):
    """Why there is no output to show: one sentence."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log, as a terminal shows it. Offsets in bytes."""

    begin: int
    next: int  # where the last line begins that has no end yet: the next piece is asked for from here
    size: int  # of the file
    text: str  # whole lines
    rest: str  # the line without an end


def _render(data: bytes) -> str:
    """The text as a terminal shows it: of a progress bar, which returns to the line's beginning, the last state."""
    text = _ESCAPES.sub("", data.decode(errors="replace").replace("\r\n", "\n"))
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))


def cut_piece(data: bytes, begin: int, size: int) -> Piece:
    """`data`: what is in a file of this size from `begin` on."""
    lines, newline, rest = data.rpartition(b"\n")
    return Piece(begin, begin + len(lines) + len(newline), size, _render(lines + newline), _render(rest))


def read_piece(fd: int, begin: int | None, end: int | None) -> Piece:
    """What follows `begin`, what is in front of `end`, or the file's end. Closes the descriptor. A file that
    was cut since is read from its present end."""
    try:
        size = os.fstat(fd).st_size
        last = size if end is None else min(end, size)
        first = max(0, last - PIECE_BYTES)
        if end is None and begin is not None and first <= begin <= size:
            first = begin
        data = os.pread(fd, last - first, first)
    finally:
        os.close(fd)
    if first and first != begin and (cut := data.find(b"\n") + 1) and cut < len(data):  # begins with a whole line
        data, first = data[cut:], first + cut
    return cut_piece(data, first, size)


async def open_log(request: Request) -> tuple[int, pb.Job]:
    """The job's log, opened with its owner's rights for the owner and root. Raises NoOutputError, CliError."""
    job = await board_of(request).api.job(request.path_params["job_id"])
    if request.state.node:
        raise NoOutputError(f"The output is on node {request.state.node}: {job.log}")
    if not job.log:
        raise NoOutputError("The job has no output yet.")
    try:
        return await site_of(request).broker.read_as(user_of(request), job.uid, job.log), job
    except (RefusedError, wire.GoneError, TimeoutError, asyncio.TimeoutError) as error:
        raise NoOutputError(f"{job.log}: {error}") from error


async def read_tail(request: Request) -> dict[str, object]:
    """What the page has of it before, and without, scripts."""
    try:
        fd, _ = await open_log(request)
    except NoOutputError as error:
        return {"log": "", "log_note": str(error)}
    piece = await asyncio.to_thread(read_piece, fd, None, None)
    return {"log": piece.text + piece.rest, "log_note": describe(piece)}


def describe(piece: Piece) -> str:
    size = format_bytes(piece.size)
    return f"{size}, of which the end is shown" if piece.begin else size


async def output_piece(request: Request) -> Response:
    """JSON: a piece of the log, or `problem`, and whether the job has ended."""
    given = request.query_params
    try:
        fd, job = await open_log(request)
    except NoOutputError as error:
        return JSONResponse({"problem": str(error), "ended": False})
    begin, end = (parse_whole(given.get(name, ""), _OFFSET_MAX) for name in ("from", "before"))
    piece = await asyncio.to_thread(read_piece, fd, begin, end)
    fields = {name: getattr(piece, name) for name in Piece.__slots__}
    return JSONResponse({**fields, "note": format_bytes(piece.size), "ended": job.state in calls.ENDED})


async def output_file(request: Request) -> Response:
    """The log as it is now, as a file to keep."""
    job_id = request.path_params["job_id"]
    try:
        fd, _ = await open_log(request)
    except NoOutputError as error:
        return PlainTextResponse(str(error), 404)
    size = os.fstat(fd).st_size
    headers = {"content-disposition": f'attachment; filename="vgpu-{job_id}.log"'}
    return StreamingResponse(_send(fd, size), media_type="application/octet-stream", headers=headers)


async def _send(fd: int, size: int) -> AsyncIterator[bytes]:
    """The first `size` bytes: what is written meanwhile is not sent, else a busy job's file would have no end."""
    try:
        at = 0
        while at < size and (data := await asyncio.to_thread(os.pread, fd, min(_SENT_BYTES, size - at), at)):
            at += len(data)
            yield data
    finally:
        os.close(fd)


ROUTES = [
    get(f"{JOB}/output.json", output_piece),
    get(f"{JOB}/output", output_file),
]
