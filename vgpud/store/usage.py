"""How rows of the accounting are written: numbers that a database's integers do not hold in several parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from vgpud.core.queue.accounting import Row

#: of SQLite
INTEGER_MAX = (1 << 63) - 1
#: of a row, in the order of its columns
_VALUES = attrgetter(*(one.name for one in fields(Row)))


def save(db: Any, rows: Iterable[Row]) -> None:
    """In place of rows of the same slice and begin."""
    values = [_VALUES(part) for row in rows for part in _parts(row)]
    db.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _parts(row: Row) -> list[Row]:
    """The amount in pieces that fit numbers of the database: 8 GPUs for 13 days do not."""
    if max(row.requested_service, row.granted, row.used) <= INTEGER_MAX or row.end_ns - row.begin_ns < 2:
        return [row]
    middle_ns = (row.begin_ns + row.end_ns) // 2
    asked, granted, used = row.get_amounts_between(row.begin_ns, middle_ns)
    first = replace(row, end_ns=middle_ns, requested_service=asked, granted=granted, used=used)
    asked, granted, used = row.requested_service - asked, row.granted - granted, row.used - used
    rest = replace(row, begin_ns=middle_ns, requested_service=asked, granted=granted, used=used)
    return [*_parts(first), *_parts(rest)]
