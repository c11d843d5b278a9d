"""Fragments that replace a part of an open page whenever the board has changed, as server-sent events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vgpud.console.live.board import Board
from vgpud.console.web.site import board_of, site_of, user_of

#: a window is updated at most this often
EVERY_S = 1.0
#: what is sent while nothing changes, so that a closed window is noticed; the session is looked at as often, which
#: does not count as its use: a window that is left open ends with it
ALIVE_S = 10.0
#: windows of one user
WINDOWS_MAX = 64
_KEEP_ALIVE = b":\n\n"


def event(html: str) -> bytes:
    """A message whose data replaces the target."""
    return b"".join(b"data: " + line.encode() + b"\n" for line in html.splitlines() if line.strip()) + b"\n"


def stream(
    request: Request,
    key: Hashable,
    render: Callable[[], str],
    state: Callable[[Board], Hashable] = lambda board: board.tick,
    jobs: bool = False,
    load: Callable[[], Awaitable[None]] | None = None,
) -> Response:
    """Sends what render() makes, when it has changed. key: the same for windows that show the same; state: changes
    whenever the fragment may; load: fetches what has no stream, before each look."""
    board = board_of(request)
    if board.windows >= WINDOWS_MAX:
        return Response(f"{WINDOWS_MAX} windows are open, which is the limit: close some", 429)
    return StreamingResponse(
        _events(request, board, key, render, state, jobs, load),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},
    )


async def _events(
    request: Request,
    board: Board,
    key: Hashable,
    render: Callable[[], str],
    state: Callable[[Board], Hashable],
    jobs: bool,
    load: Callable[[], Awaitable[None]] | None,
) -> AsyncIterator[bytes]:
    site, user = site_of(request), user_of(request)
    sent, tick, looked_s = b"", -1, time.monotonic()
    with board.window(jobs):
        while True:
            began_s = time.monotonic()
            if began_s - looked_s > ALIVE_S:
                looked_s = began_s
                known = await site.broker.user(user.cookie, user.source, is_use=False)
                if known is None:
                    return
                await site.boards.of(known, request.state.node)
            tick = await board.wait_change(tick, ALIVE_S)
            if load:
                await load()
            data = board.fragment(key, state(board), lambda: event(render()))
            yield data if data is not sent and data != sent else _KEEP_ALIVE
            sent = data
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began_s)))
