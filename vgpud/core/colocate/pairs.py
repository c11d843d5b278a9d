"""Pairs of similarity classes whose jobs get less done together on a device than one after the other: they are not
placed together again."""

from __future__ import annotations

#: as many pairs are remembered; the oldest is forgotten first
PAIRS_MAX = 10_000


class Pairs:
    """Of one cluster. A class may be paired with itself."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], None] = {}

    def add(self, class_name: str, other: str) -> bool:
        """The pair slows each other down; False when that was known, or a job has no class to remember it by."""
        pair = _pair(class_name, other)
        if not pair[0] or pair in self._known:
            return False
        if len(self._known) >= PAIRS_MAX:
            del self._known[next(iter(self._known))]
        self._known[pair] = None
        return True

    def lose(self, class_name: str, other: str) -> bool:
        """Whether these are known to."""
        return _pair(class_name, other) in self._known

    def all(self) -> tuple[tuple[str, str], ...]:
        """The oldest first."""
        return tuple(self._known)


def _pair(class_name: str, other: str) -> tuple[str, str]:
    return (class_name, other) if class_name <= other else (other, class_name)
