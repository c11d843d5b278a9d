"""Reading traces: the file itself shows what it is, by its header or its first line.

CSV: Tiresias and Muri, Philly, Alibaba's openb, what `vgpu usage` exports, Helios, Acme, or any with --columns. Others:
SWF, pods of Kubernetes, Philly's own log. An invalid row is refused with its line; nothing is skipped silently.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate import fields, philly_log, pods, swf
from vgpud.simulate.trace import GPUS_MAX, LeftOut, Row, Trace, TraceError, TraceJob, order_jobs, whole_gpus
from vgpud.userfiles.bounded import FileError, open_text

MIB = 1 << 20
FILE_BYTES_MAX = 512 * MIB
COLUMNS_MAX = 1000
#: how other files begin, and the command that writes or reads one that is a trace
_OTHERS = {
    "apiVersion:": f"write it with `{pods.COMMAND}`",
    "NAMESPACE ": f"write it with `{pods.COMMAND}`",
    "NAME ": f"write it with `{pods.COMMAND}`",
}


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of file: the columns that it must have, and how a row becomes a job; None: by the names of `fields`."""

    name: str
    columns: frozenset[str]
    read: Callable[[Row], TraceJob | LeftOut] | None = None
    renames: Mapping[str, str] = field(default_factory=dict)


def read(path: Path, sort: bool = False) -> list[TraceJob]:
    """The jobs of a trace, the first at time 0. Raises TraceError."""
    return read_trace(path, sort).jobs


def read_trace(path: Path, sort: bool = False, columns: Mapping[str, str] | None = None) -> Trace:
    """The same with what else the file says. `columns`: which column has what (fields.parse_columns), of a CSV file
    that is no known trace. Raises TraceError."""
    try:
        with open_text(path, FILE_BYTES_MAX, "utf-8-sig") as file:
            first = file.readline()
            trace = _read(path, first, itertools.chain([first], file), sort, columns)
    except FileError as error:
        raise TraceError(str(error)) from error
    if not trace.jobs:
        raise TraceError(f"{path} has no job that ran{': ' if trace.left_out else ''}{describe_left_out(trace)}")
    return trace


def describe_left_out(trace: Trace) -> str:
    """The jobs that are not replayed, by reason; "" where there are none."""
    return ", ".join(f"{count} {reason.value}" for reason, count in trace.left_out.items())


def _read(path: Path, first: str, lines: Iterable[str], sort: bool, columns: Mapping[str, str] | None) -> Trace:
    if columns is None and first[:1] in ("{", "["):
        data = _parse_json(path, "".join(lines))
        if pods.is_list(data):
            return pods.read(path, data)
        if philly_log.is_log(data):
            return philly_log.read(path, data, sort)
        header, rows = _rows_of_json(path, data)
        return _collect(_find_format(path, header), lambda _renames: rows, sort)
    if columns is None and (swf.is_header(first) or path.suffix == swf.SUFFIX):
        return swf.read(path, lines, sort)
    reader = csv.reader(lines)
    names = _read_header(path, reader)
    if columns is None:
        kind = _find_format(path, names, first)
    else:
        fields.check_columns(path, columns, names)
        kind = Format("--columns", frozenset(), renames=columns)
    return _collect(kind, lambda renames: _read_rows(path, reader, names, renames), sort)


def _collect(kind: Format, rows: Callable[[Mapping[str, str]], Iterable[Row]], sort: bool) -> Trace:
    """The jobs of rows that know their columns."""
    make, left_out, jobs = kind.read or fields.FieldReader().read, Counter[LeftOut](), []
    for row in rows(kind.renames):
        job = make(row)
        if isinstance(job, LeftOut):
            left_out[job] += 1
        else:
            jobs.append(job)
    return Trace(order_jobs(jobs, sort), left_out)


def table(path: Path) -> tuple[set[str], list[Row]]:
    """The columns and rows of a CSV file. Raises TraceError."""
    try:
        with open_text(path, FILE_BYTES_MAX, "utf-8-sig") as file:
            reader = csv.reader(file)
            names = _read_header(path, reader)
            return set(names), list(_read_rows(path, reader, names, {}))
    except FileError as error:
        raise TraceError(str(error)) from error


def numbers(path: str) -> list[Fraction]:
    """The numbers of a table with the one column `duration`, as Tiresias has them for Gittins. Raises TraceError."""
    columns, rows = table(Path(path))
    if columns != {"duration"}:
        raise TraceError(f"{path}: a table of durations has one column, duration, not {', '.join(sorted(columns))}")
    return [Fraction(row.number("duration")) for row in rows]


def _read_header(path: Path, reader: Any) -> list[str]:
    """The names of the columns. `reader`: of the module csv."""
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error
    if len(header) > COLUMNS_MAX:
        raise TraceError(f"{path}:1: {len(header)} columns: {COLUMNS_MAX} is the limit")
    twice = next((name for name in header if name and header.count(name) > 1), "")
    if twice:
        raise TraceError(f"{path}:1: column {twice} appears twice: remove one")
    return header


def _read_rows(path: Path, reader: Any, header: list[str], renames: Mapping[str, str]) -> Iterator[Row]:
    try:
        for values in reader:
            if not values:
                continue
            where = f"{path}:{reader.line_num}"
            if len(values) != len(header):
                raise TraceError(f"{where}: {len(values)} values where the header has {len(header)} columns")
            yield Row(where, dict(zip(header, values, strict=True)), renames)
    except csv.Error as error:
        raise TraceError(f"{path}:{reader.line_num}: {error}") from error


def _parse_json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not JSON: {error}") from error


def _rows_of_json(path: Path, data: Any) -> tuple[set[str], list[Row]]:
    """The columns and rows of a list of objects, alone or under "jobs" or "usage"; slices that are no jobs' are passed
    over."""
    if isinstance(data, dict) and "apiVersion" in data:
        raise TraceError(f"{path} is no list of pods: write it with `{pods.COMMAND}`")
    if isinstance(data, dict):
        data = next((data[key] for key in ("jobs", "usage") if key in data), None)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise TraceError(f'{path} has no list of jobs: write [{{"job_id": ...}}, ...] or {{"jobs": [...]}}')
    items = [(number, _in_seconds(item)) for number, item in enumerate(data, 1) if "slice" not in item]
    rows = [
        Row(f"{path}: job {number}", {key: "" if value is None else str(value) for key, value in item.items()})
        for number, item in items
    ]
    return set(items[0][1]) if items else set(), rows


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


def _find_format(path: Path, header: Iterable[str], first: str = "") -> Format:
    """The format of which most columns are there; all must be. `first`: the first line."""
    columns = set(header)
    best = max(FORMATS, key=lambda kind: (len(kind.columns & columns), -len(kind.columns)))
    missing = sorted(best.columns - columns)
    if not missing:
        return best
    if "JobID" in first:
        raise TraceError(f"{path} is from sacct: use --from-slurm {path} instead of --trace")
    fix = next((fix for begin, fix in _OTHERS.items() if first.startswith(begin)), "")
    if fix:
        raise TraceError(f"{path} is no trace: {fix}")
    near = f"columns missing for {best.name}: {', '.join(missing)}" if best.columns & columns else "no known columns"
    known = "; ".join(f"{kind.name}: {', '.join(sorted(kind.columns))}" for kind in FORMATS)
    raise TraceError(f"{path}: {near}: name them with {fields.suggest_columns(columns)} (formats: {known})")


def _tiresias(row: Row) -> TraceJob:
    ask, members = whole_gpus(row.positive("num_gpu"))
    spec = JobSpec(
        ask,
        members,
        name=row.text("job_id"),
        duration_ns=row.ns("duration"),
        model=row.text("model_name"),
        skew_ppm=fields.read_skew_ppm(row, row.text("model_name")),
    )
    return fields.add_elasticity(TraceJob(row.ns("submit_time"), spec.duration_ns, spec, row.where), row)


def _read_philly(row: Row) -> TraceJob:
    ask, members = whole_gpus(row.positive("num_gpus"))
    spec = JobSpec(ask, members, name=row.where.rpartition(":")[2], duration_ns=row.ns("duration"))
    return fields.add_elasticity(TraceJob(row.date_ns("timestamp"), spec.duration_ns, spec, row.where), row)


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


def _usage(row: Row) -> TraceJob | LeftOut:
    """Jobs that have not run are left out, and slices that are no jobs'; one that runs still counts as long as it has
    run so far."""
    if not row.text("job_id"):
        return LeftOut.NO_JOB
    duration_ns = row.ns("duration_s")
    if not duration_ns:
        return LeftOut.NEVER_RAN
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
    Format("Helios", frozenset({"vc", "gpu_num", "node_num", "submit_time", "end_time"}), renames=fields.HELIOS),
    Format("Acme", frozenset({"type", "gpu_num", "node_num", "submit_time", "end_time"}), renames=fields.ACME),
)
