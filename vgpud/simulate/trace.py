"""A trace from any format: jobs in the order of their submission, and rows that know their line."""

from __future__ import annotations

import datetime
import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation

from vgpud.core.jobs.model import SECOND_NS, Ask, How, JobSpec, Placement
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.errors import ExitCode, VgpudError
from vgpud.simulate.scaling import Curve

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
#: a century: no trace is longer, and sums of such times are exact wherever they are shown
SECONDS_MAX = 100 * 366 * 86_400
GPUS_MAX = 1_000_000
#: digits of seconds since 1970, and of ns
_PLAIN_DIGITS, _NS_DIGITS = 10, 9


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


class LeftOut(enum.Enum):
    """Why a job of a trace is not replayed, in words that follow a number."""

    WITHOUT_GPUS = "had no GPU"
    NEVER_RAN = "never ran"
    WITHOUT_END = "had no time of end"
    NO_JOB = "are no jobs"
    PART = "are parts of a job that has its own line"


@dataclass(slots=True)
class Trace:
    """The jobs of a file in the order of their submission, the first at time 0, and what else it says."""

    jobs: list[TraceJob]
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    gpus: int = 0  # of the cluster that it was recorded on; 0 = the file does not say


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file. Every refusal names the line, the column and the value."""

    where: str
    values: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)  # those that the file calls otherwise; "" = it has none

    def name(self, column: str) -> str:
        """As the file calls it."""
        return self.columns.get(column, column)

    def text(self, column: str) -> str:
        """ "" where the row has no such column."""
        name = self.name(column)
        return (self.values.get(name) or "").strip() if name else ""

    def number(self, column: str, maximum: int = SECONDS_MAX, syntax: str = "a number") -> Decimal:
        """A number from 0 to `maximum`."""
        text = self.text(column)
        try:
            value = Decimal("NaN" if "_" in text else text)  # a number in Python only
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite():
            raise TraceError(f"{self.where}: {self.name(column)} is {text!r}: it must be {syntax}")
        if value < 0:
            raise TraceError(f"{self.where}: {self.name(column)} is {text}: it must not be negative")
        if value > maximum:
            raise TraceError(f"{self.where}: {self.name(column)} is {text}: it must be at most {maximum}")
        return value

    def ns(self, column: str, syntax: str = "a number") -> int:
        """Seconds as ns; `syntax`: what a text must be, for the refusal of another."""
        whole, _, part = self.text(column).partition(".")
        if _is_plain(whole, _PLAIN_DIGITS) and int(whole) < SECONDS_MAX:  # as nearly all are: faster than decimals
            if not part:
                return int(whole) * SECOND_NS
            if _is_plain(part, _NS_DIGITS):
                return int(whole) * SECOND_NS + int(part.ljust(_NS_DIGITS, "0"))
        return int(self.number(column, syntax=syntax) * SECOND_NS)

    def whole_number(self, column: str, maximum: int = GPUS_MAX) -> int:
        """A whole number from 0 to `maximum`."""
        text = self.text(column)
        if _is_plain(text, _PLAIN_DIGITS) and int(text) <= maximum:
            return int(text)
        value = self.number(column, maximum)
        if value != int(value):
            raise TraceError(f"{self.where}: {self.name(column)} is {self.text(column)}: it must be a whole number")
        return int(value)

    def positive(self, column: str, maximum: int = GPUS_MAX) -> int:
        """A whole number from 1 to `maximum`."""
        value = self.whole_number(column, maximum)
        if not value:
            raise TraceError(f"{self.where}: {self.name(column)} is 0: it must be 1 or more")
        return value

    def date_ns(self, column: str) -> int:
        """ns since 1970 of a date and a time, UTC where it names no zone."""
        text = self.text(column)
        try:
            at = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError as error:
            example = "write for example 2017-10-09 04:20:51"
            raise TraceError(f"{self.where}: {self.name(column)} is {text!r}: {example}") from error
        since = at.replace(tzinfo=at.tzinfo or datetime.timezone.utc) - EPOCH
        if since < datetime.timedelta():
            raise TraceError(f"{self.where}: {self.name(column)} is {text}: before 1970")
        return since // datetime.timedelta(microseconds=1) * 1000

    def moment_ns(self, column: str) -> int:
        """ns of a date and a time, or of seconds since whatever the trace counts from."""
        if "-" in self.text(column)[1:]:
            return self.date_ns(column)
        return self.ns(column, syntax="seconds, or a date such as 2026-11-01 08:00")


def _is_plain(text: str, digits_max: int) -> bool:
    """Whether it is a few digits and nothing else."""
    return len(text) <= digits_max and text.isascii() and text.isdigit()


#: of all jobs of whole GPUs: a trace has millions
_ONE_GPU = Ask(Spec(MILLI_PER_DEVICE))


def whole_gpus(count: int) -> tuple[Ask, int]:
    """N GPUs of a distributed job: as many members of one GPU each, so that the placement may divide them."""
    return _ONE_GPU, count


def divide_among_nodes(milli: int, nodes: int, least_milli: int = MILLI_PER_DEVICE) -> tuple[int, int, bool]:
    """(milli of a member, members, whether each is on another node) of what a job had on so many nodes together. Where
    these had unequal parts: single GPUs, wherever there are any. `least_milli`: what a part is a multiple of."""
    if milli % (nodes * least_milli):
        return MILLI_PER_DEVICE, -(-milli // MILLI_PER_DEVICE), False
    return milli // nodes, nodes, nodes > 1


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
    for job in found:
        longest_ns = max(job.submitted_ns - first_ns, job.duration_ns)
        if longest_ns > SECONDS_MAX * SECOND_NS:
            text = f"{job.where}: {_s(longest_ns)} s after the first job, or as its duration, are out of range"
            raise TraceError(f"{text}: at most {SECONDS_MAX} s")
    return [replace(job, submitted_ns=job.submitted_ns - first_ns) for job in found] if first_ns else found


def _s(ns: int) -> str:
    return f"{Decimal(ns) / SECOND_NS:f}".rstrip("0").rstrip(".") if ns % SECOND_NS else str(ns // SECOND_NS)
