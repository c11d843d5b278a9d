"""The web server's side: sessions by their cookies, and descriptors from the agents."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass

from vgpud.console.login import wire
from vgpud.host import listeners

#: an agent that opens a file on a file system that does not answer
ANSWER_S = 10.0
#: the broker's are shorter
COOKIE_CHARS_MAX = 256


class RefusedError(Exception):
    """The refusal of the broker or of an agent: one sentence."""


@dataclass(frozen=True, slots=True)
class User:
    """The user of a session. source: whose connection the cookie has come over, "" where it does not matter."""

    uid: int
    name: str
    csrf: str
    cookie: str
    source: str
    share: str = ""  # the secret of a shared link, by which another person acts as this user in one session


def _drop(question: asyncio.Future[tuple[wire.Message, int]]) -> None:
    """Drops the answer: its caller has left."""
    if not question.cancelled() and not question.exception() and question.result()[1] >= 0:
        os.close(question.result()[1])


class _Line:
    """Requests over one socket, one at a time."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._lock = asyncio.Lock()

    async def ask(self, message: wire.Message) -> tuple[wire.Message, int]:
        """The answer and its descriptor. Raises GoneError, RefusedError, TimeoutError."""
        asking = asyncio.ensure_future(self._ask(message))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:  # the answer is read all the same: all callers share the line
            asking.add_done_callback(_drop)
            raise

    async def _ask(self, message: wire.Message) -> tuple[wire.Message, int]:
        async with self._lock:
            try:
                wire.send(self._sock, message)
            except wire.NotMessageError as error:  # nothing was sent, and the socket is as it was
                raise RefusedError("what was entered is too long") from error
            try:
                answer, fd = await asyncio.wait_for(self._receive(), ANSWER_S)
            except (asyncio.TimeoutError, asyncio.CancelledError):
                self.close()  # a late answer would be taken for that of the next request
                raise
            except wire.NotMessageError as error:
                raise RefusedError("the answer cannot be read") from error
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        return answer, fd

    async def _receive(self) -> tuple[wire.Message, int]:
        loop = asyncio.get_running_loop()
        while True:
            try:
                return wire.receive_answer(self._sock)
            except BlockingIOError:
                ready = asyncio.Event()
                loop.add_reader(self._sock, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_reader(self._sock)

    @property
    def closed(self) -> bool:
        return self._sock.fileno() < 0

    def close(self) -> None:
        self._sock.close()


class Agent:
    """A process that acts as one user."""

    def __init__(self, fd: int) -> None:
        self._line = _Line(socket.socket(fileno=fd))

    @property
    def closed(self) -> bool:
        return self._line.closed

    async def connect(self, context: str = "") -> socket.socket:
        """A connection to the API as this user; with a context, to the node that it leads to. Raises RefusedError,
        GoneError, TimeoutError."""
        _, fd = await self._line.ask({"do": "connect", "context": context})
        return socket.socket(fileno=fd)

    async def contexts(self) -> list[wire.Message]:
        """The user's contexts: name, host, uid. Raises RefusedError, GoneError, TimeoutError."""
        answer, _ = await self._line.ask({"do": "contexts"})
        return list(answer["contexts"])

    async def open(self, path: str) -> int:
        """A file opened with this user's rights; the caller closes it. Raises RefusedError, GoneError, TimeoutError."""
        _, fd = await self._line.ask({"do": "open", "path": path})
        return fd

    def close(self) -> None:
        self._line.close()


class Broker:
    """The privileged process, as the web server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self._line = _Line(sock)
        self._agents: dict[int, Agent] = {}

    async def user(self, cookie: str, source: str = "", *, is_use: bool = True) -> User | None:
        """The user of a session; None: there is none, it has ended, or it is of another source. `is_use`: whether the
        session counts as used now."""
        if len(cookie) > COOKIE_CHARS_MAX:
            return None
        found, _ = await self._line.ask({"do": "session", "cookie": cookie, "source": source, "is_use": is_use})
        return User(found["uid"], found["name"], found["csrf"], cookie, source) if found else None

    async def shared(self, secret: str, source: str = "") -> tuple[User, int] | None:
        """The user and the job of a shared link; None: there is none, or it has ended."""
        if len(secret) > COOKIE_CHARS_MAX:
            return None
        found, _ = await self._line.ask({"do": "shared", "secret": secret})
        return (User(found["uid"], found["name"], "", "", source, secret), found["job_id"]) if found else None

    async def is_in(self, user: User, *, is_use: bool) -> bool:
        """Whether the user still has the session, or the shared link, that it was made of."""
        if user.share:
            return await self.shared(user.share) is not None
        return await self.user(user.cookie, user.source, is_use=is_use) is not None

    async def alive(self, uid: int) -> bool:
        """Whether the user has a session; that of this request does not count as used."""
        answer, _ = await self._line.ask({"do": "alive", "uid": uid})
        return bool(answer["alive"])

    async def redeem(self, token: str, source: str = "") -> str:
        """The cookie of a new session for a one-time link. Raises RefusedError."""
        answer, _ = await self._line.ask({"do": "redeem", "token": token, "source": source})
        return str(answer["cookie"])

    async def password(self, name: str, password: str, address: str) -> str:
        """The cookie of a new session for a name and a password. Raises RefusedError."""
        request = {"do": "password", "name": name, "password": password, "address": address}
        answer, _ = await self._line.ask(request)
        return str(answer["cookie"])

    async def logout(self, cookie: str) -> None:
        await self._line.ask({"do": "logout", "cookie": cookie})

    async def agent(self, user: User) -> Agent:
        """The process that acts as this user. Raises RefusedError."""
        known = self._agents.get(user.uid)
        if known is None or known.closed:
            request = {"do": "agent", "cookie": user.cookie, "source": user.source, "share": user.share}
            _, fd = await self._line.ask(request)
            known = self._agents[user.uid] = Agent(fd)
        return known

    def forget(self, uid: int) -> None:
        """The user's agent does not answer: the next request gets another."""
        agent = self._agents.pop(uid, None)
        if agent:
            agent.close()

    async def read_as(self, user: User, owner_uid: int, path: str) -> int:
        """A file opened with the rights of its owner, for the owner or for root; with the user's own for others."""
        if user.uid != 0 or owner_uid == 0:
            return await self._open(await self.agent(user), user.uid, path)
        request = {"do": "agent", "cookie": user.cookie, "source": user.source, "uid": owner_uid}
        _, fd = await self._line.ask(request)
        agent = Agent(fd)
        try:
            return await agent.open(path)
        finally:
            agent.close()

    async def _open(self, agent: Agent, uid: int, path: str) -> int:
        try:
            return await agent.open(path)
        except (wire.GoneError, asyncio.TimeoutError) as error:
            self.forget(uid)
            raise RefusedError(f"{path} could not be opened in time") from error


def find_source(peer: tuple[str, int], own: tuple[str, int]) -> str:
    """Who has made a TCP connection with these two ends, ours the second: "uid 1000" of this machine, or a network."""
    try:
        who = listeners.source_between(peer, own)
    except OSError:  # no addresses
        return "unix"
    return f"uid {who}" if isinstance(who, int) else who


def read_tail(fd: int, most_bytes: int) -> tuple[bytes, int]:
    """The last bytes of a file, and its size. Closes the descriptor."""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, most_bytes, max(0, size - most_bytes)), size
    finally:
        os.close(fd)
