"""Which kept tuning holds for a command that is submitted. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.core.tune.choice import choose
from vgpud.core.tune.placeholders import fill, match
from vgpud.core.tune.record import Record, Row


@dataclass(frozen=True, slots=True)
class Applied:
    """A tuning applied to a command. variables: which the tuned program was given beside it."""

    record: Record
    row: Row
    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]


def apply_record(record: Record, command: Sequence[str]) -> Applied | None:
    """For the command with its placeholders: the choice, whose values take their places. For one with values in their
    places: the best candidate that has these. None: it is another command, or has values that were not tried."""
    if tuple(command) == record.command:
        row = record.chosen_row
    else:
        values = match(record.command, command)
        if values is None:
            return None
        row = _choose_with(record, values)
    if row is None:
        return None
    chosen = dict(row.candidate.values)
    filled = tuple(fill(word, chosen) for word in record.command)
    return Applied(record, row, filled, tuple((name, fill(text, chosen)) for name, text in record.variables))


def _choose_with(record: Record, values: dict[str, int]) -> Row | None:
    rows = {
        row.candidate: row
        for row in record.rows
        if row.rate and not row.why_out and all(row.candidate.value(name) == value for name, value in values.items())
    }
    found = choose([(row.candidate, row.rate) for row in rows.values()], record.work)
    return rows[found[0]] if found else None
