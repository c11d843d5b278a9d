"""What the modules with tables need of the connection to the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Database(Protocol):
    """What these tables need of the store: one connection, whose faults are all raised as StoreError."""

    unwritable: str  # why nothing can be written, "" = it can

    def write(self, work: Callable[[Any], object], *, outlive: bool = True) -> None:
        """One transaction. `outlive`: a crash of the machine may not take it back once it is flushed."""
        ...

    def read(self, work: Callable[[Any], Any]) -> Any: ...

    def erase(self) -> None:
        """Something secret was taken out of the tables: the next flush takes it out of the files."""
        ...
