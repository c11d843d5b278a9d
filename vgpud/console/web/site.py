"""What a page has at hand: the user of the request, their board, forms with their token, messages for the next page."""

from __future__ import annotations

import dataclasses
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from vgpud.console.live.alert_book import AlertBook, AlertBooks
from vgpud.console.live.board import Board
from vgpud.console.live.boards import Boards
from vgpud.console.live.cluster import ClusterStatus
from vgpud.console.live.nodes import Node, Nodes
from vgpud.console.login.client import Broker, RefusedError, User
from vgpud.console.login.provider_client import ProviderClient
from vgpud.console.web.node_path import node_address
from vgpud.console.web.render import Templates
from vgpud.errors import CliError

#: sessions that messages wait for, and messages of one
FLASHES_MAX, EACH_MAX = 1024, 4
#: the gRPC status of a refusal is no part of a sentence: a page that cannot be shown has this one
REFUSED = 403
#: pages that are made of the board's slices and devices
SHOWS_SLICES = ("/slice/", "/device/")
Form = Mapping[str, str]
R = TypeVar("R", bound=Response)


class Site:
    """The parts of the console. cookie: the name of the session's cookie."""

    def __init__(
        self,
        broker: Broker,
        boards: Boards,
        *,
        secure: bool,
        passwords: bool,
        private: bool,
        has_tls: bool = False,
        nodes: Sequence[tuple[str, str]] = (),
        provider: ProviderClient | None = None,
        cluster_dir: Path | None = None,
    ) -> None:
        self.broker = broker
        self.boards = boards
        self.secure = secure
        self.passwords = passwords  # whether there is a password file
        self.private = private  # whether only this machine's users reach it
        self.has_tls = secure or has_tls  # whether browsers reach it by https, by itself or by a proxy in front of it
        self.provider = provider  # of log-ins by OpenID Connect
        self.nodes = Nodes(broker)  # that each user reaches
        self.cluster = ClusterStatus(cluster_dir)  # Slurm's, where `vgpu cluster run` is on this machine
        self.consoles = nodes  # name and URL of other nodes' consoles
        #: __Host-: a browser takes it over TLS only, for this host and no other
        self.cookie = "__Host-vgpu" if secure else "vgpu"
        self.templates = Templates()
        self._alert_books = AlertBooks()
        self._flashes: OrderedDict[str, list[tuple[str, str]]] = OrderedDict()

    # ---- messages for the next page ----

    def flash(self, user: User, kind: str, text: str) -> None:
        """A message (done or refused) that the user's next page shows."""
        waiting = self._flashes.setdefault(user.cookie, [])
        waiting.append((kind, text))
        del waiting[:-EACH_MAX]
        while len(self._flashes) > FLASHES_MAX:
            self._flashes.popitem(last=False)

    def take_flashes(self, user: User) -> list[tuple[str, str]]:
        return self._flashes.pop(user.cookie, [])

    def alert_book(self, user: User, node: str) -> AlertBook:
        """What is remembered of this user's alerts of a node."""
        return self._alert_books.of((user.uid, node))

    # ---- pages ----

    async def user(self, request: Request) -> User | None:
        cookie = request.cookies.get(self.cookie, "")
        is_use = not _is_asked_by_itself(request.url.path)
        return await self.broker.user(cookie, self.source(request), is_use=is_use) if cookie else None

    def source(self, request: Request) -> str:
        """Whose connection a request has come over. Without TLS a browser sends the cookie to every port of the host,
        so to servers of other users, too; over their connections it is worth nothing. "" where that does not matter."""
        return "" if self.secure else str(getattr(request.state, "source", "gone"))

    def page(self, request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        """A whole page for a user who is logged in."""
        user: User = request.state.user
        board: Board = request.state.board
        theme = request.cookies.get("theme", "")
        text = self.templates.render(
            name,
            **values,
            user=dataclasses.replace(user, uid=request.state.own_uid),
            board=board,
            at=address_of(request),
            node=request.state.node,
            consoles=self.consoles,
            path=request.url.path,
            theme=theme if theme in ("light", "dark") else "",
            flashes=self.take_flashes(user),
        )
        return HTMLResponse(text, status_code=status)


def _is_asked_by_itself(path: str) -> bool:
    """Whether an open page asks for this every few seconds, with or without a user in front of it: that does not keep a
    log-in alive."""
    is_update = path.endswith(("/part", "/log", "/output.json"))
    is_part = is_update and path.startswith(("/job/", "/kubernetes/", "/nodes/", "/services/"))
    return is_part or path.startswith("/live/") or path.endswith("/curves.json")


def site_of(request: Request) -> Site:
    found: Site = request.app.state.site
    return found


def board_of(request: Request) -> Board:
    found: Board = request.state.board
    return found


def user_of(request: Request) -> User:
    found: User = request.state.user
    return found


def shown_user(request: Request) -> User:
    """The user as templates compare it with owners: with the uid on the page's node."""
    return dataclasses.replace(user_of(request), uid=request.state.own_uid)


def address_of(request: Request) -> str:
    """In front of the addresses of the page's node."""
    return node_address(request.state.node)


def page(request: Request, name: str, **values: Any) -> HTMLResponse:
    return site_of(request).page(request, name, **values)


def render(request: Request, name: str, **values: Any) -> str:
    """A part of a page of this request's node."""
    board: Board = request.state.board
    shown = {"board": board, "user": shown_user(request), "at": address_of(request), **values}
    return site_of(request).templates.render(name, **shown)


def fragment(request: Request, name: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(render(request, name, **values))


async def enter(request: Request) -> Response | None:
    """Sets request.state.user and .board, or returns the way to the log-in."""
    site = site_of(request)
    user = await site.user(request)
    if user is None:
        if request.method != "GET" or request.headers.get("hx-request") or request.url.path.startswith("/live/"):
            return Response("log in again", 401, headers={"HX-Redirect": "/login"})
        return RedirectResponse("/login", 303)
    request.state.user = user
    try:
        node = await _find_node(request, site, user)
        request.state.board = await site.boards.of(user, node.name)
        request.state.own_uid = node.uid
    except RefusedError:
        return RedirectResponse("/login", 303)
    await request.state.board.ready()
    return None


async def _find_node(request: Request, site: Site, user: User) -> Node:
    """The node of the address. Raises HTTPException."""
    name = getattr(request.state, "node", "")
    if not name:
        return Node("", "", user.uid)
    found = next((node for node in await site.nodes.of(user) if node.name == name), None)
    if found is None:
        request.state.node = ""
        raise HTTPException(404, f"You have no context {name}: vgpu context ls lists those that there are.")
    return found


def get(path: str, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    """A page for users who are logged in."""

    async def handle_request(request: Request) -> Response:
        away = await enter(request)
        if away is not None:
            return away
        try:
            return await endpoint(request)
        except CliError as error:
            return site_of(request).page(request, "refused.html", REFUSED, sentence=error.message)

    return Route(path, handle_request, methods=["GET"], name=path)


def post(path: str, endpoint: Callable[[Request, Form], Awaitable[Response]]) -> Route:
    """A change by a user who is logged in: the form has the token of the session."""

    async def handle_request(request: Request) -> Response:
        away = await enter(request)
        if away is not None:
            return away
        form = await read_form(request)
        if not hmac.compare_digest(form.get("csrf", "").encode(), user_of(request).csrf.encode()):
            raise HTTPException(403, "This form is not of your session: load the page again.")
        return await endpoint(request, form)

    return Route(path, handle_request, methods=["POST"], name=path)


async def read_form(request: Request) -> Form:
    """The fields of a form; of a repeated one the last."""
    async with request.form(max_files=0, max_fields=100) as form:
        return {name: value for name, value in form.multi_items() if isinstance(value, str)}


def back_to(path: str) -> Response:
    return RedirectResponse(quote(path, safe="/?&=%"), 303)


async def act(request: Request, work: Awaitable[object], done: str, path: str, refusal_path: str = "") -> Response:
    """Does the work and says so on the next page, or why it was refused. Goes to `path`, or to `refusal_path`."""
    site, user, board = site_of(request), user_of(request), board_of(request)
    seen = board.slices_tick
    try:
        await work
        if path.startswith(SHOWS_SLICES) or path == "/":
            await board.shows_changes(seen)
    except (CliError, ValueError) as error:
        site.flash(user, "refused", error.message if isinstance(error, CliError) else str(error))
        return back_to(address_of(request) + (refusal_path or path))
    site.flash(user, "done", done)
    return back_to(address_of(request) + path)
