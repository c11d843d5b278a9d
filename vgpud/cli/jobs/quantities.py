"""Times, ranges, jobs and variables as the options of the queue's commands take them."""

from __future__ import annotations

import datetime
import os
import re
from typing import Any

import click

from vgpud.cli.common.quantities import AnyParam, IntParam

_UNITS_S = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPAN = re.compile(r"(?:(\d{1,9}(?:\.\d{1,9})?)([wdhms]))")
_NS = 1_000_000_000
#: 128 as in vgpud.core.machine
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def parse_span(text: str) -> int:
    """ns of a time: "2h30m", "45s", "1.5d"; a bare number is seconds. Raises ValueError, one line with the remedy."""
    clean = text.strip().lower()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", clean):
        clean += "s"
    parts = _SPAN.findall(clean)
    units = [unit for _, unit in parts]
    ordered = sorted(set(units), key=list(_UNITS_S).index)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != clean or units != ordered:
        raise ValueError(f"{text!r} is not a time: write for example 90s, 45m, 2h30m or 7d")
    total_ns = 0
    for number, unit in parts:
        whole, _, rest = number.partition(".")
        total_ns += (int(whole) * 10**9 + int(rest.ljust(9, "0") or 0)) * _UNITS_S[unit]
    return total_ns


def format_span(span_ns: int) -> str:
    """A time exactly, as parse_span() takes it: 2h30m, 45s."""
    seconds, rest_ns = divmod(span_ns, _NS)
    text = ""
    for unit in "dhm":
        count, seconds = divmod(seconds, _UNITS_S[unit])
        text += f"{count}{unit}" if count else ""
    if rest_ns:
        return f"{text}{seconds}.{rest_ns:09d}".rstrip("0") + "s"
    return f"{text}{seconds}s" if seconds or not text else text


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
            return int(datetime.datetime.fromisoformat(text).astimezone().timestamp()) * _NS
        except (ValueError, OverflowError):  # or a year that no local clock can show
            self.fail(
                f"{text!r} is not a point in time: write for example 7d (ago), 2026-11-01 or 2026-11-01T08:00",
                param,
                ctx,
            )


class Range(AnyParam):
    """First and last index of an array, such as 1-8."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", str(value).strip())
        if not found:
            self.fail(f"{str(value)!r} is not a range: write for example 1-8", param, ctx)
        first, last = int(found[1]), int(found[2])
        if not 1 <= first <= last:
            self.fail(
                f"{first}-{last} is an empty range: the first must be 1 or more, the last not below it", param, ctx
            )
        return first, last


class JobIds(AnyParam):
    """Jobs by number, separated by commas."""

    name = "jobs"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = str(value).split(",")
        for word in words:
            if not re.fullmatch(r"[1-9]\d{0,17}", word.strip()):
                self.fail(f"{word.strip()!r} is not a job: write its number, as `vgpu queue ls` shows it", param, ctx)
        return tuple(int(word) for word in words)


class JobId(IntParam):
    """A job's number."""

    name = "job"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if "," in str(value):
            self.fail(f"{str(value)!r} is not a job: write numbers with blanks between them", param, ctx)
        return JobIds().convert(value, param, ctx)[0]


class Variable(AnyParam):
    """NAME=VALUE, or NAME for its present value."""

    name = "variable"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        name, equals, text = str(value).partition("=")
        if not name:
            self.fail(f"{str(value)!r} is not a variable: write NAME=VALUE", param, ctx)
        if not equals and name not in os.environ:
            self.fail(f"{name!r} is not set: write NAME=VALUE", param, ctx)
        return name, text if equals else os.environ[name]


class RequestId(AnyParam):
    """The ID of a request, as the daemon takes it."""

    name = "id"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not _REQUEST_ID.fullmatch(text):
            self.fail(f"{text[:40]!r} is not a request's ID: write 1 to 128 letters, digits, . _ : -", param, ctx)
        return text


class Cpus(IntParam):
    """Processors, at most three decimals; becomes thousandths."""

    name = "cpus"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = re.fullmatch(r"(\d{1,6})(?:\.(\d{1,3}))?", str(value).strip())
        milli = int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0")) if found else 0
        if not milli:
            self.fail(f"{str(value)!r} is not a number of processors: write for example 0.5, 2 or 16", param, ctx)
        return milli
