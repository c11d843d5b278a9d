"""Usage as lines of CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpud.view.slices import View

#: columns that the simulator reads (`vgpu whatif --trace`), and the GPU time
_JOB_COLUMNS = ("job_id", "queue", "uid", "submitted_s", "started_s", "ended_s", "gpus_milli", "members", "duration_s")
_SUM_COLUMNS = ("queue", "uid", "jobs")
POD_COLUMNS = ("namespace", "pod")
_AMOUNTS = ("gpu_seconds_asked", "gpu_seconds_granted", "gpu_seconds_used")
#: at the end: who reads by place finds the others where they were
_COPIES = ("copy_to_device_bytes", "copy_from_device_bytes")


def csv_rows(rows: Sequence[View], by: str) -> Iterator[Sequence[object]]:
    """The header and the lines of a report. Slices that are no jobs' (of containers, of `vgpu run`) have a state of
    their own and no number: `vgpu whatif` passes over them, since they were not queued."""
    sums = POD_COLUMNS if by in POD_COLUMNS else _SUM_COLUMNS
    columns = (*_JOB_COLUMNS, "state", *_AMOUNTS, "slice") if by == "job" else (*sums, *_AMOUNTS)
    columns += _COPIES
    yield columns
    for row in rows:
        of_slice = {"state": "slice"} if by == "job" and "job_id" not in row else {}
        flat = {**row, **_seconds(row), **of_slice}
        yield ["" if flat.get(name) is None else flat[name] for name in columns]


def _seconds(row: View) -> View:
    """The times of a job in seconds since 1970, if set."""
    from vgpud.view.slice_tables import parse_time

    found: View = {}
    for field, column in (("submit_time", "submitted_s"), ("start_time", "started_s"), ("end_time", "ended_s")):
        stamp = row.get(field)
        found[column] = f"{parse_time(stamp).timestamp():.6f}" if stamp else None
    if "run_duration_ns" in row:
        found["duration_s"] = f"{row['run_duration_ns'] / 1e9:.6f}"
    return found
