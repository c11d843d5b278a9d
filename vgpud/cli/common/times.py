"""Times and moments as options take them."""

from __future__ import annotations

import datetime
import re

import click

from vgpud.cli.common.quantities import IntParam
from vgpud.view.spans import parse_span

_NS = 1_000_000_000
#: no moment to come is later
YEAR_MAX = 2099


class Span(IntParam):
    """A time such as 2h30m; becomes ns."""

    name = "time"

    def __init__(self, zero: bool = False) -> None:
        self.zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            span_ns = parse_span(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not span_ns and not self.zero:
            self.fail(f"{str(value)!r} is not a time: write more than 0", param, ctx)
        return span_ns


def _local(at: datetime.datetime) -> datetime.datetime:
    """On the local clock: what that skips is as long after the hour before, where astimezone() is an hour early."""
    return datetime.datetime.fromtimestamp(at.timestamp(), datetime.timezone.utc).astimezone()


class When(IntParam):
    """A point in time: how long ago (7d), or a date with optional time, on the local clock; becomes ns since 1970."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        now = datetime.datetime.now(datetime.timezone.utc)
        try:
            return int(now.timestamp()) * _NS - parse_span(text)
        except ValueError:
            pass
        try:
            return int(datetime.datetime.fromisoformat(text).timestamp()) * _NS
        except (ValueError, OverflowError):  # or a year that no local clock can show
            self.fail(
                f"{text!r} is not a point in time: write for example 7d (ago), 2026-11-01 or 2026-11-01T08:00",
                param,
                ctx,
            )


class Begin(IntParam):
    """A point in time that is to come: in how long (2h), the next time of a day (16:00), or a date; becomes ns since
    1970."""

    name = "moment"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        text = str(value).strip()
        now = datetime.datetime.now(datetime.timezone.utc)
        try:
            at = self._moment(text, now)
        except (ValueError, OverflowError):
            fix = "write for example 2h (from now), 16:00, 2027-01-15 or 2027-01-15T08:00"
            self.fail(f"{text!r} is not a point in time: {fix}", param, ctx)
        if at < now:
            self.fail(f"{text!r} is in the past: write a time that is to come, or leave it out", param, ctx)
        if at.year > YEAR_MAX:
            self.fail(f"{text!r} is too far away: write a time before the year {YEAR_MAX + 1}", param, ctx)
        return int(at.timestamp()) * _NS

    @staticmethod
    def _moment(text: str, now: datetime.datetime) -> datetime.datetime:
        """Raises ValueError, OverflowError."""
        try:
            return now + datetime.timedelta(microseconds=parse_span(text) // 1000)
        except ValueError:
            pass
        local = now.astimezone()
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            clock = datetime.time.fromisoformat(text.zfill(5) if text.count(":") == 1 else text.zfill(8))
            at = _local(datetime.datetime.combine(local.date(), clock))
            return at if at > now else _local(datetime.datetime.combine(local.date() + datetime.timedelta(1), clock))
        return _local(datetime.datetime.fromisoformat(text))
