"""A connection to the daemon for asyncio programs: sends calls, reads pages and streams, and says what went wrong.

The one for other programs, connection.py, is made from this file (`make gen`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from vgpud.client import calls, contexts
from vgpud.client.calls import Call, Listed, Watched
from vgpud.client.channel import OPTIONS, open_async_channel
from vgpud.client.contexts import Context
from vgpud.client.failures import ClientError, explain, make_error
from vgpud.client.grpc_import import grpc
from vgpud.client.target import find_target, probe
from vgpud.errors import ExitCode, VgpudError
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

T = TypeVar("T")
C = TypeVar("C", bound="AsyncConnection")

#: interval at which an unanswered changing call is repeated
REPEAT_S = 0.2


class AsyncConnection:
    """A connection to the daemon that sends calls. Use it in a `with`. Methods raise ClientError."""

    def __init__(
        self,
        host: str | None = None,
        *,
        certificate: Path | None = None,
        token: str = "",
        timeout_s: float = 10.0,
        check: bool = True,
    ) -> None:
        """`host`: unix:///PATH or HOST:PORT; None: as `vgpu` chooses it. `certificate`: the file of `vgpu cert user`;
        None: of the context with this address. `token`: makes the calls those of its user. `check`: look at the unix
        socket first, for a better reason when there is no daemon. Raises ClientError; VgpudError for a context or a
        certificate that cannot be used."""
        self._context: Context | None
        if host and certificate:
            self.target, self._context = host, contexts.read_certificate(certificate)
        else:
            self.target, self._context = find_target(host)
        self.timeout_s = timeout_s
        if check:
            try:
                probe(self.target)
            except VgpudError as error:
                raise make_error(str(error), ExitCode(error.exit_code)) from error
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        self._channel = open_async_channel(self.target, self._context, list(OPTIONS))
        self._stubs: dict[str, Any] = {}

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection."""
        await self._channel.close()

    @property
    def own_uid(self) -> int:
        """The uid that this user has on the daemon's machine."""
        return self._context.uid if self._context else os.getuid()

    @property
    def remote(self) -> bool:
        """Whether the daemon is another machine's."""
        return self._context is not None

    @property
    def has_token(self) -> bool:
        """Whether the calls are those of a token's user, who need not be this program's."""
        return bool(self._metadata)

    def _method(self, service: str, name: str) -> Any:
        if service not in self._stubs:
            self._stubs[service] = getattr(stubs, f"{service}ServiceStub")(self._channel)
        return getattr(self._stubs[service], name)

    async def _failed(self, error: grpc.RpcError, timeout_s: float) -> Exception:
        """The exception for a call that failed."""
        failure = explain(error, self.target, timeout_s)
        if self._context and failure.exit_code == ExitCode.UNREACHABLE:
            from vgpud.client.tls import why_unreachable

            why = await asyncio.to_thread(why_unreachable, self._context, self.target)
            if why:
                failure = make_error(
                    why, ExitCode.UNREACHABLE, status=failure.status, is_unanswered=failure.is_unanswered
                )
        return failure

    async def _send_once(self, call: Call[T], timeout_s: float) -> T:
        method = self._method(call.service, call.method)
        try:
            return call.read(await method(call.request, timeout=timeout_s, metadata=self._metadata))
        except grpc.RpcError as error:
            raise await self._failed(error, timeout_s) from error

    async def send(self, call: Call[T]) -> T:
        """The result of a call; a changing one is repeated with the same request_id while it is not answered, for the
        timeout in all."""
        if not call.ask_again:
            return await self._send_once(call, max(self.timeout_s, call.least_s))
        until_s = time.monotonic() + self.timeout_s
        first: ClientError | None = None  # a better reason than that of a last, short attempt
        while True:
            try:
                return await self._send_once(call, max(until_s - time.monotonic(), REPEAT_S))
            except ClientError as error:
                first = first or (error if error.is_unanswered else None)
                if error.is_unanswered and time.monotonic() + REPEAT_S < until_s:
                    await asyncio.sleep(REPEAT_S)
                    continue
                if not first or error.exit_code == ExitCode.USAGE:
                    raise
                cause = first if error.is_unanswered else error
                text = f"{cause.message}; it may have been accepted: {call.ask_again}"
                raise make_error(
                    text, cause.exit_code, status=cause.status, is_unanswered=error.is_unanswered
                ) from error

    async def all(self, list_call: Listed[T]) -> list[T]:
        """All entries of a list, of all pages."""
        found: list[T] = []
        request = list_call.request
        request.page_size = calls.PAGE_SIZE
        while True:
            page: Call[Any] = Call(list_call.service, list_call.method, request, lambda answer: answer)
            answer = await self.send(page)
            found.extend(getattr(answer, list_call.field))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def watch(self, watch_call: Watched[T]) -> AsyncIterator[T]:
        """The answers of a stream, as they come. Closing it ends the call."""
        stream = self._method(watch_call.service, watch_call.method)(watch_call.request, metadata=self._metadata)
        try:
            async for answer in stream:
                yield watch_call.read(answer)
        except grpc.RpcError as error:
            raise await self._failed(error, self.timeout_s) from error
        finally:
            stream.cancel()
