"""Traces in the Standard Workload Format of the Parallel Workloads Archive, version 2.2: one processor is one GPU.

A line of 18 numbers for each job; what is not known is -1. Lines with a semicolon are comments, of which some describe
the machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from vgpud.core.jobs.model import DEFAULT_QUEUE, JobSpec
from vgpud.simulate.trace import LeftOut, Row, Trace, TraceError, TraceJob, order_jobs, whole_gpus

#: in the order of a line
COLUMNS = (
    *("job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory"),
    *("requested processors", "requested time", "requested memory", "status", "user", "group", "executable"),
    *("queue", "partition", "preceding job", "think time"),
)
COMMENT = ";"
#: of a file that is in that format whatever its first line
SUFFIX = ".swf"
#: of a job that was swapped out: it has a line for each part beside its own
_PARTS = ("2", "3", "4")
_UNKNOWN = re.compile(r"-1(\.0*)?")
_NUMBER = re.compile(r"-?[0-9.]+")
_PROCESSORS = re.compile(r";\s*MaxProcs:\s*([0-9]{1,9})\b")


def is_header(line: str) -> bool:
    """Whether a file that begins with this line is in that format."""
    words = line.split()
    return line.startswith(COMMENT) or (len(words) == len(COLUMNS) and all(map(_NUMBER.fullmatch, words)))


def read(path: Path, lines: Iterable[str], sort: bool) -> Trace:
    """Raises TraceError that names the line."""
    left_out, jobs, gpus = Counter[LeftOut](), [], 0
    for row in _rows(path, lines):
        if isinstance(row, int):
            gpus = row
            continue
        job = _job(row)
        if isinstance(job, LeftOut):
            left_out[job] += 1
        else:
            jobs.append(job)
    return Trace(order_jobs(jobs, sort), left_out, gpus)


def _rows(path: Path, lines: Iterable[str]) -> Iterator[Row | int]:
    """The rows, and the number of processors where a comment says it."""
    for number, line in enumerate(lines, 1):
        if line.startswith(COMMENT):
            if said := _PROCESSORS.match(line):
                yield int(said[1])
            continue
        values = line.split()
        if values and len(values) != len(COLUMNS):
            raise TraceError(f"{path}:{number}: {len(values)} values where a line of SWF has {len(COLUMNS)}")
        if values:
            yield Row(f"{path}:{number}", dict(zip(COLUMNS, values, strict=True)))


def _job(row: Row) -> TraceJob | LeftOut:
    if row.text("status") in _PARTS:
        return LeftOut.PART
    run_ns = _ns(row, "run time")
    if not run_ns:
        return LeftOut.NEVER_RAN
    column = next((name for name in ("allocated processors", "requested processors") if _is_known(row, name)), "")
    if not column or not row.whole_number(column):
        return LeftOut.WITHOUT_GPUS
    ask, members = whole_gpus(row.positive(column))
    spec = JobSpec(
        ask,
        members,
        name=row.text("job number"),
        queue=row.text("queue") if _is_known(row, "queue") else DEFAULT_QUEUE,
        uid=row.whole_number("user", 1 << 32) if _is_known(row, "user") else 0,
        duration_ns=_ns(row, "requested time") or run_ns,
        model=row.text("executable") if _is_known(row, "executable") else "",
    )
    jct_ns = _ns(row, "wait time") + run_ns if _is_known(row, "wait time") else -1
    return TraceJob(row.ns("submit time"), run_ns, spec, row.where, jct_ns=jct_ns)


def _is_known(row: Row, column: str) -> bool:
    return not _UNKNOWN.fullmatch(row.text(column))


def _ns(row: Row, column: str) -> int:
    """0 where it is not known."""
    return row.ns(column) if _is_known(row, column) else 0
