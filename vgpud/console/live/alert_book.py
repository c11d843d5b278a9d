"""What the console remembers of one user's alerts: since when it has seen each, and which ones the user has dismissed.
In memory only, and gone with the console. Pure: the time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable

#: of one user; users that are remembered
DISMISSED_MAX, USERS_MAX = 256, 1024


class AlertBook:
    """Alerts are named by their keys. One that has ended is forgotten: if it comes back, it is shown again."""

    def __init__(self) -> None:
        self._seen_s: dict[str, float] = {}
        self._dismissed: OrderedDict[str, None] = OrderedDict()

    def see(self, keys: Iterable[str], now_s: float) -> None:
        """These are all that there are now."""
        present = list(keys)
        self._seen_s = {key: self._seen_s.get(key, now_s) for key in present}
        for key in set(self._dismissed).difference(present):
            del self._dismissed[key]

    def seen_s(self, key: str) -> float:
        """Since when it has been seen."""
        return self._seen_s.get(key, 0.0)

    def is_dismissed(self, key: str) -> bool:
        return key in self._dismissed

    def dismiss(self, key: str) -> None:
        """Only what there is: others' words fill no memory."""
        if key in self._seen_s:
            self._dismissed[key] = None
            while len(self._dismissed) > DISMISSED_MAX:
                self._dismissed.popitem(last=False)

    def restore(self) -> None:
        """All that were dismissed."""
        self._dismissed.clear()


class AlertBooks:
    """The books of all users."""

    def __init__(self) -> None:
        self._books: OrderedDict[Hashable, AlertBook] = OrderedDict()

    def of(self, whose: Hashable) -> AlertBook:
        """Of a user on a node."""
        book = self._books.setdefault(whose, AlertBook())
        self._books.move_to_end(whose)
        while len(self._books) > USERS_MAX:
            self._books.popitem(last=False)
        return book
