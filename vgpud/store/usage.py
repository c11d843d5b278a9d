"""How rows of the accounting are written: numbers that a database's integers do not hold in several parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from vgpud.core.queue.accounting import Amounts, Row

#: of SQLite
INTEGER_MAX = (1 << 63) - 1
#: of a row, in the order of its columns
_VALUES = attrgetter(*(one.name for one in fields(Row)))


def save(db: Any, rows: Iterable[Row]) -> None:
    """In place of rows of the same slice and begin."""
    values = [_VALUES(part) for row in rows for part in _parts(_bound_copies(row))]
    db.executemany("INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def _bound_copies(row: Row) -> Row:
    """Copies are counted as a program's page says, which may be false: then they are the most that fits."""
    copies = (row.copy_to_device_bytes, row.copy_from_device_bytes)
    if max(copies) <= INTEGER_MAX:
        return row
    to_bytes, from_bytes = (min(INTEGER_MAX, count) for count in copies)
    return replace(row, copy_to_device_bytes=to_bytes, copy_from_device_bytes=from_bytes)


def _parts(row: Row) -> list[Row]:
    """The amount in pieces that fit numbers of the database: 8 GPUs for 13 days do not."""
    if max(row.requested_service, row.granted, row.used) <= INTEGER_MAX or row.end_ns - row.begin_ns < 2:
        return [row]
    middle_ns = (row.begin_ns + row.end_ns) // 2
    first = row.get_amounts_between(row.begin_ns, middle_ns)
    rest = Amounts(*(whole - part for whole, part in zip(row.amounts, first, strict=True)))
    earlier = replace(row, end_ns=middle_ns, **first._asdict())
    later = replace(row, begin_ns=middle_ns, **rest._asdict())
    return [*_parts(earlier), *_parts(later)]
