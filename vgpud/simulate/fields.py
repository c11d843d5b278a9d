"""Traces in columns of any names: which column has what. Acme's and Helios' logs are two such lists of names."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace
from decimal import Decimal

from vgpud.core.jobs.model import DEFAULT_QUEUE, Ask, Elastic, JobSpec
from vgpud.core.model import Spec
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.models import skew_ppm
from vgpud.simulate.scaling import LINEAR
from vgpud.simulate.trace import GPUS_MAX, LeftOut, Row, TraceError, TraceJob, divide_among_nodes, whole_gpus

#: what a trace must say of each job: one of each group
NEEDED = (("num_gpu",), ("submit_time",), ("duration", "end_time"))
FIELDS = (
    *("num_gpu", "submit_time", "duration", "start_time", "end_time"),
    *("job_id", "user", "uid", "queue", "model", "nodes", "skew", "min_gpu", "max_gpu"),
)
#: what other traces call them: for a command that is suggested
_SYNONYMS = {
    "num_gpu": ("gpu_num", "num_gpus", "gpus", "gpu_count", "ngpus", "plan_gpu", "gpu"),
    "submit_time": ("submitted", "submit", "submission_time", "arrival_time", "arrival", "created", "timestamp"),
    "duration": ("runtime", "run_time", "elapsed", "duration_s", "service_time", "jct"),
}
_LIKENESS = 0.6

#: a job's queueing time is in Acme's and Helios' column `queue`. In one of Acme's two logs `duration` counts from the
#: submission, other than its documentation says: its times of start and end are right in both
HELIOS = {"num_gpu": "gpu_num", "nodes": "node_num", "queue": "vc"}
ACME = {"num_gpu": "gpu_num", "nodes": "node_num", "queue": "", "model": "type", "duration": ""}


def parse_columns(text: str) -> dict[str, str]:
    """The column of each field, of `num_gpu=GPUs,user=owner`. Raises ValueError with one line."""
    found: dict[str, str] = {}
    for item in text.split(","):
        field, equals, column = (part.strip() for part in item.partition("="))
        if not equals or not column:
            raise ValueError(f"{item.strip()!r} is not FIELD=COLUMN: write for example num_gpu=GPUs,user=owner")
        if field not in FIELDS:
            near = difflib.get_close_matches(field, FIELDS, 1, _LIKENESS)
            raise ValueError(f"no field {field!r}: {f'did you mean {near[0]}?' if near else _among(FIELDS)}")
        if field in found:
            raise ValueError(f"{field} is there twice: name one column")
        found[field] = column
    return found


def _among(names: Collection[str]) -> str:
    return f"there are {', '.join(names)}"


def check_columns(path: object, columns: Mapping[str, str], header: Collection[str]) -> None:
    """Raises TraceError where a column does not exist, or where something that is needed has none."""
    for field, column in columns.items():
        if column not in header:
            near = difflib.get_close_matches(column, header, 1, _LIKENESS)
            fix = f"did you mean {near[0]}?" if near else _among(sorted(header))
            raise TraceError(f"{path}: no column {column!r}, which --columns names for {field}: {fix}")
    for group in NEEDED:
        if not any(columns.get(field, field) in header for field in group):
            fix = f"add {' or '.join(f'{field}=COLUMN' for field in group)} to --columns"
            raise TraceError(f"{path}: no column for {' or '.join(group)}: {fix} ({_among(sorted(header))})")


def suggest_columns(header: Collection[str]) -> str:
    """The option that would make this file a trace; COLUMN where no name is like what is needed."""
    words = []
    for field, *_ in NEEDED:
        exact = [column for column in header if column.lower() in (field, *_SYNONYMS[field])]
        near = exact or difflib.get_close_matches(field, header, 1, _LIKENESS)
        words.append(f"{field}={near[0] if near else 'COLUMN'}")
    return f"--columns {','.join(words)}"


class FieldReader:
    """Makes jobs of rows, which know their columns' names. Users are numbered in the order in which they come."""

    def __init__(self) -> None:
        self._uids: dict[str, int] = {}

    def read(self, row: Row) -> TraceJob | LeftOut:
        gpus = row.number("num_gpu", GPUS_MAX) if row.text("num_gpu") else Decimal(0)
        if not gpus:
            return LeftOut.WITHOUT_GPUS
        submitted_ns, duration_ns = row.moment_ns("submit_time"), _duration_ns(row)
        if isinstance(duration_ns, LeftOut):
            return duration_ns
        ask, members, one_per_node = _size(row, gpus)
        spec = JobSpec(
            ask,
            members,
            one_per_node=one_per_node,
            name=row.text("job_id"),
            queue=row.text("queue") or DEFAULT_QUEUE,
            uid=row.whole_number("uid", 1 << 32) if row.text("uid") else self._number_user(row.text("user")),
            duration_ns=duration_ns,
            model=row.text("model"),
            skew_ppm=read_skew_ppm(row, row.text("model")),
        )
        jct_ns = -1
        if row.text("end_time"):
            jct_ns = max(row.moment_ns("end_time") - submitted_ns, duration_ns)
        return add_elasticity(TraceJob(submitted_ns, duration_ns, spec, row.where, jct_ns=jct_ns), row)

    def _number_user(self, name: str) -> int:
        """From 1 on; 0 where the trace names none."""
        return self._uids.setdefault(name, len(self._uids) + 1) if name else 0


def _duration_ns(row: Row) -> int | LeftOut:
    """As it is said, else from its start to its end."""
    if row.text("duration"):
        return row.ns("duration") or LeftOut.NEVER_RAN
    if not row.text("start_time"):
        return LeftOut.NEVER_RAN
    if not row.text("end_time"):
        return LeftOut.WITHOUT_END
    duration_ns = row.moment_ns("end_time") - row.moment_ns("start_time")
    if duration_ns < 0:
        raise TraceError(f"{row.where}: {row.name('end_time')} is before {row.name('start_time')}")
    return duration_ns or LeftOut.NEVER_RAN


def _size(row: Row, gpus: Decimal) -> tuple[Ask, int, bool]:
    """What a member asks for, members, whether each is on another node."""
    if gpus < 1:
        milli = int(gpus * MILLI_PER_DEVICE)
        if not milli:
            raise TraceError(f"{row.where}: {row.name('num_gpu')} is {gpus}: the least is 0.001")
        return Ask(Spec(milli)), 1, False
    count = row.positive("num_gpu")
    if not row.text("nodes"):
        return *whole_gpus(count), False
    milli, members, one_per_node = divide_among_nodes(count * MILLI_PER_DEVICE, row.positive("nodes"))
    return Ask(Spec(milli)), members, one_per_node


def add_elasticity(job: TraceJob, row: Row) -> TraceJob:
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


def read_skew_ppm(row: Row, model: str) -> int:
    """As the trace says it, a part from 0 to 1; else as the model's architecture has it."""
    if row.text("skew"):
        return int(row.number("skew", 1) * 1_000_000)
    return skew_ppm(model)
