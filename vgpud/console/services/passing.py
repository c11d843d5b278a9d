"""HTTP and WebSockets below /service/NAME/: one address for all services of a user on this node, by the console's
log-in. The service gets the path without the part that names it."""

from __future__ import annotations

import re
import time
from collections import OrderedDict

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse

from vgpud.console.live.data import Api
from vgpud.console.services.balancer import need_balancer
from vgpud.console.sessions.headers import is_within
from vgpud.console.sessions.http import Passed, Sessions
from vgpud.console.sessions.program import KNOWN_MAX, KNOWN_S, NotOpenError, Program
from vgpud.console.web.security import SERVICE_PREFIX, Receive, Scope, Send
from vgpud.console.web.site import board_of, enter, user_of
from vgpud.errors import CliError, ExitCode

_NAME = re.compile(rb"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
#: at which a program of this machine reaches it on loopback
_LOOPBACK = ("127.0.0.1", "0.0.0.0", "localhost", "::")


class Services:
    """The ASGI application below /service/."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._known: OrderedDict[tuple[int, str], tuple[float, Program]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        away = await enter(request)
        name, slash = _name_in(request)
        if away is None and _NAME.fullmatch(name) and not slash:
            away = RedirectResponse(f"{SERVICE_PREFIX}{name.decode()}/", 307)
        if away is None:
            try:
                away = Passed(self._sessions, request, await self.find(request), at_own_host=False)
            except NotOpenError as error:
                away = PlainTextResponse(str(error), error.status)
        await away(scope, receive, send)

    async def find(self, request: Request) -> Program:
        """Where the service of the request's path listens, for a user who is logged in. Raises NotOpenError."""
        name, slash = _name_in(request)
        base = SERVICE_PREFIX.encode() + name + slash
        if not (slash and _NAME.fullmatch(name) and is_within(_path_of(request), base)):
            raise NotOpenError("There is no such service.", 404)
        return await self._find(board_of(request).api, user_of(request).uid, name.decode(), base)

    async def _find(self, api: Api, uid: int, name: str, base: bytes) -> Program:
        """Where the user's service listens. Raises NotOpenError."""
        at_s, known = self._known.get((uid, name), (0.0, None))
        if known and time.monotonic() - at_s < KNOWN_S:
            return known
        try:
            balancer = await need_balancer(api, uid, name)
            status, record = await balancer.status(), await balancer.record()
        except CliError as error:
            if known and error.exit_code == ExitCode.UNREACHABLE:  # a service outlives the daemon
                return known
            missing = error.exit_code == ExitCode.NOT_FOUND
            raise NotOpenError(error.message, 404 if missing else 503, is_awaited=not missing) from error
        try:
            is_reachable = bool(status["port"]) and status["host"] in _LOOPBACK
            why = "" if is_reachable else status["trouble"] or f"it listens at {status['host']} only"
            shown, port = ("authorization", f"Bearer {record.token}"), int(status["port"])
        except (KeyError, TypeError, ValueError) as error:
            raise NotOpenError(f"service {name}: its balancer answers something else", 503) from error
        if why:
            raise NotOpenError(f"service {name}: {why}", 503, is_awaited=True)
        job = balancer.job
        found = Program(job.job_id, job.uid, port, shown, base, inner_base=b"/", title=f"service {name}")
        self._known[uid, name] = time.monotonic(), found
        self._known.move_to_end((uid, name))
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return found


def _path_of(request: Request) -> bytes:
    raw_path: bytes = request.scope.get("raw_path") or b""
    return raw_path


def _name_in(request: Request) -> tuple[bytes, bytes]:
    """The service that a path names, and the / behind it, b"": there is none."""
    name, slash, _ = _path_of(request).removeprefix(SERVICE_PREFIX.encode()).partition(b"/")
    return name, slash
