"""Rows of whole numbers, kept as columns: a simulation of a million jobs has millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

Row = TypeVar("Row", bound=tuple[int, ...])


class Rows(Sequence[Row], Generic[Row]):
    """A list of tuples of `columns` numbers of 64 bits, 8 bytes each. `make`: a row of what is iterated over."""

    __slots__ = ("_columns", "_make")

    def __init__(self, make: Callable[[Iterable[int]], Row], columns: int, rows: Iterable[Row] = ()) -> None:
        self._make = make
        self._columns = tuple(array("q") for _ in range(columns))
        for row in rows:
            self.append(row)

    def append(self, row: Row) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self._columns[0])

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, zip(*self._columns, strict=True))

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: Any) -> Any:
        values = [column[index] for column in self._columns]
        return list(map(self._make, zip(*values, strict=True))) if isinstance(index, slice) else self._make(values)

    def __setitem__(self, index: int, row: Row) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column[index] = value
