"""uvicorn's HTTP with deadlines: it waits without end for a request that has begun, and for a client that reads no
answer. Each request knows whose connection it has come over: request.state.source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from vgpud.host import listeners

#: a browser that takes nothing of a page, or of a stream of events, for so long is gone
STALLED_S = 60.0


def _source(transport: Any) -> int | str:
    try:
        return listeners.source(transport.get_extra_info("socket"))
    except OSError:
        return "gone"


def browser_protocol(
    deadline_s: float,
    is_of_session: Callable[[Mapping[str, Any]], bool],
    open_tunnel: Callable[[Mapping[str, Any], asyncio.Transport, bytes], None],
) -> type[H11Protocol]:
    """The protocol of a connection whose first request is there by the deadline, and later ones that long after they
    have begun; between two of them uvicorn's own time limit holds. Of a request to a session (`is_of_session`) the
    deadline is for its headers. A connection whose request is for a session's WebSocket goes to `open_tunnel`, with
    what came behind it."""

    class Protocol(H11Protocol):
        _late: asyncio.TimerHandle | None = None
        _stalled: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, "source": _source(transport), "abort": transport.abort}
            self._late = self.loop.call_later(deadline_s, transport.abort)

        def _is_idle(self) -> bool:
            cycle: RequestResponseCycle | None = self.cycle  # uvicorn's own types say that there always is one
            return cycle is None or cycle.response_complete

        def data_received(self, data: bytes) -> None:
            if self._late is None and self._is_idle():
                self._late = self.loop.call_later(deadline_s, self.transport.abort)
            super().data_received(data)
            if self._late and not self._is_idle() and (not self.cycle.more_body or is_of_session(self.scope)):
                self._late.cancel()
                self._late = None

        def _should_upgrade(self) -> bool:
            return self._get_upgrade() == b"websocket" and is_of_session(self.scope)

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            if self.flow.write_paused:  # the tunnel's protocol would not know of it, and never wait
                self.transport.abort()
                return
            self.connections.discard(self)
            for timer in (self._late, self._stalled):
                if timer:
                    timer.cancel()
            open_tunnel(self.scope, self.transport, self.conn.trailing_data[0])

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stalled = self._stalled or self.loop.call_later(STALLED_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stalled:
                self._stalled.cancel()
                self._stalled = None

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._late, self._stalled):
                if timer:
                    timer.cancel()
            super().connection_lost(exc)

    return Protocol
