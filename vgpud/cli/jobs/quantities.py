"""Ranges, jobs and variables as the options of the queue's commands take them."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from vgpud.cli.common.quantities import AnyParam, IntParam

#: 128 as in vgpud.core.machine
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


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
