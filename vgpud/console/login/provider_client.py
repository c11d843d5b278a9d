"""The web server's side of the process that speaks with an OpenID provider. Requests have numbers: a slow provider
holds up its own users alone."""

from __future__ import annotations

import asyncio
import itertools
import socket
from dataclasses import dataclass

from vgpud.console.login import wire
from vgpud.console.login.client import RefusedError
from vgpud.host import listeners


@dataclass(frozen=True)
class Begun:
    """A log-in that has begun: where the browser goes, and what it must keep until it comes back."""

    url: str
    secret: str


class ProviderClient:
    """name: as the log-in page calls the provider."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setblocking(False)
        self._sock = sock
        self.name = name
        self._numbers = itertools.count(1)
        self._questions: dict[int, asyncio.Future[wire.Message]] = {}
        self._is_reading = False

    async def begin(self, source: str) -> Begun:
        """Raises RefusedError."""
        answer = await self._ask({"do": "begin", "source": source})
        return Begun(str(answer["url"]), str(answer["secret"]))

    async def finish(self, source: str, code: str, state: str, secret: str) -> str:
        """A token that logs the provider's user in once. Raises RefusedError."""
        request = {"do": "finish", "source": source, "code": code, "state": state, "secret": secret}
        return str((await self._ask(request))["token"])

    async def _ask(self, request: wire.Message) -> wire.Message:
        loop = asyncio.get_running_loop()
        if not self._is_reading:
            loop.add_reader(self._sock, self._read)
            self._is_reading = True
        number = next(self._numbers)
        question = self._questions[number] = loop.create_future()
        try:
            wire.send(self._sock, {**request, "id": number})
            answer: wire.Message = await asyncio.wait_for(question, listeners.CONSOLE_OIDC.deadline_s + 2)
        except wire.NotMessageError as error:
            raise RefusedError("what the provider has sent is too long") from error
        except (wire.GoneError, asyncio.TimeoutError) as error:
            raise RefusedError("log-ins with the provider are not possible now") from error
        finally:
            del self._questions[number]
        if "error" in answer:
            raise RefusedError(str(answer["error"]))
        return answer

    def _read(self) -> None:
        try:
            answer = wire.receive(self._sock)
        except BlockingIOError:
            return
        except wire.NotMessageError:
            return
        except wire.GoneError:
            asyncio.get_running_loop().remove_reader(self._sock)
            return
        question = self._questions.get(answer.get("id", 0))
        if question and not question.done():
            question.set_result(answer)
