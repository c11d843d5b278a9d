"""The timetable that shims follow without a daemon, as docs/design/sharing.md has it, for each slice by itself."""

from __future__ import annotations

from models.arbiter.model import GANG_NONE, SliceParams

PERIOD_US = 20_000
LEAST_MILLI = 10
Spans = dict[int, tuple[int, int]]


def share_milli(self: SliceParams, everyone: list[SliceParams]) -> int:
    """One slice's part of the period, asked for by itself."""
    reserved = sum(max(p.min_milli, LEAST_MILLI) for p in everyone)
    least = max(self.min_milli, LEAST_MILLI)
    if reserved > 1000:
        return least * 1000 // reserved
    wanting = [p for p in everyone if p.max_milli > p.min_milli]
    weights = sum(p.weight or p.min_milli or 1 for p in wanting)
    more = (1000 - reserved) * (self.weight or self.min_milli or 1) // weights if self in wanting else 0
    return min(least + more, max(self.max_milli, least))


def make_timetable(rows: dict[int, SliceParams]) -> Spans:
    """Gangs first, then by id; each begins where those before it end. In microseconds of the period."""
    spans: Spans = {}
    begin_milli = 0
    for ident in sorted(rows, key=lambda ident: (rows[ident].gang == GANG_NONE, ident)):
        end_milli = begin_milli + share_milli(rows[ident], list(rows.values()))
        spans[ident] = (begin_milli * PERIOD_US // 1000, end_milli * PERIOD_US // 1000)
        begin_milli = end_milli
    return spans
