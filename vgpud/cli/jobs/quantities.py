"""Ranges, jobs and variables as the options of the queue's commands take them."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import click

from vgpud.cli.common.quantities import AnyParam, IntParam
from vgpud.client.arrays import ARRAY_JOBS_MAX, parse_array

#: 128 as in vgpud.core.slices.machine
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Array(AnyParam):
    """Indices of an array, such as 1-8, 1,3,5, 1-9:2 or 1-10%2."""

    name = "array"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, ...], int]:
        try:
            return parse_array(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


_JOBS = re.compile(r"([1-9]\d{0,17})(?:-([1-9]\d{0,17}))?")


def jobs_text(job_ids: Sequence[int]) -> str:
    """What names all of these jobs, which were submitted together, in other commands: 12, or 12-19 of an array."""
    return f"{job_ids[0]}-{job_ids[-1]}" if len(job_ids) > 1 else f"{job_ids[0]}"


class JobIds(AnyParam):
    """Jobs by number, and all of an array as its submission prints them, separated by commas: 3,12-19."""

    name = "jobs"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        found: dict[int, None] = {}
        for word in str(value).split(","):
            match = _JOBS.fullmatch(word.strip())
            if not match:
                self.fail(f"{word.strip()!r} is not a job: write its number, as `vgpu job ls` shows it", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if not 0 <= last - first < ARRAY_JOBS_MAX:
                text = f"{word.strip()!r} is not a range: write the lower number first, at most {ARRAY_JOBS_MAX} jobs"
                self.fail(text, param, ctx)
            found.update(dict.fromkeys(range(first, last + 1)))
        return tuple(found)


class JobIdsOrNone(JobIds):
    """The same; (), if the option has no value."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        return super().convert(value, param, ctx) if value else ()


class ArrayOrJob(AnyParam):
    """A job's number, or the numbers of an array: several jobs."""

    name = "job"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if "," in str(value):
            self.fail(f"{str(value)!r} is not a job: write numbers with blanks between them", param, ctx)
        return JobIds().convert(value, param, ctx)


class JobId(IntParam):
    """A job's number."""

    name = "job"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = ArrayOrJob().convert(value, param, ctx)
        if len(found) > 1:
            self.fail(f"{str(value)!r} are {len(found)} jobs: name one of them", param, ctx)
        return found[0]


class JobIdOrSlurms(JobId):
    """A job's number; with --cluster, which is read before, Slurm's: 12, or 12_3 of an array, as text."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is None or not ctx.params.get("over_cluster"):
            return super().convert(value, param, ctx)
        if not re.fullmatch(r"[1-9]\d{0,9}(_\d{1,10})?", str(value)):
            self.fail(f"{str(value)!r} is not a Slurm job: write 12, or 12_3 for element 3 of array 12", param, ctx)
        return str(value)


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
