"""A small OpenID provider on 127.0.0.1: it logs in whoever it should, and can be made to answer wrongly."""

from __future__ import annotations

import base64
import hashlib
import secrets
import socket
import threading
import time
from typing import Any
from urllib.parse import unquote_plus, urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID, SECRET = "console", "a secret: with + and %"


class OpenIdProvider:
    """Use it in a `with`. user: who is logged in; claims: what its tokens have besides, or instead."""

    def __init__(self, user: str = "", algorithm: str = "RS256") -> None:
        self.user = user
        self.algorithm = algorithm
        self.claims: dict[str, Any] = {}
        self.refusal = ""
        self.key_id = "key-1"
        self.requests: list[str] = []
        is_rsa = algorithm.startswith(("RS", "PS"))
        self.key: Any = rsa.generate_private_key(65537, 2048) if is_rsa else ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, dict[str, str]] = {}
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.issuer = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        paths = {
            "/.well-known/openid-configuration": self._describe,
            "/keys": self._keys,
            "/authorize": self._authorize,
            "/token": self._token,
        }
        routes = [Route(path, work, methods=["GET", "POST"]) for path, work in paths.items()]
        config = uvicorn.Config(Starlette(routes=routes), log_level="error")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> OpenIdProvider:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    async def _describe(self, request: Request) -> Response:
        self.requests.append("describe")
        ends = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        return JSONResponse({"issuer": self.issuer, **{name: self.issuer + path for name, path in ends.items()}})

    async def _keys(self, request: Request) -> Response:
        self.requests.append("keys")
        algorithm = jwt.get_algorithm_by_name(self.algorithm)
        shown = algorithm.to_jwk(self.key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**shown, "kid": self.key_id, "alg": self.algorithm, "use": "sig"}]})

    async def _authorize(self, request: Request) -> Response:
        given = dict(request.query_params)
        assert given["response_type"] == "code" and given["client_id"] == CLIENT_ID and "openid" in given["scope"]
        if self.refusal:
            fields = {"error": "access_denied", "error_description": self.refusal, "state": given["state"]}
            return RedirectResponse(f"{given['redirect_uri']}?{urlencode(fields)}", 302)
        code = secrets.token_urlsafe(8)
        self._codes[code] = given
        return RedirectResponse(f"{given['redirect_uri']}?{urlencode({'code': code, 'state': given['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        self.requests.append("token")
        async with request.form() as form:
            given = {name: str(value) for name, value in form.items()}
        name, _, secret = (
            base64.b64decode(request.headers["authorization"].removeprefix("Basic ")).decode().partition(":")
        )
        asked = self._codes.pop(given["code"], None)  # a code works once
        proof = base64.urlsafe_b64encode(hashlib.sha256(given["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        is_right = asked and asked["code_challenge"] == proof and asked["redirect_uri"] == given["redirect_uri"]
        if not asked or not is_right or (unquote_plus(name), unquote_plus(secret)) != (CLIENT_ID, SECRET):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse({"id_token": self.make_token(asked["nonce"]), "access_token": "x", "token_type": "Bearer"})

    def make_token(self, nonce: str, **other: Any) -> str:
        now = time.time_ns() // 10**9
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "sub": "1", "iat": now, "exp": now + 300, "nonce": nonce}
        claims |= {"preferred_username": self.user, **self.claims, **other}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, self.algorithm, headers={"kid": self.key_id})
