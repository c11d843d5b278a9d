"""Messages that will not change any more, kept by key up to a size: the least recently used go first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    def ByteSize(self) -> int: ...


M = TypeVar("M", bound=Sized)
#: of a message beside its content
EXTRA_BYTES = 500


class MessageCache(Generic[M]):
    """`bytes_max`: of all messages together, about."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[Hashable, tuple[M, int]] = OrderedDict()

    def get(self, key: Hashable) -> M | None:
        known = self._kept.get(key)
        if known is None:
            return None
        self._kept.move_to_end(key)
        return known[0]

    def put(self, key: Hashable, message: M) -> M:
        size = message.ByteSize() + EXTRA_BYTES
        _, before = self._kept.pop(key, (None, 0))
        self._kept[key] = (message, size)
        self._bytes += size - before
        while self._bytes > self._bytes_max:
            _, (_, gone) = self._kept.popitem(last=False)
            self._bytes -= gone
        return message
