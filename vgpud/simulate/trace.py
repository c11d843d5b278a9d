"""A trace from any format: jobs in the order of their submission, and rows that know their line."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

from vgpud.core.jobs.model import SECOND_NS, Ask, How, JobSpec, Placement
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.errors import ExitCode, VgpudError
from vgpud.simulate.scaling import Curve

#: a century: no trace is longer, and sums of such times are exact wherever they are shown
SECONDS_MAX = 100 * 366 * 86_400
GPUS_MAX = 1_000_000


class TraceError(VgpudError):
    """An invalid trace or cluster: the file, the line, the error and the remedy."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job: when it comes, how long it runs alone, what it asks for (spec.name is its name in the trace).

    `spec.duration_ns` is what policies know of its duration.
    """

    submitted_ns: int  # since the first job of the trace
    duration_ns: int
    spec: JobSpec
    where: str = ""  # file and line
    utilisation_milli: int = -1  # of each of its devices, alone; -1 = not known
    jct_ns: int = -1  # from its submission to its end as it was; -1 = not known
    attempts: tuple[tuple[int, int], ...] = ()  # (ns that it runs, exit code) of each start from the beginning
    scaling: Curve | None = None  # how its speed goes by its size, where it is elastic; None: it does not
    scaled_from: int = 0  # the size that duration_ns is for
    #: (ns that it takes, how in the end or None: it ended, exit code then) of each order to free its capacity
    stops: tuple[tuple[int, How | None, int], ...] = ()
    #: (ns until it said what it has, and that) of each order to become larger or smaller
    resizes: tuple[tuple[int, Placement], ...] = ()

    def stop(self, number: int) -> tuple[int, How | None, int] | None:
        """None of stops that are not listed."""
        return self.stops[number] if number < len(self.stops) else None

    def attempt(self, number: int) -> tuple[int, int]:
        """(ns that it runs, exit code); of attempts that are not listed: all of its duration, and success."""
        return self.attempts[number - 1] if 0 < number <= len(self.attempts) else (self.duration_ns, 0)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file. Every refusal names the line, the column and the value."""

    where: str
    values: Mapping[str, str]

    def text(self, column: str) -> str:
        """ "" where the row has no such column."""
        return (self.values.get(column) or "").strip()

    def number(self, column: str, maximum: int = SECONDS_MAX) -> Decimal:
        """A number from 0 to `maximum`."""
        text = self.text(column)
        try:
            value = Decimal("NaN" if "_" in text else text)  # a number in Python only
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite():
            raise TraceError(f"{self.where}: {column} is {text!r}: it must be a number")
        if value < 0:
            raise TraceError(f"{self.where}: {column} is {text}: it must not be negative")
        if value > maximum:
            raise TraceError(f"{self.where}: {column} is {text}: it must be at most {maximum}")
        return value

    def ns(self, column: str) -> int:
        """Seconds as ns."""
        return int(self.number(column) * SECOND_NS)

    def whole_number(self, column: str, maximum: int = GPUS_MAX) -> int:
        """A whole number from 0 to `maximum`."""
        value = self.number(column, maximum)
        if value != int(value):
            raise TraceError(f"{self.where}: {column} is {self.text(column)}: it must be a whole number")
        return int(value)

    def positive(self, column: str, maximum: int = GPUS_MAX) -> int:
        """A whole number from 1 to `maximum`."""
        value = self.whole_number(column, maximum)
        if not value:
            raise TraceError(f"{self.where}: {column} is 0: it must be 1 or more")
        return value


def whole_gpus(count: int) -> tuple[Ask, int]:
    """N GPUs of a distributed job: as many members of one GPU each, so that the placement may divide them."""
    return Ask(Spec(MILLI_PER_DEVICE)), count


def order_jobs(jobs: Iterable[TraceJob], sort: bool) -> list[TraceJob]:
    """The jobs with the first at time 0. Raises TraceError where one comes before its predecessor and none may sort."""
    found = list(jobs)
    if sort:
        found.sort(key=lambda job: job.submitted_ns)
    for before, job in itertools.pairwise(found):
        if job.submitted_ns < before.submitted_ns:
            raise TraceError(
                f"{job.where}: submitted {_s(before.submitted_ns - job.submitted_ns)} s before the row above: "
                "sort the rows by time, or use --sort"
            )
    first_ns = found[0].submitted_ns if found else 0
    return [replace(job, submitted_ns=job.submitted_ns - first_ns) for job in found] if first_ns else found


def _s(ns: int) -> str:
    return f"{Decimal(ns) / SECOND_NS:f}".rstrip("0").rstrip(".") if ns % SECOND_NS else str(ns // SECOND_NS)
