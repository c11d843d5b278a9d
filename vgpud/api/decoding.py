"""Decodes requests, for every method alike: bytes that are not a message of its type are the caller's mistake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.message import DecodeError as ProtobufError


class DecodeError(Exception):
    """A request that is not the method's message, in one sentence."""


def decode(parse: Callable[[bytes], Any], data: bytes) -> Any:
    """The message. Raises DecodeError."""
    try:
        return parse(data)
    except (ProtobufError, UnicodeDecodeError) as error:
        text = f"the request's {len(data)} bytes are not this method's message"
        raise DecodeError(f"{text}: use the daemon's vgpud.proto of this version") from error


async def decode_stream(parse: Callable[[bytes], Any], parts: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """The messages of a stream of requests. Raises DecodeError."""
    async for data in parts:
        yield decode(parse, data)
