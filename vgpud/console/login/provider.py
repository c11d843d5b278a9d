"""The process that speaks with an OpenID provider: it alone has the client's secret and loads an HTTP client. It has no
rights of its own. The web server asks it, and gets a one-time link as from `vgpu console open`; the broker believes it
whose name a log-in is for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

import httpx

from vgpud.console.login import wire
from vgpud.console.login.openid import (
    Client,
    NotValidError,
    Provider,
    is_own,
    make_exchange,
    make_request,
    read_provider,
)
from vgpud.console.login.openid_token import find_key, read_keys, read_name
from vgpud.host import listeners

#: one request to the provider
REQUEST_S = 5.0
#: of an answer of the provider's
ANSWER_BYTES_MAX = 1 << 20
#: how long the provider's description is believed, and least time between two looks at its keys
KNOWN_S, KEYS_S = 3600.0, 60.0
SECRET_BYTES = 32


class Helper:
    """Answers the web server until it closes. `ask_link`: a one-time token for a user's name, from the broker."""

    def __init__(self, client: Client, ask_link: Callable[[str], wire.Message]) -> None:
        self._client = client
        self._ask_link = ask_link
        self._http = httpx.AsyncClient(timeout=REQUEST_S, follow_redirects=False, trust_env=True)
        self._places = listeners.Places(listeners.CONSOLE_OIDC)
        self._provider: Provider | None = None
        self._provider_until_s = self._keys_after_s = 0.0
        self._keys: list[Any] = []
        self._looking = asyncio.Lock()

    async def answer(self, request: wire.Message) -> wire.Message:
        """Never raises: whatever is in the request, and whatever the provider says."""
        source = str(request.get("source"))
        if not self._places.take(source):
            return {"error": "too many log-ins with the provider are under way: try again"}
        try:
            work = {"begin": self._begin, "finish": self._finish}[str(request["do"])]
            return await asyncio.wait_for(work(request), listeners.CONSOLE_OIDC.deadline_s)
        except NotValidError as error:
            return {"error": str(error)}
        except (httpx.HTTPError, asyncio.TimeoutError) as error:
            return {"error": f"the provider {self._client.issuer} does not answer: {type(error).__name__}"}
        except Exception as error:  # of this request only
            return {"error": f"this log-in failed: {type(error).__name__}"}
        finally:
            self._places.give_back(source)

    async def _begin(self, request: wire.Message) -> wire.Message:
        secret = secrets.token_urlsafe(SECRET_BYTES)
        return {"url": make_request(await self._find_provider(), self._client, secret), "secret": secret}

    async def _finish(self, request: wire.Message) -> wire.Message:
        secret, code = str(request["secret"]), str(request["code"])
        if not is_own(secret, str(request["state"])):
            raise NotValidError("this log-in was begun in another browser, or too long ago: try again")
        provider = await self._find_provider()
        token = await self._exchange(provider, code, secret)
        key = find_key(token, self._keys)
        if key is None:
            await self._load_keys(provider)
            key = find_key(token, self._keys)
        if key is None:
            raise NotValidError("the provider's token is signed with a key that it does not show")
        return self._ask_link(read_name(token, key, self._client, secret))

    async def _exchange(self, provider: Provider, code: str, secret: str) -> str:
        form = make_exchange(self._client, code, secret)
        known: dict[str, Any] = {}
        if self._client.secret and provider.takes_basic:
            known["auth"] = _basic(self._client)
        elif self._client.secret:
            form["client_secret"] = self._client.secret
        status, found = await self._fetch("POST", provider.token_url, data=form, **known)
        token = found.get("id_token") if isinstance(found, dict) else None
        if status != 200 or not isinstance(token, str):
            fields = found if isinstance(found, dict) else {}
            why = str(fields.get("error_description") or fields.get("error") or f"status {status}")
            raise NotValidError(f"the provider gave no token: {why[:200]}")
        return token

    async def _find_provider(self) -> Provider:
        async with self._looking:
            if self._provider is None or time.monotonic() > self._provider_until_s:
                url = f"{self._client.issuer.rstrip('/')}/.well-known/openid-configuration"
                status, found = await self._fetch("GET", url)
                if status != 200:
                    raise NotValidError(f"the provider gives status {status} for {url}")
                self._provider = read_provider(self._client.issuer, found)
                self._provider_until_s = time.monotonic() + KNOWN_S
            return self._provider

    async def _load_keys(self, provider: Provider) -> None:
        async with self._looking:
            if time.monotonic() < self._keys_after_s:  # strangers' tokens must not cause requests without end
                return
            self._keys_after_s = time.monotonic() + KEYS_S
            status, found = await self._fetch("GET", provider.keys_url)
            if status != 200 or not isinstance(found, dict):
                raise NotValidError(f"the provider gives status {status} for its keys")
            self._keys = read_keys(found)

    async def _fetch(self, method: str, url: str, **fields: Any) -> tuple[int, Any]:
        """Status and JSON, None where there is none. Raises httpx.HTTPError, NotValidError."""
        async with self._http.stream(method, url, headers={"accept": "application/json"}, **fields) as answer:
            data = b""
            async for piece in answer.aiter_bytes():
                data += piece
                if len(data) > ANSWER_BYTES_MAX:
                    raise NotValidError("the provider's answer is too long")
        try:
            return answer.status_code, json.loads(data)
        except (ValueError, RecursionError):
            return answer.status_code, None


def _basic(client: Client) -> Any:
    """The secret as RFC 6749 has it: both parts are encoded as in a form."""
    return quote_plus(client.client_id), quote_plus(client.secret)


def serve(client: Client, web: socket.socket, broker: socket.socket) -> None:
    """Until the web server, or the broker, has closed."""

    def ask_link(name: str) -> wire.Message:
        wire.send(broker, {"do": "link", "name": name})
        return wire.receive(broker)

    with contextlib.suppress(wire.GoneError, KeyboardInterrupt):
        asyncio.run(_serve(client, web, ask_link))


async def _serve(client: Client, web: socket.socket, ask_link: Callable[[str], wire.Message]) -> None:
    helper = Helper(client, ask_link)
    loop, web_ready, tasks = asyncio.get_running_loop(), asyncio.Event(), set()
    web.setblocking(False)

    async def reply(request: wire.Message) -> None:
        answer = await helper.answer(request)
        with contextlib.suppress(wire.NotMessageError, wire.GoneError):
            wire.send(web, {**answer, "id": request.get("id")})

    loop.add_reader(web, web_ready.set)
    while True:
        await web_ready.wait()
        try:
            request = wire.receive(web)
        except BlockingIOError:
            web_ready.clear()
            continue
        except wire.NotMessageError:
            continue
        task = asyncio.create_task(reply(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
