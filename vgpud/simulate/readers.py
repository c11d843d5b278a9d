"""Reading traces: Tiresias and Muri, Philly, Alibaba's openb, and what `vgpu usage` exports; the header shows which.

An invalid row is refused with its line; nothing is skipped silently.
"""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import SECOND_NS, Ask, Elastic, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.models import skew_ppm
from vgpud.simulate.scaling import LINEAR
from vgpud.simulate.trace import GPUS_MAX, Row, TraceError, TraceJob, order_jobs, whole_gpus
from vgpud.userfiles.bounded import FileError, read_text

MIB = 1 << 20
FILE_BYTES_MAX = 512 * MIB
COLUMNS_MAX = 1000
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file: the columns that it must have, and how a row becomes a job (None: it never ran)."""

    name: str
    columns: frozenset[str]
    read: Callable[[Row], TraceJob | None]


def read(path: Path, sort: bool = False) -> list[TraceJob]:
    """The jobs of a trace, the first at time 0. Raises TraceError."""
    text = _text(path)
    rows = _from_json(path, text) if text[:1] in ("{", "[") else _from_csv(path, io.StringIO(text, newline=""))
    columns = next(rows)
    kind = _format(path, columns)
    jobs = [job for row in rows if (job := kind.read(row))]
    if not jobs:
        raise TraceError(f"{path} has no job that ran")
    return order_jobs(jobs, sort)


def table(path: Path) -> tuple[set[str], list[Row]]:
    """The columns and rows of a CSV file. Raises TraceError."""
    rows = _from_csv(path, io.StringIO(_text(path), newline=""))
    return next(rows), list(rows)


def _text(path: Path) -> str:
    try:
        return read_text(path, FILE_BYTES_MAX, "utf-8-sig")
    except FileError as error:
        raise TraceError(str(error)) from error


def numbers(path: str) -> list[Fraction]:
    """The numbers of a table with the one column `duration`, as Tiresias has them for Gittins. Raises TraceError."""
    columns, rows = table(Path(path))
    if columns != {"duration"}:
        raise TraceError(f"{path}: a table of durations has one column, duration, not {', '.join(sorted(columns))}")
    return [Fraction(row.number("duration")) for row in rows]


def _from_csv(path: Path, file: Iterable[str]) -> Iterator[Any]:
    """First the set of columns, then the rows."""
    reader = csv.reader(file)
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(header) > COLUMNS_MAX:
            raise TraceError(f"{path}:1: {len(header)} columns: {COLUMNS_MAX} is the limit")
        twice = next((name for name in header if name and header.count(name) > 1), "")
        if twice:
            raise TraceError(f"{path}:1: column {twice} appears twice: remove one")
        yield set(header)
        for values in reader:
            if not values:
                continue
            where = f"{path}:{reader.line_num}"
            if len(values) != len(header):
                raise TraceError(f"{where}: {len(values)} values where the header has {len(header)} columns")
            yield Row(where, dict(zip(header, values, strict=True)))
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error


def _from_json(path: Path, text: str) -> Iterator[Any]:
    """The same of a list of objects, alone or under "jobs" or "usage"; slices that are no jobs' are passed over."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not JSON: {error}") from error
    if isinstance(data, dict):
        data = next((data[key] for key in ("jobs", "usage") if key in data), None)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise TraceError(f'{path} has no list of jobs: write [{{"job_id": ...}}, ...] or {{"jobs": [...]}}')
    items = [(number, _in_seconds(item)) for number, item in enumerate(data, 1) if "slice" not in item]
    yield set(items[0][1]) if items else set()
    for number, item in items:
        yield Row(f"{path}: job {number}", {key: "" if value is None else str(value) for key, value in item.items()})


def _in_seconds(item: Mapping[str, Any]) -> dict[str, Any]:
    """What `vgpu usage --by job -o json` shows, with the columns of its csv."""
    found = dict(item)
    try:
        if item.get("submit_time"):
            found["submitted_s"] = datetime.datetime.fromisoformat(
                item["submit_time"].replace("Z", "+00:00")
            ).timestamp()
    except (AttributeError, ValueError):
        found["submitted_s"] = item["submit_time"]  # refused with its row
    if isinstance(item.get("run_duration_ns"), int):
        found["duration_s"] = Decimal(item["run_duration_ns"]) / SECOND_NS
    return found


def _format(path: Path, columns: set[str]) -> Format:
    """The format of which most columns are there; all must be."""
    best = max(FORMATS, key=lambda kind: (len(kind.columns & columns), -len(kind.columns)))
    missing = sorted(best.columns - columns)
    if missing:
        known = "; ".join(f"{kind.name}: {', '.join(sorted(kind.columns))}" for kind in FORMATS)
        near = (
            f"columns missing for {best.name}: {', '.join(missing)}" if best.columns & columns else "no known columns"
        )
        raise TraceError(f"{path}: {near} (formats: {known})")
    return best


def _tiresias(row: Row) -> TraceJob:
    ask, members = whole_gpus(row.positive("num_gpu"))
    spec = JobSpec(
        ask,
        members,
        name=row.text("job_id"),
        duration_ns=row.ns("duration"),
        model=row.text("model_name"),
        skew_ppm=_skew_ppm(row),
    )
    return _elastic(TraceJob(row.ns("submit_time"), spec.duration_ns, spec, row.where), row)


def _elastic(job: TraceJob, row: Row) -> TraceJob:
    """Of a row that says how few GPUs would do and how many it could use: as fast as it has GPUs."""
    if not row.text("min_gpu") and not row.text("max_gpu"):
        return job
    asked = job.spec.members
    least = row.positive("min_gpu") if row.text("min_gpu") else asked
    most = row.positive("max_gpu") if row.text("max_gpu") else asked
    if not least <= asked <= most:
        raise TraceError(f"{row.where}: min_gpu {least}, num_gpu {asked}, max_gpu {most}: must be in ascending order")
    spec = replace(job.spec, members=least, elastic=Elastic(least_members=least, most_members=most))
    return replace(job, spec=spec, scaling=LINEAR, scaled_from=asked)


def _skew_ppm(row: Row) -> int:
    """As the trace says it, a part from 0 to 1; else as its model's architecture has it."""
    if row.text("skew"):
        return int(row.number("skew", 1) * 1_000_000)
    return skew_ppm(row.text("model_name"))


def _read_philly(row: Row) -> TraceJob:
    ask, members = whole_gpus(row.positive("num_gpus"))
    try:
        at = datetime.datetime.fromisoformat(row.text("timestamp"))
    except ValueError as error:
        text = row.text("timestamp")
        raise TraceError(f"{row.where}: timestamp is {text!r}: write for example 2017-10-09 04:20:51") from error
    since = at.replace(tzinfo=at.tzinfo or datetime.timezone.utc) - EPOCH
    if since < datetime.timedelta():
        raise TraceError(f"{row.where}: timestamp is {row.text('timestamp')}: before 1970")
    spec = JobSpec(ask, members, name=row.where.rpartition(":")[2], duration_ns=row.ns("duration"))
    at_ns = since // datetime.timedelta(microseconds=1) * 1000
    return _elastic(TraceJob(at_ns, spec.duration_ns, spec, row.where), row)


def _openb(row: Row) -> TraceJob:
    """`memory_mib` is the host's: openb has no memory of devices. A pod's devices are on one node."""
    count, milli = row.whole_number("num_gpu"), row.whole_number("gpu_milli", MILLI_PER_DEVICE)
    begin = "scheduled_time" if row.text("scheduled_time") else "creation_time"
    duration_ns = row.ns("deletion_time") - row.ns(begin)
    if duration_ns < 0:
        raise TraceError(f"{row.where}: deletion_time is before {begin}")
    ask = Ask(
        Spec(milli if count == 1 else count * MILLI_PER_DEVICE),
        cpu_milli=row.whole_number("cpu_milli", 10**9) if row.text("cpu_milli") else 0,
        ram_bytes=row.whole_number("memory_mib", 10**9) * MIB if row.text("memory_mib") else 0,
        gpu_models=tuple(name for name in row.text("gpu_spec").split("|") if name),
    )
    spec = JobSpec(ask, name=row.text("name"), duration_ns=duration_ns)
    return TraceJob(row.ns("creation_time"), spec.duration_ns, spec, row.where, milli)


def _usage(row: Row) -> TraceJob | None:
    """Jobs that have not run are left out, and slices that are no jobs'; one that runs still counts as long as it has
    run so far."""
    if not row.text("job_id"):
        return None
    duration_ns = row.ns("duration_s")
    if not duration_ns:
        return None
    spec = JobSpec(
        Ask(Spec(row.whole_number("gpus_milli", GPUS_MAX * MILLI_PER_DEVICE))),
        row.positive("members"),
        name=row.text("job_id"),
        queue=row.text("queue"),
        uid=row.whole_number("uid", 1 << 32),
        duration_ns=duration_ns,
    )
    return TraceJob(row.ns("submitted_s"), spec.duration_ns, spec, row.where, _used_milli(row, spec))


def _used_milli(row: Row, spec: JobSpec) -> int:
    """Utilisation of its devices as measured, where the export says what it used."""
    if not row.text("gpu_seconds_used"):
        return -1
    used_ns = int(row.number("gpu_seconds_used", 10**18) * SECOND_NS)
    devices = max(1, -(-spec.width_milli // MILLI_PER_DEVICE))
    return min(MILLI_PER_DEVICE, int(Decimal(used_ns * MILLI_PER_DEVICE) / (spec.duration_ns * devices)))


FORMATS = (
    Format("Tiresias and Muri", frozenset({"num_gpu", "submit_time", "duration"}), _tiresias),
    Format("Philly", frozenset({"timestamp", "num_gpus", "duration"}), _read_philly),
    Format("openb", frozenset({"num_gpu", "gpu_milli", "creation_time", "deletion_time"}), _openb),
    Format(
        "vgpu usage",
        frozenset({"job_id", "queue", "uid", "submitted_s", "gpus_milli", "members", "duration_s"}),
        _usage,
    ),
)
