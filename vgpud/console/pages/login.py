"""Log-in, log-out, the theme, and static files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from vgpud.console.login.client import RefusedError, find_source
from vgpud.console.login.openid import OPENID_PATH
from vgpud.console.web.site import Form, Site, back_to, post, read_form, site_of, user_of

STATIC = Path(__file__).resolve().parent.parent / "static"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
#: the theme is no secret, and lasts
_THEME_S = 365 * 86400
#: to log in with the provider
_OPENID_S = 600


class _Files:
    """The static files, in memory: the process may lose the right to read them."""

    def __init__(self) -> None:
        self.files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in _TYPES}
        self.tags = {name: f'"{hashlib.sha256(data).hexdigest()[:32]}"' for name, data in self.files.items()}

    async def serve(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.files:
            return Response("There is no such file.", 404)
        headers = {"etag": self.tags[name], "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == self.tags[name]:
            return Response(status_code=304, headers=headers)
        return Response(self.files[name], media_type=_TYPES[Path(name).suffix], headers=headers)


def _page(request: Request, refusal: str, status: int = 200, is_done: bool = False) -> HTMLResponse:
    site = site_of(request)
    token = request.query_params.get("token", "")
    theme = request.cookies.get("theme", "")
    html = site.templates.render(
        "login.html",
        token=token,
        refusal=refusal,
        is_done=is_done,
        passwords=site.passwords,
        provider=site.provider.name if site.provider else "",
        private=site.private,
        theme=theme if theme in ("light", "dark") else "",
    )
    return HTMLResponse(html, status)


async def login_page(request: Request) -> Response:
    """A link is used by the button only: programs that look at links do not use it up."""
    if "token" not in request.query_params and await site_of(request).user(request):
        return RedirectResponse("/", 303)
    return _page(request, "")


def _source(request: Request) -> str:
    """Whose failures a failed log-in is: a user of this machine (also one that tunnels), an address, "unix"."""
    who = getattr(request.state, "source", None)  # as the connection was accepted: it may be closed by now
    if who is not None:
        return f"uid {who}" if isinstance(who, int) else str(who)
    peer, own = request.client, request.scope.get("server")
    if peer is None or own is None or own[1] is None:
        return "unix"
    return find_source((peer.host, peer.port), (own[0], own[1]))


async def login(request: Request) -> Response:
    site, form = site_of(request), await read_form(request)
    address = _source(request)
    try:
        if form.get("token"):
            cookie = await site.broker.redeem(form["token"], site.source(request))
        else:
            cookie = await site.broker.password(form.get("name", ""), form.get("password", ""), address)
    except RefusedError as error:
        return _page(request, str(error), 403)
    answer = RedirectResponse("/", 303)
    _set_session(answer, site, cookie)
    return answer


def _set_session(answer: Response, site: Site, cookie: str) -> None:
    answer.set_cookie(site.cookie, cookie, path="/", httponly=True, samesite="strict", secure=site.secure)


# ---- with an OpenID provider ----


async def begin_openid(request: Request) -> Response:
    """Sends the browser to the provider, with a secret to keep until it comes back."""
    site = site_of(request)
    if site.provider is None:
        return _page(request, "This console has no OpenID provider.", 404)
    try:
        begun = await site.provider.begin(_source(request))
    except RefusedError as error:
        return _page(request, str(error), 502)
    answer = RedirectResponse(begun.url, 303)
    # lax: the browser comes back from another site
    answer.set_cookie(
        _openid_cookie(site),
        begun.secret,
        max_age=_OPENID_S,
        path="/",
        httponly=True,
        samesite="lax",
        secure=site.secure,
    )
    return answer


def _openid_cookie(site: Site) -> str:
    return f"{site.cookie}-openid"


async def finish_openid(request: Request) -> Response:
    """The provider has sent the browser back. The page leads on by itself: a redirect would still be of the other
    site, and come without the session's cookie."""
    site, given = site_of(request), request.query_params
    if site.provider is None:
        return _page(request, "This console has no OpenID provider.", 404)
    try:
        if "code" not in given:
            why = given.get("error_description") or given.get("error") or "no code"
            raise RefusedError(f"the provider did not log you in: {why[:200]}")
        secret = request.cookies.get(_openid_cookie(site), "")
        token = await site.provider.finish(_source(request), given["code"], given.get("state", ""), secret)
        cookie = await site.broker.redeem(token, site.source(request))
    except RefusedError as error:
        answer = _page(request, str(error), 403)
    else:
        answer = _page(request, "", is_done=True)
        answer.headers["refresh"] = "0; url=/"
        _set_session(answer, site, cookie)
    answer.delete_cookie(_openid_cookie(site), path="/", httponly=True, samesite="lax", secure=site.secure)
    return answer


async def logout(request: Request, form: Form) -> Response:
    site = site_of(request)
    await site.broker.logout(user_of(request).cookie)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(site.cookie, path="/", httponly=True, samesite="strict", secure=site.secure)
    return answer


async def theme(request: Request, form: Form) -> Response:
    """Light, dark or the system's; back to the page that it was chosen on."""
    chosen = form.get("theme", "")
    path = urlsplit(form.get("path", "/")).path
    answer = back_to(path if path.startswith("/") and not path.startswith("//") else "/")
    if chosen in ("light", "dark"):
        answer.set_cookie(
            "theme", chosen, max_age=_THEME_S, path="/", samesite="strict", secure=site_of(request).secure
        )
    else:
        answer.delete_cookie("theme", path="/", samesite="strict")
    return answer


def routes() -> list[Route]:
    return [
        Route("/static/{name}", _Files().serve, methods=["GET"], name="static"),
        Route(OPENID_PATH, begin_openid, methods=["GET"], name=OPENID_PATH),
        Route(f"{OPENID_PATH}/callback", finish_openid, methods=["GET"], name=f"{OPENID_PATH}/callback"),
        Route("/login", login_page, methods=["GET"], name="/login"),
        Route("/login", login, methods=["POST"], name="/login"),
        post("/logout", logout),
        post("/theme", theme),
    ]
