"""The console's web application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from vgpud.console.live.boards import Boards
from vgpud.console.login.client import Broker
from vgpud.console.login.provider_client import ProviderClient
from vgpud.console.pages import jobs, kubernetes, login, nodes, overview, queue, quotas, slices, submit, terminal
from vgpud.console.services import page as services_page
from vgpud.console.services import start as service_start
from vgpud.console.services.passing import Services
from vgpud.console.sessions.entry import Entrance
from vgpud.console.sessions.http import Sessions
from vgpud.console.sessions.own_hosts import NO_DOMAIN, Domain
from vgpud.console.sessions.tunnel import Tunnels
from vgpud.console.web.node_path import NodePath
from vgpud.console.web.security import App, Guard, Receive, Scope, Send, TooLargeError
from vgpud.console.web.site import Site, enter


@dataclass(frozen=True)
class Options:
    """How the console is reached."""

    hosts: frozenset[str]  # names in its URL
    secure: bool  # TLS
    passwords: bool
    private: bool  # loopback or a unix socket
    folder: Path  # of sockets that are for this process alone
    domain: Domain = NO_DOMAIN  # of sessions' own host names
    has_tls: bool = False  # browsers reach it by https, perhaps by a proxy in front of it
    nodes: Sequence[tuple[str, str]] = ()  # name and URL of other nodes' consoles
    provider: ProviderClient | None = None  # for log-ins with an OpenID provider
    cluster_dir: Path | None = None  # where `vgpu cluster run` publishes


class OwnHosts:
    """ASGI middleware: what is for a session's own host is no page of the console's, whatever its path is."""

    def __init__(self, app: App, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_own = scope["type"] == "http" and scope["state"].get("at_session_host")
        await (self._sessions if is_own else self._app)(scope, receive, send)


async def _show_error(request: Request, error: Exception) -> Response:
    """An error's sentence, on a page for those who are logged in."""
    status = error.status_code if isinstance(error, HTTPException) else 413
    sentence = str(error.detail) if isinstance(error, HTTPException) else "The form is too large."
    if request.headers.get("sec-fetch-dest") == "empty" or await enter(request) is not None:  # a script asks
        return PlainTextResponse(sentence, status)
    site: Site = request.app.state.site
    return site.page(request, "refused.html", status, sentence=sentence)


def make(broker: Broker, options: Options) -> Starlette:
    """The application. Everything on disk is read now."""
    boards = Boards(broker, options.folder)
    entrance = Entrance(options.domain)
    sessions = Sessions(entrance)
    services = Services(sessions)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with boards:
            yield

    app = Starlette(
        routes=[
            *login.routes(),
            *overview.ROUTES,
            *nodes.ROUTES,
            *kubernetes.ROUTES,
            *slices.ROUTES,
            *queue.ROUTES,
            *jobs.ROUTES,
            *submit.ROUTES,
            *terminal.ROUTES,
            *quotas.ROUTES,
            *service_start.ROUTES,
            *services_page.ROUTES,
            Route("/share/{secret}", entrance.open_share, methods=["GET"]),
            Mount("/session", app=sessions),
            Mount("/service", app=services),
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _show_error, TooLargeError: _show_error},
    )
    app.add_middleware(NodePath)
    app.add_middleware(OwnHosts, sessions=sessions)  # inside of the guard
    app.add_middleware(Guard, hosts=options.hosts, secure=options.secure, is_session_host=options.domain.has_host)
    app.state.site = Site(
        broker,
        boards,
        secure=options.secure,
        passwords=options.passwords,
        private=options.private,
        has_tls=options.has_tls,
        nodes=options.nodes,
        provider=options.provider,
        cluster_dir=options.cluster_dir,
    )
    app.state.sessions = sessions
    app.state.viewers = terminal.Viewers()
    app.state.tunnels = Tunnels(app, sessions, options.hosts, services.find)
    return app
