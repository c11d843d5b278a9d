"""The console's pages in this process: a fake daemon behind them, and log-ins without a broker."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console import app as application
from vgpud.console.login.client import RefusedError, User

HOST = "127.0.0.1:8377"


class FakeBroker:
    """A broker whose cookies are names: `alice-1` is alice, who has uid 1."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.daemon = daemon
        self.ended_cookies: set[str] = set()
        self.shares: dict[str, tuple[int, int]] = {}  # secret -> uid, job
        self.uses: list[bool] = []  # whether each question for a user was the user's own doing
        self.connected_uids: list[int] = []
        self.connected_nodes: list[str] = []
        self.contexts: dict[str, int] = {}  # name and uid of the nodes of every user
        self.files: dict[str, bytes] = {}
        self.read: list[tuple[int, int, str]] = []

    async def user(self, cookie: str, source: str = "", *, is_use: bool = True) -> User | None:
        self.uses.append(is_use)
        name, _, uid = cookie.rpartition("-")
        if not name or cookie in self.ended_cookies:
            return None
        return User(int(uid), name, f"token-of-{cookie}", cookie, source)

    async def shared(self, secret: str, source: str = "") -> tuple[User, int] | None:
        found = self.shares.get(secret)
        return (User(found[0], "owner", "", "", source, secret), found[1]) if found else None

    async def is_in(self, user: User, *, is_use: bool) -> bool:
        known = self.shared(user.share) if user.share else self.user(user.cookie, user.source, is_use=is_use)
        return await known is not None

    async def alive(self, uid: int) -> bool:
        return True

    async def redeem(self, token: str, source: str) -> str:
        if token != "good":  # noqa: S105
            raise RefusedError("this link was used before")
        return "alice-1"

    async def password(self, name: str, password: str, address: str) -> str:
        if password != "right":  # noqa: S105
            raise RefusedError("the name or the password is wrong")
        return f"{name}-1"

    async def logout(self, cookie: str) -> None:
        self.ended_cookies.add(cookie)

    async def agent(self, user: User) -> Agent:
        return Agent(self, user.uid)

    def forget(self, uid: int) -> None:
        pass

    async def read_as(self, user: User, owner_uid: int, path: str) -> int:
        self.read.append((user.uid, owner_uid, path))
        if path not in self.files:
            raise RefusedError("No such file or directory")
        reader, writer = os.pipe()
        os.close(reader)
        os.close(writer)
        fd = os.memfd_create("log")
        os.write(fd, self.files[path])
        return fd


class Agent:
    def __init__(self, fake_broker: FakeBroker, uid: int) -> None:
        self._broker, self._uid = fake_broker, uid

    async def contexts(self) -> list[dict[str, object]]:
        return [{"name": name, "host": f"{name}:7443", "uid": uid} for name, uid in self._broker.contexts.items()]

    async def connect(self, context: str = "") -> socket.socket:
        self._broker.connected_uids.append(self._uid)
        self._broker.connected_nodes.append(context)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self._broker.daemon.socket))
        sock.setblocking(False)
        return sock


NODES = (("n2", "https://n2:8377"), ("<n3>", "https://n3:8377/?a=1&b=2"))


@pytest.fixture
def daemon(short_dir: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(short_dir, devices=2) as fake:
        yield fake


@pytest.fixture
def fake_broker(daemon: FakeDaemon) -> FakeBroker:
    return FakeBroker(daemon)


@pytest.fixture
def stranger(fake_broker: FakeBroker, short_dir: Path) -> Iterator[TestClient]:
    """A browser without a session."""
    options = application.Options(
        frozenset({"127.0.0.1"}), secure=False, passwords=True, private=True, folder=short_dir, nodes=NODES
    )
    app = application.make(fake_broker, options)  # type: ignore[arg-type]
    with TestClient(app, base_url=f"http://{HOST}", follow_redirects=False) as client:
        yield client


@pytest.fixture
def alice(stranger: TestClient) -> TestClient:
    """The same browser, logged in."""
    stranger.cookies.set("vgpu", "alice-1")
    return stranger


Post = Callable[..., str]


@pytest.fixture
def post(alice: TestClient) -> Post:
    """Posts a form as alice and returns the next page."""

    def send(path: str, **fields: str) -> str:
        answer = alice.post(path, data={"csrf": "token-of-alice-1", **fields})
        assert answer.status_code in (200, 303, 422), answer.text
        if answer.status_code != 303:
            return answer.text
        following = alice.get(answer.headers["location"])
        return following.text

    return send


def text_of(html: str) -> str:
    """What a reader sees, with single blanks."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())
