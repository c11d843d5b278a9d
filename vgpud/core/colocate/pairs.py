"""Kinds of jobs that got less done together on a device than one after the other: they are not put together again."""

from __future__ import annotations

#: as many pairs are remembered; the oldest is forgotten first
PAIRS_MAX = 10_000


class Pairs:
    """Of one cluster. A kind may lose beside its own."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], None] = {}

    def add(self, kind: str, other: str) -> bool:
        """These lose together; False when that was known, or one of them has no kind to remember it by."""
        pair = _pair(kind, other)
        if not pair[0] or pair in self._known:
            return False
        if len(self._known) >= PAIRS_MAX:
            del self._known[next(iter(self._known))]
        self._known[pair] = None
        return True

    def lose(self, kind: str, other: str) -> bool:
        """Whether these are known to."""
        return _pair(kind, other) in self._known

    def all(self) -> tuple[tuple[str, str], ...]:
        """The oldest first."""
        return tuple(self._known)


def _pair(kind: str, other: str) -> tuple[str, str]:
    return (kind, other) if kind <= other else (other, kind)
